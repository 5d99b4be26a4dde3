//! Reading of lists whose pages follow from one another: page numbers, cursors, keys and next URLs.
//!
//! Such pages cannot begin one record early, so they do not overlap. The source's own token protects cursors and keys
//! against shifts. The new count after the last page finds records that a page number missed.

use super::{
    FeedPage, PASSES_MAX, PageError, PageWrite, Progress, REPEAT_MIN, RepeatedPage, RereadReason, TRIES_MAX,
    page_hash,
};
use crate::feed_definition::Place;

/// The decision about a page of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainDecision {
    /// The place after it is in [`FeedPage::next`].
    Store(PageWrite),
    /// The page is empty, but the source names a further one: fetch it.
    Next(Place),
    /// The page repeats the previous one, perhaps because of a shift: read the partition again.
    Reread(RereadReason),
    /// The partition is read to its end; there is nothing to store.
    Ended,
    /// The partition cannot be read.
    Fail(PageError),
}

/// Token of the place after the last page. No source has an empty token.
const END_TOKEN: &str = "";

impl Progress {
    /// Returns the place of the next page.
    pub fn place(&self) -> Place {
        Place { offset: self.position(), token: self.token.clone() }
    }

    /// Returns whether the last page of a chain was stored, perhaps by another worker.
    pub fn is_at_end(&self) -> bool {
        self.token.as_deref() == Some(END_TOKEN)
    }
}

/// Sets the end marker as the next place of the last page. Without it, a worker that continues the partition could not
/// distinguish the end of the list from a missing token.
pub fn mark_end(page: &mut FeedPage, write: &PageWrite) {
    if write.ends {
        let offset = write.next_offset.saturating_add_signed(write.shift.saturating_neg());
        page.next = Some(Place { offset, token: Some(END_TOKEN.to_owned()) });
    }
}

/// Decides about the page at a place. `attempt` counts the empty pages before it.
pub fn decide_chained(
    progress: &Progress,
    place: &Place,
    page: &FeedPage,
    attempt: u32,
    repeated: RepeatedPage,
) -> ChainDecision {
    let positions = page.record_count();
    if positions >= super::NAMELESS_MIN && !super::has_ids(page) {
        return ChainDecision::Fail(PageError::NoIds { offset: place.offset, places: positions });
    }
    if positions == 0 {
        return match &page.next {
            None => ChainDecision::Ended,
            Some(_) if attempt + 1 >= TRIES_MAX => {
                ChainDecision::Fail(PageError::EmptyPages { offset: place.offset, pages: attempt + 1 })
            }
            Some(next) => ChainDecision::Next(next.clone()),
        };
    }
    if progress.page_hash == Some(page_hash(page))
        && let Some(decision) = decide_repeat(progress, place, page, repeated)
    {
        return decision;
    }
    let next_offset = progress.next_offset + positions as u64;
    let after = page.next.as_ref().map_or(place.offset + positions as u64, |next| next.offset);
    ChainDecision::Store(PageWrite {
        from_index: 0,
        next_offset,
        shift: next_offset.cast_signed() - after.cast_signed(),
        ends: page.next.is_none(),
    })
}

