//! The page decisions, case by case.

use tidemill_core::feed::{BadItem, FeedPage, Item};
use tidemill_core::page::{
    self, AfterLast, Ask, Guard, PASSES_MAX, PageFault, Progress, Purpose, RECOUNTS_MAX, RereadReason, Seen,
    Store, TRIES_MAX, Verdict, after_last, ask, guard, judge,
};

fn items(ids: &[&str]) -> Vec<Item> {
    ids.iter().map(|id| Item::new(*id, None, format!("{{\"id\":\"{id}\"}}"))).collect()
}

fn page(ids: &[&str]) -> FeedPage {
    FeedPage { items: items(ids), ..FeedPage::default() }
}

fn last(ids: &[&str]) -> FeedPage {
    FeedPage { is_last: true, ..page(ids) }
}

/// Read up to place 3, with `a b c` as the page before.
fn at_three() -> Progress {
    Progress {
        next_offset: 3,
        last_ids: ["a", "b", "c"].map(str::to_owned).to_vec(),
        page_hash: Some(page::page_hash(&page(&["a", "b", "c"]))),
        ..Progress::new()
    }
}

fn meet(offset: u64, limit: u32) -> Ask {
    Ask { offset, limit, purpose: Purpose::Meet }
}

#[test]
fn a_message_is_for_the_next_page_or_is_skipped_with_a_reason() {
    let open = at_three();
    assert_eq!(guard(3, &open), Guard::Proceed);
    assert_eq!(guard(0, &open), Guard::SkipDuplicate);
    assert_eq!(guard(6, &open), Guard::SkipDuplicate);
    assert_eq!(guard(3, &Progress { completed: true, ..at_three() }), Guard::SkipCompleted);
    assert_eq!(guard(3, &Progress { failed: true, ..at_three() }), Guard::SkipFailed);
}

#[test]
fn the_first_page_is_asked_from_the_beginning_and_each_other_from_one_place_before() {
    let plain = |offset, limit| Ask { offset, limit, purpose: Purpose::Plain };
    assert_eq!(ask(&Progress::new(), 30, 50), plain(0, 30));
    assert_eq!(ask(&Progress::new(), 300, 50), plain(0, 50));
    assert_eq!(ask(&at_three(), 30, 50), meet(2, 31));
    assert_eq!(ask(&at_three(), 50, 50), meet(2, 50));
    assert_eq!(ask(&at_three(), 1, 1), plain(3, 1));
    assert_eq!(ask(&Progress { shift: 2, ..at_three() }, 30, 50), meet(0, 31));
    assert_eq!(ask(&Progress { shift: -2, ..at_three() }, 30, 50), meet(4, 31));
}

#[test]
fn a_page_that_meets_the_one_before_is_stored_after_the_known_stone() {
    let verdict = judge(&at_three(), &meet(2, 4), &page(&["c", "d", "e"]), 0);
    assert_eq!(verdict, Verdict::Store(Store { from_index: 1, next_offset: 5, shift: 0, ends: false }));
}

#[test]
fn a_short_page_is_not_the_end_unless_the_feed_says_so() {
    let Verdict::Store(short) = judge(&at_three(), &meet(2, 31), &page(&["c", "d"]), 0) else { panic!() };
    assert!(!short.ends);
    let Verdict::Store(said) = judge(&at_three(), &meet(2, 31), &last(&["c", "d"]), 0) else { panic!() };
    assert!(said.ends);
    assert_eq!(judge(&at_three(), &meet(2, 31), &last(&["c"]), 0), Verdict::Ended);
}

