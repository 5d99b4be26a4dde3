//! The catalogue of all stones, with counts and pages of queries.

use crate::config::{Config, MAX_STONES};
use crate::filter::Query;
use crate::index::Index;
use crate::random::{Shuffle, below, draw};
use crate::stone::{Availability, State, Stone, Traits, id_text};
use crate::{Distribution, price};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Number of stones that an inverted range returns.
const INVERTED_RANGE_STONES: u32 = 30;

/// The catalogue of all stones.
#[derive(Debug)]
pub(crate) struct Catalogue {
    seed: u64,
    distribution: Distribution,
    one_price: u32,
    off_query: u32,
    stones: Vec<State>,
    /// Numbers of the stones that are not available.
    pub(crate) absent: BTreeSet<u32>,
    index: Index,
}

/// Position and length of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) offset: u64,
    pub(crate) limit: usize,
    /// Whether the newest stones come first.
    pub(crate) is_descending: bool,
}

impl Catalogue {
    /// Generates the stones of a configuration.
    pub(crate) fn new(config: &Config) -> Self {
        let count = config.stones.min(MAX_STONES);
        let mut catalogue = Self {
            seed: config.seed,
            distribution: config.distribution,
            one_price: config.one_price_cents,
            off_query: config.off_query_per_mille,
            stones: Vec::with_capacity(count as usize),
            absent: BTreeSet::new(),
            index: Index::default(),
        };
        let epoch = config.epoch.timestamp_micros();
        for number in 0..count {
            let age = below(draw(config.seed, number, 8), 30 * 24 * 60 * 60 * 1_000_000);
            let state = catalogue.fresh(number, epoch - i64::try_from(age).unwrap_or(0));
            catalogue.stones.push(state);
        }
        let damaged = Shuffle::new(count, config.seed)
            .take(config.nul_stones.saturating_add(config.uncertified_stones) as usize);
        for (index, number) in damaged.enumerate() {
            let state = &mut catalogue.stones[number as usize];
            if index < config.nul_stones as usize { state.has_nul = true } else { state.uncertified = true }
        }
        catalogue
    }

    fn fresh(&self, number: u32, updated: i64) -> State {
        let price = self.price(number, 0);
        State {
            updated,
            price,
            traits: Traits::new(self.seed, number, price, self.off_query),
            version: 0,
            media: 0,
            availability: Availability::Available,
            has_nul: false,
            uncertified: false,
        }
    }

    /// Draws the `turn`-th price of a stone from the distribution.
    pub(crate) fn price(&self, number: u32, turn: u16) -> u32 {
        price::price(self.distribution, self.one_price, self.seed, number, turn)
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// Number of stones, including vanished ones.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.stones.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn state(&self, number: u32) -> Option<State> {
        self.stones.get(number as usize).copied()
    }

    pub(crate) fn id_of(&self, number: u32) -> String {
        id_text(self.seed, number)
    }

    pub(crate) fn stone(&self, number: u32) -> Option<Stone> {
        self.state(number).map(|state| Stone::new(self.seed, number, state))
    }

    /// Replaces the state of a stone.
    pub(crate) fn set(&mut self, number: u32, state: State) {
        let Some(old) = self.stones.get_mut(number as usize) else { return };
        self.index.update(number, Some(old), &state);
        *old = state;
        if state.availability == Availability::Available {
            self.absent.remove(&number);
        } else {
            self.absent.insert(number);
        }
    }

    /// Adds a stone at the end of the list; returns its number.
    pub(crate) fn add(&mut self, updated: i64) -> u32 {
        let number = self.len();
        let state = self.fresh(number, updated);
        self.index.update(number, None, &state);
        self.stones.push(state);
        number
    }

    /// Counts the stones of a query.
    pub(crate) fn count(&mut self, query: &Query) -> u64 {
        if query.is_inverted || query.stones.is_some() {
            return self.unindexed(query).len() as u64;
        }
        self.index.count(&query.filter, &self.stones)
    }

    /// Returns a page of the stones of a query.
    pub(crate) fn page(&mut self, query: &Query, slice: Slice) -> Vec<Stone> {
        let unindexed;
        let numbers: &[u32] = if query.is_inverted || query.stones.is_some() {
            unindexed = self.unindexed(query);
            &unindexed
        } else {
            self.index.list(&query.filter, &self.stones)
        };
        let offset = usize::try_from(slice.offset).unwrap_or(usize::MAX).min(numbers.len());
        let end = offset.saturating_add(slice.limit).min(numbers.len());
        let (seed, stones) = (self.seed, &self.stones);
        let stone = |number: &u32| Stone::new(seed, *number, stones[*number as usize]);
        if slice.is_descending {
            numbers.iter().rev().skip(offset).take(end - offset).map(stone).collect()
        } else {
            numbers[offset..end].iter().map(stone).collect()
        }
    }

    /// Number of stones in the list of a query. It is faster than a count if pages of the list are requested too.
    pub(crate) fn length(&mut self, query: &Query) -> u64 {
        self.numbers(query).len() as u64
    }

    /// Returns the position of the first stone after stone `number` in the list of a query.
    pub(crate) fn position_after(&mut self, query: &Query, number: u32) -> u64 {
        self.numbers(query).partition_point(|other| *other <= number) as u64
    }

