//! All stones, and the questions that the API asks about them.

use crate::config::{Config, MAX_STONES};
use crate::filter::Query;
use crate::index::Index;
use crate::random::{Shuffle, below, draw};
use crate::stone::{Presence, State, Stone, Traits, id_text};
use crate::{Distribution, price};
use std::collections::BTreeSet;

/// How many stones answer a range that ends before it begins.
const ARBITRARY: u32 = 30;

/// All stones.
#[derive(Debug)]
pub(crate) struct World {
    seed: u64,
    distribution: Distribution,
    one_price: u32,
    off_query: u32,
    stones: Vec<State>,
    /// The stones that are not for sale.
    pub(crate) absent: BTreeSet<u32>,
    index: Index,
}

/// A page of stones in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    /// How many stones are passed over.
    pub(crate) offset: u64,
    /// How many there are at most.
    pub(crate) limit: usize,
    /// The newest first.
    pub(crate) is_descending: bool,
}

impl World {
    /// The stones of a configuration.
    pub(crate) fn new(config: &Config) -> Self {
        let count = config.stones.min(MAX_STONES);
        let mut world = Self {
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
            let state = world.fresh(number, epoch - i64::try_from(age).unwrap_or(0));
            world.stones.push(state);
        }
        let marks = Shuffle::new(count, config.seed)
            .take(config.nul_stones.saturating_add(config.uncertified_stones) as usize);
        for (place, number) in marks.enumerate() {
            let state = &mut world.stones[number as usize];
            if place < config.nul_stones as usize { state.has_nul = true } else { state.uncertified = true }
        }
        world
    }

    fn fresh(&self, number: u32, updated: i64) -> State {
        let price = self.price(number, 0);
        State {
            updated,
            price,
            traits: Traits::new(self.seed, number, price, self.off_query),
            version: 0,
            media: 0,
            presence: Presence::Available,
            has_nul: false,
            uncertified: false,
        }
    }

    /// What a stone costs by the distribution, at its `turn`-th price.
    pub(crate) fn price(&self, number: u32, turn: u16) -> u32 {
        price::price(self.distribution, self.one_price, self.seed, number, turn)
    }

