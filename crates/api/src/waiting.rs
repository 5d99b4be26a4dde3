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
use tidemill_store::{Error, Store};
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
            tokio::spawn(listen(Arc::downgrade(inner)));
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

/// Listens to the database for as long as somebody waits, and gives each group a turn.
async fn listen(room: Weak<Inner>) {
    let Some(store) = room.upgrade().map(|inner| inner.store.clone()) else { return };
    let mut waiter = store.waiter(WorkerId(uuid::Uuid::new_v4())).await.ok();
    loop {
        if let Some(listening) = &mut waiter
            && listening.arm().await.is_err()
        {
            waiter = None;
        }
        if !give_turns(&room) {
            break;
        }
        let heard = match &mut waiter {
            Some(listening) => listening.wait(LOOK).await.is_ok(),
            None => false,
        };
        if !heard {
            tokio::time::sleep(LOOK / 4).await;
            waiter = store.waiter(WorkerId(uuid::Uuid::new_v4())).await.ok();
        }
    }
    if let Some(mut waiter) = waiter {
        let _ = waiter.disarm().await;
    }
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
