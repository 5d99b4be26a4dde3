//! Flags set by operators and probes, pools, and the reboot status of the site.

use super::Graphs;
use super::clean;
use super::reports::{AgentIdentity, authenticate_agent};
use tidemill_core::Timestamp;
use tidemill_core::agent::Agent;
use tidemill_core::graph::record::{PoolRecord, RebootStatus};
use tidemill_core::limits::{KEY_BYTES_MAX, POOL_NAME_BYTES_MAX, PROBE_SECS, WEIGHT_MAX};
use tidemill_core::project::{Flag, FlagName, FlagSource, SITE_SCOPE};
use tidemill_core::request;
use tidemill_core::run::ChangeOutcome;
use tidemill_store::{Error, Refusal, RefusalCode, Tx};

/// Separator of agents that reported the same maintenance.
const AND: &str = ", ";

/// Refusal for an agent of one project: its probe must not stop the jobs of all projects.
fn project_agent_refused(agent: &Agent) -> Error {
    Error::Refused(Refusal {
        code: RefusalCode::BadValue,
        message: format!(
            "agent {} is restricted to {}, but a probe affects all projects",
            agent.name, agent.projects
        ),
        hint: Some("run the probe on an agent whose token is valid for all projects".to_owned()),
    })
}

/// Records that an agent's probe reports maintenance.
async fn record_maintenance(
    tx: &mut Tx<'_>,
    agent: &Agent,
    note: Option<String>,
    now: Timestamp,
) -> Result<ChangeOutcome, Error> {
    // Serializes concurrent reports, so that neither overwrites the other.
    tx.order_after_steps().await?;
    let flags = tx.flags().await?;
    let before = on(&flags, FlagName::Maintenance, now);
    let by = reporter(agent);
    let mut reporters = before.map(reporters).unwrap_or_default();
    let length: usize = reporters.iter().map(|reporter| reporter.len() + AND.len()).sum();
    // An agent that no longer fits can be left out: the flag is on, and expires by itself.
    if !reporters.contains(&by.as_str()) && length + by.len() <= KEY_BYTES_MAX {
        reporters.push(&by);
    }
    let flag = Flag {
        flag: FlagName::Maintenance,
        scope: SITE_SCOPE.to_owned(),
        note,
        since: now,
        until_at: Some(now + chrono::TimeDelta::seconds(PROBE_SECS)),
        set_by: Some(reporters.join(AND)),
        source: FlagSource::Probe,
    };
    tx.set_flag(&flag).await?;
    Ok(if before.is_none() { ChangeOutcome::Applied } else { ChangeOutcome::Duplicate })
}

/// Records that an agent's probe no longer reports maintenance.
async fn clear_maintenance(tx: &mut Tx<'_>, agent: &Agent) -> Result<ChangeOutcome, Error> {
    let by = reporter(agent);
    let is_its_own = |flag: &Flag| is_probe(flag) && reporters(flag).contains(&by.as_str());
    if !tx.flags().await?.iter().any(is_its_own) {
        return Ok(ChangeOutcome::Duplicate);
    }
    tx.order_after_steps().await?;
    let flags = tx.flags().await?;
    let Some(flag) = flags.iter().find(|flag| is_its_own(flag)) else { return Ok(ChangeOutcome::Duplicate) };
    let others: Vec<&str> = reporters(flag).into_iter().filter(|reporter| *reporter != by).collect();
    if others.is_empty() {
        let cleared = tx.clear_probe(SITE_SCOPE, &by).await?;
        return Ok(if cleared { ChangeOutcome::Applied } else { ChangeOutcome::Duplicate });
    }
    tx.set_flag(&Flag { set_by: Some(others.join(AND)), ..flag.clone() }).await?;
    Ok(ChangeOutcome::Duplicate)
}

/// Returns a flag of the site if it is on.
fn on(flags: &[Flag], name: FlagName, now: Timestamp) -> Option<&Flag> {
    flags.iter().find(|flag| flag.flag == name && flag.scope == SITE_SCOPE && flag.is_on(now))
}

fn is_probe(flag: &Flag) -> bool {
    flag.flag == FlagName::Maintenance && flag.scope == SITE_SCOPE && flag.source == FlagSource::Probe
}

/// Returns the name of an agent as used in `set_by`.
fn reporter(agent: &Agent) -> String {
    format!("agent {}", agent.name.replace(AND, " "))
}

/// Returns the agents whose probes reported the maintenance.
fn reporters(flag: &Flag) -> Vec<&str> {
    if !is_probe(flag) {
        return Vec::new();
    }
    flag.set_by.as_deref().map(|by| by.split(AND).collect()).unwrap_or_default()
}

