//! What one page does to its partition.
//!
//! A feed's list moves while it is read: stones are sold and appear before the place that was reached. So a page is
//! asked for from one place too early, and must contain a stone of the page before: they have *met*. Whatever
//! follows a stone of the page before stands in this page or after it, so nothing slips between two pages. Where
//! they do not meet, the reader steps back until they do, or reads the partition again.
//!
//! The promise: a stone that is in the list during a whole pass is stored in it. Stones that come or go while the
//! pass goes on are the business of the next incremental sync.

mod fault;
mod last;
mod meeting;
mod progress;

pub use fault::{PageFault, RereadReason};
pub use last::{AfterLast, RECOUNTS_MAX, Seen, after_last};
pub use progress::{Progress, page_hash};

use crate::broken::Break;
use crate::feed::FeedPage;
use meeting::{Meeting, meet, taken};

/// Fetches for one page before the partition is read again.
pub const TRIES_MAX: u32 = 12;

/// Stones that are remembered at the least, so that two pages still meet when the last ones were sold meanwhile.
pub const KNOWN_MIN: usize = 64;

/// Places of a page that is taken for a repeat at once. A smaller one may have been moved there by new stones, and is
/// given the benefit of the doubt up to the last try.
const REPEAT_MIN: usize = 8;

/// Times that a partition is read before it fails.
pub const PASSES_MAX: u32 = 3;

/// Places of a page that fails its partition where none of them has an id: a feed that has lost its ids, and not a
/// record that has none.
const NAMELESS_MIN: usize = 8;

/// What is done with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Its page is the next one.
    Proceed,
    /// Its partition is read to the end.
    SkipCompleted,
    /// Its partition failed, or was stopped.
    SkipFailed,
    /// Its page is stored already, or is not yet due.
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

/// What a fetch is for, which decides what its answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The page from the place that was reached: nothing is before it, or the feed gives single stones.
    Plain,
    /// The page from a place where a stone of the page before should be.
    Meet,
    /// The place after the last stone: is there anything?
    Probe,
    /// The last stone once more, after nothing was found behind it: has the list moved in between?
    Confirm,
}

/// What to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The place in the source's list.
    pub offset: u64,
    /// How many.
    pub limit: u32,
    /// What for.
    pub purpose: Purpose,
}

/// The first fetch for the next page: `limit` new stones, and the last stone before them.
pub fn ask(progress: &Progress, limit: u32, page_limit: u32) -> Ask {
    let page_limit = page_limit.max(1);
    let limit = limit.clamp(1, page_limit);
    let position = progress.position();
    // A feed that gives one stone at a time has no room for two pages to meet in.
    if position == 0 || progress.last_ids.is_empty() || page_limit == 1 {
        return Ask { offset: position, limit, purpose: Purpose::Plain };
    }
    let limit = (limit + 1).min(page_limit);
    // Repeats at the end of the page before may be no places of the list, so the page begins before them.
    let back = 1 + u64::from(progress.trailing_repeats().min(limit / 2));
    Ask { offset: position.saturating_sub(back), limit, purpose: Purpose::Meet }
}

/// What a page is stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store {
    /// The first place of the page that is not known from the page before.
    pub from_index: usize,
    /// The partition's `next_offset` after it: it has grown by the places that were not read before.
    pub next_offset: u64,
    /// The partition's `shift` after it.
    pub shift: i64,
    /// Whether the feed says that nothing follows.
    pub ends: bool,
}

/// What a fetched page means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Store it.
    Store(Store),
    /// It does not meet the page before: fetch this instead.
    StepBack(Ask),
    /// It holds nothing new: fetch this instead.
    StepOn(Ask),
    /// It never met the page before: read the partition again, see [`Progress::reread`].
    Reread(RereadReason),
    /// The partition is read to its end; nothing is to be stored.
    Ended,
    /// It cannot be read.
    Fail(PageFault),
}

