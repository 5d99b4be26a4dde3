//! Retention of outputs on agents' disks: which are unused, and which may be deleted.

use super::Graphs;
use super::reports::{AgentIdentity, authenticate_agent};
use tidemill_core::Timestamp;
use tidemill_core::limits::RETENTION_JOBS_MAX;
use tidemill_store::{Error, RefusalCode};

/// Answer to an agent about the outputs on its disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputRetention {
    /// Jobs whose outputs no live run needs, each with the seconds since the last run that needed them ended; `None`
    /// if no such run is on record.
    pub unused: Vec<(String, Option<u64>)>,
    /// The subset of the candidates that the agent may delete. No job is placed on the agent for their sake any more.
    pub deletable: Vec<String>,
}

impl Graphs {
    /// Tells an agent which of its outputs are still needed, by job, and releases those it wants to delete. Idempotent.
    pub async fn check_retention(
        &self,
        who: &AgentIdentity,
        keeps: &[String],
        removes: &[String],
    ) -> Result<OutputRetention, Error> {
        if keeps.len().max(removes.len()) > RETENTION_JOBS_MAX {
            let message = format!("at most {RETENTION_JOBS_MAX} jobs are allowed in one retention request");
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        let (who, now, keeps, removes) = (*who, self.now(), keeps.to_vec(), removes.to_vec());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    authenticate_agent(&mut tx, &who).await?;
                    let mut retention = OutputRetention::default();
                    if !removes.is_empty() {
                        retention.deletable = tx.release_outputs(who.agent_id, removes).await?;
                    }
                    if !keeps.is_empty() {
                        let now = tx.database_now(now).await?;
                        let uses = tx.output_uses(who.agent_id, keeps).await?;
                        let idle = |at: Timestamp| u64::try_from((now - at).num_seconds()).unwrap_or(0);
                        let unused = uses.into_iter().filter(|it| !it.needed);
                        retention.unused = unused.map(|it| (it.job_id, it.used_at.map(idle))).collect();
                    }
                    Ok(retention)
                })
            })
            .await
    }
}
