//! Maintenance loops: sweep, schedules, alerts and retention.

use crate::alerts::CHECK_EVERY;
use crate::{Engine, schedules};
use std::time::Duration;
use tidemill_core::limits;
use tidemill_store::{Error, LoopError, LoopOptions, Next, PruneCounts, SweptRun, TaskMonitor, catch_panic};
use tokio::task::JoinSet;

/// Settings of the maintenance loops.
#[derive(Debug, Clone)]
pub struct Upkeep {
    /// Time without a heartbeat after which a worker process counts as dead.
    pub dead_after: Duration,
    /// How long finished runs are retained.
    pub retention: Duration,
    /// Time between two passes while there is work.
    pub every: Duration,
    /// Time between two passes while there is none.
    pub idle: Duration,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            dead_after: Duration::from_secs(limits::DEAD_AFTER_SECS),
            retention: Duration::from_secs(u64::from(limits::RETENTION_DAYS) * 24 * 3_600),
            every: Duration::from_secs(limits::SWEEP_SECS),
            idle: Duration::from_secs(limits::SWEEP_IDLE_SECS),
        }
    }
}

/// Report of one maintenance pass.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct UpkeepReport {
    /// Runs that the sweeper ended.
    pub swept: Vec<SweptRun>,
    /// Runs that schedules queued.
    pub scheduled: Vec<tidemill_core::RunId>,
    /// Counts of alert messages.
    pub told: crate::alerts::DeliveryCounts,
    pub pruned: PruneCounts,
    /// Audit entries that were sealed.
    pub sealed: usize,
}

/// Runs per sweep transaction. Each has a savepoint, and PostgreSQL caches up to 64 of them per backend.
const SWEEP_BATCH: usize = 60;
/// Rows per retention batch, so that transactions stay short.
const BATCH: usize = 500;
const SEAL_EVERY: Duration = Duration::from_secs(limits::SEAL_SECS);
const PRUNE_EVERY: Duration = Duration::from_mins(10);
/// Time between two batches of one prune, so that other writers get their turn.
const PRUNE_PAUSE: Duration = Duration::from_millis(100);
/// Shortest pause between two checks for due schedules.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Time limit of a pass: a server that stops answering must not block the loop, and the next pass does the rest.
const PASS_MAX: Duration = Duration::from_mins(2);

impl Engine {
    /// Runs all maintenance steps once: sweeps, fires schedules, sends alerts and prunes until nothing is due.
    ///
    /// A step that fails or panics does not stop the others; the first error is returned at the end.
    pub async fn upkeep(&self, upkeep: &Upkeep) -> Result<UpkeepReport, Error> {
        let (mut done, mut failure) = (UpkeepReport::default(), None);
        part(&mut failure, self.sweep_all(upkeep, &mut done.swept)).await;
        if let Some(fired) = part(&mut failure, self.fire_due()).await {
            done.scheduled.extend(schedules::queued(&fired).cloned());
        }
        part(&mut failure, self.raise_run_alerts()).await;
        part(&mut failure, Box::pin(self.check_conditions())).await;
        if let Some(told) = part(&mut failure, Box::pin(self.send_alerts())).await {
            done.told = told;
        }
        done.sealed = part(&mut failure, self.seal_audit()).await.unwrap_or(0);
        while let Some(pruned) = part(&mut failure, self.prune_batch(upkeep)).await {
            done.pruned.add(pruned);
            if is_last(&pruned) {
                break;
            }
        }
        failure.map_or(Ok(done), Err)
    }

    async fn sweep_all(&self, upkeep: &Upkeep, done: &mut Vec<SweptRun>) -> Result<(), Error> {
        loop {
            let swept = self.sweep(SWEEP_BATCH, upkeep.dead_after.as_secs_f64()).await?;
            let more = swept.len() >= SWEEP_BATCH;
            done.extend(swept);
            if !more {
                return Ok(());
            }
        }
    }

    /// Seals all audit entries that are committed; returns how many.
    pub async fn seal_audit(&self) -> Result<usize, Error> {
        let mut total = 0;
        loop {
            let sealed = self.store().seal_audit(limits::SEAL_ENTRIES_MAX, self.clock().now()).await?;
            total += sealed;
            if sealed < limits::SEAL_ENTRIES_MAX {
                return Ok(total);
            }
        }
    }

    /// Removes one batch of rows of each kind. A kind that fails does not stop the others.
    async fn prune_batch(&self, upkeep: &Upkeep) -> Result<PruneCounts, Error> {
        let now = self.store().now(self.clock().now()).await?;
        let mut failure = None;
        let repaired = part(&mut failure, self.store().repair_keys(BATCH)).await.unwrap_or(0);
        if repaired > 0 {
            tracing::warn!(
                "the head of {repaired} concurrency keys was gone; the next run in line got each key"
            );
        }
        part(&mut failure, self.store().prune_request_keys(now - chrono::Duration::days(1))).await;
        let replay = chrono::Duration::days(limits::HOOK_REPLAY_DAYS);
        part(&mut failure, self.store().prune_hook_deliveries(now - replay)).await;
        let retention = chrono::Duration::from_std(upkeep.retention).unwrap_or(chrono::Duration::MAX);
        let mut pruned = PruneCounts::default();
        if let Some(before) = now.checked_sub_signed(retention) {
            part(&mut failure, self.store().prune_access(before, now, BATCH)).await;
            pruned = part(&mut failure, self.store().prune(before, BATCH)).await.unwrap_or_default();
        }
        failure.map_or(Ok(pruned), Err)
    }