/// Judges the answer to `ask`. `attempt` counts the fetches for this page before it, from 0.
pub fn judge(progress: &Progress, ask: &Ask, page: &FeedPage, attempt: u32) -> Verdict {
    let places = page.places();
    if places >= NAMELESS_MIN && !has_ids(page) {
        return Verdict::Fail(PageFault::NoIds { offset: ask.offset, places });
    }
    if ask.purpose == Purpose::Plain {
        return if places == 0 { Verdict::Ended } else { store(progress, ask, page, 0, places) };
    }
    let is_last_try = attempt + 1 >= TRIES_MAX;
    if repeats(progress, ask, page) && (places >= REPEAT_MIN || is_last_try) {
        return Verdict::Fail(PageFault::Repeats { offset: ask.offset });
    }
    if is_last_try {
        return last_try(progress, ask, page);
    }
    match meet(progress, ask, page) {
        Meeting::Apart if ask.purpose == Purpose::Probe => Verdict::StepOn(Ask {
            offset: ask.offset.saturating_sub(1),
            purpose: if places == 0 { Purpose::Confirm } else { Purpose::Meet },
            ..*ask
        }),
        // Nothing at all is in the list.
        Meeting::Apart if places == 0 && ask.offset == 0 => Verdict::Ended,
        Meeting::Apart => step_back(progress, ask, attempt),
        Meeting::New { from_index, places } => store(progress, ask, page, from_index, places),
        Meeting::Known if page.is_last || ask.purpose == Purpose::Confirm => Verdict::Ended,
        Meeting::Known => step_on(ask, page),
    }
}

/// Whether the page before is given once more where it cannot be.
fn repeats(progress: &Progress, ask: &Ask, page: &FeedPage) -> bool {
    page.places() > 1 && ask.offset >= progress.position() && progress.page_hash == Some(page_hash(page))
}

/// Stores a page whose places from `from_index` on brought `places` places that were not read before.
fn store(progress: &Progress, ask: &Ask, page: &FeedPage, from_index: usize, places: usize) -> Verdict {
    let next_offset = progress.next_offset + places as u64;
    let is_short = page.places() < ask.limit as usize;
    Verdict::Store(Store {
        from_index,
        next_offset,
        shift: next_offset.cast_signed() - (ask.offset + page.places() as u64).cast_signed(),
        // A short page is not the end: feeds give fewer than asked for when it suits them.
        ends: page.is_last || (Break::ShortPageEnds.is_on() && is_short),
    })
}

/// The first step is small, because mostly one or two stones were sold; after that, each page ends where the one
/// before began, so that none is skipped on the way back.
fn step_back(progress: &Progress, ask: &Ask, attempt: u32) -> Verdict {
    if ask.offset == 0 {
        return reread(progress, RereadReason::LostPlace { next_offset: progress.next_offset });
    }
    let distance = if attempt == 0 { (ask.limit / 4).max(1) } else { ask.limit.max(2) - 1 };
    let offset = ask.offset.saturating_sub(distance.into());
    Verdict::StepBack(Ask { offset, purpose: Purpose::Meet, ..*ask })
}

/// Goes on from the last known stone of the page. Where the page is not full, it may be the end: the place after it is
/// probed.
fn step_on(ask: &Ask, page: &FeedPage) -> Verdict {
    let end = ask.offset + taken(page);
    Verdict::StepOn(if page.places() < ask.limit as usize {
        Ask { offset: end, purpose: Purpose::Probe, ..*ask }
    } else {
        // A page of one stone again and again takes up one place, and the reader goes on all the same.
        Ask { offset: end.max(ask.offset + 2) - 1, purpose: Purpose::Meet, ..*ask }
    })
}

/// What can still be decided when no further fetch is allowed.
fn last_try(progress: &Progress, ask: &Ask, page: &FeedPage) -> Verdict {
    match meet(progress, ask, page) {
        Meeting::New { from_index, places } => store(progress, ask, page, from_index, places),
        Meeting::Known if page.is_last || ask.purpose == Purpose::Confirm => Verdict::Ended,
        Meeting::Known | Meeting::Apart => {
            reread(progress, RereadReason::LostPlace { next_offset: progress.next_offset })
        }
    }
}

fn reread(progress: &Progress, reason: RereadReason) -> Verdict {
    if progress.pass >= PASSES_MAX {
        Verdict::Fail(PageFault::NeverMeets { next_offset: progress.next_offset, passes: progress.pass })
    } else {
        Verdict::Reread(reason)
    }
}

fn has_ids(page: &FeedPage) -> bool {
    page.items.iter().any(|item| !item.stone_id.is_empty())
        || page.bad.iter().any(|bad| bad.stone_id.as_deref().is_some_and(|id| !id.is_empty()))
}
