//! Parts of lists, with the configured deviations.

use crate::behaviour::{Behaviour, take};
use crate::catalogue::{Catalogue, Slice};
use crate::filter::Query;
use crate::lock;
use crate::random::below;
use crate::state::SupplierState;
use crate::stone::Stone;

/// Deviations of one page.
pub(crate) struct PageDeviations {
    /// The page ignores its position.
    pub(crate) repeats_start: bool,
    /// Determines the length of a short page.
    shortening: Option<u64>,
    without_ids: bool,
    has_duplicate: bool,
}

impl PageDeviations {
    /// Returns the length of a page of `limit` stones.
    pub(crate) fn shortened(&self, limit: usize) -> usize {
        let Some(random) = self.shortening else { return limit };
        let fewer = 1 + below(random, (limit as u64).saturating_sub(1));
        limit.min(usize::try_from(fewer).unwrap_or(1))
    }
}

impl SupplierState {
    /// Takes the deviations of the next page from the behaviour.
    pub(crate) fn page_deviations(&self) -> PageDeviations {
        let mut behaviour = lock(&self.behaviour);
        let repeats_start = take(&mut behaviour.repeat_next) || behaviour.repeat_always;
        let is_short = take(&mut behaviour.short_next)
            || behaviour.short_percent > 0 && self.below(100) < u64::from(behaviour.short_percent);
        PageDeviations {
            repeats_start,
            shortening: is_short.then(|| self.random()),
            without_ids: take(&mut behaviour.without_ids_next),
            has_duplicate: take(&mut behaviour.duplicate_next),
        }
    }

    /// Applies the deviations of a page to its stones, counts them, and applies the churn per page.
    pub(crate) fn finish_page(&self, deviations: &PageDeviations, stones: &mut Vec<Stone>) {
        for stone in &mut *stones {
            stone.without_id |= deviations.without_ids;
        }
        if deviations.has_duplicate {
            stones.extend_from_within(..1.min(stones.len()));
        }
        self.counters.pages.add(1);
        self.counters.stones.add(stones.len() as u64);
        self.apply_churn_of_page();
    }
}

/// Returns a slice of a list, with the configured duplicate, nameless and hidden positions.
pub(crate) fn listed(
    catalogue: &mut Catalogue,
    behaviour: &Behaviour,
    query: &Query,
    slice: Slice,
) -> Vec<Stone> {
    let mut stones = Vec::new();
    if behaviour.has_plain_lists() || query.stones.is_some() {
        stones = catalogue.page(query, slice);
    } else {
        for position in slice.offset..slice.offset.saturating_add(slice.limit as u64) {
            let double = behaviour.doubles.iter().find(|double| double.at == position);
            let before = behaviour.doubles.iter().filter(|double| double.at < position).count() as u64;
            let offset = double.map_or(position - before, |double| double.of);
            let Some(mut stone) = catalogue.page(query, Slice { offset, limit: 1, ..slice }).pop() else {
                break;
            };
            stone.without_id = behaviour.nameless.contains(&position);
            if !behaviour.hidden.contains(&position) {
                stones.push(stone);
            }
        }
    }
    for stone in &mut stones {
        (stone.is_spaced, stone.padding) = (behaviour.spaced_ids, behaviour.padding_bytes);
    }
    stones
}
