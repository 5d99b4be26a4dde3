//! Where claims wait for something to claim.
//!
//! However many wait, one task listens to the database, and those that ask for the same take turns: who got something
//! wakes the next one, who got nothing does not. An idle server so asks the database as rarely as one idle worker.

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

/// What those who wait in one group ask for: labels and projects, sorted.
type Wish = (Vec<String>, Option<Vec<String>>);

/// How often somebody of each group looks, told or not: hints may be lost.
const LOOK: Duration = Duration::from_secs(1);

/// Where claims wait.
pub(crate) struct Room {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    groups: Mutex<Groups>,
    closing: watch::Receiver<bool>,
}

#[derive(Default)]
struct Groups {
    by_wish: HashMap<Wish, Group>,
    listening: bool,
}

struct Group {
    turn: Arc<Notify>,
    waiting: usize,
}

impl Room {
    /// A room on a store, which empties when `closing` becomes true.
    pub(crate) fn new(store: Store, closing: watch::Receiver<bool>) -> Self {
        Self { inner: Arc::new(Inner { store, groups: Mutex::default(), closing }) }
    }

    /// Claims at once, or as soon as there is something, within `wait`; nothing where the room is closed meanwhile. A
    /// worker that drains does not wait: it would take the turns of others.
    ///
    /// A caller that goes away is dropped where it is. Nothing was claimed for it, unless it goes in the very moment
    /// in which its claim is committed. Then it has a run that it does not know of, as when any answer is lost: under
    /// its request id it is given the same run again, and if it never asks, the lease ends and the sweeper queues a
    /// successor.
    pub(crate) async fn claim(
        &self,
        engine: &Engine,
        ask: ClaimRuns,
        wait: Duration,
    ) -> Result<(Vec<Claim>, Option<ClaimReason>), Error> {
        let (claims, reason) = look(engine, &ask).await?;
        if !claims.is_empty() || reason.is_some() || wait.is_zero() {
            return Ok((claims, reason));
        }
        let deadline = Instant::now() + wait;
        let seat = Seat::take(&self.inner, wish(&ask));
        let mut closing = self.inner.closing.clone();
        loop {
            let is_last = tokio::select! {
                () = seat.turn.notified() => false,
                () = tokio::time::sleep_until(deadline) => true,
                _ = closing.wait_for(|closed| *closed) => return Ok((Vec::new(), None)),
            };
            let (claims, reason) = look(engine, &ask).await?;
            if is_last || reason.is_some() || !claims.is_empty() {
                return Ok((claims, reason));
            }
        }
    }
}

/// Claims what is there; where that is nothing, why this worker gets nothing.
async fn look(engine: &Engine, ask: &ClaimRuns) -> Result<(Vec<Claim>, Option<ClaimReason>), Error> {
    let claims = engine.claim(ask.clone()).await?;
    let (true, Some(worker)) = (claims.is_empty(), ask.worker_id) else { return Ok((claims, None)) };
    let drains = engine.store().is_draining(worker).await?;
    Ok((claims, drains.then_some(ClaimReason::Draining)))
}

fn wish(ask: &ClaimRuns) -> Wish {
    let sorted = |words: &[String]| {
        let mut words = words.to_vec();
        words.sort();
        words.dedup();
        words
    };
    (sorted(&ask.labels), ask.projects.as_deref().map(sorted))
}

/// A place in a group, given up when the caller goes, however it goes.
struct Seat {
    inner: Arc<Inner>,
    wish: Wish,
    turn: Arc<Notify>,
}

impl Seat {
    fn take(inner: &Arc<Inner>, wish: Wish) -> Self {
        let mut groups = inner.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let group = groups
            .by_wish
            .entry(wish.clone())
            .or_insert_with(|| Group { turn: Arc::new(Notify::new()), waiting: 0 });
        group.waiting += 1;
        let turn = group.turn.clone();
        if !groups.listening {
            groups.listening = true;
            let (room, waiter) = (Arc::downgrade(inner), Arc::default());
            let options = LoopOptions::new("claim_listener").backoff_max(LOOK / 4);
            inner.store.monitor().spawn(options, move || listen(room.clone(), Arc::clone(&waiter)));
        }
        Self { inner: inner.clone(), wish, turn }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut groups = self.inner.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = groups.by_wish.get_mut(&self.wish) {
            // A turn that came at the last moment must not be lost with this caller.
            self.turn.notify_one();
            group.waiting -= 1;
            if group.waiting == 0 {
                groups.by_wish.remove(&self.wish);
            }
        }
    }
}

/// Gives each group a turn and listens to the database for the next one, for as long as somebody waits.
///
/// Groups get their turns also while the database cannot be listened to: then somebody looks after each back-off.
async fn listen(room: Weak<Inner>, kept: Arc<tokio::sync::Mutex<Option<Waiter>>>) -> Result<Next, LoopError> {
    let Some(store) = room.upgrade().map(|inner| inner.store.clone()) else { return Ok(Next::End) };
    let mut kept = kept.lock().await;
    // A waiter that failed or panicked is not put back.
    let armed = arm(&store, kept.take()).await;
    if !give_turns(&room) {
        if let Ok(mut waiter) = armed {
            let _ = waiter.disarm().await;
        }
        return Ok(Next::End);
    }
    let mut waiter = armed?;
    waiter.wait(LOOK).await?;
    *kept = Some(waiter);
    Ok(Next::After(Duration::ZERO))
}

/// Declares that somebody waits, through this waiter or a new one.
async fn arm(store: &Store, waiter: Option<Waiter>) -> Result<Waiter, Error> {
    let mut waiter = match waiter {
        Some(waiter) => waiter,
        None => store.waiter(WorkerId(uuid::Uuid::new_v4())).await?,
    };
    waiter.arm().await?;
    Ok(waiter)
}

/// Gives each group a turn. False where nobody waits any more: the listener ends.
fn give_turns(room: &Weak<Inner>) -> bool {
    let Some(inner) = room.upgrade() else { return false };
    let mut groups = inner.groups.lock().unwrap_or_else(PoisonError::into_inner);
    groups.listening = !groups.by_wish.is_empty();
    for group in groups.by_wish.values() {
        group.turn.notify_one();
    }
    groups.listening
}
