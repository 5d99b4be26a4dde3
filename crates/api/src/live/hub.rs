//! One task that reads committed events for all streams of this process.
//!
//! The load on the database does not depend on the number of streams, and there is none without streams. Each event is
//! encoded once and sent to the queues that want it. A stream whose queue is full is closed, so slow clients cannot
//! make memory grow.

use super::frame::Item;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::limits::{LIVE_EVENTS_MAX, LIVE_STREAMS_MAX};
use tidemill_core::live::Point;
use tidemill_store::{Error, LiveEvent, LivePage, LoopError, LoopOptions, Next, Store, catch_panic_in};
use tokio::sync::{Notify, Semaphore, mpsc};

/// Poll interval without a wake-up.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum pause between two polls, regardless of wake-ups.
const POLL_PAUSE: Duration = Duration::from_millis(10);
/// Longest back-off after a failed poll.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Page size of event queries.
pub(super) const PAGE: usize = 200;
/// Maximum number of readers that catch up concurrently. A mass reconnect must leave database connections for others.
const CATCH_UPS_MAX: usize = 2;

/// Events that a reader wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum StreamFilter {
    Run(RunId),
    Project(String),
    All,
}

/// Distributor of events to streams. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Hub {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) catching_up: Semaphore,
    streams: Arc<Semaphore>,
    wake: Notify,
    state: Mutex<HubState>,
    #[cfg(test)]
    pub(super) panics: PanicInjector,
}

/// Subscriptions and delivery positions.
struct HubState {
    running: bool,
    /// All events up to here are delivered.
    delivered: Point,
    delivered_batch: u64,
    /// End of the batch that is being delivered. New subscriptions start here.
    point: Point,
    batch: u64,
    /// The batch that is being delivered. If a pass fails in the middle, the next one continues it.
    open: Option<OpenBatch>,
    queues: HashMap<StreamFilter, HashMap<u64, Queue>>,
    next_queue: u64,
}

/// A batch that is being delivered.
#[derive(Debug, Clone)]
struct OpenBatch {
    since: Point,
    until: Point,
    after: Option<(RunId, i32)>,
}

struct Queue {
    items: mpsc::Sender<Arc<Item>>,
    first_batch: u64,
}

impl Hub {
    pub(crate) fn new(store: Store) -> Self {
        let state = HubState {
            running: false,
            delivered: Point::START,
            delivered_batch: 0,
            point: Point::START,
            batch: 0,
            open: None,
            queues: HashMap::new(),
            next_queue: 0,
        };
        Self {
            inner: Arc::new(Inner {
                store,
                catching_up: Semaphore::new(CATCH_UPS_MAX),
                streams: Arc::new(Semaphore::new(LIVE_STREAMS_MAX)),
                wake: Notify::new(),
                state: Mutex::new(state),
                #[cfg(test)]
                panics: PanicInjector::default(),
            }),
        }
    }