/// A repeat at the end of a page may be a place of the list or not. The next page begins before it: otherwise it could
/// be asked for behind the end of the list, and never meet this one.
#[test]
fn a_repeat_at_the_end_of_a_page_is_read_once_more() {
    let found = page(&["c", "d", "c"]);
    let Verdict::Store(stored) = judge(&at_three(), &meet(2, 31), &found, 0) else { panic!() };
    assert_eq!((stored.from_index, stored.next_offset, stored.shift), (1, 5, 0));
    let after = at_three().after(&stored, &found);
    assert_eq!(ask(&after, 30, 50), meet(3, 31), "the place of d");
    // It is a place: the list ends there.
    let Verdict::StepOn(probe) = judge(&after, &meet(3, 31), &page(&["d", "c"]), 0) else { panic!() };
    assert_eq!(probe, Ask { offset: 5, limit: 31, purpose: Purpose::Probe });
    // It is none: the list ends before it.
    let Verdict::StepOn(probe) = judge(&after, &meet(3, 31), &page(&["d"]), 0) else { panic!() };
    assert_eq!(probe, Ask { offset: 4, limit: 31, purpose: Purpose::Probe });
}

#[test]
fn a_stone_listed_again_at_a_page_border_is_a_place_of_its_own() {
    let found = page(&["c", "c", "d"]);
    let Verdict::Store(stored) = judge(&at_three(), &meet(2, 31), &found, 0) else { panic!() };
    assert_eq!(stored, Store { from_index: 1, next_offset: 5, shift: 0, ends: false });
    // Also where nothing else follows.
    let found = page(&["c", "c"]);
    let Verdict::Store(stored) = judge(&at_three(), &meet(2, 31), &found, 0) else { panic!() };
    assert_eq!(stored, Store { from_index: 1, next_offset: 4, shift: 0, ends: false });
    let after = at_three().after(&stored, &found);
    let Verdict::StepOn(probe) = judge(&after, &meet(2, 31), &found, 0) else { panic!() };
    assert_eq!(probe, Ask { offset: 3, limit: 31, purpose: Purpose::Probe }, "nothing of it is new now");
}

#[test]
fn an_empty_first_page_ends_the_partition() {
    let first = ask(&Progress::new(), 30, 50);
    assert_eq!(judge(&Progress::new(), &first, &page(&[]), 0), Verdict::Ended);
}

#[test]
fn nothing_after_the_last_stone_is_probed_and_then_confirmed() {
    let progress = at_three();
    let Verdict::StepOn(probe) = judge(&progress, &meet(2, 31), &page(&["c"]), 0) else { panic!() };
    assert_eq!(probe, Ask { offset: 3, limit: 31, purpose: Purpose::Probe });
    let Verdict::StepOn(confirm) = judge(&progress, &probe, &page(&[]), 1) else { panic!() };
    assert_eq!(confirm, Ask { offset: 2, limit: 31, purpose: Purpose::Confirm });
    assert_eq!(judge(&progress, &confirm, &page(&["c"]), 2), Verdict::Ended);
    // The list moved in between, and what the probe missed stands where the last stone was.
    assert!(matches!(judge(&progress, &confirm, &page(&["d"]), 2), Verdict::StepBack(_)));
    // The page was only short: what the probe found must still be shown to follow.
    let Verdict::StepOn(again) = judge(&progress, &probe, &page(&["d"]), 1) else { panic!() };
    assert_eq!(again, meet(2, 31));
}

#[test]
fn a_sold_stone_before_the_place_makes_the_reader_step_back_and_the_list_shift() {
    let progress = at_three();
    // `a` was sold: the list is `b c d e`, and place 2 is `d`.
    let Verdict::StepBack(back) = judge(&progress, &meet(2, 4), &page(&["d", "e"]), 0) else { panic!() };
    assert_eq!(back, meet(1, 4));
    let found = page(&["c", "d", "e"]);
    let Verdict::Store(store) = judge(&progress, &back, &found, 1) else { panic!() };
    assert_eq!(store, Store { from_index: 1, next_offset: 5, shift: 1, ends: false });
    assert_eq!(progress.after(&store, &found).position(), 4);
}

#[test]
fn when_the_last_stone_is_sold_any_other_of_the_page_before_will_do() {
    // `c` was sold.
    let verdict = judge(&at_three(), &meet(1, 4), &page(&["b", "d", "e"]), 1);
    assert_eq!(verdict, Verdict::Store(Store { from_index: 1, next_offset: 5, shift: 1, ends: false }));
}

