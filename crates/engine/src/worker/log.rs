//! What a run says while it is carried out: written in batches, in order, each line once.

use super::{Door, in_time};
use crate::patience::{Patience, chain};
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::event::NewEvent;
use tidemill_store::Holder;
use tokio::sync::{mpsc, oneshot};

/// Lines that wait to be written; a command that talks faster waits.
const WAITING_MAX: usize = 2_000;
/// Lines in one commit.
const BATCH_MAX: usize = 500;
/// Bytes in one commit, as they are said over HTTP: a server takes only so much in one call.
const BATCH_BYTES_MAX: usize = 256 * 1024;
/// What is said of an event beside its message, its details and its key.
const FRAME_BYTES: usize = 64;
/// How long a line waits for company.
const COMPANY: Duration = Duration::from_millis(50);

/// Room for one event.
#[derive(Debug)]
pub struct Place<'l>(Option<mpsc::Permit<'l, Entry>>);

impl Place<'_> {
    /// Puts the event there.
    pub fn put(self, event: NewEvent) {
        if let Some(permit) = self.0 {
            permit.send(Entry::Event(event));
        }
    }
}

enum Entry {
    Event(NewEvent),
    Flush(oneshot::Sender<()>),
}

/// A run's log, to write to. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RunLog {
    entries: mpsc::Sender<Entry>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry")
    }
}

impl RunLog {
    pub(super) fn open<D: Door>(
        door: D,
        run: RunId,
        holder: Holder,
        answer_max: Duration,
        lost: mpsc::UnboundedSender<RunId>,
    ) -> Self {
        let (entries, inbox) = mpsc::channel(WAITING_MAX);
        tokio::spawn(Writer { door, run, holder, answer_max, lost, is_stale: false }.write(inbox));
        Self { entries }
    }

    pub(super) fn writer(&self) -> Self {
        self.clone()
    }

    /// Appends an event. Waits while too many are waiting already.
    ///
    /// An event that matters should carry a key: it is then written once, however often it is sent.
    pub async fn append(&self, event: NewEvent) {
        let _ = self.entries.send(Entry::Event(event)).await;
    }

    /// Waits until there is room for one more event. Giving up waiting loses nothing.
    pub async fn place(&self) -> Place<'_> {
        Place(self.entries.reserve().await.ok())
    }

    /// Waits until everything so far is written, or known to be too late.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.entries.send(Entry::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

/// Whoever writes what one run says.
struct Writer<D> {
    door: D,
    run: RunId,
    holder: Holder,
    answer_max: Duration,
    lost: mpsc::UnboundedSender<RunId>,
    /// Whether the run turned out to belong to others: nothing more is written.
    is_stale: bool,
}

impl<D: Door> Writer<D> {
    async fn write(mut self, mut inbox: mpsc::Receiver<Entry>) {
        let mut first = inbox.recv().await;
        while let Some(entry) = first.take() {
            let (batch, next) = gather(entry, &mut inbox).await;
            if !batch.events.is_empty() && !self.is_stale {
                self.append(batch.events).await;
            }
            for done in batch.flushed {
                let _ = done.send(());
            }
            first = match next {
                Some(entry) => Some(entry),
                None => inbox.recv().await,
            };
        }
    }

    async fn append(&mut self, events: Vec<NewEvent>) {
        let run = &self.run;
        let append = || {
            let asked = self.door.append(run, events.clone(), &self.holder);
            in_time(&self.door, "append events", self.answer_max, asked)
        };
        match Patience::Endless.settle("append events", append).await {
            Ok(ids) => self.is_stale = ids.iter().any(Option::is_none),
            Err(error) => {
                tracing::error!(run.id = %run, "events of run {run} were not written: {}", chain(&error));
            }
        }
        if self.is_stale {
            let _ = self.lost.send(run.clone());
        }
    }
}

/// What goes into one commit.
#[derive(Default)]
struct Batch {
    events: Vec<NewEvent>,
    flushed: Vec<oneshot::Sender<()>>,
}

/// Waits a moment for company; the batch, and what was taken and no longer fits into it.
async fn gather(first: Entry, inbox: &mut mpsc::Receiver<Entry>) -> (Batch, Option<Entry>) {
    let (mut batch, mut bytes) = (Batch::default(), 0);
    let deadline = tokio::time::Instant::now() + COMPANY;
    let mut next = Some(first);
    while let Some(entry) = next.take() {
        match entry {
            Entry::Event(event) => {
                bytes += wire_bytes(&event);
                if bytes > BATCH_BYTES_MAX && !batch.events.is_empty() {
                    return (batch, Some(Entry::Event(event)));
                }
                batch.events.push(event);
            }
            // Somebody waits: write what there is.
            Entry::Flush(done) => {
                batch.flushed.push(done);
                break;
            }
        }
        if batch.events.len() < BATCH_MAX {
            next = tokio::time::timeout_at(deadline, inbox.recv()).await.ok().flatten();
        }
    }
    (batch, None)
}

/// The bytes of an event over HTTP, where a character may take six of them.
fn wire_bytes(event: &NewEvent) -> usize {
    let text = |text: &str| serde_json::to_string(text).map_or(text.len() * 6, |json| json.len());
    text(&event.message)
        + event.payload.to_string().len()
        + event.key.as_deref().map_or(0, text)
        + FRAME_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_core::event::Level;

    #[tokio::test]
    async fn a_batch_is_bounded_by_its_bytes_on_the_way_and_loses_nothing() {
        let (entries, mut inbox) = mpsc::channel(WAITING_MAX);
        // A control character takes six bytes in JSON.
        let long = || NewEvent::new(Level::Info, "\u{1}".repeat(8 * 1024));
        for _ in 0..100 {
            entries.send(Entry::Event(long())).await.unwrap();
        }
        drop(entries);
        let (mut first, mut seen) = (inbox.recv().await, 0);
        while let Some(entry) = first.take() {
            let (batch, next) = gather(entry, &mut inbox).await;
            assert!(batch.events.iter().map(wire_bytes).sum::<usize>() <= BATCH_BYTES_MAX);
            seen += batch.events.len();
            first = match next {
                Some(entry) => Some(entry),
                None => inbox.recv().await,
            };
        }
        assert_eq!(seen, 100);
        assert!(wire_bytes(&long()) > 6 * 8 * 1024);
    }
}
