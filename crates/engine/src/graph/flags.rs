//! What people and probes switch on, pools, and whether the site can be restarted.

use super::Graphs;
use super::clean;
use super::reports::{Speaker, speaks};
use tidemill_core::Timestamp;
use tidemill_core::agent::Agent;
use tidemill_core::graph::record::{PoolRecord, RebootStatus};
use tidemill_core::limits::{KEY_BYTES_MAX, POOL_NAME_BYTES_MAX, PROBE_SECS, WEIGHT_MAX};
use tidemill_core::project::{Flag, FlagName, FlagSource, SITE_SCOPE};
use tidemill_core::request;
use tidemill_core::run::Applied;
use tidemill_store::{Error, Refusal, RefusalCode, Tx};

/// Between two agents whose probes found the same.
const AND: &str = ", ";

/// What an agent of one project finds must not stop the jobs of all.
fn not_for_all(agent: &str, project: &str) -> Error {
    Error::Refused(Refusal {
        code: RefusalCode::BadValue,
        message: format!(
            "agent {agent} works for project `{project}` alone, and a probe speaks for the whole site"
        ),
        hint: Some("give the probe to an agent whose token is for all projects".to_owned()),
    })
}

/// Notes that an agent's probe found maintenance.
async fn found(
    tx: &mut Tx<'_>,
    agent: &Agent,
    note: Option<String>,
    now: Timestamp,
) -> Result<Applied, Error> {
    // Two agents that say so at the same time must both be remembered.
    tx.order_after_steps().await?;
    let flags = tx.flags().await?;
    let before = on(&flags, FlagName::Maintenance, now);
    let by = sayer(agent);
    let mut sayers = before.map(sayers).unwrap_or_default();
    let length: usize = sayers.iter().map(|sayer| sayer.len() + AND.len()).sum();
    // Who finds no place any more is not needed: the flag is on, and ends by itself.
    if !sayers.contains(&by.as_str()) && length + by.len() <= KEY_BYTES_MAX {
        sayers.push(&by);
    }
    let flag = Flag {
        flag: FlagName::Maintenance,
        scope: SITE_SCOPE.to_owned(),
        note,
        since: now,
        until_at: Some(now + chrono::TimeDelta::seconds(PROBE_SECS)),
        set_by: Some(sayers.join(AND)),
        source: FlagSource::Probe,
    };
    tx.set_flag(&flag).await?;
    Ok(if before.is_none() { Applied::Applied } else { Applied::Duplicate })
}

/// Notes that an agent's probe finds no maintenance any more.
async fn over(tx: &mut Tx<'_>, agent: &Agent) -> Result<Applied, Error> {
    let by = sayer(agent);
    let is_its_own = |flag: &Flag| is_probe(flag) && sayers(flag).contains(&by.as_str());
    if !tx.flags().await?.iter().any(is_its_own) {
        return Ok(Applied::Duplicate);
    }
    tx.order_after_steps().await?;
    let flags = tx.flags().await?;
    let Some(flag) = flags.iter().find(|flag| is_its_own(flag)) else { return Ok(Applied::Duplicate) };
    let others: Vec<&str> = sayers(flag).into_iter().filter(|sayer| *sayer != by).collect();
    if others.is_empty() {
        let cleared = tx.clear_probe(SITE_SCOPE, &by).await?;
        return Ok(if cleared { Applied::Applied } else { Applied::Duplicate });
    }
    tx.set_flag(&Flag { set_by: Some(others.join(AND)), ..flag.clone() }).await?;
    Ok(Applied::Duplicate)
}

/// A flag of the site, if it is on.
fn on(flags: &[Flag], name: FlagName, now: Timestamp) -> Option<&Flag> {
    flags.iter().find(|flag| flag.flag == name && flag.scope == SITE_SCOPE && flag.is_on(now))
}

fn is_probe(flag: &Flag) -> bool {
    flag.flag == FlagName::Maintenance && flag.scope == SITE_SCOPE && flag.source == FlagSource::Probe
}