    /// Wakes the hub after a commit. It is only a hint: the hub polls anyway.
    pub(crate) fn wake(&self) {
        self.inner.wake.notify_one();
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Reserves one of the server's streams, if one is free.
    pub(super) fn reserve_stream(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        self.inner.streams.clone().try_acquire_owned().ok()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Position up to which events are delivered, if the hub is running.
    pub(super) fn delivered(&self) -> Option<Point> {
        let state = self.state();
        state.running.then(|| state.delivered.clone())
    }

    /// Subscribes to events from the current position on.
    pub(super) async fn subscribe(self: &Arc<Self>, filter: StreamFilter) -> Result<Subscription, Error> {
        loop {
            if let Some(subscription) = self.try_subscribe(&filter, None) {
                return Ok(subscription);
            }
            let begin = self.store.live_point().await?;
            let begin = Point::START.advance(&begin);
            if let Some(subscription) = self.try_subscribe(&filter, Some(begin)) {
                return Ok(subscription);
            }
        }
    }

    /// Subscribes. If the hub's task is not running, starts it at `begin`, or returns `None` without one.
    fn try_subscribe(self: &Arc<Self>, filter: &StreamFilter, begin: Option<Point>) -> Option<Subscription> {
        let mut state = self.state();
        if !state.running {
            let begin = begin?;
            state.running = true;
            (state.delivered, state.point) = (begin.clone(), begin);
            state.delivered_batch = state.batch;
            state.open = None;
            let hub = Arc::downgrade(self);
            let options = LoopOptions::new("live_stream").backoff_max(BACKOFF_MAX);
            self.store.monitor().spawn(options, move || pass(hub.clone()));
        }
        let (items, queue) = mpsc::channel(LIVE_EVENTS_MAX);
        let number = state.next_queue;
        state.next_queue += 1;
        let batch = state.batch;
        let queues = state.queues.entry(filter.clone()).or_default();
        queues.insert(number, Queue { items, first_batch: batch + 1 });
        let point = state.point.clone();
        drop(state);
        Some(Subscription { inner: self.clone(), filter: filter.clone(), number, queue, point, batch })
    }

    /// Delivers the events committed since the last poll. Returns false if there are no subscriptions.
    ///
    /// After a failure, the next poll continues the same batch: subscriptions that started within it must get its other
    /// events, each exactly once.
    async fn poll(&self) -> Result<bool, Error> {
        let (open, since) = {
            let mut state = self.state();
            state.running = !state.queues.is_empty();
            if !state.running {
                return Ok(false);
            }
            (state.open.clone(), state.delivered.clone())
        };
        let mut batch = if let Some(open) = open {
            open
        } else {
            let until = since.advance(&self.store.live_point().await?);
            if until == since {
                return Ok(true);
            }
            let open = OpenBatch { since, until, after: None };
            let mut state = self.state();
            state.batch += 1;
            state.point = open.until.clone();
            state.open = Some(open.clone());
            open
        };
        loop {
            let page = LivePage {
                since: batch.since.clone(),
                until: batch.until.clone(),
                after: batch.after.take(),
                project: None,
                limit: PAGE,
            };
            let events = self.store.live_page(page).await?;
            #[cfg(test)]
            self.panics.panic_if_armed();
            let Some(last) = events.last() else { break };
            batch.after = Some((last.event.run_id.clone(), last.event.seq));
            let full = events.len() == PAGE;
            self.deliver(events, &batch.since, &batch.until);
            if !full {
                break;
            }
        }
        let mut state = self.state();
        state.delivered = batch.until;
        state.delivered_batch = state.batch;
        state.open = None;
        Ok(true)
    }

    fn deliver(&self, events: Vec<LiveEvent>, since: &Point, until: &Point) {
        let mut state = self.state();
        let batch = state.batch;
        for LiveEvent { event, project_id } in events {
            if let Some(open) = &mut state.open {
                open.after = Some((event.run_id.clone(), event.seq));
            }
            let filters = [
                StreamFilter::Run(event.run_id.clone()),
                StreamFilter::Project(project_id),
                StreamFilter::All,
            ];
            let matching = filters.into_iter().filter(|filter| state.queues.contains_key(filter));
            let matching: Vec<StreamFilter> = matching.collect();
            if matching.is_empty() {
                continue;
            }
            // An event that cannot be encoded is skipped; the others are delivered.
            let item = match catch_panic_in(|| Arc::new(Item::new(&event, since, until))) {
                Ok(item) => item,
                Err(panic) => {
                    let (run, seq) = (&event.run_id, event.seq);
                    tracing::error!(run.id = %run, "event {seq} of run {run} is omitted from live streams: {panic}");
                    continue;
                }
            };
            for filter in matching {
                let Some(queues) = state.queues.get_mut(&filter) else { continue };
                // A queue that is full or closed is removed. Its reader still gets the queued events, then the end.
                queues.retain(|_, queue| {
                    queue.first_batch > batch || queue.items.try_send(item.clone()).is_ok()
                });
                if queues.is_empty() {
                    state.queues.remove(&filter);
                }
            }
        }
    }
}

/// One pass of the hub's loop. Ends the loop if there are no subscriptions.
async fn pass(hub: Weak<Inner>) -> Result<Next, LoopError> {
    let Some(inner) = hub.upgrade() else { return Ok(Next::End) };
    if !inner.poll().await? {
        return Ok(Next::End);
    }
    tokio::time::sleep(POLL_PAUSE).await;
    let _ = tokio::time::timeout(POLL_INTERVAL, inner.wake.notified()).await;
    Ok(Next::After(Duration::ZERO))
}

/// Test hook that panics in the middle of a poll.
#[cfg(test)]
#[derive(Default)]
pub(super) struct PanicInjector(std::sync::atomic::AtomicU32);

#[cfg(test)]
impl PanicInjector {
    /// Makes the next polls that read events panic.
    pub(super) fn arm(&self, polls: u32) {
        self.0.store(polls, std::sync::atomic::Ordering::SeqCst);
    }

    fn panic_if_armed(&self) {
        use std::sync::atomic::Ordering::SeqCst;
        let armed = self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        assert!(!armed, "panic requested by a test");
    }

    /// Number of panics still to come.
    pub(super) fn remaining(&self) -> u32 {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// A reader's subscription; removed on drop.
pub(super) struct Subscription {
    inner: Arc<Inner>,
    filter: StreamFilter,
    number: u64,
    pub(super) queue: mpsc::Receiver<Arc<Item>>,
    /// Events committed up to here are not in the queue.
    pub(super) point: Point,
    batch: u64,
}

impl Subscription {
    /// Position up to which the reader has received everything, if it is known.
    pub(super) fn reached(&self) -> Option<Point> {
        let state = self.inner.state();
        (self.queue.is_empty() && state.delivered_batch >= self.batch).then(|| state.delivered.clone())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        if let Some(queues) = state.queues.get_mut(&self.filter) {
            queues.remove(&self.number);
            if queues.is_empty() {
                state.queues.remove(&self.filter);
            }
        }
    }
}
