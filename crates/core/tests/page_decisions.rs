//! Cases of the page decisions.

use tidemill_core::feed::{FeedPage, Item, RejectedItem};
use tidemill_core::feed_definition::PageAccess;
use tidemill_core::page::{
    self, FetchRequest, Guard, PASSES_MAX, PageDecision, PageError, PageWrite, PassEnd, Progress, Purpose,
    RECOUNTS_MAX, ReadCounts, RepeatedPage, RereadReason, TRIES_MAX, decide_pass_end, first_fetch, guard,
};

fn decide_page(progress: &Progress, fetch: &FetchRequest, page: &FeedPage, attempt: u32) -> PageDecision {
    page::decide_page(progress, fetch, page, attempt, RepeatedPage::Fails)
}

fn items(ids: &[&str]) -> Vec<Item> {
    ids.iter().map(|id| Item::new(*id, None, format!("{{\"id\":\"{id}\"}}"))).collect()
}

fn page(ids: &[&str]) -> FeedPage {
    FeedPage { items: items(ids), ..FeedPage::default() }
}

fn last(ids: &[&str]) -> FeedPage {
    FeedPage { is_last: true, ..page(ids) }
}

/// Progress at position 3, with `a b c` as the previous page.
fn at_three() -> Progress {
    Progress {
        next_offset: 3,
        last_ids: ["a", "b", "c"].map(str::to_owned).to_vec(),
        page_hash: Some(page::page_hash(&page(&["a", "b", "c"]))),
        ..Progress::new()
    }
}

fn overlapping(offset: u64, limit: u32) -> FetchRequest {
    FetchRequest { offset, limit, purpose: Purpose::Overlap }
}

#[test]
fn message_is_skipped_unless_it_is_for_the_next_page() {
    let open = at_three();
    assert_eq!(guard(3, &open), Guard::Proceed);
    assert_eq!(guard(0, &open), Guard::SkipDuplicate);
    assert_eq!(guard(6, &open), Guard::SkipDuplicate);
    assert_eq!(guard(3, &Progress { completed: true, ..at_three() }), Guard::SkipCompleted);
    assert_eq!(guard(3, &Progress { failed: true, ..at_three() }), Guard::SkipFailed);
}

#[test]
fn first_fetch_overlaps_the_previous_page_by_one() {
    let plain = |offset, limit| FetchRequest { offset, limit, purpose: Purpose::Plain };
    assert_eq!(first_fetch(&Progress::new(), 30, 50), plain(0, 30));
    assert_eq!(first_fetch(&Progress::new(), 300, 50), plain(0, 50));
    assert_eq!(first_fetch(&at_three(), 30, 50), overlapping(2, 31));
    assert_eq!(first_fetch(&at_three(), 50, 50), overlapping(2, 50));
    assert_eq!(first_fetch(&at_three(), 1, 1), plain(3, 1));
    assert_eq!(first_fetch(&Progress { shift: 2, ..at_three() }, 30, 50), overlapping(0, 31));
    assert_eq!(first_fetch(&Progress { shift: -2, ..at_three() }, 30, 50), overlapping(4, 31));
}

#[test]
fn overlapping_page_is_stored_after_the_known_record() {
    let decision = decide_page(&at_three(), &overlapping(2, 4), &page(&["c", "d", "e"]), 0);
    assert_eq!(
        decision,
        PageDecision::Store(PageWrite { from_index: 1, next_offset: 5, shift: 0, ends: false })
    );
}

#[test]
fn short_page_is_not_the_end_unless_reported() {
    let PageDecision::Store(short) = decide_page(&at_three(), &overlapping(2, 31), &page(&["c", "d"]), 0)
    else {
        panic!()
    };
    assert!(!short.ends);
    let PageDecision::Store(said) = decide_page(&at_three(), &overlapping(2, 31), &last(&["c", "d"]), 0)
    else {
        panic!()
    };
    assert!(said.ends);
    assert_eq!(decide_page(&at_three(), &overlapping(2, 31), &last(&["c"]), 0), PageDecision::Ended);
}