    fn numbers(&mut self, query: &Query) -> Cow<'_, [u32]> {
        if query.is_inverted || query.stones.is_some() {
            return Cow::Owned(self.unindexed(query));
        }
        Cow::Borrowed(self.index.list(&query.filter, &self.stones))
    }

    /// Stones of a query by id, or with an inverted range, which need no index.
    fn unindexed(&self, query: &Query) -> Vec<u32> {
        if query.is_inverted {
            let mut some: Vec<u32> = Shuffle::new(self.len(), self.seed)
                .filter(|number| !self.absent.contains(number))
                .take(INVERTED_RANGE_STONES as usize)
                .collect();
            some.sort_unstable();
            return some;
        }
        let passes = |number: &u32| self.state(*number).is_some_and(|state| query.filter.matches(&state));
        query.stones.iter().flatten().copied().filter(passes).collect()
    }

    /// Upper bound of the memory for `stones` stones, including the index.
    #[cfg(test)]
    pub(crate) const fn bytes_at_most(stones: usize) -> usize {
        stones * size_of::<State>() + Index::bytes_at_most(stones)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::{Change, Churn};
    use crate::random::RandomSequence;
    use async_graphql_value::ConstValue as Value;
    use serde_json::json;

    fn catalogue(stones: u32) -> Catalogue {
        Catalogue::new(&Config { stones, off_query_per_mille: 100, ..Config::default() })
    }

    fn query(json: serde_json::Value) -> Query {
        Query::read(&Value::from_json(json).unwrap(), 1).unwrap()
    }

    /// Returns the stones of all pages of a query, and the same from a scan of all stones.
    fn paged_and_scanned(catalogue: &mut Catalogue, query: &Query) -> (Vec<u32>, Vec<u32>) {
        let mut found = Vec::new();
        loop {
            let slice = Slice { offset: found.len() as u64, limit: 30, is_descending: false };
            let page = catalogue.page(query, slice);
            if page.is_empty() {
                break;
            }
            found.extend(page.iter().map(|stone| stone.number));
        }
        let all = (0..catalogue.len()).filter(|k| query.filter.matches(&catalogue.state(*k).unwrap()));
        (found, all.collect())
    }

    fn queries(now: chrono::DateTime<chrono::Utc>) -> Vec<Query> {
        let since = now.to_rfc3339();
        vec![
            query(json!(null)),
            query(json!({"availability": ["AVAILABLE"]})),
            query(json!({"dollar_value": {"from": 0, "to": 499}, "availability": ["AVAILABLE"]})),
            query(json!({"dollar_value": {"from": 500, "to": 5000}, "has_image": true, "hide_memo": true})),
            query(json!({"dollar_value": {"from": 131_000}})),
            query(json!({"updated": {"from": since}})),
            query(json!({"updated": {"to": since}, "dollar_value": {"to": 2000}, "labgrown": false})),
            query(json!({"shapes": ["ROUND", "OVAL"], "sizes": {"from": 0.5, "to": 0.57}})),
        ]
    }

    #[test]
    fn counts_and_pages_stay_correct_under_churn() {
        let mut catalogue = catalogue(5_000);
        let now = Config::default().epoch;
        let (churn, mut random) = (Churn::default(), RandomSequence::new(4));
        for turn in 0..40 {
            for query in queries(now) {
                let (found, all) = paged_and_scanned(&mut catalogue, &query);
                assert_eq!(found, all, "turn {turn}, {query:?}");
                assert_eq!(catalogue.count(&query), all.len() as u64, "turn {turn}, {query:?}");
            }
            catalogue.churn(&churn, &mut random, 50, now + chrono::Duration::seconds(turn));
        }
        assert!(catalogue.len() > 5_000 && !catalogue.absent.is_empty());
    }

    #[test]
    fn price_is_truncated_to_whole_dollars() {
        let mut catalogue = catalogue(3);
        for (number, price) in [(0, 9_999), (1, 10_000), (2, 10_099)] {
            let ids = vec![catalogue.id_of(number)];
            let change = Change { price_cents: Some(price), ..Change::of_ids(crate::ChangeKind::Price, ids) };
            catalogue.change(&change, Config::default().epoch).unwrap();
        }
        assert_eq!(catalogue.count(&query(json!({"dollar_value": {"from": 0, "to": 99}}))), 1);
        assert_eq!(catalogue.count(&query(json!({"dollar_value": {"from": 100, "to": 100}}))), 2);
        assert_eq!(
            catalogue.count(&query(json!({"dollar_value": {"to": -5}}))),
            3,
            "an inverted range must return arbitrary stones"
        );
    }

    #[test]
    fn million_stones_need_less_than_150_megabytes() {
        assert!(Catalogue::bytes_at_most(1_000_000) < 150_000_000);
        assert!(Catalogue::bytes_at_most(MAX_STONES as usize) < 250_000_000);
    }

    #[test]
    fn same_seed_gives_the_same_changes() {
        let run = || {
            let mut catalogue = catalogue(500);
            catalogue.churn(&Churn::default(), &mut RandomSequence::new(9), 300, Config::default().epoch);
            (0..catalogue.len()).map(|k| catalogue.state(k).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
        assert_ne!(run(), (0..500).map(|k| catalogue(500).state(k).unwrap()).collect::<Vec<_>>());
    }
}
