//! One task that reads what was committed, for all readers of this process.
//!
//! However many read, the database is asked once in a while, and only while somebody reads. Each event is written once
//! and handed to those who want it. A queue that is full ends its reader: memory does not grow with slow readers.

use super::frame::Item;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::limits::{LIVE_EVENTS_MAX, LIVE_STREAMS_MAX};
use tidemill_core::live::Point;
use tidemill_store::{Error, LiveEvent, LivePage, LoopError, LoopOptions, Next, Store, catch_panic_in};
use tokio::sync::{Notify, Semaphore, mpsc};

/// How often the database is asked without a hint.
const LOOK: Duration = Duration::from_millis(100);
/// The pause between two looks, however many hints come.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest pause after a look that failed.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Events that are read at a time.
pub(super) const PAGE: usize = 200;
/// Readers that catch up at the same time: a thousand that come back at once leave connections for everybody else.
const CATCHING_UP: usize = 2;

/// What a reader wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Wish {
    /// The events of one run.
    Run(RunId),
    /// Those of a project.
    Project(String),
    /// All.
    All,
}

/// What hands events to readers; cheap to clone.
#[derive(Clone)]
pub(crate) struct Hub {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) catching_up: Semaphore,
    streams: Arc<Semaphore>,
    hint: Notify,
    desk: Mutex<Desk>,
    #[cfg(test)]
    pub(super) panics: Panics,
}

/// Who reads, and how far they have been told.
struct Desk {
    running: bool,
    /// Everything up to here was handed out.
    told: Point,
    told_batch: u64,
    /// What is being handed out goes up to here: who comes now is told from here on.
    point: Point,
    batch: u64,
    /// The batch that is being handed out. A pass that fails in the middle of it is continued by the next one.
    open: Option<OpenBatch>,
    queues: HashMap<Wish, HashMap<u64, Queue>>,
    next_queue: u64,
}

/// A batch that is being handed out.
#[derive(Debug, Clone)]
struct OpenBatch {
    since: Point,
    until: Point,
    /// The last event that was handed out.
    after: Option<(RunId, i32)>,
}

struct Queue {
    items: mpsc::Sender<Arc<Item>>,
    first_batch: u64,
}

impl Hub {
    pub(crate) fn new(store: Store) -> Self {
        let desk = Desk {
            running: false,
            told: Point::START,
            told_batch: 0,
            point: Point::START,
            batch: 0,
            open: None,
            queues: HashMap::new(),
            next_queue: 0,
        };
        Self {
            inner: Arc::new(Inner {
                store,
                catching_up: Semaphore::new(CATCHING_UP),
                streams: Arc::new(Semaphore::new(LIVE_STREAMS_MAX)),
                hint: Notify::new(),
                desk: Mutex::new(desk),
                #[cfg(test)]
                panics: Panics::default(),
            }),
        }
    }

    /// Says that something was committed. Nothing depends on it.
    pub(crate) fn hint(&self) {
        self.inner.hint.notify_one();
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// A place among the streams of this server, if there is one.
    pub(super) fn stream(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        self.inner.streams.clone().try_acquire_owned().ok()
    }
}

impl Inner {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far readers have been told, where somebody reads.
    pub(super) fn told(&self) -> Option<Point> {
        let desk = self.desk();
        desk.running.then(|| desk.told.clone())
    }

    /// Takes a queue of events, from its point on.
    pub(super) async fn join(self: &Arc<Self>, wish: Wish) -> Result<Seat, Error> {
        loop {
            if let Some(seat) = self.seat(&wish, None) {
                return Ok(seat);
            }
            let begin = self.store.live_point().await?;
            let begin = Point::START.advance(&begin);
            if let Some(seat) = self.seat(&wish, Some(begin)) {
                return Ok(seat);
            }
        }
    }

    /// A seat with a task that hands out events; where none runs, one that begins here.
    fn seat(self: &Arc<Self>, wish: &Wish, begin: Option<Point>) -> Option<Seat> {
        let mut desk = self.desk();
        if !desk.running {
            let begin = begin?;
            desk.running = true;
            (desk.told, desk.point) = (begin.clone(), begin);
            desk.told_batch = desk.batch;
            desk.open = None;
            let hub = Arc::downgrade(self);
            let options = LoopOptions::new("live_stream").backoff_max(BACKOFF_MAX);
            self.store.monitor().spawn(options, move || pass(hub.clone()));
        }
        let (items, queue) = mpsc::channel(LIVE_EVENTS_MAX);
        let number = desk.next_queue;
        desk.next_queue += 1;
        let batch = desk.batch;
        let queues = desk.queues.entry(wish.clone()).or_default();
        queues.insert(number, Queue { items, first_batch: batch + 1 });
        let point = desk.point.clone();
        drop(desk);
        Some(Seat { inner: self.clone(), wish: wish.clone(), number, queue, point, batch })
    }

