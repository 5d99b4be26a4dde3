//! The controller: the only process that changes the state of jobs.
//!
//! It holds the live jobs in memory, because no other process changes them. It reads the changes, decides, and writes
//! in one transaction, fenced by its lease. From time to time it reads everything again. After any error in a write
//! it discards its state and reads everything.

mod decide;
mod failed_agents;
mod free_slots;
mod job;
mod memory;
mod stop_orders;
mod write;

pub use write::{Draft, WriteOutcome};

use super::Graphs;
use super::reports::silence;
use crate::presence::Identity;
use crate::retry_policy::chain;
use chrono::TimeDelta;
use memory::Memory;
use tidemill_core::Timestamp;
use tidemill_core::limits::AGENT_MEMORY_DAYS;
use tidemill_store::{Class, ControllerSnapshot, Error, Lease, LeaseOutcome, catch_panic};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

/// Changes that are read at once.
const CHANGES_MAX: usize = 1_000;

/// Report of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// Whether this process is the controller.
    pub acts: bool,
    pub full: bool,
    pub changed: usize,
    pub live: usize,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// A controller process, active or standby.
#[derive(Debug)]
pub struct Controller {
    graphs: Graphs,
    id: Uuid,
    name: String,
    lease: Option<Lease>,
    /// When the lease was last renewed; `since` is when this process acquired it.
    renewed_at: Option<Timestamp>,
    since: Timestamp,
    memory: Memory,
    /// When everything was last read; `None` if the state is missing or outdated.
    read_at: Option<Timestamp>,
    /// The database's last known time, and when it was read by our clock.
    database_time: Option<(Timestamp, Instant)>,
}

impl Graphs {
    /// Creates a controller without a lease.
    pub fn controller(&self, name: &str) -> Controller {
        Controller {
            graphs: self.clone(),
            id: Uuid::new_v4(),
            name: name.to_owned(),
            lease: None,
            renewed_at: None,
            since: Timestamp::MIN_UTC,
            memory: Memory::default(),
            read_at: None,
            database_time: None,
        }
    }