    /// Runs the maintenance loops forever, each in a supervised task. Several processes may run them at the same time.
    /// Dropping the future ends the tasks.
    pub async fn run_maintenance(&self, upkeep: &Upkeep) {
        let mut tasks = JoinSet::new();
        let every = upkeep.every;
        // The back-off after a failure must not exceed the pause of an idle process.
        let options = |name| LoopOptions::new(name).backoff_max(upkeep.idle.max(every));
        let (engine, settings) = (self.clone(), upkeep.clone());
        tasks.spawn(self.monitor().run(options("sweep"), move || {
            let (engine, upkeep) = (engine.clone(), settings.clone());
            async move { engine.sweep_pass(&upkeep).await }
        }));
        let (engine, settings) = (self.clone(), upkeep.clone());
        tasks.spawn(self.monitor().run(options("schedules"), move || {
            let (engine, upkeep) = (engine.clone(), settings.clone());
            async move { engine.fire_pass(&upkeep).await }
        }));
        let engine = self.clone();
        tasks.spawn(
            self.monitor().run(options("alert_notices"), move || {
                let engine = engine.clone();
                async move {
                    in_time(engine.raise_run_alerts()).await.map(|_| Next::After(every)).map_err(Into::into)
                }
            }),
        );
        let engine = self.clone();
        tasks.spawn(self.monitor().run(options("alert_checks"), move || {
            let engine = engine.clone();
            async move {
                in_time(engine.check_conditions())
                    .await
                    .map(|()| Next::After(CHECK_EVERY))
                    .map_err(Into::into)
            }
        }));
        let engine = self.clone();
        tasks.spawn(self.monitor().run(options("alert_delivery"), move || {
            let engine = engine.clone();
            // No time limit for the pass: each target has its own, and there may be many targets.
            async move { engine.send_alerts().await.map(|_| Next::After(every)).map_err(Into::into) }
        }));
        let engine = self.clone();
        tasks.spawn(
            self.monitor().run(LoopOptions::new("audit_seal").backoff_max(SEAL_EVERY), move || {
                let engine = engine.clone();
                async move {
                    in_time(engine.seal_audit()).await.map(|_| Next::After(SEAL_EVERY)).map_err(Into::into)
                }
            }),
        );
        let (engine, settings) = (self.clone(), upkeep.clone());
        tasks.spawn(self.monitor().run(LoopOptions::new("prune").backoff_max(PRUNE_EVERY), move || {
            let (engine, upkeep) = (engine.clone(), settings.clone());
            async move {
                let pruned = in_time(engine.prune_batch(&upkeep)).await?;
                // The number of batches is not limited: everything that expires in an interval must go in that
                // interval.
                Ok(Next::After(if is_last(&pruned) { PRUNE_EVERY } else { PRUNE_PAUSE }))
            }
        }));
        while tasks.join_next().await.is_some() {}
    }

    fn monitor(&self) -> TaskMonitor {
        self.store().monitor().clone()
    }

    async fn sweep_pass(&self, upkeep: &Upkeep) -> Result<Next, LoopError> {
        let mut swept = Vec::new();
        in_time(self.sweep_all(upkeep, &mut swept)).await?;
        Ok(Next::After(self.longest_pause(upkeep, !swept.is_empty()).await))
    }

    async fn fire_pass(&self, upkeep: &Upkeep) -> Result<Next, LoopError> {
        let fired = in_time(self.fire_due()).await?;
        let longest = self.longest_pause(upkeep, !fired.is_empty()).await;
        Ok(Next::After(in_time(self.until_next_fire(longest)).await?))
    }

    /// Returns the time until the next fire, at most `longest`.
    async fn until_next_fire(&self, longest: Duration) -> Result<Duration, Error> {
        let now = self.store().now(self.clock().now()).await?;
        let span = chrono::Duration::from_std(longest).unwrap_or(chrono::Duration::MAX);
        let end = now.checked_add_signed(span).unwrap_or(now);
        let next = self.store().next_fire(end).await?;
        let until = next.map(|next| (next - now).to_std().unwrap_or_default());
        Ok(until.unwrap_or(longest).clamp(PAUSE_MIN, longest.max(PAUSE_MIN)))
    }

    /// Returns the pause after a pass: short while there is work or a live worker.
    async fn longest_pause(&self, upkeep: &Upkeep, busy: bool) -> Duration {
        let has_work = busy || matches!(catch_panic(in_time(self.has_work())).await, Ok(Ok(true)) | Err(_));
        if has_work { upkeep.every } else { upkeep.idle }
    }

    async fn has_work(&self) -> Result<bool, Error> {
        let workers = self.store().workers().await?;
        Ok(workers.iter().any(|worker| worker.ended_at.is_none()))
    }
}

/// Runs one step of a pass. An error or panic is stored in `failure` unless that holds an earlier one.
pub(crate) async fn part<T>(
    failure: &mut Option<Error>,
    part: impl Future<Output = Result<T, Error>>,
) -> Option<T> {
    let done = catch_panic(part).await.unwrap_or_else(|panic| Err(Error::Panicked { panic }));
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            failure.get_or_insert(error);
            None
        }
    }
}

/// Whether the batch was the last one.
fn is_last(pruned: &PruneCounts) -> bool {
    let PruneCounts { runs, events, alerts, jobs, pieces, workers: _, fires: _ } = *pruned;
    runs == 0 && events == 0 && alerts == 0 && jobs == 0 && pieces == 0
}

async fn in_time<T>(pass: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(PASS_MAX, pass)
        .await
        .unwrap_or_else(|_| Err(Error::unanswered("run a maintenance pass")))
}
