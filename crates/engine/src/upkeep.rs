//! Upkeep: what somebody has to do now and then, so that nothing waits for a person.

use crate::alerts::LOOK_EVERY;
use crate::{Engine, schedules};
use std::time::Duration;
use tidemill_core::limits;
use tidemill_store::{Error, LoopError, LoopOptions, Next, Pruned, Swept, TaskMonitor, catch_panic};
use tokio::task::JoinSet;

/// How upkeep is done.
#[derive(Debug, Clone)]
pub struct Upkeep {
    /// Silence after which a worker process counts as dead.
    pub dead_after: Duration,
    /// How long finished runs are kept.
    pub retention: Duration,
    /// Time between two passes while there is work.
    pub every: Duration,
    /// Time between two passes when nothing happens.
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

/// What one pass did.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Upkept {
    /// Runs that the sweeper ended.
    pub swept: Vec<Swept>,
    /// Runs that schedules queued.
    pub scheduled: Vec<tidemill_core::RunId>,
    /// What became of messages to people.
    pub told: crate::alerts::Sent,
    /// What retention removed.
    pub pruned: Pruned,
}

/// Runs in one sweep. Each has a savepoint of its own, and PostgreSQL keeps up to 64 of them in memory.
const SWEEP_BATCH: usize = 60;
/// Rows in one batch of a prune: bounded, so that no transaction is long.
const BATCH: usize = 500;
/// Time between two prunes.
const PRUNE_EVERY: Duration = Duration::from_mins(10);
/// Time between two batches of one prune: others have things to write, too.
const PRUNE_PAUSE: Duration = Duration::from_millis(100);
/// The shortest pause between two looks at schedules.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// How long a pass may take: a server that dies silently must not end upkeep, and the next pass does the rest.
const PASS_MAX: Duration = Duration::from_mins(2);

impl Engine {
    /// Does all parts of upkeep once: sweeps, fires, alerts and prunes until nothing is left to do at this moment.
    ///
    /// A part that fails or panics does not keep the others from being done; the first error is returned at the end.
    pub async fn upkeep(&self, upkeep: &Upkeep) -> Result<Upkept, Error> {
        let (mut done, mut failure) = (Upkept::default(), None);
        part(&mut failure, self.sweep_all(upkeep, &mut done.swept)).await;
        if let Some(fired) = part(&mut failure, self.fire_due()).await {
            done.scheduled.extend(schedules::queued(&fired).cloned());
        }
        part(&mut failure, self.hear_of_runs()).await;
        part(&mut failure, Box::pin(self.look_around())).await;
        if let Some(told) = part(&mut failure, Box::pin(self.send_alerts())).await {
            done.told = told;
        }
        while let Some(pruned) = part(&mut failure, self.prune_batch(upkeep)).await {
            done.pruned.add(pruned);
            if is_last(&pruned) {
                break;
            }
        }
        failure.map_or(Ok(done), Err)
    }

    async fn sweep_all(&self, upkeep: &Upkeep, done: &mut Vec<Swept>) -> Result<(), Error> {
        loop {
            let swept = self.sweep(SWEEP_BATCH, upkeep.dead_after.as_secs_f64()).await?;
            let more = swept.len() >= SWEEP_BATCH;
            done.extend(swept);
            if !more {
                return Ok(());
            }
        }
    }

    /// Removes one batch of each kind. A kind that fails does not keep the others from being removed.
    async fn prune_batch(&self, upkeep: &Upkeep) -> Result<Pruned, Error> {
        let now = self.store().now(self.clock().now()).await?;
        let mut failure = None;
        let repaired = part(&mut failure, self.store().repair_keys(BATCH)).await.unwrap_or(0);
        if repaired > 0 {
            tracing::warn!(
                "{repaired} concurrency keys had a head that is gone, and were given to the next in line"
            );
        }
        part(&mut failure, self.store().prune_request_keys(now - chrono::Duration::days(1))).await;
        let kept = chrono::Duration::from_std(upkeep.retention).unwrap_or(chrono::Duration::MAX);
        let mut pruned = Pruned::default();
        if let Some(before) = now.checked_sub_signed(kept) {
            part(&mut failure, self.store().prune_access(before, now, BATCH)).await;
            pruned = part(&mut failure, self.store().prune(before, BATCH)).await.unwrap_or_default();
        }
        failure.map_or(Ok(pruned), Err)
    }

    /// Does upkeep for ever, each part in a supervised task of its own. Passes are harmless beside those of other
    /// processes. The tasks end when the future is dropped.
    pub async fn keep_up(&self, upkeep: &Upkeep) {
        let mut tasks = JoinSet::new();
        let every = upkeep.every;
        // A wait after a failure must not be longer than the pause of a process without work.
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
        tasks.spawn(self.monitor().run(options("alert_notices"), move || {
            let engine = engine.clone();
            async move { in_time(engine.hear_of_runs()).await.map(|_| Next::After(every)).map_err(Into::into) }
        }));
        let engine = self.clone();
        tasks.spawn(self.monitor().run(options("alert_checks"), move || {
            let engine = engine.clone();
            async move {
                in_time(engine.look_around()).await.map(|()| Next::After(LOOK_EVERY)).map_err(Into::into)
            }
        }));
        let engine = self.clone();
        tasks.spawn(self.monitor().run(options("alert_delivery"), move || {
            let engine = engine.clone();
            // Not bounded in time: a target has its own time limit, and there may be many.
            async move { engine.send_alerts().await.map(|_| Next::After(every)).map_err(Into::into) }
        }));
        let (engine, settings) = (self.clone(), upkeep.clone());
        tasks.spawn(self.monitor().run(LoopOptions::new("prune").backoff_max(PRUNE_EVERY), move || {
            let (engine, upkeep) = (engine.clone(), settings.clone());
            async move {
                let pruned = in_time(engine.prune_batch(&upkeep)).await?;
                // There may be any number of batches: what ends in that time must go in that time.
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

    /// The time to the next fire, or `longest` where that is shorter.
    async fn until_next_fire(&self, longest: Duration) -> Result<Duration, Error> {
        let now = self.store().now(self.clock().now()).await?;
        let span = chrono::Duration::from_std(longest).unwrap_or(chrono::Duration::MAX);
        let end = now.checked_add_signed(span).unwrap_or(now);
        let next = self.store().next_fire(end).await?;
        let until = next.map(|next| (next - now).to_std().unwrap_or_default());
        Ok(until.unwrap_or(longest).clamp(PAUSE_MIN, longest.max(PAUSE_MIN)))
    }

    /// The pause after a pass: short while something happens or workers live.
    async fn longest_pause(&self, upkeep: &Upkeep, busy: bool) -> Duration {
        let has_work = busy || matches!(catch_panic(in_time(self.has_work())).await, Ok(Ok(true)) | Err(_));
        if has_work { upkeep.every } else { upkeep.idle }
    }

    async fn has_work(&self) -> Result<bool, Error> {
        let workers = self.store().workers().await?;
        Ok(workers.iter().any(|worker| worker.ended_at.is_none()))
    }
}

/// Does one part of a pass. An error or a panic is noted, and costs this part alone.
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

/// Whether nothing that is old is left.
fn is_last(pruned: &Pruned) -> bool {
    let Pruned { runs, events, alerts, jobs, pieces, workers: _, fires: _ } = *pruned;
    runs == 0 && events == 0 && alerts == 0 && jobs == 0 && pieces == 0
}

async fn in_time<T>(pass: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(PASS_MAX, pass).await.unwrap_or_else(|_| Err(Error::unanswered("do upkeep")))
}