/// A repeat at the end of a page may or may not be a position of the list. The next page begins before it; otherwise it
/// could be requested after the end of the list and never overlap this one.
#[test]
fn repeat_at_the_end_of_a_page_is_read_again() {
    let found = page(&["c", "d", "c"]);
    let PageDecision::Store(stored) = decide_page(&at_three(), &overlapping(2, 31), &found, 0) else {
        panic!()
    };
    assert_eq!((stored.from_index, stored.next_offset, stored.shift), (1, 5, 0));
    let after = at_three().after(&stored, &found);
    assert_eq!(first_fetch(&after, 30, 50), overlapping(3, 31), "the position of d");
    // It is a position: the list ends there.
    let PageDecision::StepOn(probe) = decide_page(&after, &overlapping(3, 31), &page(&["d", "c"]), 0) else {
        panic!()
    };
    assert_eq!(probe, FetchRequest { offset: 5, limit: 31, purpose: Purpose::Probe });
    // It is not a position: the list ends before it.
    let PageDecision::StepOn(probe) = decide_page(&after, &overlapping(3, 31), &page(&["d"]), 0) else {
        panic!()
    };
    assert_eq!(probe, FetchRequest { offset: 4, limit: 31, purpose: Purpose::Probe });
}

#[test]
fn record_repeated_at_a_page_border_is_a_position() {
    let found = page(&["c", "c", "d"]);
    let PageDecision::Store(stored) = decide_page(&at_three(), &overlapping(2, 31), &found, 0) else {
        panic!()
    };
    assert_eq!(stored, PageWrite { from_index: 1, next_offset: 5, shift: 0, ends: false });
    // The same without a following record.
    let found = page(&["c", "c"]);
    let PageDecision::Store(stored) = decide_page(&at_three(), &overlapping(2, 31), &found, 0) else {
        panic!()
    };
    assert_eq!(stored, PageWrite { from_index: 1, next_offset: 4, shift: 0, ends: false });
    let after = at_three().after(&stored, &found);
    let PageDecision::StepOn(probe) = decide_page(&after, &overlapping(2, 31), &found, 0) else { panic!() };
    assert_eq!(
        probe,
        FetchRequest { offset: 3, limit: 31, purpose: Purpose::Probe },
        "the page contains nothing new"
    );
}

#[test]
fn empty_first_page_ends_the_partition() {
    let first = first_fetch(&Progress::new(), 30, 50);
    assert_eq!(decide_page(&Progress::new(), &first, &page(&[]), 0), PageDecision::Ended);
}

#[test]
fn end_of_the_list_is_probed_and_confirmed() {
    let progress = at_three();
    let PageDecision::StepOn(probe) = decide_page(&progress, &overlapping(2, 31), &page(&["c"]), 0) else {
        panic!()
    };
    assert_eq!(probe, FetchRequest { offset: 3, limit: 31, purpose: Purpose::Probe });
    let PageDecision::StepOn(confirm) = decide_page(&progress, &probe, &page(&[]), 1) else { panic!() };
    assert_eq!(confirm, FetchRequest { offset: 2, limit: 31, purpose: Purpose::Confirm });
    assert_eq!(decide_page(&progress, &confirm, &page(&["c"]), 2), PageDecision::Ended);
    // The list moved in between, and the record that the probe missed is at the position of the last record.
    assert!(matches!(decide_page(&progress, &confirm, &page(&["d"]), 2), PageDecision::StepBack(_)));
    // The page was only short: the record that the probe found must be fetched again with an overlap.
    let PageDecision::StepOn(again) = decide_page(&progress, &probe, &page(&["d"]), 1) else { panic!() };
    assert_eq!(again, overlapping(2, 31));
}

#[test]
fn sold_record_makes_the_reader_step_back() {
    let progress = at_three();
    // `a` was sold: the list is `b c d e`, and position 2 is `d`.
    let PageDecision::StepBack(back) = decide_page(&progress, &overlapping(2, 4), &page(&["d", "e"]), 0)
    else {
        panic!()
    };
    assert_eq!(back, overlapping(1, 4));
    let found = page(&["c", "d", "e"]);
    let PageDecision::Store(store) = decide_page(&progress, &back, &found, 1) else { panic!() };
    assert_eq!(store, PageWrite { from_index: 1, next_offset: 5, shift: 1, ends: false });
    assert_eq!(progress.after(&store, &found).position(), 4);
}