#[test]
fn an_empty_page_after_many_sales_is_not_the_end() {
    assert!(matches!(judge(&at_three(), &meet(2, 31), &page(&[]), 0), Verdict::StepBack(_)));
    assert_eq!(judge(&at_three(), &meet(0, 31), &page(&[]), 1), Verdict::Ended);
}

#[test]
fn stones_inserted_before_the_place_move_the_reader_on() {
    let progress = at_three();
    // `x` came first: place 2 is `b`.
    let verdict = judge(&progress, &meet(2, 4), &page(&["b", "c", "d", "e"]), 0);
    assert_eq!(verdict, Verdict::Store(Store { from_index: 2, next_offset: 5, shift: -1, ends: false }));
    // Nothing new is in the page: on from the last known stone.
    let verdict = judge(&progress, &meet(2, 2), &page(&["b", "c"]), 0);
    assert_eq!(verdict, Verdict::StepOn(meet(3, 2)));
    // `y` came between `b` and `c`: it is stored with the rest, and `c` counts once.
    let verdict = judge(&progress, &meet(2, 5), &page(&["b", "y", "c", "d"]), 0);
    assert_eq!(verdict, Verdict::Store(Store { from_index: 1, next_offset: 5, shift: -1, ends: false }));
}

#[test]
fn pages_that_never_meet_make_the_partition_be_read_again_and_then_fail() {
    let reason = RereadReason::LostPlace { next_offset: 3 };
    let strangers = page(&["x", "y", "z"]);
    assert_eq!(judge(&at_three(), &meet(0, 4), &strangers, 1), Verdict::Reread(reason));
    assert_eq!(judge(&at_three(), &meet(9, 4), &strangers, TRIES_MAX - 1), Verdict::Reread(reason));
    let tired = Progress { pass: PASSES_MAX, ..at_three() };
    let fault = PageFault::NeverMeets { next_offset: 3, passes: PASSES_MAX };
    assert_eq!(judge(&tired, &meet(0, 4), &strangers, 1), Verdict::Fail(fault));
    let again = at_three().reread();
    assert_eq!((again.next_offset, again.position(), again.pass), (3, 0, 2));
}

#[test]
fn a_feed_that_ignores_the_offset_is_found_out() {
    for page_limit in [3, 50] {
        let all = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut progress = Progress::new();
        let mut fetches = 0;
        let fault = 'read: loop {
            let mut next = ask(&progress, 3, page_limit);
            for attempt in 0.. {
                fetches += 1;
                assert!(fetches < 20);
                let same = page(&all[..usize::try_from(next.limit).unwrap()]);
                match judge(&progress, &next, &same, attempt) {
                    Verdict::StepBack(other) | Verdict::StepOn(other) => next = other,
                    Verdict::Store(store) => {
                        progress = progress.after(&store, &same);
                        break;
                    }
                    Verdict::Fail(fault) => break 'read fault,
                    other @ (Verdict::Ended | Verdict::Reread(_)) => panic!("{other:?}"),
                }
            }
        };
        assert!(matches!(fault, PageFault::Repeats { .. }), "{fault}");
    }
}

fn nameless(place: usize) -> BadItem {
    BadItem::new(None, place, "it has no id".to_owned(), &format!("{{\"price\":{place}}}"))
}

#[test]
fn a_long_page_without_ids_is_a_fault_and_a_short_one_is_not() {
    let page = |places| FeedPage { bad: (0..places).map(nameless).collect(), ..FeedPage::default() };
    let first = ask(&Progress::new(), 30, 50);
    let fault = PageFault::NoIds { offset: 0, places: 8 };
    assert_eq!(judge(&Progress::new(), &first, &page(8), 0), Verdict::Fail(fault));
    assert_eq!(fault.to_string(), "the page at offset 0 has 8 records and none has an id");
    let Verdict::Store(store) = judge(&Progress::new(), &first, &page(7), 0) else { panic!() };
    assert_eq!(store, Store { from_index: 0, next_offset: 7, shift: 0, ends: false });
}