    /// The seed of the catalogue.
    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// How many stones there are, those that vanished included.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.stones.len()).unwrap_or(u32::MAX)
    }

    /// What is kept of a stone.
    pub(crate) fn state(&self, number: u32) -> Option<State> {
        self.stones.get(number as usize).copied()
    }

    /// A stone's id.
    pub(crate) fn id_of(&self, number: u32) -> String {
        id_text(self.seed, number)
    }

    /// The stone, ready to be written.
    pub(crate) fn stone(&self, number: u32) -> Option<Stone> {
        self.state(number).map(|state| Stone::new(self.seed, number, state))
    }

    /// Puts a new state in the place of a stone's old one.
    pub(crate) fn set(&mut self, number: u32, state: State) {
        let Some(old) = self.stones.get_mut(number as usize) else { return };
        self.index.moved(number, Some(old), &state);
        *old = state;
        if state.presence == Presence::Available {
            self.absent.remove(&number);
        } else {
            self.absent.insert(number);
        }
    }

    /// Creates a stone at the end of the list.
    pub(crate) fn add(&mut self, updated: i64) -> u32 {
        let number = self.len();
        let state = self.fresh(number, updated);
        self.index.moved(number, None, &state);
        self.stones.push(state);
        number
    }

    /// How many stones a query selects.
    pub(crate) fn count(&mut self, query: &Query) -> u64 {
        if query.is_inverted || query.stones.is_some() {
            return self.few(query).len() as u64;
        }
        self.index.count(&query.filter, &self.stones)
    }

    /// A part of the stones that a query selects, in the order of their creation.
    pub(crate) fn page(&mut self, query: &Query, slice: Slice) -> Vec<Stone> {
        let few;
        let numbers: &[u32] = if query.is_inverted || query.stones.is_some() {
            few = self.few(query);
            &few
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

    /// The stones of a query that no index is needed for.
    fn few(&self, query: &Query) -> Vec<u32> {
        if query.is_inverted {
            let mut some: Vec<u32> = Shuffle::new(self.len(), self.seed)
                .filter(|number| !self.absent.contains(number))
                .take(ARBITRARY as usize)
                .collect();
            some.sort_unstable();
            return some;
        }
        let passes = |number: &u32| self.state(*number).is_some_and(|state| query.filter.matches(&state));
        query.stones.iter().flatten().copied().filter(passes).collect()
    }

    /// The bytes that so many stones take at most, with everything that is kept to find them.
    #[cfg(test)]
    pub(crate) const fn bytes_at_most(stones: usize) -> usize {
        stones * size_of::<State>() + Index::bytes_at_most(stones)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::{Change, Churn};
    use crate::random::Dice;
    use async_graphql::Value;
    use serde_json::json;

    fn world(stones: u32) -> World {
        World::new(&Config { stones, off_query_per_mille: 100, ..Config::default() })
    }

    fn query(json: serde_json::Value) -> Query {
        Query::read(&Value::from_json(json).unwrap(), 1).unwrap()
    }

    /// All pages of a query, and the same found by looking at every stone.
    fn both(world: &mut World, query: &Query) -> (Vec<u32>, Vec<u32>) {
        let mut found = Vec::new();
        loop {
            let slice = Slice { offset: found.len() as u64, limit: 30, is_descending: false };
            let page = world.page(query, slice);
            if page.is_empty() {
                break;
            }
            found.extend(page.iter().map(|stone| stone.number));
        }
        let all = (0..world.len()).filter(|k| query.filter.matches(&world.state(*k).unwrap()));
        (found, all.collect())
    }

    fn questions(now: chrono::DateTime<chrono::Utc>) -> Vec<Query> {
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
    fn counts_and_pages_stay_right_while_stones_change() {
        let mut world = world(5_000);
        let now = Config::default().epoch;
        let (churn, mut dice) = (Churn::default(), Dice::new(4));
        for turn in 0..40 {
            for query in questions(now) {
                let (found, all) = both(&mut world, &query);
                assert_eq!(found, all, "turn {turn}, {query:?}");
                assert_eq!(world.count(&query), all.len() as u64, "turn {turn}, {query:?}");
            }
            world.churn(&churn, &mut dice, 50, now + chrono::Duration::seconds(turn));
        }
        assert!(world.len() > 5_000 && !world.absent.is_empty());
    }

    #[test]
    fn a_price_on_the_border_is_floored_into_its_range() {
        let mut world = world(3);
        for (number, price) in [(0, 9_999), (1, 10_000), (2, 10_099)] {
            let ids = vec![world.id_of(number)];
            let order = Change { price_cents: Some(price), ..Change::these(crate::What::Price, ids) };
            world.change(&order, Config::default().epoch).unwrap();
        }
        assert_eq!(world.count(&query(json!({"dollar_value": {"from": 0, "to": 99}}))), 1);
        assert_eq!(world.count(&query(json!({"dollar_value": {"from": 100, "to": 100}}))), 2);
        assert_eq!(world.count(&query(json!({"dollar_value": {"to": -5}}))), 3, "inverted: arbitrary stones");
    }

    #[test]
    fn a_million_stones_take_less_than_200_megabytes() {
        assert!(World::bytes_at_most(1_000_000) < 150_000_000);
        assert!(World::bytes_at_most(MAX_STONES as usize) < 250_000_000);
    }

    #[test]
    fn the_same_seed_gives_the_same_life() {
        let lives = || {
            let mut world = world(500);
            world.churn(&Churn::default(), &mut Dice::new(9), 300, Config::default().epoch);
            (0..world.len()).map(|k| world.state(k).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(lives(), lives());
        assert_ne!(lives(), (0..500).map(|k| world(500).state(k).unwrap()).collect::<Vec<_>>());
    }
}
