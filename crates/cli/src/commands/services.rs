//! Common parts of the services: queue settings, supervision of roles, and the maintenance loops.

use super::worker::DRAINED;
use crate::config::Config;
use crate::config::sync::QueueOverrides;
use crate::environment;
use crate::failure::Failure;
use crate::out::Out;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Identity, RetryPolicy, Upkeep};
use tidemill_store::{LoopOptions, Next, Queue as _};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Time after which a starting service gives up while the database does not answer.
const PATIENCE: RetryPolicy = RetryPolicy::For(Duration::from_secs(10));
/// Interval of the repair of syncs, and of the copies of watermarks.
const REPAIR_EVERY: Duration = Duration::from_secs(2);
/// Interval of the deletion of old syncs.
const PRUNE_EVERY: Duration = Duration::from_mins(10);

/// A service with its maintenance loops, which stops on SIGTERM.
pub(super) struct Service {
    stop: watch::Receiver<bool>,
    maintenance: JoinSet<()>,
}

impl Service {
    /// Configures the queues, and starts the maintenance loops.
    pub(super) async fn start(syncs: &Syncs, config: &Config) -> Result<Self, Failure> {
        configure_queues(syncs, config).await?;
        let stop = super::work::stop_signal();
        let maintenance = start_maintenance(syncs, config.upkeep(), stop.clone());
        Ok(Self { stop, maintenance })
    }

    pub(super) fn stop(&self) -> watch::Receiver<bool> {
        self.stop.clone()
    }

    /// Stops the maintenance loops, closes the database and prints the result.
    ///
    /// A service that ended without `--once` and without a signal was drained.
    pub(super) async fn finish(
        self,
        syncs: &Syncs,
        once: bool,
        unit: &str,
        result: Result<u64, tidemill_store::Error>,
        out: Out,
    ) -> Result<ExitCode, Failure> {
        drop(self.maintenance);
        let count = result?;
        let end = if once || *self.stop.borrow() { "stopped" } else { DRAINED };
        syncs.engine().store().close().await;
        if out.is_json() {
            out.print_json(&serde_json::json!({unit: count}));
        } else {
            out.inform(format!("{end}; {unit}: {count}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the configured queue settings to the database. Other settings keep their values.
pub(super) async fn configure_queues(syncs: &Syncs, config: &Config) -> Result<(), Failure> {
    if config.queues == QueueOverrides::default() {
        return Ok(());
    }
    let store = syncs.engine().store();
    let current = PATIENCE.retry("read the queue settings", || store.queues()).await?;
    for settings in config.queues.changes(&current) {
        tracing::info!(
            "queue {} has new settings: lock {} s, {} deliveries, window {} s",
            settings.queue,
            settings.lock_secs,
            settings.deliveries_max,
            settings.window_secs.unwrap_or(0)
        );
        PATIENCE.retry("configure a queue", || store.set_queue(settings.clone())).await?;
    }
    Ok(())
}

pub(super) fn identity(role: &str) -> Identity {
    Identity {
        name: format!("{}-{role}", environment::host()),
        host: environment::host(),
        labels: Vec::new(),
    }
}

/// Longest delay before a failed role restarts. A shutdown may have to wait for it.
const ROLE_BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Runs a role, and restarts it after a panic. Returns an error to the caller.
pub(super) async fn run_role<T, F>(
    syncs: &Syncs,
    name: &'static str,
    mut run: impl FnMut() -> F,
) -> Result<T, tidemill_store::Error>
where
    F: Future<Output = Result<T, tidemill_store::Error>>,
{
    let ended = Mutex::new(None);
    let options = LoopOptions::new(name).long_pass().backoff_max(ROLE_BACKOFF_MAX);
    let pass = || {
        let (running, ended) = (Box::pin(run()), &ended);
        async move {
            let done = running.await;
            *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            Ok(Next::End)
        }
    };
    syncs.engine().store().monitor().clone().run(options, pass).await;
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    ended.unwrap_or_else(|| Err(tidemill_store::Error::unanswered("run this role")))
}

/// Runs a role beside others in one process, and restarts it after an error or a panic.
pub(super) fn spawn_role<F>(
    roles: &mut JoinSet<()>,
    syncs: &Syncs,
    name: &'static str,
    stop: &watch::Receiver<bool>,
    mut run: impl FnMut() -> F + Send + 'static,
) where
    F: Future<Output = Result<(), tidemill_store::Error>> + Send + 'static,
{
    let options = LoopOptions::new(name).long_pass().backoff_max(ROLE_BACKOFF_MAX);
    let stop = stop.clone();
    roles.spawn(syncs.engine().store().monitor().clone().run(options, move || {
        let running = (!*stop.borrow()).then(&mut run);
        async move {
            if let Some(running) = running {
                running.await?;
            }
            Ok(Next::End)
        }
    }));
}

/// Starts the maintenance loops: sweeps, schedules, and those of syncs, each in a supervised task.
///
/// Several processes may run them at once. The tasks end when the set is dropped.
pub(super) fn start_maintenance(syncs: &Syncs, upkeep: Upkeep, stop: watch::Receiver<bool>) -> JoinSet<()> {
    let (monitor, mut tasks) = (syncs.engine().store().monitor(), JoinSet::new());
    let engine = syncs.engine().with_retry_policy(RetryPolicy::None);
    tasks.spawn(async move { engine.run_maintenance(&upkeep).await });
    let here = syncs.clone();
    tasks.spawn(monitor.clone().run(LoopOptions::new("sync_repair"), move || {
        let (syncs, is_over) = (here.clone(), *stop.borrow());
        async move {
            if is_over {
                return Ok(Next::End);
            }
            syncs.repair().await?;
            Ok(Next::After(REPAIR_EVERY))
        }
    }));
    // Not in the repair loop, because a destination for copies that hangs must not delay the repairs.
    let here = syncs.clone();
    tasks.spawn(monitor.clone().run(LoopOptions::new("watermark_copy"), move || {
        let syncs = here.clone();
        async move { syncs.copy_watermarks().await.map(|_| Next::After(REPAIR_EVERY)).map_err(Into::into) }
    }));
    let here = syncs.clone();
    tasks.spawn(monitor.clone().run(LoopOptions::new("sync_prune"), move || {
        let syncs = here.clone();
        async move { syncs.prune().await.map(|_| Next::After(PRUNE_EVERY)).map_err(Into::into) }
    }));
    tasks
}
