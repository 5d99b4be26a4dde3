//! Locations of job outputs: in an object store, or only on the disk of the agent that made them.

use crate::codec::{Columns, SqlTextList, SqlUuid};
use crate::tx::{FromColumns, on};
use crate::{Error, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::graph::placement::{LocalOutputs, OutputHolder};
use uuid::Uuid;

/// Whether the outputs of a job on an agent's disk are still needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputUse {
    pub job_id: String,
    /// Whether an open run needs them.
    pub needed: bool,
    /// End of the last run that used them, if one is recorded.
    pub used_at: Option<Timestamp>,
}

impl FromColumns for OutputUse {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("job_id")?,
            needed: row.truth("needed")?,
            used_at: row.time_or_null("used_at")?,
        })
    }
}

/// Files that exist only on one agent, with the id of the job that needs or made them.
pub(crate) struct HeldFor(pub(crate) String, pub(crate) LocalOutputs);

impl FromColumns for HeldFor {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let id = row.uuid_or_null("agent_id")?;
        let agent = match id {
            Some(agent_id) => Some(OutputHolder { agent_id, name: row.text("agent")? }),
            None => None,
        };
        Ok(Self(row.text("job_id")?, LocalOutputs { job: row.text("job")?, agent }))
    }
}

/// Files that exist only on one agent, each with the id of the job that needs or made them.
pub type HeldFiles = Vec<(String, LocalOutputs)>;

fn pairs(held: Vec<HeldFor>) -> HeldFiles {
    held.into_iter().map(|HeldFor(job, held)| (job, held)).collect()
}

impl Tx<'_> {
    /// Returns inputs of live jobs that exist only on one agent, of every run or of some.
    pub async fn live_held(&mut self, runs: Option<Vec<String>>) -> Result<HeldFiles, Error> {
        let held = match runs {
            None => on!(self, catalog::NEED_HELD, [], fetch_all, "read outputs")?,
            Some(runs) => {
                on!(self, catalog::NEED_HELD_OF_RUNS, [SqlTextList(runs)], fetch_all, "read outputs")?
            }
        };
        Ok(pairs(held.records("read outputs")?))
    }

    /// Returns inputs of a job that exist only on one agent.
    pub async fn held_inputs(&mut self, job: &str) -> Result<Vec<LocalOutputs>, Error> {
        let held = on!(self, catalog::NEED_HELD_OF_JOB, [job], fetch_all, "read outputs")?;
        Ok(pairs(held.records("read outputs")?).into_iter().map(|(_, held)| held).collect())
    }

    /// Returns outputs of these jobs that exist only on one agent. Locks the agents, so that nothing is removed before
    /// the transaction ends.
    pub async fn held_outputs(&mut self, jobs: Vec<String>) -> Result<HeldFiles, Error> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let jobs = SqlTextList(jobs);
        let locked = on!(self, catalog::AGENT_SHARE, [jobs.clone()], fetch_all, "lock agents")?;
        locked.records::<String>("lock agents")?;
        let held = on!(self, catalog::OUTPUT_HELD, [jobs.clone()], fetch_all, "read outputs")?;
        Ok(pairs(held.records("read outputs")?))
    }

    /// Returns whether the outputs of these jobs on an agent's disk are needed.
    pub async fn output_uses(&mut self, agent: Uuid, jobs: Vec<String>) -> Result<Vec<OutputUse>, Error> {
        let (agent, jobs) = (SqlUuid(agent), SqlTextList(jobs));
        on!(self, catalog::OUTPUT_USES, [agent, jobs.clone()], fetch_all, "read outputs")?
            .records("read outputs")
    }

    /// Marks the outputs of these jobs as removed from an agent, except those that an open run needs; returns the
    /// affected jobs.
    ///
    /// A transaction that is about to reuse them holds a lock on the agent, and this call waits for it.
    pub async fn release_outputs(&mut self, agent: Uuid, jobs: Vec<String>) -> Result<Vec<String>, Error> {
        self.lock_agent(agent).await?;
        let uses = self.output_uses(agent, jobs).await?;
        let removed: Vec<String> = uses.into_iter().filter(|it| !it.needed).map(|it| it.job_id).collect();
        let (agent, jobs) = (SqlUuid(agent), SqlTextList(removed.clone()));
        on!(self, catalog::OUTPUT_LET_GO, [agent, jobs.clone()], execute, "release outputs")?;
        Ok(removed)
    }

    /// Returns the open runs with outputs that exist only on this agent.
    pub async fn runs_of_agent(&mut self, agent: Uuid) -> Result<Vec<String>, Error> {
        on!(self, catalog::AGENT_RUNS, [SqlUuid(agent)], fetch_all, "read outputs")?.records("read outputs")
    }
}
