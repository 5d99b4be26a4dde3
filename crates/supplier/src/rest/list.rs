//! Pages and counts of lists, with the configured deviations.

use super::RestKind;
use super::request::{Cursor, Filters, ListRequest, Start};
use crate::behaviour::{Behaviour, take};
use crate::catalogue::Slice;
use crate::listing::listed;
use crate::lock;
use crate::state::SupplierState;
use crate::stone::Stone;

/// A page of a list.
pub(super) struct Page {
    pub(super) stones: Vec<Stone>,
    /// Reported number of items in the list.
    pub(super) total: u64,
    /// Reported flag for more items.
    pub(super) has_more: bool,
    /// Cursor of the next page; `None` at the end of the list.
    pub(super) next: Option<Cursor>,
}

/// Counts the items of a list, including the configured deviations.
pub(super) fn count(state: &SupplierState, filters: &Filters) -> u64 {
    let query = filters.query(&lock(&state.behaviour));
    state.count(&query)
}

/// Returns a page, including the configured deviations.
pub(super) fn page(state: &SupplierState, request: &ListRequest<'_>) -> Page {
    let deviations = state.page_deviations();
    let (behaviour, is_empty) = {
        let mut behaviour = lock(&state.behaviour);
        let is_empty = take(&mut behaviour.empty_next);
        (behaviour.clone(), is_empty)
    };
    let query = request.filters.query(&behaviour);
    let mut catalogue = lock(&state.catalogue);
    let is_plain = behaviour.has_plain_lists() || query.stones.is_some();
    let length = catalogue.length(&query);
    let length = if is_plain { length } else { length + behaviour.second_listings(length) };
    let ignores_start =
        deviations.repeats_start || behaviour.stuck_cursor && request.kind == RestKind::Keyset;
    let start = match request.cursor.start {
        _ if ignores_start => 0,
        Start::Position(position) => position.min(length),
        Start::After(number) => {
            let position = catalogue.position_after(&query, number);
            if is_plain { position } else { behaviour.listed_position(position) }
        }
    };
    let rest = usize::try_from(length - start.min(length)).unwrap_or(usize::MAX);
    let limit = if is_empty { 0 } else { deviations.shortened(request.limit.unwrap_or(rest)) };
    let slice = Slice { offset: start, limit, is_descending: false };
    let mut stones = listed(&mut catalogue, &behaviour, &query, slice);
    drop(catalogue);
    let end = start.saturating_add(limit as u64).min(length);
    let has_more = end < length;
    let next = match stones.last() {
        _ if behaviour.stuck_cursor => Some(request.cursor),
        _ if !has_more => None,
        Some(last) if is_plain => Some(Cursor { start: Start::After(last.number), empty_pages: 0 }),
        _ if is_empty => {
            Some(Cursor { empty_pages: request.cursor.empty_pages.saturating_add(1), ..request.cursor })
        }
        Some(_) | None => Some(Cursor { start: Start::Position(end), empty_pages: 0 }),
    };
    state.finish_page(&deviations, &mut stones);
    Page {
        stones,
        total: length.saturating_add_signed(behaviour.count_lies_by),
        has_more: behaviour.has_more.unwrap_or(has_more),
        next,
    }
}

impl Behaviour {
    /// Converts a position in the list without second listings to one in the list with them.
    fn listed_position(&self, position: u64) -> u64 {
        let mut second: Vec<u64> = self.doubles.iter().map(|double| double.at).collect();
        second.sort_unstable();
        second.into_iter().fold(position, |position, at| position + u64::from(at <= position))
    }
}