#[test]
fn any_record_of_the_previous_page_is_an_overlap() {
    // `c` was sold.
    let decision = decide_page(&at_three(), &overlapping(1, 4), &page(&["b", "d", "e"]), 1);
    assert_eq!(
        decision,
        PageDecision::Store(PageWrite { from_index: 1, next_offset: 5, shift: 1, ends: false })
    );
}

#[test]
fn empty_page_after_many_sales_is_not_the_end() {
    assert!(matches!(
        decide_page(&at_three(), &overlapping(2, 31), &page(&[]), 0),
        PageDecision::StepBack(_)
    ));
    assert_eq!(decide_page(&at_three(), &overlapping(0, 31), &page(&[]), 1), PageDecision::Ended);
}

#[test]
fn inserted_records_move_the_reader_forward() {
    let progress = at_three();
    // `x` was inserted first: position 2 is `b`.
    let decision = decide_page(&progress, &overlapping(2, 4), &page(&["b", "c", "d", "e"]), 0);
    assert_eq!(
        decision,
        PageDecision::Store(PageWrite { from_index: 2, next_offset: 5, shift: -1, ends: false })
    );
    // The page contains nothing new: continue from the last known record.
    let decision = decide_page(&progress, &overlapping(2, 2), &page(&["b", "c"]), 0);
    assert_eq!(decision, PageDecision::StepOn(overlapping(3, 2)));
    // `y` was inserted between `b` and `c`: it is stored with the rest, and `c` counts once.
    let decision = decide_page(&progress, &overlapping(2, 5), &page(&["b", "y", "c", "d"]), 0);
    assert_eq!(
        decision,
        PageDecision::Store(PageWrite { from_index: 1, next_offset: 5, shift: -1, ends: false })
    );
}

#[test]
fn pages_without_overlap_cause_a_reread_then_failure() {
    let reason = RereadReason::LostPlace { next_offset: 3 };
    let unknown = page(&["x", "y", "z"]);
    assert_eq!(decide_page(&at_three(), &overlapping(0, 4), &unknown, 1), PageDecision::Reread(reason));
    assert_eq!(
        decide_page(&at_three(), &overlapping(9, 4), &unknown, TRIES_MAX - 1),
        PageDecision::Reread(reason)
    );
    let last_pass = Progress { pass: PASSES_MAX, ..at_three() };
    let error = PageError::NeverMeets { next_offset: 3, passes: PASSES_MAX };
    assert_eq!(decide_page(&last_pass, &overlapping(0, 4), &unknown, 1), PageDecision::Fail(error));
    let again = at_three().reread();
    assert_eq!((again.next_offset, again.position(), again.pass), (3, 0, 2));
}

#[test]
fn feed_that_ignores_the_offset_is_detected() {
    for page_limit in [3, 50] {
        let all = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut progress = Progress::new();
        let mut fetches = 0;
        let error = 'read: loop {
            let mut next = first_fetch(&progress, 3, page_limit);
            for attempt in 0.. {
                fetches += 1;
                assert!(fetches < 20);
                let same = page(&all[..usize::try_from(next.limit).unwrap()]);
                match decide_page(&progress, &next, &same, attempt) {
                    PageDecision::StepBack(other) | PageDecision::StepOn(other) => next = other,
                    PageDecision::Store(store) => {
                        progress = progress.after(&store, &same);
                        break;
                    }
                    PageDecision::Fail(error) => break 'read error,
                    other @ (PageDecision::Ended | PageDecision::Reread(_)) => panic!("{other:?}"),
                }
            }
        };
        assert!(matches!(error, PageError::Repeats { .. }), "{error}");
    }
}

fn nameless(place: usize) -> RejectedItem {
    RejectedItem::new(None, place, "no id".to_owned(), &format!("{{\"price\":{place}}}"))
}

