//! Agents: who they are, what they are ordered to do, and what people say about them.

use super::Graphs;
use super::reports::{Speaker, silence, speaks};
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::agent::{Agent, NewAgent};
use tidemill_core::graph::record::Order;
use tidemill_core::limits::{AGENT_TASKS_MAX, BATCH_MAX, KEY_BYTES_MAX, WEIGHT_MAX};
use tidemill_core::request;
use tidemill_store::{Error, Refusal, RefusalCode, Tx};
use tokio::time::Instant;
use uuid::Uuid;

/// Longest wait of one poll.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// First time between two looks of an agent that has nothing to do; it doubles.
const LOOK_FIRST: Duration = Duration::from_millis(50);

/// When a person's word counts that nothing of an agent runs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forget {
    /// Where the agent was not heard for a while: otherwise it lives, and so may its commands.
    IfSilent,
    /// Whatever was heard of it.
    Anyway,
}

impl Graphs {
    /// Registers an agent, or the next process of one: an earlier process of it is refused from now on.
    pub async fn register(&self, agent: NewAgent) -> Result<Agent, Error> {
        request::check_worker_name(&agent.name)?;
        request::check_labels(&agent.labels)?;
        if !(1..=WEIGHT_MAX).contains(&agent.capacity) {
            let message = format!("an agent carries between 1 and {WEIGHT_MAX}, and not {}", agent.capacity);
            return Err(Error::refused(RefusalCode::BadValue, message));
        }
        if agent.host.len().max(agent.version.len()) > KEY_BYTES_MAX {
            let message = format!("a host or a version has at most {KEY_BYTES_MAX} bytes");
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        let registered = self
            .engine
            .patience
            .settle("register an agent", || {
                let (agent, now) = (agent.clone(), self.now());
                self.engine
                    .store()
                    .write(move |mut tx| Box::pin(async move { tx.register_agent(&agent, now).await }))
            })
            .await?;
        self.bells().ring_controller();
        Ok(registered)
    }

    /// The orders for an agent that it does not have yet; waits for some where there is none.
    pub async fn poll(&self, who: &Speaker, have: &[String], wait: Duration) -> Result<Vec<Order>, Error> {
        if have.len() > AGENT_TASKS_MAX {
            let message = format!("an agent holds at most {AGENT_TASKS_MAX} tasks");
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        let until = Instant::now() + wait.min(WAIT_MAX);
        let mut bell = self.bells().agents.subscribe();
        let mut pause = LOOK_FIRST;
        let mut first = true;
        loop {
            bell.mark_unchanged();
            let orders = self.orders(who, have, first).await?;
            let left = until.saturating_duration_since(Instant::now());
            if !orders.is_empty() || left.is_zero() {
                return Ok(orders);
            }
            first = false;
            // Who has tasks is likely to get more.
            pause =
                if have.is_empty() { (pause * 2).min(self.settings.look_idle) } else { self.settings.look };
            tokio::select! {
                rung = bell.changed() => if rung.is_err() { return Ok(Vec::new()) },
                () = tokio::time::sleep(pause.min(left)) => {}
            }
        }
    }

    async fn orders(&self, who: &Speaker, have: &[String], first: bool) -> Result<Vec<Order>, Error> {
        let (who, have, now) = (*who, have.to_vec(), self.now());
        let store = self.engine.store();
        if first {
            // To ask is a sign of life.
            let asked = store.write(move |mut tx| {
                Box::pin(async move {
                    speaks(&mut tx, &who).await?;
                    tx.beat_agent(who.agent_id, now).await?;
                    tx.orders(who.agent_id, have).await
                })
            });
            return asked.await;
        }
        store
            .snapshot(move |mut tx| {
                Box::pin(async move {
                    speaks(&mut tx, &who).await?;
                    tx.orders(who.agent_id, have).await
                })
            })
            .await
    }

    /// Notes that an agent says goodbye: what it has not begun goes to others, what it has begun waits for it.
    pub async fn leave(&self, who: &Speaker) -> Result<(), Error> {
        let (who, now) = (*who, self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    speaks(&mut tx, &who).await?;
                    tx.leave_agent(who.agent_id, now).await?;
                    note_jobs(&mut tx, who.agent_id).await
                })
            })
            .await?;
        self.bells().ring_controller();
        Ok(())
    }

    /// The agents that work for a project, or all.
    pub async fn agents(&self, project: Option<&str>) -> Result<Vec<Agent>, Error> {
        self.engine.store().agents(project.map(str::to_owned), BATCH_MAX).await
    }

    /// An agent that must exist.
    pub async fn agent(&self, agent: Uuid) -> Result<Agent, Error> {
        let known = self.engine.store().agent(agent).await?.filter(|known| known.forgotten_at.is_none());
        known.map(|known| known.agent).ok_or_else(|| unknown(agent))
    }

    /// Lets an agent get no new tasks, or get them again.
    pub async fn drain(&self, agent: Uuid, draining: bool) -> Result<Agent, Error> {
        let store = self.engine.store();
        let known =
            store.write(move |mut tx| Box::pin(async move { tx.drain_agent(agent, draining).await })).await?;
        self.bells().ring_controller();
        if known { self.agent(agent).await } else { Err(unknown(agent)) }
    }

    /// Takes a person's word that nothing of an agent runs any more: its tasks are over, and its jobs go to
    /// others. Told twice, it is told once; false then.
    pub async fn forget(&self, agent: Uuid, when: Forget) -> Result<bool, Error> {
        let now = self.now();
        let forgotten = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(known) = tx.agent(agent).await? else { return Err(unknown(agent)) };
                    let moment = tx.database_now(now).await?;
                    if when == Forget::IfSilent && known.forgotten_at.is_none() {
                        refuse_alive(&known.agent, moment)?;
                    }
                    let forgotten = tx.forget_agent(agent, now).await?;
                    note_jobs(&mut tx, agent).await?;
                    // Jobs that need what it alone has wait for nothing any more.
                    for run in tx.runs_of_agent(agent).await? {
                        tx.note_change(&run).await?;
                    }
                    Ok(forgotten)
                })
            })
            .await?;
        self.bells().ring_controller();
        Ok(forgotten)
    }
}

/// Names the jobs of an agent to the controller.
async fn note_jobs(tx: &mut Tx<'_>, agent: Uuid) -> Result<(), Error> {
    for job in tx.jobs_of_agent(agent).await? {
        tx.note_change(&job).await?;
    }
    Ok(())
}

/// Refuses to forget an agent that lives: its commands would go on beside those that take their place.
fn refuse_alive(agent: &Agent, now: Timestamp) -> Result<(), Error> {
    let heard = now - agent.seen_at;
    if agent.left_at.is_some() || heard > silence() {
        return Ok(());
    }
    let secs = heard.num_seconds().max(0);
    Err(Error::Refused(Refusal {
        code: RefusalCode::Frozen,
        message: format!("agent {} was heard {secs} s ago, and its commands may still run", agent.name),
        hint: Some(format!(
            "stop it and its commands first; if nothing of it runs: tidemill agent forget {} --force",
            agent.agent_id
        )),
    }))
}

fn unknown(agent: Uuid) -> Error {
    Error::refused(RefusalCode::UnknownAgent, format!("agent `{agent}` does not exist"))
}
