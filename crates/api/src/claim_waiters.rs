//! Claims that wait for runs (long polls).
//!
//! One task listens to the database for all waiting claims. Claims with the same labels and projects form a group and
//! take turns: a claim that got runs wakes the next one, and a claim that got none does not. So an idle server queries
//! the database as rarely as one idle worker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tidemill_core::WorkerId;
use tidemill_core::run::{Claim, ClaimRuns};
use tidemill_engine::Engine;
use tidemill_store::{Error, LoopError, LoopOptions, Next, Store, Waiter};
use tidemill_wire::claims::ClaimReason;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Labels and projects of a group of waiting claims, sorted.
type ClaimScope = (Vec<String>, Option<Vec<String>>);

/// Interval at which one claim of each group queries the database without a wake-up, because wake-ups may be lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Waiting claims of this process.
pub(crate) struct ClaimWaiters {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    groups: Mutex<Groups>,
    closing: watch::Receiver<bool>,
}

#[derive(Default)]
struct Groups {
    by_scope: HashMap<ClaimScope, Group>,
    listening: bool,
}

struct Group {
    turn: Arc<Notify>,
    waiting: usize,
}

impl ClaimWaiters {
    /// Creates the state. When `closing` becomes true, all waiting claims return.
    pub(crate) fn new(store: Store, closing: watch::Receiver<bool>) -> Self {
        Self { inner: Arc::new(Inner { store, groups: Mutex::default(), closing }) }
    }

    /// Claims at once, or waits up to `wait` for something to claim. Returns nothing if the server shuts down.
    ///
    /// The claim of a draining worker does not wait: it would take the turns of others.
    ///
    /// If the client disconnects, the future is dropped. If that happens just when a claim is committed, the client
    /// holds a run that it does not know of, as with any lost response: a repeated request id returns the same run. If
    /// the client never repeats it, the lease expires and the sweeper queues a successor.
    pub(crate) async fn claim(
        &self,
        engine: &Engine,
        request: ClaimRuns,
        wait: Duration,
    ) -> Result<(Vec<Claim>, Option<ClaimReason>), Error> {
        let (claims, reason) = try_claim(engine, &request).await?;
        if !claims.is_empty() || reason.is_some() || wait.is_zero() {
            return Ok((claims, reason));
        }
        let deadline = Instant::now() + wait;
        let guard = WaiterGuard::join(&self.inner, scope(&request));
        let mut closing = self.inner.closing.clone();
        loop {
            let is_last = tokio::select! {
                () = guard.turn.notified() => false,
                () = tokio::time::sleep_until(deadline) => true,
                _ = closing.wait_for(|closed| *closed) => return Ok((Vec::new(), None)),
            };
            let (claims, reason) = try_claim(engine, &request).await?;
            if is_last || reason.is_some() || !claims.is_empty() {
                return Ok((claims, reason));
            }
        }
    }
}

/// Claims available runs. If there are none, also returns why this worker gets none.
async fn try_claim(engine: &Engine, request: &ClaimRuns) -> Result<(Vec<Claim>, Option<ClaimReason>), Error> {
    let claims = engine.claim(request.clone()).await?;
    let (true, Some(worker)) = (claims.is_empty(), request.worker_id) else { return Ok((claims, None)) };
    let is_draining = engine.store().is_draining(worker).await?;
    Ok((claims, is_draining.then_some(ClaimReason::Draining)))
}

fn scope(request: &ClaimRuns) -> ClaimScope {
    let sorted = |words: &[String]| {
        let mut words = words.to_vec();
        words.sort();
        words.dedup();
        words
    };
    (sorted(&request.labels), request.projects.as_deref().map(sorted))
}

/// Membership of a waiting claim in its group; ended on drop.
struct WaiterGuard {
    inner: Arc<Inner>,
    scope: ClaimScope,
    turn: Arc<Notify>,
}

impl WaiterGuard {
    fn join(inner: &Arc<Inner>, scope: ClaimScope) -> Self {
        let mut groups = inner.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let group = groups
            .by_scope
            .entry(scope.clone())
            .or_insert_with(|| Group { turn: Arc::new(Notify::new()), waiting: 0 });
        group.waiting += 1;
        let turn = group.turn.clone();
        if !groups.listening {
            groups.listening = true;
            let (claim_waiters, waiter) = (Arc::downgrade(inner), Arc::default());
            let options = LoopOptions::new("claim_listener").backoff_max(POLL_INTERVAL / 4);
            inner.store.monitor().spawn(options, move || listen(claim_waiters.clone(), Arc::clone(&waiter)));
        }
        Self { inner: inner.clone(), scope, turn }
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        let mut groups = self.inner.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.by_scope.get_mut(&self.scope) {
            // A wake-up for this claim that came too late is passed on to the next one.
            self.turn.notify_one();
            group.waiting -= 1;
            if group.waiting == 0 {
                groups.by_scope.remove(&self.scope);
            }
        }
    }
}

/// One pass of the listener: wakes each group, then waits for a notification. Ends when no claim waits.
///
/// If the database cannot be listened to, the groups are still woken after each back-off.
async fn listen(
    claim_waiters: Weak<Inner>,
    cached_waiter: Arc<tokio::sync::Mutex<Option<Waiter>>>,
) -> Result<Next, LoopError> {
    let Some(store) = claim_waiters.upgrade().map(|inner| inner.store.clone()) else { return Ok(Next::End) };
    let mut cached_waiter = cached_waiter.lock().await;
    // A waiter that failed or panicked is not reused.
    let armed = arm(&store, cached_waiter.take()).await;
    if !wake_groups(&claim_waiters) {
        if let Ok(mut waiter) = armed {
            let _ = waiter.disarm().await;
        }
        return Ok(Next::End);
    }
    let mut waiter = armed?;
    waiter.wait(POLL_INTERVAL).await?;
    *cached_waiter = Some(waiter);
    Ok(Next::After(Duration::ZERO))
}

/// Registers that claims are waiting, with this waiter or a new one.
async fn arm(store: &Store, waiter: Option<Waiter>) -> Result<Waiter, Error> {
    let mut waiter = match waiter {
        Some(waiter) => waiter,
        None => store.waiter(WorkerId(uuid::Uuid::new_v4())).await?,
    };
    waiter.arm().await?;
    Ok(waiter)
}

/// Wakes each group. Returns false if no claim waits, so that the listener ends.
fn wake_groups(claim_waiters: &Weak<Inner>) -> bool {
    let Some(inner) = claim_waiters.upgrade() else { return false };
    let mut groups = inner.groups.lock().unwrap_or_else(PoisonError::into_inner);
    groups.listening = !groups.by_scope.is_empty();
    for group in groups.by_scope.values() {
        group.turn.notify_one();
    }
    groups.listening
}
