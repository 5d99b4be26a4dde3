//! The controller: the only one that changes the state of jobs.
//!
//! It keeps the live jobs in memory, because nobody else changes them; reads what was named to it; decides; and
//! writes one step in one transaction, guarded by its lease. Now and then it reads everything again. Whatever goes
//! wrong with a step, it forgets what it believed and reads everything.

mod decide;
mod memory;
mod stops;
mod tried;
mod write;

pub use write::{Draft, Written};

use super::Graphs;
use super::reports::silence;
use crate::patience::chain;
use crate::presence::Identity;
use chrono::TimeDelta;
use memory::Memory;
use tidemill_core::Timestamp;
use tidemill_core::limits::AGENT_MEMORY_DAYS;
use tidemill_store::{Class, Error, Held, Lease, Look, catch_panic};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

/// Subjects that are read at once.
const CHANGES_MAX: usize = 1_000;

/// What one look led to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pass {
    /// Whether this process acts at all.
    pub acts: bool,
    /// Whether everything was read.
    pub full: bool,
    /// Jobs that were changed.
    pub changed: usize,
    /// Live jobs.
    pub live: usize,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// One process that would control, or does.
#[derive(Debug)]
pub struct Controller {
    graphs: Graphs,
    id: Uuid,
    name: String,
    lease: Option<Lease>,
    /// When the lease was last renewed, and since when it is ours.
    renewed_at: Option<Timestamp>,
    since: Timestamp,
    memory: Memory,
    /// When everything was last read; not yet, or not to be trusted any more, without it.
    read_at: Option<Timestamp>,
    /// The last time that the database told, and when that was here.
    told: Option<(Timestamp, Instant)>,
}

