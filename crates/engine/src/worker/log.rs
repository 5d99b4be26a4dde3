//! What a run says while it is carried out: written in batches, in order, each line once.

use super::Door;
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
        lost: mpsc::UnboundedSender<RunId>,
    ) -> Self {
        let (entries, inbox) = mpsc::channel(WAITING_MAX);
        tokio::spawn(write(door, run, holder, lost, inbox));
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

async fn write<D: Door>(
    door: D,
    run: RunId,
    holder: Holder,
    lost: mpsc::UnboundedSender<RunId>,
    mut inbox: mpsc::Receiver<Entry>,
) {
    let mut stale = false;
    while let Some(first) = inbox.recv().await {
        let mut events = Vec::new();
        let mut flushed = Vec::new();
        let mut next = Some(first);
        let deadline = tokio::time::Instant::now() + COMPANY;
        while let Some(entry) = next.take() {
            match entry {
                Entry::Event(event) => events.push(event),
                // Somebody waits: write what there is.
                Entry::Flush(done) => {
                    flushed.push(done);
                    break;
                }
            }
            if events.len() < BATCH_MAX {
                next = tokio::time::timeout_at(deadline, inbox.recv()).await.ok().flatten();
            }
        }
        if !events.is_empty() && !stale {
            let append = || door.append(&run, events.clone(), &holder);
            match Patience::Endless.settle("append events", append).await {
                Ok(ids) => stale = ids.iter().any(Option::is_none),
                Err(error) => {
                    tracing::error!(run.id = %run, "events of run {run} were not written: {}", chain(&error));
                }
            }
            if stale {
                let _ = lost.send(run.clone());
            }
        }
        for done in flushed {
            let _ = done.send(());
        }
    }
}
