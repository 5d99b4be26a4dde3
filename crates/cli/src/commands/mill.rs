//! The roles of syncs: scheduler, worker, consolidator, or all of them in one process.

use crate::args_server::Up;
use crate::args_sync::Worker;
use crate::config::Config;
use crate::environment;
use crate::fail::Failure;
use crate::out::Out;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_engine::sync::{ConsolidatorOptions, PagerOptions, Syncs};
use tidemill_engine::{Identity, Patience, Upkeep};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Time between two looks at what nobody else decides.
const REPAIR_EVERY: Duration = Duration::from_secs(2);
/// Old syncs are removed at every so many of these looks: about once in ten minutes.
const PRUNE_TURNS: u64 = 300;

/// Plans syncs until told to stop.
pub(super) async fn scheduler(
    syncs: Syncs,
    config: &Config,
    once: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    let stop = super::work::stop_signal();
    let upkeep = keep_up(&syncs, config.upkeep(), stop.clone());
    out.say(format!("the scheduler is running on {}: it plans syncs", place(&syncs)));
    let planned = syncs.schedule(identity("scheduler"), once, stop.clone()).await;
    upkeep.abort();
    ended(&syncs, out, end(once, &stop), "planned", planned?).await
}

/// Carries out pages until told to stop.
pub(super) async fn worker(
    syncs: Syncs,
    config: &Config,
    worker: Worker,
    out: Out,
) -> Result<ExitCode, Failure> {
    let stop = super::work::stop_signal();
    let upkeep = keep_up(&syncs, config.upkeep(), stop.clone());
    let options = options(&worker);
    let (least, most) = (options.pages_min, options.pages_max);
    let at_once = format!("between {least} and {most} at once");
    out.say(format!("the worker is running on {}: it carries out pages of syncs, {at_once}", place(&syncs)));
    let pages = syncs.work_pages(identity("worker"), &options, stop.clone()).await;
    upkeep.abort();
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
    let completed = syncs.consolidate(identity("consolidator"), &options, stop.clone()).await;
    upkeep.abort();
    ended(&syncs, out, end(once, &stop), "completed", completed?).await
}

/// Controls graphs until told to stop.
pub(super) async fn controller(syncs: Syncs, config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let stop = super::work::stop_signal();
    let upkeep = keep_up(&syncs, config.upkeep(), stop.clone());
    let graphs = Graphs::new(syncs.engine().with_patience(Patience::None), GraphSettings::default());
    out.say(format!("the controller is running on {}: it gives the jobs of graphs to agents", place(&syncs)));
    let ended = graphs.control(identity("controller"), stop).await;
    upkeep.abort();
    syncs.engine().store().close().await;
    ended?;
    out.say("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Every role in one process.
pub(super) async fn up(syncs: Syncs, config: &Config, up: Up, out: Out) -> Result<ExitCode, Failure> {
    let stop = super::work::stop_signal();
    let server =
        if up.no_server { None } else { Some(super::server::prepare(&syncs, config, &up.serve, out).await?) };
    let upkeep = keep_up(&syncs, config.upkeep(), stop.clone());
    out.say(format!("scheduler, worker, consolidator and controller are running on {}", place(&syncs)));
    let mut roles: JoinSet<Result<u64, tidemill_store::Error>> = JoinSet::new();
    let (here, told) = (syncs.clone(), stop.clone());
    roles.spawn(async move { here.schedule(identity("scheduler"), false, told).await });
    let (here, told, options) = (syncs.clone(), stop.clone(), options(&up.worker));
    roles.spawn(async move { here.work_pages(identity("worker"), &options, told).await });
    let (here, told) = (syncs.clone(), stop.clone());
    roles.spawn(async move {
        here.consolidate(identity("consolidator"), &ConsolidatorOptions::default(), told).await
    });
    let graphs = Graphs::new(syncs.engine().with_patience(Patience::None), GraphSettings::default());
    let told = stop.clone();
    roles.spawn(async move { graphs.control(identity("controller"), told).await.map(|()| 0) });
    if let Some(settings) = super::agent::beside(config, &up, out) {
        let client = crate::local::client(syncs.clone(), environment::person());
        let told = stop.clone();
        roles.spawn(async move {
            super::agent::accompany(settings, client, told, out).await;
            Ok(0)
        });
    }
    if let Some(server) = server {
        let told = stop.clone();
        roles.spawn(async move {
            server.serve(told).await;
            Ok(0)
        });
    }
    let mut failed = None;
    while let Some(role) = roles.join_next().await {
        match role {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => failed = failed.or(Some(Failure::from(error))),
            Err(error) => failed = failed.or(Some(Failure::outage(format!("a role ended: {error}")))),
        }
    }
    upkeep.abort();
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

/// Upkeep beside a role: sweeps, schedules, and what only syncs need. Harmless beside that of other processes.
pub(super) fn keep_up(
    syncs: &Syncs,
    upkeep: Upkeep,
    mut stop: watch::Receiver<bool>,
) -> tokio::task::AbortHandle {
    let syncs = syncs.clone();
    let engine = syncs.engine().with_patience(Patience::None);
    tokio::spawn(async move {
        let sweeping = async { engine.keep_up(&upkeep).await };
        let repairing = async {
            while !*stop.borrow() {
                if let Err(error) = syncs.repair().await {
                    tracing::warn!("could not look after syncs: {error}");
                }
                tokio::select! {
                    _ = stop.changed() => {}
                    () = tokio::time::sleep(REPAIR_EVERY) => {}
                }
            }
        };
        // Apart from the repairs: a place for copies that hangs must hold nothing else up.
        let copying = async {
            for turn in 0_u64.. {
                if turn % PRUNE_TURNS == 0
                    && let Err(error) = syncs.prune().await
                {
                    tracing::warn!("could not remove old syncs: {error}");
                }
                if let Err(error) = syncs.copy_watermarks().await {
                    tracing::warn!("could not copy watermarks: {error}");
                }
                tokio::time::sleep(REPAIR_EVERY).await;
            }
        };
        tokio::join!(sweeping, repairing, copying)
    })
    .abort_handle()
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
