//! Where the files are that jobs left: in a store, or on the disk of the agent that made them.

use crate::codec::{Bare, Columns, Words};
use crate::tx::{FromColumns, on};
use crate::{Error, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::graph::place::{Held, Holder};
use uuid::Uuid;

/// What jobs left, and who needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The job that left it.
    pub job_id: String,
    /// Whether a run that goes on has to do with it.
    pub needed: bool,
    /// When the last run ended that had; never, where none is on record.
    pub used_at: Option<Timestamp>,
}

impl FromColumns for Use {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("job_id")?,
            needed: row.truth("needed")?,
            used_at: row.time_or_null("used_at")?,
        })
    }
}

/// Files that one agent alone has, by a job: the one that needs them, or the one that left them.
pub(crate) struct HeldFor(pub(crate) String, pub(crate) Held);

impl FromColumns for HeldFor {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let id = row.uuid_or_null("agent_id")?;
        let agent = match id {
            Some(agent_id) => Some(Holder { agent_id, name: row.text("agent")? }),
            None => None,
        };
        Ok(Self(row.text("job_id")?, Held { job: row.text("job")?, agent }))
    }
}

/// Files that one agent alone has, each with the job that it is read for.
pub type HeldFiles = Vec<(String, Held)>;

fn pairs(held: Vec<HeldFor>) -> HeldFiles {
    held.into_iter().map(|HeldFor(job, held)| (job, held)).collect()
}

impl Tx<'_> {
    /// What live jobs need and one agent alone has, of every run or of some.
    pub async fn live_held(&mut self, runs: Option<Vec<String>>) -> Result<HeldFiles, Error> {
        let held = match runs {
            None => on!(self, catalog::NEED_HELD, [], fetch_all, "read outputs")?,
            Some(runs) => on!(self, catalog::NEED_HELD_OF_RUNS, [Words(runs)], fetch_all, "read outputs")?,
        };
        Ok(pairs(held.records("read outputs")?))
    }

    /// What a job needs and one agent alone has.
    pub async fn held_for(&mut self, job: &str) -> Result<Vec<Held>, Error> {
        let held = on!(self, catalog::NEED_HELD_OF_JOB, [job], fetch_all, "read outputs")?;
        Ok(pairs(held.records("read outputs")?).into_iter().map(|(_, held)| held).collect())
    }

    /// Who alone has what these jobs left. Until the step ends nobody removes anything of it.
    pub async fn held_by(&mut self, jobs: Vec<String>) -> Result<HeldFiles, Error> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let jobs = Words(jobs);
        let locked = on!(self, catalog::AGENT_SHARE, [jobs.clone()], fetch_all, "lock agents")?;
        locked.records::<String>("lock agents")?;
        let held = on!(self, catalog::OUTPUT_HELD, [jobs.clone()], fetch_all, "read outputs")?;
        Ok(pairs(held.records("read outputs")?))
    }

    /// Who needs what these jobs left on the disk of an agent.
    pub async fn output_uses(&mut self, agent: Uuid, jobs: Vec<String>) -> Result<Vec<Use>, Error> {
        let (agent, jobs) = (Bare(agent), Words(jobs));
        on!(self, catalog::OUTPUT_USES, [agent, jobs.clone()], fetch_all, "read outputs")?
            .records("read outputs")
    }

    /// Notes that an agent removes what these jobs left, but for what a run that goes on needs; which ones.
    ///
    /// Whoever is about to reuse it has locked the agent, and is waited for.
    pub async fn let_outputs_go(&mut self, agent: Uuid, jobs: Vec<String>) -> Result<Vec<String>, Error> {
        self.lock_agent(agent).await?;
        let uses = self.output_uses(agent, jobs).await?;
        let gone: Vec<String> = uses.into_iter().filter(|it| !it.needed).map(|it| it.job_id).collect();
        let (agent, jobs) = (Bare(agent), Words(gone.clone()));
        on!(self, catalog::OUTPUT_LET_GO, [agent, jobs.clone()], execute, "let outputs go")?;
        Ok(gone)
    }

    /// The runs that go on, of which jobs left something that this agent alone has.
    pub async fn runs_of_agent(&mut self, agent: Uuid) -> Result<Vec<String>, Error> {
        on!(self, catalog::AGENT_RUNS, [Bare(agent)], fetch_all, "read outputs")?.records("read outputs")
    }
}
