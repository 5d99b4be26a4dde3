//! How a page lies to the pages before it.

use super::{Ask, Progress};
use crate::feed::{FeedPage, NAMELESS};
use std::collections::HashSet;

/// How a page lies to the page before.
pub(super) enum Meeting {
    /// No stone of the page before is in it.
    Apart,
    /// It has a stone of the page before, and something new after that.
    New {
        /// The first place that is new.
        from_index: usize,
        /// Places from there on that were not read before. A stone that is listed again is a place of its own.
        places: usize,
    },
    /// It has a stone of the page before, and nothing new after that.
    Known,
}

/// Lays a page beside the places that were read before it.
///
/// Where the list has not moved, the page begins with the last places that were read, one by one, and every place after
/// those is new: also one whose stone was read before, which is then listed twice. Where it has moved, names alone
/// decide, and a known name is no new place.
pub(super) fn meet(progress: &Progress, ask: &Ask, page: &FeedPage) -> Meeting {
    let names = page.names();
    let known: Vec<&str> = progress.last_ids.iter().map(|id| token(id)).collect();
    let names: Vec<&str> = names.iter().map(|name| token(name)).collect();
    if let Some(from_index) = overlap(&known, &names, progress.position().saturating_sub(ask.offset)) {
        let places = names.len() - from_index;
        return if places == 0 { Meeting::Known } else { Meeting::New { from_index, places } };
    }
    let known: HashSet<&str> = known.into_iter().collect();
    let is_known = |name: &&str| known.contains(*name);
    let Some(first) = names.iter().position(&is_known) else { return Meeting::Apart };
    // Unknown stones before the first known one are of older pages. Between known ones they are newly inserted:
    // stored too, which does no harm.
    match (first + 1..names.len()).find(|&index| !is_known(&names[index])) {
        Some(from_index) => {
            let places = names[from_index..].iter().filter(|name| !is_known(name)).count();
            Meeting::New { from_index, places }
        }
        None => Meeting::Known,
    }
}

/// How many places at the beginning of a page are the last places that were read. Where several numbers fit, which only
/// repeats and records without an id bring about, it is the one that the offsets say; otherwise the largest, because a
/// place must not count twice.
fn overlap(known: &[&str], names: &[&str], expected: u64) -> Option<usize> {
    let fits = |&length: &usize| {
        length > 0 && length <= names.len() && length <= known.len() && known.ends_with(&names[..length])
    };
    let expected = usize::try_from(expected).ok().filter(fits);
    expected.or_else(|| (1..=names.len().min(known.len())).rev().find(fits))
}

/// What places are compared by. A record without an id is like any other: its text may be another one at each reading.
fn token(name: &str) -> &str {
    if name.starts_with(NAMELESS) { NAMELESS } else { name }
}

/// Places that a page certainly takes up in the list: repeats at its end may be none. Too few only lets two pages
/// overlap more, and too many would lead past the end of the list.
pub(super) fn taken(page: &FeedPage) -> u64 {
    let names = page.names();
    (names.len() - trailing_repeats(&names)) as u64
}

/// How many names at the end stand before them too.
pub(super) fn trailing_repeats<S: AsRef<str>>(names: &[S]) -> usize {
    let mut repeats = 0;
    while let Some((last, before)) = names[..names.len() - repeats].split_last() {
        let last = last.as_ref();
        if last.starts_with(NAMELESS) || !before.iter().any(|name| name.as_ref() == last) {
            break;
        }
        repeats += 1;
    }
    repeats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overlap_is_the_one_that_the_offsets_say_or_the_largest() {
        let letters = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        for (known, names, expected, found) in [
            ("a b c", "c d e", 1, Some(1)),
            ("a b c", "b c d", 1, Some(2)),
            ("a b c", "a b c", 1, Some(3)),
            ("a b c", "d e f", 1, None),
            ("a b c", "b d c", 1, None),
            ("a b x", "x x y", 1, Some(1)),
            ("b x x", "x x y", 2, Some(2)),
            ("b x x", "x x y", 1, Some(1)),
            ("b x x", "x x y", 5, Some(2)),
            ("a b c", "c", 0, Some(1)),
        ] {
            assert_eq!(overlap(&letters(known), &letters(names), expected), found, "{known} | {names}");
        }
    }

    #[test]
    fn repeats_at_the_end_are_counted_and_records_without_an_id_are_none() {
        for (names, repeats) in [
            (&["a", "b"][..], 0),
            (&["a", "a"], 1),
            (&["a", "b", "a", "b"], 2),
            (&["#no-id/1", "#no-id/1"], 0),
            (&[], 0),
        ] {
            assert_eq!(trailing_repeats(names), repeats, "{names:?}");
        }
    }
}
