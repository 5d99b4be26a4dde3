//! The presence of a process: one row that says that it lives, beaten until it ends.

use crate::Engine;
use crate::patience::chain;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, WorkerId};
use tidemill_store::{Error, LoopOptions, Next, RefusalCode};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Who a process is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// A name for people; several processes may share it.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// What it offers.
    pub labels: Vec<String>,
}

/// Whose process a role runs in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Process {
    /// Its own: once it is drained, it ends.
    #[default]
    Own,
    /// One that it shares with other roles: once it is drained it takes nothing, until it is told otherwise.
    Shared,
}

/// A process that others can see.
#[derive(Debug)]
pub(crate) struct Presence {
    engine: Engine,
    identity: Identity,
    process: Process,
    worker: Arc<Mutex<WorkerId>>,
    held: Arc<Mutex<HashSet<RunId>>>,
    draining: watch::Receiver<bool>,
    beating: JoinHandle<()>,
}

impl Presence {
    /// Registers the process, and beats from now on.
    pub(crate) async fn begin(
        engine: &Engine,
        identity: Identity,
        process: Process,
        every: Duration,
    ) -> Result<Self, Error> {
        let worker = Arc::new(Mutex::new(register(engine, &identity).await?));
        let held: Arc<Mutex<HashSet<RunId>>> = Arc::default();
        let (told, draining) = watch::channel(false);
        let heart = Arc::new(Heart {
            engine: engine.clone(),
            identity: identity.clone(),
            worker: worker.clone(),
            held: held.clone(),
            draining: told,
        });
        // A failure must not make the beats rarer: silence is what others take a dead process by.
        let options = LoopOptions::new("heartbeat").first_after(every).backoff_max(every);
        let beating = engine.store().monitor().spawn(options, move || {
            let heart = heart.clone();
            async move { heart.beat().await.map(|()| Next::After(every)).map_err(Into::into) }
        });
        Ok(Self { engine: engine.clone(), identity, process, worker, held, draining, beating })
    }

    /// The process, as it is known now. A process that was taken for dead is known anew.
    pub(crate) fn worker(&self) -> WorkerId {
        *self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    /// Whether somebody asked it to drain: to end what it has, and to take nothing new.
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// The same for those who work for it.
    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.clone()
    }

    /// Whether it is to end, now that it has nothing in hand.
    pub(crate) async fn is_drained(&self) -> bool {
        if !self.is_draining() || self.process != Process::Own {
            return false;
        }
        // What the last beat told may have been taken back since.
        let ends = self.engine.store().is_draining(self.worker()).await.unwrap_or(true);
        if ends {
            tracing::info!("{} was asked to drain, and has nothing in hand: it ends", self.identity.name);
        }
        ends
    }

    /// Keeps the lease of a run.
    pub(crate) fn hold(&self, run: &RunId) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(run.clone());
    }

    /// No longer keeps it.
    pub(crate) fn release(&self, run: &RunId) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
    }

    /// Says goodbye.
    pub(crate) async fn end(self) {
        self.beating.abort();
        let now = self.engine.clock().now();
        if let Err(error) = self.engine.store().retire_worker(self.worker(), now).await {
            tracing::warn!("could not say goodbye: {}", chain(&error));
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // However the process' part ends: what nobody does any more must not be kept by a beat.
        self.beating.abort();
    }
}

async fn register(engine: &Engine, identity: &Identity) -> Result<WorkerId, Error> {
    let worker_id = WorkerId(uuid::Uuid::new_v4());
    let worker = NewWorker {
        worker_id,
        name: identity.name.clone(),
        host: identity.host.clone(),
        pid: i64::from(std::process::id()),
        labels: identity.labels.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    engine.store().register_worker(worker, engine.clock().now()).await?;
    Ok(worker_id)
}

/// What beats.
struct Heart {
    engine: Engine,
    identity: Identity,
    worker: Arc<Mutex<WorkerId>>,
    held: Arc<Mutex<HashSet<RunId>>>,
    draining: watch::Sender<bool>,
}

impl Heart {
    /// Says once that the process lives.
    async fn beat(&self) -> Result<(), Error> {
        let known = *self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = self.held.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        match self.engine.store().beat_worker(known, runs, self.engine.clock().now()).await {
            Ok(beaten) => {
                self.draining.send_replace(beaten.draining);
                Ok(())
            }
            Err(error) if error.refusal_code() == Some(RefusalCode::Stale) => {
                // Taken for dead, while it was frozen or cut off: what it held is gone, and it begins anew.
                tracing::warn!("{} was taken for dead, and begins anew", self.identity.name);
                let anew = register(&self.engine, &self.identity).await?;
                *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = anew;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
