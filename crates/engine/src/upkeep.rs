//! Upkeep: what somebody has to do now and then, so that nothing waits for a person.

use crate::patience::chain;
use crate::{Engine, schedules};
use std::time::Duration;
use tidemill_core::limits;
use tidemill_store::{Error, Pruned, Swept};

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

/// Runs in one sweep or prune: bounded, so that no transaction is long.
const BATCH: usize = 500;
/// Time between two prunes.
const PRUNE_EVERY: Duration = Duration::from_mins(10);
/// Time between two batches of one prune: others have things to write, too.
const PRUNE_PAUSE: Duration = Duration::from_millis(100);
/// How long a pass may take: a server that dies silently must not end upkeep, and the next pass does the rest.
const PASS_MAX: Duration = Duration::from_mins(2);

impl Engine {
    /// Sweeps and fires until nothing is left to do at this moment, and prunes.
    pub async fn upkeep(&self, upkeep: &Upkeep) -> Result<Upkept, Error> {
        let mut done = self.sweep_and_fire(upkeep).await?;
        done.told = self.tell().await?;
        loop {
            let pruned = self.prune_batch(upkeep).await?;
            done.pruned.runs += pruned.runs;
            done.pruned.events += pruned.events;
            done.pruned.workers += pruned.workers;
            done.pruned.fires += pruned.fires;
            done.pruned.alerts += pruned.alerts;
            done.pruned.jobs += pruned.jobs;
            done.pruned.pieces += pruned.pieces;
            if is_last(&pruned) {
                return Ok(done);
            }
        }
    }

    async fn sweep_and_fire(&self, upkeep: &Upkeep) -> Result<Upkept, Error> {
        let mut done = Upkept::default();
        loop {
            let swept = self.sweep(BATCH, upkeep.dead_after.as_secs_f64()).await?;
            let more = swept.len() >= BATCH;
            done.swept.extend(swept);
            if !more {
                break;
            }
        }
        let fired = self.fire_due().await?;
        done.scheduled.extend(schedules::queued(&fired).cloned());
        Ok(done)
    }

    async fn prune_batch(&self, upkeep: &Upkeep) -> Result<Pruned, Error> {
        let now = self.store().now(self.clock().now()).await?;
        self.store().prune_request_keys(now - chrono::Duration::days(1)).await?;
        let kept = chrono::Duration::from_std(upkeep.retention).unwrap_or(chrono::Duration::MAX);
        match now.checked_sub_signed(kept) {
            Some(before) => {
                self.store().prune_access(before, now, BATCH).await?;
                self.store().prune(before, BATCH).await
            }
            None => Ok(Pruned::default()),
        }
    }

    /// Does upkeep for ever. Passes are harmless beside those of other processes.
    pub async fn keep_up(&self, upkeep: &Upkeep) {
        // Apart from each other: a mail server that hangs must hold nothing else up.
        // And so must a table with more old rows than one step takes.
        tokio::join!(
            Box::pin(self.keep_sweeping(upkeep)),
            Box::pin(self.keep_telling(upkeep.every)),
            Box::pin(self.keep_pruning(upkeep)),
        );
    }

    async fn keep_sweeping(&self, upkeep: &Upkeep) {
        let mut complained = false;
        loop {
            let pass = in_time(self.sweep_and_fire(upkeep)).await;
            let busy = pass.as_ref().is_ok_and(|done| !done.swept.is_empty() || !done.scheduled.is_empty());
            match pass {
                Ok(_) => complained = false,
                Err(error) if !complained => {
                    // Once: a worker without the right to sweep would otherwise say so every few seconds.
                    tracing::warn!("upkeep is not done by this process: {}", chain(&error));
                    complained = true;
                }
                Err(_) => {}
            }
            let pause = tokio::time::timeout(PASS_MAX, self.pause(upkeep, busy)).await;
            tokio::time::sleep(pause.unwrap_or(upkeep.every)).await;
        }
    }

    /// Removes what is old, batch by batch, and looks again after a while. There may be any number of batches: what
    /// ends in that time must go in that time.
    async fn keep_pruning(&self, upkeep: &Upkeep) {
        let mut complained = false;
        loop {
            let wait = match in_time(self.prune_batch(upkeep)).await {
                Ok(pruned) => {
                    complained = false;
                    if is_last(&pruned) { PRUNE_EVERY } else { PRUNE_PAUSE }
                }
                Err(error) => {
                    if !complained {
                        tracing::warn!("could not prune: {}", chain(&error));
                    }
                    complained = true;
                    PRUNE_EVERY
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// The time to the next pass: soon while something happens, at the next fire at the latest.
    async fn pause(&self, upkeep: &Upkeep, busy: bool) -> Duration {
        let longest = if busy || self.has_work().await { upkeep.every } else { upkeep.idle };
        let Ok(schedules) = self.store().schedules(None).await else { return longest };
        let Ok(now) = self.store().now(self.clock().now()).await else { return longest };
        let next = schedules.iter().filter(|schedule| schedule.paused_at.is_none());
        let next = next.filter_map(|schedule| schedule.next_fire_at).min();
        let until = next.and_then(|next| (next - now).to_std().ok());
        until.map_or(longest, |until| until.min(longest)).max(Duration::from_millis(20))
    }

    async fn has_work(&self) -> bool {
        let workers = self.store().workers().await;
        workers.is_ok_and(|workers| workers.iter().any(|worker| worker.ended_at.is_none()))
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
