//! The overlap of a page with the previous pages.

use super::{FetchRequest, Progress};
use crate::feed::{FeedPage, NAMELESS};
use std::collections::HashSet;

/// The overlap of a page with the previous page.
pub(super) enum Overlap {
    /// The page contains no record of the previous page.
    None,
    /// The page contains a record of the previous page, and new records after it.
    New {
        /// Index of the first new record.
        from_index: usize,
        /// Number of new positions from there on. A record that is listed twice occupies two positions.
        positions: usize,
    },
    /// The page contains a record of the previous page, and nothing new after it.
    NothingNew,
}

/// Compares a page with the records that were read before it.
///
/// If the list has not moved, the page begins with exactly the last records, and all records after them are new; a
/// known record among them is listed twice. If the list has moved, only names decide, and a known name is not new.
pub(super) fn compare(progress: &Progress, fetch: &FetchRequest, page: &FeedPage) -> Overlap {
    let names = page.names();
    let known: Vec<&str> = progress.last_ids.iter().map(|id| token(id)).collect();
    let names: Vec<&str> = names.iter().map(|name| token(name)).collect();
    if let Some(from_index) = shared_length(&known, &names, progress.position().saturating_sub(fetch.offset))
    {
        let positions = names.len() - from_index;
        return if positions == 0 { Overlap::NothingNew } else { Overlap::New { from_index, positions } };
    }
    let known: HashSet<&str> = known.into_iter().collect();
    let is_known = |name: &&str| known.contains(*name);
    let Some(first) = names.iter().position(&is_known) else { return Overlap::None };
    // Unknown records before the first known one belong to older pages. Unknown ones between known ones were inserted
    // in the meantime; storing them is harmless.
    match (first + 1..names.len()).find(|&index| !is_known(&names[index])) {
        Some(from_index) => {
            let positions = names[from_index..].iter().filter(|name| !is_known(name)).count();
            Overlap::New { from_index, positions }
        }
        None => Overlap::NothingNew,
    }
}

/// Returns whether a page of a list that can be read at any position begins with a record that was read before, or with
/// the list. Records between the previous page and another page may not have been read.
pub fn is_linked(progress: &Progress, fetch: &FetchRequest, page: &FeedPage) -> bool {
    if progress.last_ids.is_empty() {
        return fetch.offset == 0;
    }
    let names = page.names();
    let is_known = |name: &str| !name.starts_with(NAMELESS) && progress.last_ids.iter().any(|id| id == name);
    names.first().is_some_and(|first| is_known(first))
}

/// Returns how many records at the beginning of a page are the last records that were read. Repeats and records without
/// an id can make several numbers possible. Then the offsets decide, or else the largest number, because no position
/// may count twice.
fn shared_length(known: &[&str], names: &[&str], expected: u64) -> Option<usize> {
    let fits = |&length: &usize| {
        length > 0 && length <= names.len() && length <= known.len() && known.ends_with(&names[..length])
    };
    let expected = usize::try_from(expected).ok().filter(fits);
    expected.or_else(|| (1..=names.len().min(known.len())).rev().find(fits))
}

/// Returns the key for comparing records. All records without an id are equal, because their text may change between
/// fetches.
fn token(name: &str) -> &str {
    if name.starts_with(NAMELESS) { NAMELESS } else { name }
}

/// Returns the number of positions that a page certainly occupies: repeats at its end may not be positions. A number
/// that is too small only makes pages overlap more; one that is too large would skip past the end of the list.
pub(super) fn occupied(page: &FeedPage) -> u64 {
    let names = page.names();
    (names.len() - trailing_repeats(&names)) as u64
}

/// Returns the number of names at the end that also occur before them.
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
    fn shared_length_follows_offsets_or_is_the_largest() {
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
            assert_eq!(shared_length(&letters(known), &letters(names), expected), found, "{known} | {names}");
        }
    }

    #[test]
    fn trailing_repeats_ignore_records_without_an_id() {
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
