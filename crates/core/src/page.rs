//! Paging through a partition of a feed whose list changes while it is read.
//!
//! Records are removed and inserted before the current position, so the list shifts. Each page is therefore requested
//! one position early and must contain a record of the previous page: the pages *overlap*. All records after a known
//! one are in this page or a later one, so no record is skipped between two pages. If the pages do not overlap, the
//! reader steps back until they do, or reads the partition again.
//!
//! Guarantee: a record that is in the list during the whole pass is stored by that pass. The next incremental sync
//! handles records that appear or disappear during the pass.

mod chain;
mod error;
mod overlap;
mod pass_end;
mod progress;

pub use chain::{ChainDecision, decide_chained, mark_end};
pub use error::{PageError, RereadReason};
pub use overlap::is_linked;
pub use pass_end::{PassEnd, RECOUNTS_MAX, ReadCounts, decide_pass_end};
pub use progress::{Progress, page_hash};

use crate::feed::FeedPage;
use overlap::{Overlap, compare, occupied};

/// Number of fetches for one page before the partition is read again.
pub const TRIES_MAX: u32 = 12;

/// Minimum number of remembered ids, so that two pages still overlap after the last records were removed.
pub const KNOWN_MIN: usize = 64;

/// Minimum size of a page that counts as a repeat at once. New records may have shifted a smaller page, so it counts
/// as a repeat only at the last attempt.
const REPEAT_MIN: usize = 8;

/// Number of passes over a partition before it fails.
pub const PASSES_MAX: u32 = 3;

/// Minimum size of a page without any id that fails the partition. On such a page the feed itself is broken, not single
/// records.
const NAMELESS_MIN: usize = 8;

/// The decision about a work message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The message is for the next page.
    Proceed,
    SkipCompleted,
    /// The partition failed or was cancelled.
    SkipFailed,
    /// The page is stored already, or is not the next one.
    SkipDuplicate,
}

/// Decides whether a message is for the next page of its partition.
pub const fn guard(message_offset: u64, progress: &Progress) -> Guard {
    if progress.completed {
        Guard::SkipCompleted
    } else if progress.failed {
        Guard::SkipFailed
    } else if message_offset == progress.next_offset {
        Guard::Proceed
    } else {
        Guard::SkipDuplicate
    }
}

/// The purpose of a fetch, which determines how its result is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A page without overlap: there is no previous page, or the feed returns single records.
    Plain,
    /// A page that should begin with a record of the previous page.
    Overlap,
    /// The position after the last record, to detect the end of the list.
    Probe,
    /// The last record again, after an empty probe, to detect a shift of the list in between.
    Confirm,
}

/// The page that the worker fetches next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchRequest {
    /// Position in the source's list.
    pub offset: u64,
    pub limit: u32,
    pub purpose: Purpose,
}

/// Returns the first fetch for the next page: `limit` new records, preceded by the last known record.
pub fn first_fetch(progress: &Progress, limit: u32, page_limit: u32) -> FetchRequest {
    let page_limit = page_limit.max(1);
    let limit = limit.clamp(1, page_limit);
    let position = progress.position();
    // With one record per page, pages cannot overlap.
    if position == 0 || progress.last_ids.is_empty() || page_limit == 1 {
        return FetchRequest { offset: position, limit, purpose: Purpose::Plain };
    }
    let limit = (limit + 1).min(page_limit);
    // Repeats at the end of the previous page may not be positions of the list, so the page begins before them.
    let back = 1 + u64::from(progress.trailing_repeats().min(limit / 2));
    FetchRequest { offset: position.saturating_sub(back), limit, purpose: Purpose::Overlap }
}

/// The part of a page to store, and the progress after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageWrite {
    /// Index of the first record that is not known from the previous page.
    pub from_index: usize,
    /// The partition's `next_offset` after this page: increased by the number of new positions.
    pub next_offset: u64,
    /// The partition's `shift` after this page.
    pub shift: i64,
    /// Whether the feed reported the end of the list.
    pub ends: bool,
}

/// The decision about a fetched page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageDecision {
    Store(PageWrite),
    /// The page does not overlap the previous one: fetch this instead.
    StepBack(FetchRequest),
    /// The page contains nothing new: fetch this instead.
    StepOn(FetchRequest),
    /// No page overlapped the previous one: read the partition again, see [`Progress::reread`].
    Reread(RereadReason),
    /// The partition is read to its end; there is nothing to store.
    Ended,
    /// The partition cannot be read.
    Fail(PageError),
}

/// How the reader treats a page that repeats the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatedPage {
    /// The source ignores the position, so the partition fails.
    Fails,
    /// The source answers its last page for every position after the end of the list.
    Ends,
}

