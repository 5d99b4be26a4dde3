//! Writer of a run's events: in batches, in order, each event once.

use super::{Transport, with_timeout};
use crate::retry_policy::{RetryPolicy, chain};
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::event::NewEvent;
use tidemill_store::Holder;
use tokio::sync::{mpsc, oneshot};

/// Events waiting to be written; a command with more output is slowed down.
const WAITING_MAX: usize = 2_000;
/// Events in one commit.
const BATCH_MAX: usize = 500;
/// Bytes in one commit, encoded for HTTP: a server limits the size of a request.
const BATCH_BYTES_MAX: usize = 256 * 1024;
/// Encoded size of an event without its message, payload and key.
const FRAME_BYTES: usize = 64;
/// How long an event waits for others to join its batch.
const BATCH_WAIT: Duration = Duration::from_millis(50);

/// A reserved slot for one event.
#[derive(Debug)]
pub struct LogSlot<'l>(Option<mpsc::Permit<'l, Entry>>);

impl LogSlot<'_> {
    /// Sends the event into the slot.
    pub fn send(self, event: NewEvent) {
        if let Some(permit) = self.0 {
            permit.send(Entry::Event(event));
        }
    }
}

enum Entry {
    Event(NewEvent),
    Flush(oneshot::Sender<()>),
}

/// Handle to the log of a run. Cloning is cheap.
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
    pub(super) fn open<D: Transport>(
        transport: D,
        run: RunId,
        holder: Holder,
        call_timeout: Duration,
        lost: mpsc::UnboundedSender<RunId>,
    ) -> Self {
        let (entries, inbox) = mpsc::channel(WAITING_MAX);
        tokio::spawn(Writer { transport, run, holder, call_timeout, lost, is_stale: false }.write(inbox));
        Self { entries }
    }

    pub(super) fn writer(&self) -> Self {
        self.clone()
    }

    /// Appends an event. Waits while too many are pending.
    ///
    /// An important event should have a key: then it is written once, however often it is sent.
    pub async fn append(&self, event: NewEvent) {
        let _ = self.entries.send(Entry::Event(event)).await;
    }

    /// Waits for a slot for one event. Cancelling the wait loses nothing.
    pub async fn reserve(&self) -> LogSlot<'_> {
        LogSlot(self.entries.reserve().await.ok())
    }

    /// Waits until all events so far are written or rejected.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.entries.send(Entry::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

/// Task that writes the events of one run.
struct Writer<D> {
    transport: D,
    run: RunId,
    holder: Holder,
    call_timeout: Duration,
    lost: mpsc::UnboundedSender<RunId>,
    /// True when the run belongs to another worker: nothing more is written.
    is_stale: bool,
}

impl<D: Transport> Writer<D> {
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
            let request = self.transport.append(run, events.clone(), &self.holder);
            with_timeout(&self.transport, "append events", self.call_timeout, request)
        };
        match RetryPolicy::Endless.retry("append events", append).await {
            Ok(ids) => self.is_stale = ids.iter().any(Option::is_none),
            Err(error) => {
                tracing::error!(run.id = %run, "could not write events of run {run}: {}", chain(&error));
            }
        }
        if self.is_stale {
            let _ = self.lost.send(run.clone());
        }
    }
}

/// Events of one commit, and the callers that wait for it.
#[derive(Default)]
struct Batch {
    events: Vec<NewEvent>,
    flushed: Vec<oneshot::Sender<()>>,
}

/// Collects a batch for a short time. Returns it with an entry that no longer fits, if any.
async fn gather(first: Entry, inbox: &mut mpsc::Receiver<Entry>) -> (Batch, Option<Entry>) {
    let (mut batch, mut bytes) = (Batch::default(), 0);
    let deadline = tokio::time::Instant::now() + BATCH_WAIT;
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
            // A caller waits, so the batch is written at once.
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

/// Returns the encoded size of an event over HTTP, where a character may take six bytes.
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
    async fn batch_is_bounded_by_encoded_size_and_loses_nothing() {
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
