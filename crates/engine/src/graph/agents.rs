//! Agents: registration, polling for tasks, draining and forgetting.

use super::Graphs;
use super::changes::{ChangeWatch, Watched};
use super::reports::{AgentIdentity, authenticate_agent, silence};
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::agent::{Agent, NewAgent};
use tidemill_core::graph::record::Order;
use tidemill_core::limits::{AGENT_TASKS_MAX, BATCH_MAX, KEY_BYTES_MAX, WEIGHT_MAX};
use tidemill_core::request;
use tidemill_core::text::first_control;
use tidemill_store::{Error, Refusal, RefusalCode, Tx};
use tokio::time::Instant;
use uuid::Uuid;

/// Longest wait of one poll.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// Under which condition an operator may declare that nothing of an agent runs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgetMode {
    /// Only if the agent has been silent for a while. Otherwise it lives, and so may its commands.
    IfSilent,
    /// Also if the agent sent heartbeats recently.
    Always,
}

impl Graphs {
    /// Registers an agent, or a new process of a known agent. The earlier process is refused from now on.
    pub async fn register(&self, agent: NewAgent) -> Result<Agent, Error> {
        request::check_worker_name(&agent.name)?;
        request::check_labels(&agent.labels)?;
        if !(1..=WEIGHT_MAX).contains(&agent.capacity) {
            let message =
                format!("agent capacity must be between 1 and {WEIGHT_MAX}, but is {}", agent.capacity);
            return Err(Error::refused(RefusalCode::BadValue, message));
        }
        if agent.host.len().max(agent.version.len()) > KEY_BYTES_MAX {
            let message = format!("host and version may have at most {KEY_BYTES_MAX} bytes each");
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        if [&agent.host, &agent.version].into_iter().any(|text| first_control(text).is_some()) {
            let message = "host and version must not contain control characters";
            return Err(Error::refused(RefusalCode::BadValue, message));
        }
        let registered = self
            .engine
            .retry_policy
            .retry("register an agent", || {
                let (agent, now) = (agent.clone(), self.now());
                self.engine
                    .store()
                    .write(move |mut tx| Box::pin(async move { tx.register_agent(&agent, now).await }))
            })
            .await?;
        self.notifiers().wake_controller();
        Ok(registered)
    }

    /// Returns the tasks that the agent does not have yet. Waits if there are none.
    pub async fn poll(
        &self,
        who: &AgentIdentity,
        have: &[String],
        wait: Duration,
    ) -> Result<Vec<Order>, Error> {
        if have.len() > AGENT_TASKS_MAX {
            let message = format!("an agent may hold at most {AGENT_TASKS_MAX} tasks");
            return Err(Error::refused(RefusalCode::TooLarge, message));
        }
        let until = Instant::now() + wait.min(WAIT_MAX);
        let mut watch: Option<ChangeWatch> = None;
        loop {
            if let Some(watch) = &mut watch {
                watch.mark_unchanged();
            }
            let orders = self.orders(who, have, watch.is_none()).await?;
            let left = until.saturating_duration_since(Instant::now());
            if !orders.is_empty() || left.is_zero() {
                return Ok(orders);
            }
            let Some(watch) = &mut watch else {
                // The next read comes after the start of the watch, so that no change is missed.
                watch = Some(self.watch(Watched::Agent(who.agent_id)));
                continue;
            };
            // At the end of the wait, the orders are read once more.
            let _ = tokio::time::timeout(left, watch.changed()).await;
        }
    }

    async fn orders(&self, who: &AgentIdentity, have: &[String], first: bool) -> Result<Vec<Order>, Error> {
        let (who, have, now) = (*who, have.to_vec(), self.now());
        let store = self.engine.store();
        if first {
            // A poll counts as a heartbeat.
            let orders = store.write(move |mut tx| {
                Box::pin(async move {
                    authenticate_agent(&mut tx, &who).await?;
                    tx.record_agent_heartbeat(who.agent_id, now).await?;
                    tx.orders(who.agent_id, have).await
                })
            });
            return orders.await;
        }
        store
            .snapshot(move |mut tx| {
                Box::pin(async move {
                    authenticate_agent(&mut tx, &who).await?;
                    tx.orders(who.agent_id, have).await
                })
            })
            .await
    }

    /// Records that an agent shuts down. Its tasks that have not started go to other agents; started ones wait for it.
    pub async fn leave(&self, who: &AgentIdentity) -> Result<(), Error> {
        let (who, now) = (*who, self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    authenticate_agent(&mut tx, &who).await?;
                    tx.record_agent_leave(who.agent_id, now).await?;
                    mark_jobs_changed(&mut tx, who.agent_id).await
                })
            })
            .await?;
        self.notifiers().wake_controller();
        Ok(())
    }

    /// Lists the agents of a project, or all.
    pub async fn agents(&self, project: Option<&str>) -> Result<Vec<Agent>, Error> {
        self.engine.store().agents(project.map(str::to_owned), BATCH_MAX).await
    }

    /// Returns an agent, or an error if it does not exist.
    pub async fn agent(&self, agent: Uuid) -> Result<Agent, Error> {
        let known = self.engine.store().agent(agent).await?.filter(|known| known.forgotten_at.is_none());
        known.map(|known| known.agent).ok_or_else(|| unknown(agent))
    }

    /// Sets or clears the drain flag of an agent. A draining agent gets no new tasks.
    pub async fn drain(&self, agent: Uuid, draining: bool) -> Result<Agent, Error> {
        let store = self.engine.store();
        let drained = store.write(move |mut tx| {
            Box::pin(async move {
                // An error rolls back, so that a refused request leaves no audit entry of a change.
                if tx.drain_agent(agent, draining).await? { Ok(()) } else { Err(unknown(agent)) }
            })
        });
        drained.await?;
        self.notifiers().wake_controller();
        self.agent(agent).await
    }

    /// Declares on behalf of an operator that nothing of an agent runs any more. Its tasks end, and its jobs go to
    /// other agents. Returns false if the agent was forgotten before.
    pub async fn forget(&self, agent: Uuid, when: ForgetMode) -> Result<bool, Error> {
        let now = self.now();
        let forgotten = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(known) = tx.agent(agent).await? else { return Err(unknown(agent)) };
                    let moment = tx.database_now(now).await?;
                    if when == ForgetMode::IfSilent && known.forgotten_at.is_none() {
                        refuse_alive(&known.agent, moment)?;
                    }
                    let forgotten = tx.forget_agent(agent, now).await?;
                    if !forgotten {
                        tx.skip_audit();
                    }
                    mark_jobs_changed(&mut tx, agent).await?;
                    // Jobs that need outputs on this agent's disk can no longer get them.
                    for run in tx.runs_of_agent(agent).await? {
                        tx.mark_changed(&run).await?;
                    }
                    Ok(forgotten)
                })
            })
            .await?;
        self.notifiers().wake_controller();
        Ok(forgotten)
    }
}

/// Marks the jobs of an agent as changed, for the controller.
async fn mark_jobs_changed(tx: &mut Tx<'_>, agent: Uuid) -> Result<(), Error> {
    for job in tx.jobs_of_agent(agent).await? {
        tx.mark_changed(&job).await?;
    }
    Ok(())
}

/// Refuses to forget a live agent: its commands would run beside those that replace them.
fn refuse_alive(agent: &Agent, now: Timestamp) -> Result<(), Error> {
    let silent_for = now - agent.seen_at;
    if agent.left_at.is_some() || silent_for > silence() {
        return Ok(());
    }
    let secs = silent_for.num_seconds().max(0);
    Err(Error::Refused(Refusal {
        code: RefusalCode::Frozen,
        message: format!("agent {} sent a heartbeat {secs} s ago, so its commands may still run", agent.name),
        hint: Some(format!(
            "stop the agent and its commands; if nothing of it runs: tidemill agent forget {} --force",
            agent.agent_id
        )),
    }))
}

fn unknown(agent: Uuid) -> Error {
    Error::refused(RefusalCode::UnknownAgent, format!("agent `{agent}` does not exist"))
}