impl Graphs {
    /// Sets a flag, or changes its note and expiry.
    pub async fn set_flag(&self, flag: Flag) -> Result<(), Error> {
        self.engine.store().set_flag(flag).await?;
        self.notifiers().wake_controller();
        Ok(())
    }

    /// Clears a flag. Returns whether it was set.
    pub async fn clear_flag(&self, flag: FlagName, scope: &str) -> Result<bool, Error> {
        let was_on = self.engine.store().clear_flag(flag, scope.to_owned()).await?;
        self.notifiers().wake_controller();
        Ok(was_on)
    }

    /// Lists the flags of all scopes.
    pub async fn flags(&self) -> Result<Vec<Flag>, Error> {
        self.engine.store().flags().await
    }

    /// Records the result of an agent's probe. It never changes a flag that an operator set, and it expires. If
    /// several agents reported maintenance, it ends when the last of them reports its end.
    pub async fn report_probe(
        &self,
        who: &AgentIdentity,
        maintenance: bool,
        note: Option<String>,
    ) -> Result<ChangeOutcome, Error> {
        let (who, now) = (*who, self.now());
        let note = note.map(|note| clean(&note, KEY_BYTES_MAX));
        let applied = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let agent = authenticate_agent(&mut tx, &who).await?.agent;
                    if !agent.projects.is_all() {
                        return Err(project_agent_refused(&agent));
                    }
                    let now = tx.database_now(now).await?;
                    if on(&tx.flags().await?, FlagName::ProbeOff, now).is_some() {
                        return Ok(ChangeOutcome::Stale);
                    }
                    if maintenance {
                        record_maintenance(&mut tx, &agent, note, now).await
                    } else {
                        clear_maintenance(&mut tx, &agent).await
                    }
                })
            })
            .await?;
        if applied == ChangeOutcome::Applied {
            self.notifiers().wake_controller();
        }
        Ok(applied)
    }

    /// Stops all jobs and starts none until the flag is cleared.
    pub async fn prepare_for_reboot(&self, note: Option<&str>, by: &str) -> Result<RebootStatus, Error> {
        let (note, by, now) = (note.map(str::to_owned), by.to_owned(), self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let flag = Flag {
                        flag: FlagName::Reboot,
                        scope: SITE_SCOPE.to_owned(),
                        note,
                        since: tx.database_now(now).await?,
                        until_at: None,
                        set_by: Some(by),
                        source: FlagSource::Manual,
                    };
                    if !tx.set_flag(&flag).await? {
                        tx.skip_audit();
                    }
                    Ok(())
                })
            })
            .await?;
        self.notifiers().wake_controller();
        self.reboot_status().await
    }

    /// Tells whether the site can be restarted: the flag is set, nothing runs, and nothing is being stopped.
    pub async fn reboot_status(&self) -> Result<RebootStatus, Error> {
        let now = self.now();
        self.engine
            .store()
            .snapshot(move |mut tx| {
                Box::pin(async move {
                    let now = tx.database_now(now).await?;
                    let flags = tx.flags().await?;
                    let preparing = flags.iter().any(|flag| flag.flag == FlagName::Reboot && flag.is_on(now));
                    let orders = tx.open_orders().await?;
                    Ok(RebootStatus {
                        preparing,
                        running: orders.running,
                        stopping: orders.stopping,
                        safe: preparing && orders.running == 0 && orders.stopping == 0,
                    })
                })
            })
            .await
    }

    /// Lists the pools with their usage.
    pub async fn pools(&self) -> Result<Vec<PoolRecord>, Error> {
        self.engine.store().pools().await
    }

    /// Creates a pool or changes its size. Running jobs continue.
    pub async fn set_pool(&self, name: &str, size: i32) -> Result<(), Error> {
        request::check_name("pool", name)?;
        if name.len() > POOL_NAME_BYTES_MAX || !(0..=WEIGHT_MAX).contains(&size) {
            let message = format!(
                "a pool needs a size between 0 and {WEIGHT_MAX} and a name of at most {POOL_NAME_BYTES_MAX} bytes"
            );
            return Err(Error::refused(RefusalCode::BadValue, message));
        }
        self.engine.store().set_pool(name.to_owned(), size).await?;
        self.notifiers().wake_controller();
        Ok(())
    }

    /// Removes a pool that no live job uses.
    pub async fn remove_pool(&self, name: &str) -> Result<(), Error> {
        self.engine.store().remove_pool(name.to_owned()).await
    }
}
