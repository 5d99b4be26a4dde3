//! The progress of reading a partition.

use super::{FeedPage, KNOWN_MIN, PageWrite, overlap};
use crate::feed::Record;
use sha2::{Digest as _, Sha256};

/// The progress of reading a partition.
///
/// `next_offset` never decreases, not even when the partition is read again. The position in the source's list is
/// stored as the difference to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Positions of the list that were stored so far, over all passes, including rejected records.
    pub next_offset: u64,
    /// Number of positions by which the list has moved to the left: the next position is `next_offset` − `shift`.
    pub shift: i64,
    /// Names of the last stored records of this pass, in order: those of the previous page, and of earlier pages
    /// until there are [`KNOWN_MIN`](super::KNOWN_MIN). Empty at the beginning of a pass.
    pub last_ids: Vec<String>,
    /// Hash of the previous page; `None` at the beginning of a pass.
    pub page_hash: Option<[u8; 32]>,
    /// Token of the next page, for lists whose pages follow from one another.
    pub token: Option<String>,
    /// Number of this pass over the partition, counted from 1.
    pub pass: u32,
    /// Whether the partition is read to its end.
    pub completed: bool,
    /// Whether the partition failed or was cancelled.
    pub failed: bool,
}

impl Progress {
    /// The progress of a partition that has not been started.
    pub fn new() -> Self {
        Self { pass: 1, ..Self::default() }
    }

    /// Returns the next position in the source's list.
    pub fn position(&self) -> u64 {
        self.next_offset.saturating_add_signed(self.shift.saturating_neg())
    }

    /// Returns the number of repeated names at the end of the remembered names.
    pub(super) fn trailing_repeats(&self) -> u32 {
        u32::try_from(overlap::trailing_repeats(&self.last_ids)).unwrap_or(u32::MAX)
    }

    /// Returns the progress after a page was stored.
    #[must_use]
    pub fn after(&self, store: &PageWrite, page: &FeedPage) -> Self {
        let new: Vec<_> = page.records().skip(store.from_index).map(|one| one.name().into_owned()).collect();
        let older = KNOWN_MIN.saturating_sub(new.len()).min(self.last_ids.len());
        let mut last_ids = self.last_ids[self.last_ids.len() - older..].to_vec();
        last_ids.extend(new);
        Self {
            next_offset: store.next_offset,
            shift: store.shift,
            last_ids,
            page_hash: Some(page_hash(page)),
            token: page.next.as_ref().and_then(|next| next.token.clone()),
            ..*self
        }
    }

    /// Returns the progress at the beginning of another pass: from the first position, with unused offsets.
    #[must_use]
    pub fn reread(&self) -> Self {
        Self {
            shift: self.next_offset.cast_signed(),
            last_ids: Vec::new(),
            page_hash: None,
            token: None,
            pass: self.pass + 1,
            ..*self
        }
    }
}

/// Returns the hash of the names in a page, in order. Payloads are excluded: a feed that repeats a page may put the
/// current time into it.
pub fn page_hash(page: &FeedPage) -> [u8; 32] {
    let mut hash = Sha256::new();
    for record in page.records() {
        match record {
            Record::Accepted(item) => hash.update(item.record_id.as_bytes()),
            Record::Rejected(item) => {
                hash.update([1]);
                hash.update(item.record_id.as_deref().unwrap_or_default().as_bytes());
            }
        }
        hash.update([0]);
    }
    hash.finalize().into()
}
