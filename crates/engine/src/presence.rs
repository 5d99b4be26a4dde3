//! Registration of a process in the `workers` table, with heartbeats until it ends.

use crate::Engine;
use crate::retry_policy::chain;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, WorkerId};
use tidemill_store::{Error, LoopOptions, Next, RefusalCode};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Identity of a process.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Display name; several processes may share it.
    pub name: String,
    pub host: String,
    pub labels: Vec<String>,
}

/// Whether a role has a process of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Process {
    /// A drained role ends its process.
    #[default]
    Own,
    /// The role shares the process with others: when drained it takes no work, and continues when the flag is cleared.
    Shared,
}

/// A process that is registered in the database and sends heartbeats.
#[derive(Debug)]
pub(crate) struct Presence {
    engine: Engine,
    identity: Identity,
    process: Process,
    worker: Arc<Mutex<WorkerId>>,
    held: Arc<Mutex<HashSet<RunId>>>,
    draining: watch::Receiver<bool>,
    heartbeats: JoinHandle<()>,
}

impl Presence {
    /// Registers the process and starts the heartbeats.
    pub(crate) async fn begin(
        engine: &Engine,
        identity: Identity,
        process: Process,
        every: Duration,
    ) -> Result<Self, Error> {
        let worker = Arc::new(Mutex::new(register(engine, &identity).await?));
        let held: Arc<Mutex<HashSet<RunId>>> = Arc::default();
        let (sender, draining) = watch::channel(false);
        let task = Arc::new(HeartbeatTask {
            engine: engine.clone(),
            identity: identity.clone(),
            worker: worker.clone(),
            held: held.clone(),
            draining: sender,
        });
        // A failure must not delay the next heartbeat: other processes take a silent process for dead.
        let options = LoopOptions::new("heartbeat").first_after(every).backoff_max(every);
        let heartbeats = engine.store().monitor().spawn(options, move || {
            let task = task.clone();
            async move { task.send().await.map(|()| Next::After(every)).map_err(Into::into) }
        });
        Ok(Self { engine: engine.clone(), identity, process, worker, held, draining, heartbeats })
    }

    /// Returns the current worker id. It changes when the process was declared dead and registered again.
    pub(crate) fn worker(&self) -> WorkerId {
        *self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn name(&self) -> &str {
        &self.identity.name
    }

    /// Whether an operator asked this process to drain: finish its work and take nothing new.
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.clone()
    }

    /// Whether the idle process is to end because of a drain.
    pub(crate) async fn is_drained(&self) -> bool {
        if !self.is_draining() || self.process != Process::Own {
            return false;
        }
        // The drain may have been revoked since the last heartbeat.
        let ends = self.engine.store().is_draining(self.worker()).await.unwrap_or(true);
        if ends {
            tracing::info!("{} is drained and idle; it exits", self.identity.name);
        }
        ends
    }

    /// Renews the lease of a run with each heartbeat.
    pub(crate) fn hold(&self, run: &RunId) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(run.clone());
    }

    /// Stops renewing the lease of a run.
    pub(crate) fn release(&self, run: &RunId) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
    }

    /// Stops the heartbeats and marks the process as ended.
    pub(crate) async fn end(self) {
        self.heartbeats.abort();
        let now = self.engine.clock().now();
        if let Err(error) = self.engine.store().retire_worker(self.worker(), now).await {
            tracing::warn!("could not deregister this process: {}", chain(&error));
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // A heartbeat without its role would keep leases alive that no task serves.
        self.heartbeats.abort();
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

struct HeartbeatTask {
    engine: Engine,
    identity: Identity,
    worker: Arc<Mutex<WorkerId>>,
    held: Arc<Mutex<HashSet<RunId>>>,
    draining: watch::Sender<bool>,
}

impl HeartbeatTask {
    async fn send(&self) -> Result<(), Error> {
        let known = *self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = self.held.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        match self.engine.store().heartbeat_worker(known, runs, self.engine.clock().now()).await {
            Ok(response) => {
                self.draining.send_replace(response.draining);
                Ok(())
            }
            Err(error) if error.refusal_code() == Some(RefusalCode::Stale) => {
                // The process was frozen or cut off and declared dead. Its leases are gone, so it registers again.
                tracing::warn!("{} was declared dead; registering again", self.identity.name);
                let worker = register(&self.engine, &self.identity).await?;
                *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = worker;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