/// Decides about a page that repeats the previous one; `None` stores it. As many new records as a small page has may
/// have shifted the list, so the partition is read again first. Storing the page would never end if the source ignores
/// the place.
fn decide_repeat(
    progress: &Progress,
    place: &Place,
    page: &FeedPage,
    repeated: RepeatedPage,
) -> Option<ChainDecision> {
    match repeated {
        // A source that names the next place has more records.
        RepeatedPage::Ends if page.next.as_ref().is_some_and(|next| next.token.is_some()) => None,
        RepeatedPage::Ends => Some(ChainDecision::Ended),
        RepeatedPage::Fails if page.record_count() < REPEAT_MIN && progress.pass < PASSES_MAX => {
            Some(ChainDecision::Reread(RereadReason::Repeats { offset: place.offset }))
        }
        RepeatedPage::Fails => Some(ChainDecision::Fail(PageError::Repeats { offset: place.offset })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::Item;

    fn page(ids: std::ops::Range<u32>, next: Option<(u64, &str)>) -> FeedPage {
        let items = ids.map(|id| Item::new(format!("r{id}"), None, "{}".to_owned())).collect();
        let next = next.map(|(offset, token)| Place { offset, token: Some(token.to_owned()) });
        FeedPage { items, is_last: next.is_none(), next, ..FeedPage::default() }
    }

    fn stored(progress: &Progress, page: &FeedPage) -> Progress {
        match decide_chained(progress, &progress.place(), page, 0, RepeatedPage::Fails) {
            ChainDecision::Store(write) => progress.after(&write, page),
            other @ (ChainDecision::Next(_)
            | ChainDecision::Reread(_)
            | ChainDecision::Ended
            | ChainDecision::Fail(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn token_of_the_next_page_is_kept_with_its_offset() {
        let first = page(0..10, Some((10, "b")));
        let after = stored(&Progress::new(), &first);
        assert_eq!(after.place(), Place { offset: 10, token: Some("b".to_owned()) });
        let again = after.reread();
        assert_eq!((again.place(), again.next_offset), (Place::default(), 10));
    }

    #[test]
    fn short_page_of_page_numbers_advances_by_a_whole_page() {
        let short = FeedPage { next: Some(Place { offset: 100, token: None }), ..page(0..97, None) };
        let after = stored(&Progress::new(), &short);
        assert_eq!((after.next_offset, after.place().offset), (97, 100));
        let next = FeedPage { next: Some(Place { offset: 200, token: None }), ..page(100..200, None) };
        let after = stored(&after, &next);
        assert_eq!((after.next_offset, after.place().offset), (197, 200));
    }

    #[test]
    fn page_without_a_next_place_ends_the_partition() {
        let last = page(0..3, None);
        let decision = decide_chained(&Progress::new(), &Place::default(), &last, 0, RepeatedPage::Fails);
        assert!(matches!(decision, ChainDecision::Store(PageWrite { ends: true, next_offset: 3, .. })));
        let empty = page(0..0, None);
        let decision = decide_chained(&Progress::new(), &Place::default(), &empty, 0, RepeatedPage::Fails);
        assert_eq!(decision, ChainDecision::Ended);
    }

    #[test]
    fn end_of_the_chain_is_part_of_the_progress() {
        let (progress, mut last) = (Progress::new(), page(0..3, None));
        let ChainDecision::Store(write) =
            decide_chained(&progress, &Place::default(), &last, 0, RepeatedPage::Fails)
        else {
            panic!("the page has records");
        };
        mark_end(&mut last, &write);
        let after = progress.after(&write, &last);
        assert!(after.is_at_end() && !progress.is_at_end());
        assert!(!after.reread().is_at_end());

        let mut first = page(0..3, Some((3, "b")));
        let ChainDecision::Store(write) =
            decide_chained(&progress, &Place::default(), &first, 0, RepeatedPage::Fails)
        else {
            panic!("the page has records");
        };
        mark_end(&mut first, &write);
        assert!(!progress.after(&write, &first).is_at_end());
    }

    #[test]
    fn empty_pages_with_a_next_place_are_bounded() {
        let empty = page(0..0, Some((0, "b")));
        let decide = |attempt| {
            decide_chained(&Progress::new(), &Place::default(), &empty, attempt, RepeatedPage::Fails)
        };
        assert!(matches!(decide(0), ChainDecision::Next(_)));
        assert!(matches!(decide(TRIES_MAX - 1), ChainDecision::Fail(PageError::EmptyPages { .. })));
    }

    #[test]
    fn repeated_page_fails_and_a_similar_honest_one_does_not() {
        let first = page(0..10, Some((10, "b")));
        let after = stored(&Progress::new(), &first);
        let decide = |page: &FeedPage, repeated| decide_chained(&after, &after.place(), page, 0, repeated);
        let repeat = page(0..10, Some((20, "c")));
        let failed = decide(&repeat, RepeatedPage::Fails);
        assert!(matches!(failed, ChainDecision::Fail(PageError::Repeats { offset: 10 })));
        assert!(matches!(decide(&repeat, RepeatedPage::Ends), ChainDecision::Store(_)));
        let positional = FeedPage { next: Some(Place { offset: 20, token: None }), ..repeat };
        assert_eq!(decide(&positional, RepeatedPage::Ends), ChainDecision::Ended);
        let shifted = page(1..11, Some((20, "c")));
        for repeated in [RepeatedPage::Fails, RepeatedPage::Ends] {
            assert!(matches!(decide(&shifted, repeated), ChainDecision::Store(_)));
        }
    }

    #[test]
    fn small_repeated_page_is_read_again_before_it_fails() {
        let next = |offset| Some(Place { offset, token: None });
        let small = |offset| FeedPage { next: next(offset), ..page(0..1, None) };
        let mut progress = Progress::new();
        for pass in 1..=PASSES_MAX {
            progress = stored(&progress, &small(1));
            let again = decide_chained(&progress, &progress.place(), &small(2), 0, RepeatedPage::Fails);
            if pass < PASSES_MAX {
                let reason = RereadReason::Repeats { offset: progress.place().offset };
                assert_eq!(again, ChainDecision::Reread(reason));
                progress = progress.reread();
            } else {
                assert!(matches!(again, ChainDecision::Fail(PageError::Repeats { .. })), "{again:?}");
            }
        }
    }
}
