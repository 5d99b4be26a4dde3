//! What agents keep of what jobs left, and what of it may go.

use super::Graphs;
use super::reports::{Speaker, speaks};
use tidemill_core::Timestamp;
use tidemill_core::limits::KEPT_MAX;
use tidemill_store::{Error, RefusalCode};

/// What an agent learns about what it keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Of what it keeps: what no run that goes on needs, each with the seconds since the last one ended that did; none,
    /// where no run is on record that has to do with it.
    pub unused: Vec<(String, Option<u64>)>,
    /// Of what it would remove: what it may. Nobody is sent to it for that any more.
    pub gone: Vec<String>,
}

impl Graphs {
    /// Tells an agent who needs what it keeps, by the jobs that left it, and lets it remove some of it. Asked twice, it
    /// is answered the same.
    pub async fn kept(&self, who: &Speaker, keeps: &[String], removes: &[String]) -> Result<Kept, Error> {
        if keeps.len().max(removes.len()) > KEPT_MAX {
            let message = format!("an agent asks about at most {KEPT_MAX} jobs at a time");
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        let (who, now, keeps, removes) = (*who, self.now(), keeps.to_vec(), removes.to_vec());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    speaks(&mut tx, &who).await?;
                    let mut kept = Kept::default();
                    if !removes.is_empty() {
                        kept.gone = tx.let_outputs_go(who.agent_id, removes).await?;
                    }
                    if !keeps.is_empty() {
                        let now = tx.database_now(now).await?;
                        let uses = tx.output_uses(who.agent_id, keeps).await?;
                        let idle = |at: Timestamp| u64::try_from((now - at).num_seconds()).unwrap_or(0);
                        let unused = uses.into_iter().filter(|it| !it.needed);
                        kept.unused = unused.map(|it| (it.job_id, it.used_at.map(idle))).collect();
                    }
                    Ok(kept)
                })
            })
            .await
    }
}