/// An agent, as a flag names it among others.
fn sayer(agent: &Agent) -> String {
    format!("agent {}", agent.name.replace(AND, " "))
}

/// The agents whose probes found it.
fn sayers(flag: &Flag) -> Vec<&str> {
    if !is_probe(flag) {
        return Vec::new();
    }
    flag.set_by.as_deref().map(|by| by.split(AND).collect()).unwrap_or_default()
}

impl Graphs {
    /// Switches a flag on, or changes its note and end.
    pub async fn set_flag(&self, flag: Flag) -> Result<(), Error> {
        self.engine.store().set_flag(flag).await?;
        self.bells().ring_controller();
        Ok(())
    }

    /// Switches a flag off; whether it was on.
    pub async fn clear_flag(&self, flag: FlagName, scope: &str) -> Result<bool, Error> {
        let was_on = self.engine.store().clear_flag(flag, scope.to_owned()).await?;
        self.bells().ring_controller();
        Ok(was_on)
    }

    /// Every flag.
    pub async fn flags(&self) -> Result<Vec<Flag>, Error> {
        self.engine.store().flags().await
    }

    /// Notes what an agent's probe found. It never changes what a person set, and counts for a while only. Where
    /// several agents found the same, it is over when the last of them says so.
    pub async fn report_probe(
        &self,
        who: &Speaker,
        maintenance: bool,
        note: Option<String>,
    ) -> Result<Applied, Error> {
        let (who, now) = (*who, self.now());
        let note = note.map(|note| clean(&note, KEY_BYTES_MAX));
        let applied = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let agent = speaks(&mut tx, &who).await?.agent;
                    if let Some(project) = &agent.project_id {
                        return Err(not_for_all(&agent.name, project));
                    }
                    let now = tx.database_now(now).await?;
                    if on(&tx.flags().await?, FlagName::ProbeOff, now).is_some() {
                        return Ok(Applied::Stale);
                    }
                    if maintenance {
                        found(&mut tx, &agent, note, now).await
                    } else {
                        over(&mut tx, &agent).await
                    }
                })
            })
            .await?;
        if applied == Applied::Applied {
            self.bells().ring_controller();
        }
        Ok(applied)
    }

    /// Stops everything, and keeps it from beginning, until the flag is cleared.
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
                    tx.set_flag(&flag).await
                })
            })
            .await?;
        self.bells().ring_controller();
        self.reboot_status().await
    }

    /// Whether the site can be restarted: the flag is on, nothing runs, and nothing is being stopped.
    pub async fn reboot_status(&self) -> Result<RebootStatus, Error> {
        let now = self.now();
        self.engine
            .store()
            .snapshot(move |mut tx| {
                Box::pin(async move {
                    let now = tx.database_now(now).await?;
                    let flags = tx.flags().await?;
                    let preparing = flags.iter().any(|flag| flag.flag == FlagName::Reboot && flag.is_on(now));
                    let orders = tx.standing_orders().await?;
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

    /// The pools, and how full they are.
    pub async fn pools(&self) -> Result<Vec<PoolRecord>, Error> {
        self.engine.store().pools().await
    }

    /// Makes a pool, or changes its size. What runs goes on.
    pub async fn set_pool(&self, name: &str, size: i32) -> Result<(), Error> {
        request::check_name("pool", name)?;
        if name.len() > POOL_NAME_BYTES_MAX || !(0..=WEIGHT_MAX).contains(&size) {
            let message = format!("a pool has a size between 0 and {WEIGHT_MAX}, and a short name");
            return Err(Error::refused(RefusalCode::BadValue, message));
        }
        self.engine.store().set_pool(name.to_owned(), size).await?;
        self.bells().ring_controller();
        Ok(())
    }

    /// Removes a pool that no live job names.
    pub async fn remove_pool(&self, name: &str) -> Result<(), Error> {
        self.engine.store().remove_pool(name.to_owned()).await
    }
}
