//! How far a partition is read.

use super::{FeedPage, KNOWN_MIN, Store, meeting};
use crate::feed::Record;
use sha2::{Digest as _, Sha256};

/// How far a partition is read.
///
/// `next_offset` never falls, not even when the partition is read again; the place in the source's list is counted
/// apart, as the difference to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Places of the list that were stored so far, over all passes; what could not be read counts too.
    pub next_offset: u64,
    /// By how many places the list has moved to the left: its next place is `next_offset` − `shift`.
    pub shift: i64,
    /// The names at the last places that were stored in this pass, in order: those of the page before, and of pages
    /// before that one until there are [`KNOWN_MIN`](super::KNOWN_MIN). Empty at the beginning of a pass.
    pub last_ids: Vec<String>,
    /// The hash of the whole page before; none at the beginning of a pass.
    pub page_hash: Option<[u8; 32]>,
    /// Which reading of the partition this is, from 1.
    pub pass: u32,
    /// Whether it is read to its end.
    pub completed: bool,
    /// Whether it failed, or was stopped.
    pub failed: bool,
}

impl Progress {
    /// A partition that nobody has begun.
    pub fn new() -> Self {
        Self { pass: 1, ..Self::default() }
    }

    /// The next place in the source's list.
    pub fn position(&self) -> u64 {
        self.next_offset.saturating_add_signed(self.shift.saturating_neg())
    }

    /// Places at the end of what was read whose stone stands before them too.
    pub(super) fn trailing_repeats(&self) -> u32 {
        u32::try_from(meeting::trailing_repeats(&self.last_ids)).unwrap_or(u32::MAX)
    }

    /// After a page was stored.
    #[must_use]
    pub fn after(&self, store: &Store, page: &FeedPage) -> Self {
        let new: Vec<_> = page.records().skip(store.from_index).map(|one| one.name().into_owned()).collect();
        let older = KNOWN_MIN.saturating_sub(new.len()).min(self.last_ids.len());
        let mut last_ids = self.last_ids[self.last_ids.len() - older..].to_vec();
        last_ids.extend(new);
        Self {
            next_offset: store.next_offset,
            shift: store.shift,
            last_ids,
            page_hash: Some(page_hash(page)),
            ..*self
        }
    }

    /// At the beginning of another pass: from the first place, under offsets that were not used yet.
    #[must_use]
    pub fn reread(&self) -> Self {
        Self {
            shift: self.next_offset.cast_signed(),
            last_ids: Vec::new(),
            page_hash: None,
            pass: self.pass + 1,
            ..*self
        }
    }
}

/// The hash of a page by the names in it, in order. Payloads are left out: a feed that gives the same page for ever
/// may put the time into it.
pub fn page_hash(page: &FeedPage) -> [u8; 32] {
    let mut hash = Sha256::new();
    for record in page.records() {
        match record {
            Record::Good(item) => hash.update(item.stone_id.as_bytes()),
            Record::Bad(bad) => {
                hash.update([1]);
                hash.update(bad.stone_id.as_deref().unwrap_or_default().as_bytes());
            }
        }
        hash.update([0]);
    }
    hash.finalize().into()
}