    /// Hands out what has ended since the last look. False where nobody reads any more.
    ///
    /// A look that fails is continued by the next one in the same batch: readers have been promised the rest of it, and
    /// get each event once.
    async fn look(&self) -> Result<bool, Error> {
        let (open, since) = {
            let mut desk = self.desk();
            desk.running = !desk.queues.is_empty();
            if !desk.running {
                return Ok(false);
            }
            (desk.open.clone(), desk.told.clone())
        };
        let mut batch = if let Some(open) = open {
            open
        } else {
            let until = since.advance(&self.store.live_point().await?);
            if until == since {
                return Ok(true);
            }
            let open = OpenBatch { since, until, after: None };
            let mut desk = self.desk();
            desk.batch += 1;
            desk.point = open.until.clone();
            desk.open = Some(open.clone());
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
            self.panics.strike();
            let Some(last) = events.last() else { break };
            batch.after = Some((last.event.run_id.clone(), last.event.seq));
            let full = events.len() == PAGE;
            self.hand_out(events, &batch.since, &batch.until);
            if !full {
                break;
            }
        }
        let mut desk = self.desk();
        desk.told = batch.until;
        desk.told_batch = desk.batch;
        desk.open = None;
        Ok(true)
    }

    fn hand_out(&self, events: Vec<LiveEvent>, since: &Point, until: &Point) {
        let mut desk = self.desk();
        let batch = desk.batch;
        for LiveEvent { event, project_id } in events {
            if let Some(open) = &mut desk.open {
                open.after = Some((event.run_id.clone(), event.seq));
            }
            let wishes = [Wish::Run(event.run_id.clone()), Wish::Project(project_id), Wish::All];
            let wanted = wishes.into_iter().filter(|wish| desk.queues.contains_key(wish));
            let wanted: Vec<Wish> = wanted.collect();
            if wanted.is_empty() {
                continue;
            }
            // An event that cannot be written costs itself.
            let item = match catch_panic_in(|| Arc::new(Item::new(&event, since, until))) {
                Ok(item) => item,
                Err(panic) => {
                    let (run, seq) = (&event.run_id, event.seq);
                    tracing::error!(run.id = %run, "event {seq} of run {run} is left out of the stream: {panic}");
                    continue;
                }
            };
            for wish in wanted {
                let Some(queues) = desk.queues.get_mut(&wish) else { continue };
                // A queue that is full or that nobody reads from goes; its reader gets what is in it, and the end.
                queues.retain(|_, queue| {
                    queue.first_batch > batch || queue.items.try_send(item.clone()).is_ok()
                });
                if queues.is_empty() {
                    desk.queues.remove(&wish);
                }
            }
        }
    }
}

/// Looks once, for as long as somebody reads.
async fn pass(hub: Weak<Inner>) -> Result<Next, LoopError> {
    let Some(inner) = hub.upgrade() else { return Ok(Next::End) };
    if !inner.look().await? {
        return Ok(Next::End);
    }
    tokio::time::sleep(PAUSE).await;
    let _ = tokio::time::timeout(LOOK, inner.hint.notified()).await;
    Ok(Next::After(Duration::ZERO))
}

/// Panics on demand, in the middle of a look.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Panics(std::sync::atomic::AtomicU32);

#[cfg(test)]
impl Panics {
    /// Lets the next looks panic that have read something.
    pub(super) fn arm(&self, looks: u32) {
        self.0.store(looks, std::sync::atomic::Ordering::SeqCst);
    }

    fn strike(&self) {
        use std::sync::atomic::Ordering::SeqCst;
        let armed = self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        assert!(!armed, "a panic that a test asked for");
    }

    /// How many panics are still to come.
    pub(super) fn left(&self) -> u32 {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// A reader's place; given up when the reader goes, however it goes.
pub(super) struct Seat {
    inner: Arc<Inner>,
    wish: Wish,
    number: u64,
    /// What the reader is told, from its point on.
    pub(super) queue: mpsc::Receiver<Arc<Item>>,
    /// What had ended by here is not in the queue.
    pub(super) point: Point,
    batch: u64,
}

impl Seat {
    /// How far the reader was told, where that is known: everything up to there was taken out of the queue.
    pub(super) fn reached(&self) -> Option<Point> {
        let desk = self.inner.desk();
        (self.queue.is_empty() && desk.told_batch >= self.batch).then(|| desk.told.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut desk = self.inner.desk();
        if let Some(queues) = desk.queues.get_mut(&self.wish) {
            queues.remove(&self.number);
            if queues.is_empty() {
                desk.queues.remove(&self.wish);
            }
        }
    }
}