#[test]
fn only_a_long_page_without_ids_fails() {
    let page = |places| FeedPage { rejected: (0..places).map(nameless).collect(), ..FeedPage::default() };
    let first = first_fetch(&Progress::new(), 30, 50);
    let error = PageError::NoIds { offset: 0, places: 8 };
    assert_eq!(decide_page(&Progress::new(), &first, &page(8), 0), PageDecision::Fail(error));
    assert_eq!(error.to_string(), "the page at offset 0 has 8 records and none has an id");
    let PageDecision::Store(store) = decide_page(&Progress::new(), &first, &page(7), 0) else { panic!() };
    assert_eq!(store, PageWrite { from_index: 0, next_offset: 7, shift: 0, ends: false });
}

#[test]
fn record_without_an_id_counts_once() {
    let mixed = FeedPage {
        items: items(&["c", "d"]),
        rejected: vec![nameless(1)],
        is_last: false,
        ..FeedPage::default()
    };
    let PageDecision::Store(store) = decide_page(&at_three(), &overlapping(2, 4), &mixed, 0) else {
        panic!()
    };
    assert_eq!(store, PageWrite { from_index: 1, next_offset: 5, shift: 0, ends: false });
    // At the end of a page, the next page must begin with it, even if its text has changed.
    let last =
        FeedPage { items: items(&["c"]), rejected: vec![nameless(1)], is_last: false, ..FeedPage::default() };
    let PageDecision::Store(store) = decide_page(&at_three(), &overlapping(2, 4), &last, 0) else { panic!() };
    assert_eq!(store, PageWrite { from_index: 1, next_offset: 4, shift: 0, ends: false });
    let after = at_three().after(&store, &last);
    let next =
        FeedPage { items: items(&["d"]), rejected: vec![nameless(0)], is_last: false, ..FeedPage::default() };
    let PageDecision::Store(store) = decide_page(&after, &overlapping(3, 4), &next, 0) else { panic!() };
    assert_eq!(store, PageWrite { from_index: 1, next_offset: 5, shift: 0, ends: false });
    let only = FeedPage { rejected: vec![nameless(0)], ..FeedPage::default() };
    assert!(
        matches!(decide_page(&after, &overlapping(3, 4), &only, 0), PageDecision::StepOn(_)),
        "the page contains nothing new"
    );
}

fn counts(distinct: u64, positions: u64, nameless: u64) -> ReadCounts {
    ReadCounts { distinct, distinct_in_pass: distinct, positions, nameless }
}

#[test]
fn wrong_count_fails_after_all_passes() {
    let ten = counts(10, 10, 0);
    assert_eq!(decide_pass_end(&ten, 10, 1, 0, PageAccess::Random), PassEnd::Complete);
    assert_eq!(decide_pass_end(&ten, 9, 1, 0, PageAccess::Random), PassEnd::Complete);
    for recounts in 0..RECOUNTS_MAX {
        assert_eq!(decide_pass_end(&ten, 11, 1, recounts, PageAccess::Random), PassEnd::Recount);
        assert_eq!(decide_pass_end(&ten, 11, PASSES_MAX, recounts, PageAccess::Random), PassEnd::Recount);
    }
    let higher = RereadReason::CountIsHigher { seen: 10, count: 11 };
    assert_eq!(decide_pass_end(&ten, 11, 1, RECOUNTS_MAX, PageAccess::Random), PassEnd::Reread(higher));
    let error = PageError::CountsDisagree { seen: 10, count: 11, passes: PASSES_MAX };
    assert_eq!(decide_pass_end(&ten, 11, PASSES_MAX, RECOUNTS_MAX, PageAccess::Random), PassEnd::Fail(error));
    assert_eq!(error.to_string(), "the feed reports 11 records, but 10 were read in 3 passes");
}