#[test]
fn a_record_without_an_id_takes_its_place_and_counts_once() {
    let mixed = FeedPage { items: items(&["c", "d"]), bad: vec![nameless(1)], is_last: false };
    let Verdict::Store(store) = judge(&at_three(), &meet(2, 4), &mixed, 0) else { panic!() };
    assert_eq!(store, Store { from_index: 1, next_offset: 5, shift: 0, ends: false });
    // At the end of a page, it is what the next page must begin with, whatever its text is then.
    let last = FeedPage { items: items(&["c"]), bad: vec![nameless(1)], is_last: false };
    let Verdict::Store(store) = judge(&at_three(), &meet(2, 4), &last, 0) else { panic!() };
    assert_eq!(store, Store { from_index: 1, next_offset: 4, shift: 0, ends: false });
    let after = at_three().after(&store, &last);
    let next = FeedPage { items: items(&["d"]), bad: vec![nameless(0)], is_last: false };
    let Verdict::Store(store) = judge(&after, &meet(3, 4), &next, 0) else { panic!() };
    assert_eq!(store, Store { from_index: 1, next_offset: 5, shift: 0, ends: false });
    let only = FeedPage { bad: vec![nameless(0)], ..FeedPage::default() };
    assert!(matches!(judge(&after, &meet(3, 4), &only, 0), Verdict::StepOn(_)), "nothing of it is new");
}

fn seen(distinct: u64, places: u64, nameless: u64) -> Seen {
    Seen { distinct, distinct_in_pass: distinct, places, nameless }
}

#[test]
fn a_count_that_lies_ends_as_a_fault() {
    let ten = seen(10, 10, 0);
    assert_eq!(after_last(&ten, 10, 1, 0), AfterLast::Complete);
    assert_eq!(after_last(&ten, 9, 1, 0), AfterLast::Complete);
    for recounts in 0..RECOUNTS_MAX {
        assert_eq!(after_last(&ten, 11, 1, recounts), AfterLast::CountAgain);
        assert_eq!(after_last(&ten, 11, PASSES_MAX, recounts), AfterLast::CountAgain);
    }
    let higher = RereadReason::CountIsHigher { seen: 10, count: 11 };
    assert_eq!(after_last(&ten, 11, 1, RECOUNTS_MAX), AfterLast::Again(higher));
    let fault = PageFault::CountsDisagree { seen: 10, count: 11, passes: PASSES_MAX };
    assert_eq!(after_last(&ten, 11, PASSES_MAX, RECOUNTS_MAX), AfterLast::Fault(fault));
    assert_eq!(fault.to_string(), "the feed counts 11 records, and 10 were seen in 3 passes");
}

#[test]
fn places_are_compared_with_the_count_and_ids_are_told_apart() {
    for (seen, records, repeats) in [
        (seen(10, 10, 0), 10, 0),
        (seen(10, 11, 0), 11, 1),
        (seen(10, 12, 2), 12, 0),
        (seen(10, 13, 2), 13, 1),
        // An earlier pass saw two stones that are gone, and this one a repeat.
        (Seen { distinct: 12, distinct_in_pass: 10, places: 11, nameless: 0 }, 13, 1),
        // A record without an id of an earlier pass stands in for nothing.
        (Seen { distinct: 9, distinct_in_pass: 9, places: 10, nameless: 1 }, 10, 0),
    ] {
        assert_eq!((seen.records(), seen.repeats()), (records, repeats), "{seen:?}");
    }
    assert_eq!(seen(10, 10, 0).oddity(), None);
    let told = "1 of 13 records were listed more than once; 2 of 13 records have no id and were rejected";
    assert_eq!(seen(10, 13, 2).oddity().as_deref(), Some(told));
}