    /// Controls until `stop` is set. Several processes may run this: one is active, and another takes over when the
    /// lease expires.
    pub async fn control(&self, identity: Identity, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
        let mut controller = self.controller(&identity.name);
        let mut wakeups = self.notifiers().controller.subscribe();
        while !*stop.borrow() {
            wakeups.mark_unchanged();
            let tick = catch_panic(controller.tick()).await;
            let tick = tick.unwrap_or_else(|panic| Err(Error::Panicked { panic }));
            if let Err(Error::Panicked { .. }) = &tick {
                // The state may be inconsistent after a panic, so everything is read again.
                controller.memory = Memory::default();
                controller.read_at = None;
            }
            let wait = match tick {
                Ok(pass) if pass.more => continue,
                Ok(pass) if pass.acts && pass.live > 0 => self.settings.poll_every,
                Ok(_) => self.settings.poll_idle_every,
                Err(error) if error.class() == Class::Transient => {
                    tracing::warn!("the controller pass failed: {}", chain(&error));
                    self.settings.poll_idle_every
                }
                Err(error) => {
                    tracing::error!("the controller pass failed: {}", chain(&error));
                    self.settings.poll_idle_every
                }
            };
            tokio::select! {
                _ = stop.changed() => {}
                _ = wakeups.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        controller.release().await;
        Ok(())
    }
}

impl Controller {
    /// Reads, decides and writes once.
    pub async fn tick(&mut self) -> Result<Pass, Error> {
        let Some(draft) = self.draft().await? else {
            return Ok(Pass::default());
        };
        let (full, changed) = (draft.full, draft.jobs.len());
        let more = draft.more;
        let written = self.write(draft).await?;
        let again = written == WriteOutcome::Moved
            || (written == WriteOutcome::Done && (more || !self.memory.is_settled()));
        let acts = written != WriteOutcome::Stale;
        Ok(Pass { acts, full, changed, live: self.memory.live(), more: again })
    }

    /// Reads and decides, but writes nothing yet. Returns `None` if another process controls.
    pub async fn draft(&mut self) -> Result<Option<Draft>, Error> {
        if !self.hold_lease().await? {
            return Ok(None);
        }
        let full = self.is_pass_due();
        let runs = self.memory.take_runs();
        let store = self.graphs.engine.store();
        let memory = TimeDelta::days(AGENT_MEMORY_DAYS);
        let snapshot = store.controller_snapshot(full, runs, CHANGES_MAX, memory, self.graphs.now()).await;
        let snapshot = match snapshot {
            Ok(snapshot) => snapshot,
            Err(error) => {
                // The runs to read were taken from the state and are lost now.
                self.read_at = None;
                return Err(error);
            }
        };
        self.database_time = Some((snapshot.now, Instant::now()));
        Ok(Some(self.decide(snapshot)))
    }

    fn decide(&mut self, snapshot: ControllerSnapshot) -> Draft {
        let (now, full) = (snapshot.now, snapshot.full);
        let more = snapshot.changes.len() >= CHANGES_MAX;
        let (changes, open) = (snapshot.changes.clone(), snapshot.open.clone());
        if full {
            self.memory = self.memory.reset();
            self.read_at = Some(now);
        }
        self.memory.apply_snapshot(snapshot, self.since, silence());
        let mut draft = decide::decide(&mut self.memory, now, self.graphs.settings.batch);
        draft.full = full;
        draft.changes = changes;
        draft.run_ends.extend(open);
        draft.more = more || self.memory.has_runs() || self.memory.is_outdated();
        if self.memory.is_outdated() {
            self.read_at = None;
        }
        draft
    }

    /// Writes a draft if this process still controls.
    pub async fn write(&mut self, draft: Draft) -> Result<WriteOutcome, Error> {
        let Some(lease) = self.lease else { return Ok(WriteOutcome::Stale) };
        if draft.is_empty() {
            return Ok(WriteOutcome::Done);
        }
        let has_orders = !draft.tasks.is_empty();
        let (store, given) = (self.graphs.engine.store(), self.graphs.now());
        let written = write::write(store, lease, &self.name, draft, given).await;
        match written {
            Ok(WriteOutcome::Done) => {
                if has_orders {
                    self.graphs.notifiers().wake_agents();
                }
            }
            Ok(WriteOutcome::Moved) | Err(_) => self.read_at = None,
            Ok(WriteOutcome::Stale) => self.lose(),
        }
        written
    }

    /// Whether this process controls: it renews its lease, or acquires an expired one.
    async fn hold_lease(&mut self) -> Result<bool, Error> {
        let span = TimeDelta::from_std(self.graphs.settings.lease).unwrap_or(TimeDelta::MAX);
        let fresh =
            self.renewed_at.zip(self.estimated_now()).is_some_and(|(renewed, now)| now - renewed < span / 3);
        if self.lease.is_some() && fresh {
            return Ok(true);
        }
        let (id, name, ours, now) = (self.id, self.name.clone(), self.lease, self.graphs.now());
        let (held, now) = self
            .graphs
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let now = tx.database_now(now).await?;
                    let held = tx.acquire_lease(id, &name, ours, now + span, now).await?;
                    Ok((held, now))
                })
            })
            .await?;
        match held {
            LeaseOutcome::Renewed(lease) => self.lease = Some(lease),
            LeaseOutcome::Acquired(lease) => {
                tracing::info!(epoch = lease.epoch, "{} is the controller now", self.name);
                self.lease = Some(lease);
                self.since = now;
                self.read_at = None;
            }
            LeaseOutcome::HeldByOther(_) => {
                if self.lease.is_some() {
                    self.lose();
                }
                return Ok(false);
            }
        }
        (self.renewed_at, self.database_time) = (Some(now), Some((now, Instant::now())));
        Ok(true)
    }

    fn is_pass_due(&self) -> bool {
        let every = TimeDelta::from_std(self.graphs.settings.pass).unwrap_or(TimeDelta::MAX);
        self.read_at.zip(self.estimated_now()).is_none_or(|(read, now)| now - read >= every)
    }

    /// Estimates the database's time without a query.
    fn estimated_now(&self) -> Option<Timestamp> {
        let passed = |(time, since): (Timestamp, Instant)| {
            time + TimeDelta::from_std(since.elapsed()).unwrap_or(TimeDelta::zero())
        };
        self.graphs.now().or_else(|| self.database_time.map(passed))
    }

    /// Discards the state because another process controls.
    fn lose(&mut self) {
        tracing::warn!("{} is no longer the controller", self.name);
        self.lease = None;
        self.renewed_at = None;
        self.read_at = None;
        self.memory = Memory::default();
    }

    /// Releases the lease, so that another process can take over at once.
    pub async fn release(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let released = self.graphs.engine.store().release_lease(lease, self.graphs.now()).await;
        if let Err(error) = released {
            tracing::warn!("could not release the controller lease: {}", chain(&error));
        }
    }
}