/// One record was inserted at the head, so page 2 repeats a record. Another was deleted, so page 3 skips one.
#[test]
fn repeat_hides_no_skipped_record_of_numbered_pages() {
    let read = ReadCounts { distinct: 299, distinct_in_pass: 299, positions: 300, nameless: 0 };
    let aligned = PageAccess::Aligned(100);
    let reread = PassEnd::Reread(RereadReason::CountIsHigher { seen: 299, count: 300 });
    for pass in 1..PASSES_MAX {
        assert_eq!(decide_pass_end(&read, 300, pass, 0, aligned), reread);
    }
    assert_eq!(decide_pass_end(&read, 300, PASSES_MAX, 0, aligned), PassEnd::Complete);
    for access in [PageAccess::Random, PageAccess::Sequential] {
        assert_eq!(decide_pass_end(&read, 300, 1, 0, access), PassEnd::Complete);
    }
    // The second pass found the record, and records without an id are no repeats.
    let found = ReadCounts { distinct: 300, distinct_in_pass: 299, positions: 300, nameless: 0 };
    assert_eq!(decide_pass_end(&found, 300, 2, 0, aligned), PassEnd::Complete);
    let nameless = ReadCounts { distinct: 298, distinct_in_pass: 298, positions: 300, nameless: 2 };
    assert_eq!(decide_pass_end(&nameless, 300, 1, 0, aligned), PassEnd::Complete);
}

#[test]
fn positions_and_distinct_ids_are_counted() {
    for (read, records, repeats) in [
        (counts(10, 10, 0), 10, 0),
        (counts(10, 11, 0), 11, 1),
        (counts(10, 12, 2), 12, 0),
        (counts(10, 13, 2), 13, 1),
        // An earlier pass read two records that are gone, and this pass a repeat.
        (ReadCounts { distinct: 12, distinct_in_pass: 10, positions: 11, nameless: 0 }, 13, 1),
        // Records without an id of earlier passes do not count.
        (ReadCounts { distinct: 9, distinct_in_pass: 9, positions: 10, nameless: 1 }, 10, 0),
    ] {
        assert_eq!((read.records(), read.repeats()), (records, repeats), "{read:?}");
    }
    assert_eq!(counts(10, 10, 0).anomaly(), None);
    let message = "1 of 13 records were listed more than once; 2 of 13 records have no id and were rejected";
    assert_eq!(counts(10, 13, 2).anomaly().as_deref(), Some(message));
}

/// Some sources answer their last page for every position after the end of the list.
#[test]
fn repeated_page_ends_the_list_if_the_definition_allows_it() {
    let found = page(&["c", "d", "e", "f", "g", "h", "i", "j", "k"]);
    let PageDecision::Store(stored) = decide_page(&at_three(), &overlapping(2, 9), &found, 0) else {
        panic!()
    };
    let after = at_three().after(&stored, &found);
    let probe = FetchRequest { offset: 11, limit: 9, purpose: Purpose::Probe };
    let decide = |page: &FeedPage, repeated| page::decide_page(&after, &probe, page, 1, repeated);
    assert!(matches!(
        decide(&found, RepeatedPage::Fails),
        PageDecision::Fail(PageError::Repeats { offset: 11 })
    ));
    assert_eq!(decide(&found, RepeatedPage::Ends), PageDecision::Ended);
    // A shorter last page of known records is the end, too; a new record is not.
    assert_eq!(decide(&page(&["j", "k"]), RepeatedPage::Ends), PageDecision::Ended);
    assert!(matches!(decide(&page(&["k", "l"]), RepeatedPage::Ends), PageDecision::Store(_)));
}

/// A feed with one record per page cannot overlap its pages, so a source that ignores the offset is seen here.
#[test]
fn repeated_single_record_is_read_again_before_it_fails() {
    let mut progress = Progress::new();
    for pass in 1..=PASSES_MAX {
        let fetch = |progress: &Progress| first_fetch(progress, 1, 1);
        let found = page(&["a"]);
        let PageDecision::Store(stored) = decide_page(&progress, &fetch(&progress), &found, 0) else {
            panic!()
        };
        progress = progress.after(&stored, &found);
        let again = decide_page(&progress, &fetch(&progress), &found, 0);
        if pass < PASSES_MAX {
            assert_eq!(again, PageDecision::Reread(RereadReason::Repeats { offset: 1 }));
            progress = progress.reread();
        } else {
            assert_eq!(again, PageDecision::Fail(PageError::Repeats { offset: 1 }));
        }
    }
}