/// Decides about the page that `fetch` returned. `attempt` counts the earlier fetches for this page.
pub fn decide_page(
    progress: &Progress,
    fetch: &FetchRequest,
    page: &FeedPage,
    attempt: u32,
    repeated: RepeatedPage,
) -> PageDecision {
    let positions = page.record_count();
    if positions >= NAMELESS_MIN && !has_ids(page) {
        return PageDecision::Fail(PageError::NoIds { offset: fetch.offset, places: positions });
    }
    if fetch.purpose == Purpose::Plain {
        return decide_plain(progress, fetch, page, repeated);
    }
    let is_last_attempt = attempt + 1 >= TRIES_MAX;
    let ends_with_repeat = repeated == RepeatedPage::Ends;
    if ends_with_repeat && repeats(progress, fetch, page) {
        return PageDecision::Ended;
    }
    if repeats(progress, fetch, page) && (positions >= REPEAT_MIN || is_last_attempt) {
        return PageDecision::Fail(PageError::Repeats { offset: fetch.offset });
    }
    if is_last_attempt {
        return decide_last_attempt(progress, fetch, page);
    }
    match compare(progress, fetch, page) {
        Overlap::None if fetch.purpose == Purpose::Probe => PageDecision::StepOn(FetchRequest {
            offset: fetch.offset.saturating_sub(1),
            purpose: if positions == 0 { Purpose::Confirm } else { Purpose::Overlap },
            ..*fetch
        }),
        // The list is empty.
        Overlap::None if positions == 0 && fetch.offset == 0 => PageDecision::Ended,
        Overlap::None => step_back(progress, fetch, attempt),
        Overlap::New { from_index, positions } => store(progress, fetch, page, from_index, positions),
        Overlap::NothingNew if page.is_last || fetch.purpose == Purpose::Confirm => PageDecision::Ended,
        Overlap::NothingNew if ends_with_repeat && fetch.purpose == Purpose::Probe => PageDecision::Ended,
        Overlap::NothingNew => step_on(fetch, page),
    }
}

/// Decides about a page that cannot overlap the previous one.
fn decide_plain(
    progress: &Progress,
    fetch: &FetchRequest,
    page: &FeedPage,
    repeated: RepeatedPage,
) -> PageDecision {
    let positions = page.record_count();
    if positions == 0 {
        return PageDecision::Ended;
    }
    if progress.page_hash != Some(page_hash(page)) {
        return store(progress, fetch, page, 0, positions);
    }
    // One new record may have shifted a list of single records.
    match repeated {
        RepeatedPage::Ends => PageDecision::Ended,
        RepeatedPage::Fails if progress.pass < PASSES_MAX => {
            PageDecision::Reread(RereadReason::Repeats { offset: fetch.offset })
        }
        RepeatedPage::Fails => PageDecision::Fail(PageError::Repeats { offset: fetch.offset }),
    }
}

/// Returns whether the feed returned the previous page again at a position where it cannot be.
fn repeats(progress: &Progress, fetch: &FetchRequest, page: &FeedPage) -> bool {
    page.record_count() > 1
        && fetch.offset >= progress.position()
        && progress.page_hash == Some(page_hash(page))
}

/// Stores a page that brought `positions` new positions from `from_index` on.
fn store(
    progress: &Progress,
    fetch: &FetchRequest,
    page: &FeedPage,
    from_index: usize,
    positions: usize,
) -> PageDecision {
    let next_offset = progress.next_offset + positions as u64;
    PageDecision::Store(PageWrite {
        from_index,
        next_offset,
        shift: next_offset.cast_signed() - (fetch.offset + page.record_count() as u64).cast_signed(),
        // A short page is not the end: feeds may return fewer records than requested.
        ends: page.is_last,
    })
}

/// Moves the fetch back. The first step is small, because usually one or two records were removed. After that, each
/// page ends where the previous one began, so that no position is skipped.
fn step_back(progress: &Progress, fetch: &FetchRequest, attempt: u32) -> PageDecision {
    if fetch.offset == 0 {
        return reread(progress, RereadReason::LostPlace { next_offset: progress.next_offset });
    }
    let distance = if attempt == 0 { (fetch.limit / 4).max(1) } else { fetch.limit.max(2) - 1 };
    let offset = fetch.offset.saturating_sub(distance.into());
    PageDecision::StepBack(FetchRequest { offset, purpose: Purpose::Overlap, ..*fetch })
}

/// Moves the fetch to the last known record of the page. If the page is not full, it may be the last one, so the
/// position after it is probed.
fn step_on(fetch: &FetchRequest, page: &FeedPage) -> PageDecision {
    let end = fetch.offset + occupied(page);
    PageDecision::StepOn(if page.record_count() < fetch.limit as usize {
        FetchRequest { offset: end, purpose: Purpose::Probe, ..*fetch }
    } else {
        // A page that repeats one record occupies one position; the reader must still advance.
        FetchRequest { offset: end.max(fetch.offset + 2) - 1, purpose: Purpose::Overlap, ..*fetch }
    })
}

/// Decides about the page of the last allowed fetch.
fn decide_last_attempt(progress: &Progress, fetch: &FetchRequest, page: &FeedPage) -> PageDecision {
    match compare(progress, fetch, page) {
        Overlap::New { from_index, positions } => store(progress, fetch, page, from_index, positions),
        Overlap::NothingNew if page.is_last || fetch.purpose == Purpose::Confirm => PageDecision::Ended,
        Overlap::NothingNew | Overlap::None => {
            reread(progress, RereadReason::LostPlace { next_offset: progress.next_offset })
        }
    }
}

fn reread(progress: &Progress, reason: RereadReason) -> PageDecision {
    if progress.pass >= PASSES_MAX {
        PageDecision::Fail(PageError::NeverMeets { next_offset: progress.next_offset, passes: progress.pass })
    } else {
        PageDecision::Reread(reason)
    }
}

fn has_ids(page: &FeedPage) -> bool {
    page.items.iter().any(|item| !item.record_id.is_empty())
        || page.rejected.iter().any(|rejected| rejected.record_id.as_deref().is_some_and(|id| !id.is_empty()))
}
