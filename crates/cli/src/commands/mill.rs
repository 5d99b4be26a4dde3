//! The roles of syncs: scheduler, worker, consolidator, or all of them in one process.

use crate::args_server::Up;
use crate::args_sync::Worker;
use crate::config::Config;
use crate::config_sync::QueueNumbers;
use crate::environment;
use crate::fail::Failure;
use crate::out::Out;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_engine::sync::{ConsolidatorOptions, PagerOptions, Syncs};
use tidemill_engine::{Identity, Patience, Upkeep};
use tidemill_store::{LoopOptions, Next, Queue as _};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a role that starts goes on trying while the database does not answer.
const PATIENCE: Patience = Patience::For(Duration::from_secs(10));
/// Time between two looks at what nobody else decides.
const REPAIR_EVERY: Duration = Duration::from_secs(2);
/// Time between two removals of old syncs.
const PRUNE_EVERY: Duration = Duration::from_mins(10);

/// Gives the queues the settings that are configured. Settings that are not stay as the database has them.
async fn configure_queues(syncs: &Syncs, config: &Config) -> Result<(), Failure> {
    if config.queues == QueueNumbers::default() {
        return Ok(());
    }
    let store = syncs.engine().store();
    let present = PATIENCE.settle("read the settings of queues", || store.queues()).await?;
    for settings in config.queues.changed(&present) {
        tracing::info!(
            "queue {} is configured anew: lock {} s, {} deliveries, window {} s",
            settings.queue,
            settings.lock_secs,
            settings.deliveries_max,
            settings.window_secs.unwrap_or(0)
        );
        PATIENCE.settle("configure a queue", || store.set_queue(settings.clone())).await?;
    }
    Ok(())
}

/// Plans syncs until told to stop.
pub(super) async fn scheduler(
    syncs: Syncs,
    config: &Config,
    once: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    configure_queues(&syncs, config).await?;
    let stop = super::work::stop_signal();
    let upkeep = keep_up(&syncs, config.upkeep(), stop.clone());
    out.say(format!("the scheduler is running on {}: it plans syncs", place(&syncs)));
    let run = || syncs.schedule(identity("scheduler"), once, stop.clone());
    let planned = role(&syncs, "scheduler", run).await;
    drop(upkeep);
    ended(&syncs, out, end(once, &stop), "planned", planned?).await
}

/// Carries out pages until told to stop.
pub(super) async fn worker(
    syncs: Syncs,
    config: &Config,
    worker: Worker,
    out: Out,
) -> Result<ExitCode, Failure> {
    configure_queues(&syncs, config).await?;
    let stop = super::work::stop_signal();
    let upkeep = keep_up(&syncs, config.upkeep(), stop.clone());
    let options = options(&worker);
    let (least, most) = (options.pages_min, options.pages_max);
    let at_once = format!("between {least} and {most} at once");
    out.say(format!("the worker is running on {}: it carries out pages of syncs, {at_once}", place(&syncs)));
    let run = || syncs.work_pages(identity("worker"), &options, stop.clone());
    let pages = role(&syncs, "page_worker", run).await;
    drop(upkeep);
    ended(&syncs, out, end(worker.once, &stop), "pages", pages?).await
}

/// Consolidates until told to stop.
pub(super) async fn consolidator(
    syncs: Syncs,
    config: &Config,
    concurrency: Option<u16>,
    once: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    configure_queues(&syncs, config).await?;
    let stop = super::work::stop_signal();
    let upkeep = keep_up(&syncs, config.upkeep(), stop.clone());
    out.say(format!(
        "the consolidator is running on {}: it brings what was fetched into the table",
        place(&syncs)
    ));
    let mut options = ConsolidatorOptions { once, ..ConsolidatorOptions::default() };
    if let Some(concurrency) = concurrency {
        options.concurrency = concurrency.into();
    }
    let run = || syncs.consolidate(identity("consolidator"), &options, stop.clone());
    let completed = role(&syncs, "consolidator", run).await;
    drop(upkeep);
    ended(&syncs, out, end(once, &stop), "completed", completed?).await
}

