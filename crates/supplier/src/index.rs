//! Index of the stones: counts and lists per filter.
//!
//! Two kinds of entries are cached and updated with each change of a stone:
//!
//! - a *tally* per filter without its price range, which counts stones per dollar, so that the count of any
//!   price range is a few additions;
//! - a *list* per complete filter, which holds the numbers of its stones in the order of their creation, so that
//!   a page is a slice of it.
//!
//! The first query with a filter builds its entry from one pass over the stones, or over those in its time range. The
//! least recently used entries are evicted when there are too many.

use crate::filter::{ANY_TIME, Filter};
use crate::stone::State;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Prices below this many dollars are counted in an array, the others in a map.
const LOW: u32 = 1 << 17;
const MAX_TALLIES: usize = 16;
const MAX_LISTS: usize = 1024;
/// Total number of entries in all lists: 24 MB.
const MAX_LISTED: usize = 6_000_000;

/// Counts stones per dollar.
#[derive(Debug)]
struct Tally {
    used: u64,
    /// A Fenwick tree over the dollars below [`LOW`].
    low: Vec<u32>,
    /// Counts of the dollars from [`LOW`] on.
    high: BTreeMap<u32, u32>,
}

impl Tally {
    fn new() -> Self {
        Self { used: 0, low: vec![0; LOW as usize + 1], high: BTreeMap::new() }
    }

    fn add(&mut self, dollars: u32) {
        self.change(dollars, |count| *count += 1);
    }

    fn remove(&mut self, dollars: u32) {
        self.change(dollars, |count| *count -= 1);
    }

    fn change(&mut self, dollars: u32, change: impl Fn(&mut u32)) {
        if dollars >= LOW {
            change(self.high.entry(dollars).or_default());
            return;
        }
        let mut at = dollars as usize + 1;
        while let Some(count) = self.low.get_mut(at) {
            change(count);
            at += at & at.wrapping_neg();
        }
    }

    /// Counts the stones below `dollars`, of those below [`LOW`].
    fn low_below(&self, dollars: u32) -> u64 {
        let mut at = dollars.min(LOW) as usize;
        let mut sum = 0;
        while at > 0 {
            sum += u64::from(self.low[at]);
            at -= at & at.wrapping_neg();
        }
        sum
    }

    fn count(&self, (from, to): (u32, u32)) -> u64 {
        let low = self.low_below(to.saturating_add(1)) - self.low_below(from);
        low + self.high.range(from..=to).map(|(_, count)| u64::from(*count)).sum::<u64>()
    }
}

/// The numbers of the stones that pass a filter, in ascending order.
#[derive(Debug, Default)]
struct List {
    used: u64,
    stones: Vec<u32>,
}

/// Cached tallies and lists.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Stones by the time of their last change; built by the first query with a time range.
    recency: Option<BTreeSet<(i64, u32)>>,
    tallies: HashMap<Filter, Tally>,
    lists: HashMap<Filter, List>,
    uses: u64,
    listed: usize,
}

impl Index {
    /// Counts the stones that match.
    pub(crate) fn count(&mut self, filter: &Filter, stones: &[State]) -> u64 {
        let wide = filter.at_any_price();
        if !self.tallies.contains_key(&wide) {
            let mut tally = Tally::new();
            for number in self.candidates(&wide, stones) {
                tally.add(stones[number as usize].dollars());
            }
            if self.tallies.len() >= MAX_TALLIES
                && let Some(oldest) = self.tallies.iter().min_by_key(|(_, one)| one.used).map(|(key, _)| *key)
            {
                self.tallies.remove(&oldest);
            }
            self.tallies.insert(wide, tally);
        }
        self.uses += 1;
        self.tallies.get_mut(&wide).map_or(0, |tally| {
            tally.used = self.uses;
            tally.count(filter.dollars)
        })
    }

    /// Returns the numbers of the stones that match, in the order of their creation.
    pub(crate) fn list(&mut self, filter: &Filter, stones: &[State]) -> &[u32] {
        if !self.lists.contains_key(filter) {
            let list = List { used: 0, stones: self.candidates(filter, stones) };
            self.evict(list.stones.len());
            self.listed += list.stones.len();
            self.lists.insert(*filter, list);
        }
        self.uses += 1;
        let uses = self.uses;
        let list = self.lists.entry(*filter).or_default();
        list.used = uses;
        &list.stones
    }

    /// Updates all entries for a changed or new stone.
    pub(crate) fn update(&mut self, number: u32, old: Option<&State>, new: &State) {
        if let Some(recency) = &mut self.recency {
            if let Some(old) = old {
                recency.remove(&(old.updated, number));
            }
            recency.insert((new.updated, number));
        }
        for (filter, tally) in &mut self.tallies {
            if let Some(old) = old.filter(|old| filter.matches(old)) {
                tally.remove(old.dollars());
            }
            if filter.matches(new) {
                tally.add(new.dollars());
            }
        }
        for (filter, list) in &mut self.lists {
            match (old.is_some_and(|old| filter.matches(old)), filter.matches(new)) {
                (true, false) => {
                    if let Ok(at) = list.stones.binary_search(&number) {
                        list.stones.remove(at);
                        self.listed -= 1;
                    }
                }
                (false, true) => {
                    if let Err(at) = list.stones.binary_search(&number) {
                        list.stones.insert(at, number);
                        self.listed += 1;
                    }
                }
                (true, true) | (false, false) => {}
            }
        }
    }

    /// Finds the stones that match without a cached entry.
    fn candidates(&mut self, filter: &Filter, stones: &[State]) -> Vec<u32> {
        let passes = |number: &u32| stones.get(*number as usize).is_some_and(|stone| filter.matches(stone));
        if filter.updated == ANY_TIME {
            return numbers(stones).filter(passes).collect();
        }
        let recency = self.recency.get_or_insert_with(|| {
            numbers(stones).map(|number| (stones[number as usize].updated, number)).collect()
        });
        let (from, to) = filter.updated;
        let mut found: Vec<u32> =
            recency.range((from, 0)..=(to, u32::MAX)).map(|(_, number)| *number).filter(passes).collect();
        found.sort_unstable();
        found
    }

    fn evict(&mut self, wanted: usize) {
        while self.lists.len() >= MAX_LISTS || (self.listed + wanted > MAX_LISTED && !self.lists.is_empty()) {
            let oldest = self.lists.iter().min_by_key(|(_, one)| one.used).map(|(key, _)| *key);
            let Some(dropped) = oldest.and_then(|key| self.lists.remove(&key)) else { return };
            self.listed -= dropped.stones.len();
        }
    }

    /// Upper bound of the memory of the index for `stones` stones.
    #[cfg(test)]
    pub(crate) const fn bytes_at_most(stones: usize) -> usize {
        // A B-tree of 16-byte entries that were inserted in order is about half empty in the worst case.
        let recency = stones * 32;
        let lists = (if stones > MAX_LISTED { stones } else { MAX_LISTED }) * 2 * size_of::<u32>();
        recency + lists + MAX_TALLIES * (LOW as usize + 1) * size_of::<u32>()
    }
}

fn numbers(stones: &[State]) -> std::ops::Range<u32> {
    0..u32::try_from(stones.len()).unwrap_or(u32::MAX)
}