impl Graphs {
    /// A controller of this name, which holds nothing yet.
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
            told: None,
        }
    }

    /// Controls until told to stop. Several processes may: one acts, and another takes over when it does not renew
    /// its lease.
    pub async fn control(&self, identity: Identity, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
        let mut controller = self.controller(&identity.name);
        let mut bell = self.bells().controller.subscribe();
        while !*stop.borrow() {
            bell.mark_unchanged();
            let tick = catch_panic(controller.tick()).await;
            let tick = tick.unwrap_or_else(|panic| Err(Error::Panicked { panic }));
            if let Err(Error::Panicked { .. }) = &tick {
                // What it believed may be half changed: everything is read again.
                controller.memory = Memory::default();
                controller.read_at = None;
            }
            let wait = match tick {
                Ok(pass) if pass.more => continue,
                Ok(pass) if pass.acts && pass.live > 0 => self.settings.look,
                Ok(_) => self.settings.look_idle,
                Err(error) if error.class() == Class::Transient => {
                    tracing::warn!("the controller could not go on: {}", chain(&error));
                    self.settings.look_idle
                }
                Err(error) => {
                    tracing::error!("the controller could not go on: {}", chain(&error));
                    self.settings.look_idle
                }
            };
            tokio::select! {
                _ = stop.changed() => {}
                _ = bell.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        controller.release().await;
        Ok(())
    }
}

impl Controller {
    /// Looks, decides and writes, once.
    pub async fn tick(&mut self) -> Result<Pass, Error> {
        let Some(draft) = self.draft().await? else {
            return Ok(Pass::default());
        };
        let (full, changed) = (draft.full, draft.jobs.len());
        let more = draft.more;
        let written = self.write(draft).await?;
        let again =
            written == Written::Moved || (written == Written::Done && (more || !self.memory.is_settled()));
        let acts = written != Written::Stale;
        Ok(Pass { acts, full, changed, live: self.memory.live(), more: again })
    }

    /// Looks and decides, and writes nothing yet. Nothing: another process acts.
    pub async fn draft(&mut self) -> Result<Option<Draft>, Error> {
        if !self.hold().await? {
            return Ok(None);
        }
        let full = self.is_pass_due();
        let runs = self.memory.take_runs();
        let store = self.graphs.engine.store();
        let memory = TimeDelta::days(AGENT_MEMORY_DAYS);
        let look = store.look(full, runs, CHANGES_MAX, memory, self.graphs.now()).await;
        let look = match look {
            Ok(look) => look,
            Err(error) => {
                // The runs that were to be read are not remembered.
                self.read_at = None;
                return Err(error);
            }
        };
        self.told = Some((look.now, Instant::now()));
        Ok(Some(self.decide(look)))
    }

    fn decide(&mut self, look: Look) -> Draft {
        let (now, full) = (look.now, look.full);
        let more = look.changes.len() >= CHANGES_MAX;
        let (changes, open) = (look.changes.clone(), look.open.clone());
        if full {
            self.memory = self.memory.anew();
            self.read_at = Some(now);
        }
        self.memory.take_in(look, self.since, silence());
        let mut draft = decide::decide(&mut self.memory, now, self.graphs.settings.batch);
        draft.full = full;
        draft.changes = changes;
        draft.run_ends.extend(open);
        draft.more = more || self.memory.has_runs() || self.memory.is_wrong();
        if self.memory.is_wrong() {
            self.read_at = None;
        }
        draft
    }

    /// Writes what was decided, if this process still controls.
    pub async fn write(&mut self, draft: Draft) -> Result<Written, Error> {
        let Some(lease) = self.lease else { return Ok(Written::Stale) };
        if draft.is_empty() {
            return Ok(Written::Done);
        }
        let has_orders = !draft.tasks.is_empty();
        let written = write::write(self.graphs.engine.store(), lease, &self.name, draft).await;
        match written {
            Ok(Written::Done) => {
                if has_orders {
                    self.graphs.bells().ring_agents();
                }
            }
            Ok(Written::Moved) | Err(_) => self.read_at = None,
            Ok(Written::Stale) => self.lose(),
        }
        written
    }

    /// Whether this process controls: it renews its lease, or takes one that is over.
    async fn hold(&mut self) -> Result<bool, Error> {
        let span = TimeDelta::from_std(self.graphs.settings.lease).unwrap_or(TimeDelta::MAX);
        let fresh =
            self.renewed_at.zip(self.about_now()).is_some_and(|(renewed, now)| now - renewed < span / 3);
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
                    let held = tx.hold_controller(id, &name, ours, now + span, now).await?;
                    Ok((held, now))
                })
            })
            .await?;
        match held {
            Held::Renewed(lease) => self.lease = Some(lease),
            Held::Taken(lease) => {
                tracing::info!(epoch = lease.epoch, "{} controls from now on", self.name);
                self.lease = Some(lease);
                self.since = now;
                self.read_at = None;
            }
            Held::Others(_) => {
                if self.lease.is_some() {
                    self.lose();
                }
                return Ok(false);
            }
        }
        (self.renewed_at, self.told) = (Some(now), Some((now, Instant::now())));
        Ok(true)
    }

    fn is_pass_due(&self) -> bool {
        let every = TimeDelta::from_std(self.graphs.settings.pass).unwrap_or(TimeDelta::MAX);
        self.read_at.zip(self.about_now()).is_none_or(|(read, now)| now - read >= every)
    }

    /// About what time it is, without asking the database.
    fn about_now(&self) -> Option<Timestamp> {
        let passed = |(told, since): (Timestamp, Instant)| {
            told + TimeDelta::from_std(since.elapsed()).unwrap_or(TimeDelta::zero())
        };
        self.graphs.now().or_else(|| self.told.map(passed))
    }

    /// Another process controls: nothing that is believed here counts.
    fn lose(&mut self) {
        tracing::warn!("{} does not control any more", self.name);
        self.lease = None;
        self.renewed_at = None;
        self.read_at = None;
        self.memory = Memory::default();
    }

    /// Lets another process take over at once.
    pub async fn release(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let released = self.graphs.engine.store().release_controller(lease, self.graphs.now()).await;
        if let Err(error) = released {
            tracing::warn!("could not give the lease back: {}", chain(&error));
        }
    }
}