/// Controls graphs until told to stop.
pub(super) async fn controller(syncs: Syncs, config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let stop = super::work::stop_signal();
    let upkeep = keep_up(&syncs, config.upkeep(), stop.clone());
    let graphs = Graphs::new(syncs.engine().with_patience(Patience::None), GraphSettings::default());
    out.say(format!("the controller is running on {}: it gives the jobs of graphs to agents", place(&syncs)));
    let ended = role(&syncs, "controller", || graphs.control(identity("controller"), stop.clone())).await;
    drop(upkeep);
    syncs.engine().store().close().await;
    ended?;
    out.say("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Every role in one process.
pub(super) async fn up(syncs: Syncs, config: &Config, up: Up, out: Out) -> Result<ExitCode, Failure> {
    configure_queues(&syncs, config).await?;
    let stop = super::work::stop_signal();
    let server =
        if up.no_server { None } else { Some(super::server::prepare(&syncs, config, &up.serve, out).await?) };
    let upkeep = keep_up(&syncs, config.upkeep(), stop.clone());
    out.say(format!("scheduler, worker, consolidator and controller are running on {}", place(&syncs)));
    let mut roles: JoinSet<()> = JoinSet::new();
    let (here, told) = (syncs.clone(), stop.clone());
    spawn_role(&mut roles, &syncs, "scheduler", &stop, move || {
        let (here, told) = (here.clone(), told.clone());
        async move { here.schedule(identity("scheduler"), false, told).await.map(|_| ()) }
    });
    let (here, told, options) = (syncs.clone(), stop.clone(), options(&up.worker));
    spawn_role(&mut roles, &syncs, "page_worker", &stop, move || {
        let (here, told, options) = (here.clone(), told.clone(), options.clone());
        async move { here.work_pages(identity("worker"), &options, told).await.map(|_| ()) }
    });
    let (here, told) = (syncs.clone(), stop.clone());
    spawn_role(&mut roles, &syncs, "consolidator", &stop, move || {
        let (here, told) = (here.clone(), told.clone());
        let options = ConsolidatorOptions::default();
        async move { here.consolidate(identity("consolidator"), &options, told).await.map(|_| ()) }
    });
    let graphs = Graphs::new(syncs.engine().with_patience(Patience::None), GraphSettings::default());
    let told = stop.clone();
    spawn_role(&mut roles, &syncs, "controller", &stop, move || {
        let (graphs, told) = (graphs.clone(), told.clone());
        async move { graphs.control(identity("controller"), told).await }
    });
    if let Some(settings) = super::agent::beside(config, &up, out) {
        let client = crate::local::client(syncs.clone(), environment::person());
        let told = stop.clone();
        spawn_role(&mut roles, &syncs, "agent", &stop, move || {
            let (settings, client, told) = (settings.clone(), client.clone(), told.clone());
            async move {
                super::agent::accompany(settings, client, told, out).await;
                Ok(())
            }
        });
    }
    if let Some(server) = server {
        let told = stop.clone();
        // The server supervises its own loop: it cannot be begun again without its socket.
        roles.spawn(async move { server.serve(told).await });
    }
    let mut failed = None;
    while let Some(role) = roles.join_next().await {
        if let Err(error) = role {
            failed = failed.or(Some(Failure::outage(format!("a role ended: {error}"))));
        }
    }
    drop(upkeep);
    syncs.engine().store().close().await;
    let times = syncs.step_times();
    if out.is_json() {
        out.json(&serde_json::json!({"pages": times}));
    } else if times.count > 0 {
        out.say(format!(
            "{} pages; but for the fetch, half of them took {:.1} ms or less",
            times.count, times.p50_ms
        ));
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Where the data is, without a password.
fn place(syncs: &Syncs) -> String {
    syncs.engine().store().place()
}

fn options(worker: &Worker) -> PagerOptions {
    PagerOptions {
        pages_min: worker.pages_min.max(1),
        pages_max: worker.pages_max.max(worker.pages_min).max(1),
        once: worker.once,
    }
}

fn identity(role: &str) -> Identity {
    Identity {
        name: format!("{}-{role}", environment::host()),
        host: environment::host(),
        labels: Vec::new(),
    }
}

/// Longest wait before a role that failed starts again. A process that is told to stop may have to wait for it.
const ROLE_BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Runs a role, and starts it again should it panic. An error ends it, and is for the caller.
async fn role<T, F>(
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

/// Runs a role beside others in one process, and starts it again should it fail or panic.
fn spawn_role<F>(
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

/// Upkeep beside a role: sweeps, schedules, and what only syncs need, each in a supervised task. Harmless beside that
/// of other processes. The tasks end when the set is dropped.
pub(super) fn keep_up(syncs: &Syncs, upkeep: Upkeep, stop: watch::Receiver<bool>) -> JoinSet<()> {
    let (monitor, mut tasks) = (syncs.engine().store().monitor(), JoinSet::new());
    let engine = syncs.engine().with_patience(Patience::None);
    tasks.spawn(async move { engine.keep_up(&upkeep).await });
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
    // Apart from the repairs: a place for copies that hangs must hold nothing else up.
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

/// Why a role ended: one that has no end, and that nobody stopped, was drained.
fn end(once: bool, stop: &watch::Receiver<bool>) -> &'static str {
    if once || *stop.borrow() { "stopped" } else { super::workers::DRAINED }
}

async fn ended(syncs: &Syncs, out: Out, why: &str, what: &str, count: u64) -> Result<ExitCode, Failure> {
    syncs.engine().store().close().await;
    if out.is_json() {
        out.json(&serde_json::json!({what: count}));
    } else {
        out.say(format!("{why}; {what}: {count}"));
    }
    Ok(ExitCode::SUCCESS)
}
