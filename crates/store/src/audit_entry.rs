//! Audit entries: each is committed in the transaction that makes the change, or not at all.
//!
//! A call creates an entry and uses the store of that call, [`Store::for_call`]. The first committed transaction of
//! that store that changed something writes the entry; later transactions of the same call write no other. A
//! transaction can add details that only it knows, such as a new id. A transaction that changed nothing skips the
//! entry. A store without an entry never writes one.

use crate::{Error, Store, Tx};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_core::Timestamp;
use tidemill_core::access::NewAuditRecord;

/// The audit entry of one call, until it is written.
#[derive(Debug)]
pub struct AuditEntry {
    now: Option<Timestamp>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    audit: NewAuditRecord,
    progress: Progress,
}

/// Progress of an audit entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// No transaction has taken the entry.
    Open,
    /// A transaction that is not committed yet has the entry.
    Taken,
    Committed,
    /// The call succeeded without changing anything.
    Unchanged,
}

impl AuditEntry {
    /// Returns the entry of a call that begins now.
    pub fn new(audit: NewAuditRecord, now: Option<Timestamp>) -> Arc<Self> {
        Arc::new(Self { now, state: Mutex::new(State { audit, progress: Progress::Open }) })
    }

    /// Adds details. Must be called before the transaction that makes the change.
    pub fn annotate(&self, change: impl FnOnce(&mut NewAuditRecord)) {
        change(&mut self.state().audit);
    }

    /// Marks the call as one that changed nothing, so that it writes no entry.
    pub fn skip(&self) {
        self.state().progress = Progress::Unchanged;
    }

    /// Returns the entry if no transaction has written it, for changes made outside the database.
    pub fn unwritten(&self) -> Option<NewAuditRecord> {
        let state = self.state();
        match state.progress {
            Progress::Open | Progress::Taken => Some(state.audit.clone()),
            Progress::Committed | Progress::Unchanged => None,
        }
    }

    /// Returns the entry unless a change was committed with it, for a call that was refused.
    pub fn uncommitted(&self) -> Option<NewAuditRecord> {
        let state = self.state();
        match state.progress {
            Progress::Open | Progress::Taken | Progress::Unchanged => Some(state.audit.clone()),
            Progress::Committed => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a transaction that begins now would write an entry.
    pub(crate) fn is_open(&self) -> bool {
        self.state().is_free()
    }

    /// Takes the entry for a transaction that begins.
    pub(crate) fn take(self: &Arc<Self>) -> Option<TakenEntry> {
        let mut state = self.state();
        if !state.is_free() {
            return None;
        }
        let before = std::mem::replace(&mut state.progress, Progress::Taken);
        let draft_state = DraftState { audit: state.audit.clone(), unchanged: false };
        drop(state);
        let draft = EntryDraft { now: self.now, state: Arc::new(Mutex::new(draft_state)) };
        Some(TakenEntry { entry: self.clone(), draft, after: before })
    }
}

impl State {
    fn is_free(&self) -> bool {
        matches!(self.progress, Progress::Open | Progress::Unchanged)
    }
}

impl Store {
    /// Returns the store of one call: its first transaction that changes something also writes the entry.
    #[must_use]
    pub fn for_call(&self, entry: Arc<AuditEntry>) -> Self {
        Self { audit: Some(entry), ..self.clone() }
    }
}

/// The entry while a transaction has it. If the transaction is not committed, the next one can take it.
pub(crate) struct TakenEntry {
    entry: Arc<AuditEntry>,
    draft: EntryDraft,
    /// Progress after the transaction.
    after: Progress,
}

impl TakenEntry {
    pub(crate) fn draft(&self) -> EntryDraft {
        self.draft.clone()
    }

    pub(crate) fn committed(&mut self) {
        self.after = if self.draft.state().unchanged { Progress::Unchanged } else { Progress::Committed };
    }
}

impl Drop for TakenEntry {
    fn drop(&mut self) {
        self.entry.state().progress = self.after;
    }
}

/// The entry during one attempt of a transaction. Details from an attempt that was rolled back are dropped.
#[derive(Clone)]
pub(crate) struct EntryDraft {
    now: Option<Timestamp>,
    state: Arc<Mutex<DraftState>>,
}

struct DraftState {
    audit: NewAuditRecord,
    unchanged: bool,
}

impl EntryDraft {
    fn state(&self) -> MutexGuard<'_, DraftState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the entry, unless the transaction changed nothing.
    pub(crate) async fn write(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let audit = {
            let state = self.state();
            if state.unchanged {
                return Ok(());
            }
            state.audit.clone()
        };
        tx.add_audit(&audit, self.now).await
    }
}

impl Tx<'_> {
    /// Adds details to the audit entry that is committed with this transaction, if there is one.
    pub fn annotate_audit(&self, change: impl FnOnce(&mut NewAuditRecord)) {
        if let Some(draft) = &self.draft {
            change(&mut draft.state().audit);
        }
    }

    /// Marks this transaction as one that changed nothing, so that it writes no audit entry.
    pub fn skip_audit(&self) {
        if let Some(draft) = &self.draft {
            draft.state().unchanged = true;
        }
    }
}
