//! What somebody does, on its way to the record: the line is committed with the step that does it, or not at all.
//!
//! A call opens a record around its work. The first step that is committed within it, and that changed something, takes
//! the line with it; later steps of the same call add no other. What the step alone knows, such as the number that a
//! new thing got, it adds to the line itself. A step that found nothing to change says so, and leaves no line.

use crate::{Error, Tx};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_core::Timestamp;
use tidemill_core::access::NewAudit;

tokio::task_local! {
    static OPEN: Arc<Record>;
}

/// What somebody does, until it is on record.
pub struct Record {
    now: Option<Timestamp>,
    state: Mutex<State>,
}

struct State {
    audit: NewAudit,
    progress: Progress,
}

/// How far the line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// No step has taken it.
    Open,
    /// A step has it, and is not committed yet.
    Taken,
    /// It is on record.
    Committed,
    /// The work was done, and changed nothing.
    Unchanged,
}

impl Record {
    /// The line for a call that begins now.
    pub fn new(audit: NewAudit, now: Option<Timestamp>) -> Arc<Self> {
        Arc::new(Self { now, state: Mutex::new(State { audit, progress: Progress::Open }) })
    }

    /// Does the work. Its steps run on behalf of this call, as far as it does not hand them to other tasks.
    pub async fn around<F: Future>(self: &Arc<Self>, work: F) -> F::Output {
        OPEN.scope(self.clone(), work).await
    }

    /// The line, where the work left none: for what was done without a step of ours.
    pub fn left(&self) -> Option<NewAudit> {
        let state = self.state();
        match state.progress {
            Progress::Open | Progress::Taken => Some(state.audit.clone()),
            Progress::Committed | Progress::Unchanged => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in there can be half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a step that begins now would take a line with it.
    pub(crate) fn is_open() -> bool {
        OPEN.try_with(|record| record.state().is_free()).unwrap_or(false)
    }

    /// The line, for a step that begins.
    pub(crate) fn take() -> Option<Taken> {
        let record = OPEN.try_with(Arc::clone).ok()?;
        let mut state = record.state();
        if !state.is_free() {
            return None;
        }
        let before = std::mem::replace(&mut state.progress, Progress::Taken);
        let kept = Kept { audit: state.audit.clone(), unchanged: false };
        drop(state);
        let line = Line { now: record.now, kept: Arc::new(Mutex::new(kept)) };
        Some(Taken { record, line, after: before })
    }
}

impl State {
    fn is_free(&self) -> bool {
        matches!(self.progress, Progress::Open | Progress::Unchanged)
    }
}

/// Adds what a route knows to the line of its call, where it has one: before the step that does it.
pub fn note(tell: impl FnOnce(&mut NewAudit)) {
    let _ = OPEN.try_with(|record| tell(&mut record.state().audit));
}

/// Says that a call changes nothing, though it came as one that could.
pub fn unchanged() {
    let _ = OPEN.try_with(|record| record.state().progress = Progress::Unchanged);
}

/// A line that a step has. Where the step is not committed, the next one may take it.
pub(crate) struct Taken {
    record: Arc<Record>,
    line: Line,
    /// How far the line is once the step is over.
    after: Progress,
}

impl Taken {
    pub(crate) fn line(&self) -> Line {
        self.line.clone()
    }

    pub(crate) fn committed(&mut self) {
        self.after = if self.line.kept().unchanged { Progress::Unchanged } else { Progress::Committed };
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.record.state().progress = self.after;
    }
}

/// The line of one try of a step: what a try that was rolled back said of it is forgotten.
#[derive(Clone)]
pub(crate) struct Line {
    now: Option<Timestamp>,
    kept: Arc<Mutex<Kept>>,
}

struct Kept {
    audit: NewAudit,
    unchanged: bool,
}

impl Line {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the line, unless the step found nothing to change.
    pub(crate) async fn write(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let audit = {
            let kept = self.kept();
            if kept.unchanged {
                return Ok(());
            }
            kept.audit.clone()
        };
        tx.add_audit(&audit, self.now).await
    }
}

impl Tx<'_> {
    /// Adds what this step knows to the line that is committed with it, where there is one.
    pub fn note(&self, tell: impl FnOnce(&mut NewAudit)) {
        if let Some(line) = &self.line {
            tell(&mut line.kept().audit);
        }
    }

    /// Says that this step found nothing to change, so that it leaves no line.
    pub fn unchanged(&self) {
        if let Some(line) = &self.line {
            line.kept().unchanged = true;
        }
    }
}
