//! Requests for lists: their filters, and the place of the page.

use super::{RestKind, number_of};
use crate::behaviour::Behaviour;
use crate::filter::{ANY_TIME, Filter, Query};
use crate::stone::Availability;
use std::borrow::Cow;

/// Maximum number of items per page of the REST API.
pub const REST_LIMIT_MAX: usize = 1_000;
/// Items per page without a limit in the request.
const LIMIT: usize = 100;
/// Maximum number of ids in a request.
const IDS_MAX: usize = 1_000;

/// Filters of a list.
#[derive(Debug, Default)]
pub(super) struct Filters {
    /// Lowest price in cents, inclusive.
    pub(super) price_from: Option<u32>,
    /// Highest price in cents, exclusive.
    pub(super) price_to: Option<u32>,
    /// Lowest time of the last change in microseconds since 1970, inclusive.
    pub(super) updated_since: Option<i64>,
    /// Numbers of the stones.
    pub(super) ids: Option<Vec<u32>>,
}

impl Filters {
    /// Returns the query of the list.
    pub(super) fn query(&self, behaviour: &Behaviour) -> Query {
        let updated_since = self.updated_since.filter(|_| !behaviour.ignore_updated_since);
        let mut query = Query { filter: Filter::default(), stones: self.ids.clone(), is_inverted: false };
        if updated_since.is_none() && self.ids.is_none() {
            query.filter.availability = Availability::Available.bit();
        }
        query.filter.updated = (updated_since.unwrap_or(ANY_TIME.0), ANY_TIME.1);
        let (from, to) = (self.price_from.unwrap_or(0), self.price_to);
        let last = to.map_or(Some(u32::MAX), |to| to.checked_sub(1));
        match last.filter(|last| from <= *last) {
            None => query.stones = Some(Vec::new()),
            Some(last) => {
                query.filter.dollars = (from / 100, last / 100);
                // Counts of whole dollars are indexed.
                if !from.is_multiple_of(100) || to.is_some_and(|to| !to.is_multiple_of(100)) {
                    query.filter.cents = (from, last);
                }
            }
        }
        query
    }

    /// Sets a filter from a query parameter; returns false if it is no filter.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "price_from" => self.price_from = Some(cents(name, value)?),
            "price_to" => self.price_to = Some(cents(name, value)?),
            "updated_since" => self.updated_since = Some(micros(name, value)?),
            "ids" => self.ids = Some(numbers(value.split(',').filter(|id| !id.is_empty()))?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The place where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Position in the list, from 0.
    Position(u64),
    /// After the item with this number.
    After(u32),
}

/// The content of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) start: Start,
    /// Number of empty pages at this place, so that the cursor after an empty page is a new one.
    pub(super) empty_pages: u32,
}

impl Cursor {
    pub(super) const FIRST: Self = Self { start: Start::Position(0), empty_pages: 0 };

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let invalid = || format!("invalid cursor `{text}`");
        let (start, empty_pages) = text.split_once(';').unwrap_or((text, "0"));
        let (kind, number) = start.split_once('=').ok_or_else(invalid)?;
        let start = match kind {
            "at" => Start::Position(number.parse().map_err(|_| invalid())?),
            "after" => Start::After(number.parse().map_err(|_| invalid())?),
            _ => return Err(invalid()),
        };
        Ok(Self { start, empty_pages: empty_pages.parse().map_err(|_| invalid())? })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.start {
            Start::Position(position) => write!(f, "at={position}")?,
            Start::After(number) => write!(f, "after={number}")?,
        }
        if self.empty_pages > 0 { write!(f, ";{}", self.empty_pages) } else { Ok(()) }
    }
}

/// A request for a page.
#[derive(Debug)]
pub(super) struct ListRequest<'a> {
    pub(super) kind: RestKind,
    pub(super) filters: Filters,
    pub(super) cursor: Cursor,
    /// Maximum number of items; `None` is the whole list.
    pub(super) limit: Option<usize>,
    /// Query parameters that the URL of the next page repeats.
    pub(super) repeated: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> ListRequest<'a> {
    /// Parses the query of a list.
    pub(super) fn parse(kind: RestKind, query: &'a str) -> Result<Self, String> {
        let limit = kind.limit_param().map(|_| LIMIT);
        let mut request =
            Self { kind, filters: Filters::default(), cursor: Cursor::FIRST, limit, repeated: Vec::new() };
        let mut position = None;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if kind.position_param() == Some(&*name) {
                position = Some(value);
                continue;
            }
            if kind.limit_param() == Some(&*name) {
                request.limit = Some(limit_of(&name, &value)?);
            } else if !request.filters.set(&name, &value)? {
                return Err(format!("unknown parameter `{name}`"));
            }
            request.repeated.push((name, value));
        }
        if let Some(position) = position {
            request.cursor = request.place(&position)?;
        }
        Ok(request)
    }

    /// Parses the query of a count.
    pub(super) fn parse_count(kind: RestKind, query: &str) -> Result<Filters, String> {
        let mut filters = Filters::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let is_of_page = kind.limit_param() == Some(&*name) || kind.position_param() == Some(&*name);
            if !is_of_page && !filters.set(&name, &value)? {
                return Err(format!("unknown parameter `{name}`"));
            }
        }
        Ok(filters)
    }

    fn place(&self, text: &str) -> Result<Cursor, String> {
        let at = |start| Ok(Cursor { start, empty_pages: 0 });
        match self.kind {
            RestKind::PageNumber => {
                let page: u64 = number("page", text)?;
                let before = page.checked_sub(1).ok_or("the first page is page 1")?;
                at(Start::Position(before.saturating_mul(self.limit.unwrap_or(LIMIT) as u64)))
            }
            RestKind::Offset => at(Start::Position(number("offset", text)?)),
            RestKind::Keyset => {
                at(Start::After(number_of(text).ok_or_else(|| format!("invalid id `{text}`"))?))
            }
            RestKind::Cursor
            | RestKind::JsonLink
            | RestKind::HeaderCursor
            | RestKind::HeaderUrl
            | RestKind::HeaderLink => Cursor::parse(text),
            RestKind::SinglePage | RestKind::GraphqlOffset | RestKind::GraphqlConnection => Ok(Cursor::FIRST),
        }
    }
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{name} must be a non-negative integer, not `{text}`"))
}

fn limit_of(name: &str, text: &str) -> Result<usize, String> {
    check_limit(name, number(name, text)?)
}

pub(super) fn check_limit(name: &str, limit: u64) -> Result<usize, String> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if (1..=REST_LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(format!("{name} must be between 1 and {REST_LIMIT_MAX}, not {limit}"))
}

/// Parses money with at most two decimals; returns cents.
fn cents(name: &str, text: &str) -> Result<u32, String> {
    let invalid = || format!("{name} must be an amount with at most two decimals, not `{text}`");
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 2 {
        return Err(invalid());
    }
    let whole: u64 = whole.parse().map_err(|_| invalid())?;
    let decimals: u64 = format!("{decimals:0<2}").parse().map_err(|_| invalid())?;
    Ok(u32::try_from(whole.saturating_mul(100).saturating_add(decimals)).unwrap_or(u32::MAX))
}

pub(super) fn micros(name: &str, text: &str) -> Result<i64, String> {
    let time = chrono::DateTime::parse_from_rfc3339(text);
    let time =
        time.map_err(|_| format!("{name} must be a time such as 2026-01-31T12:00:00Z, not `{text}`"))?;
    Ok(time.timestamp_micros())
}

/// Returns the numbers of ids, without unknown ones.
pub(super) fn numbers<'a>(ids: impl Iterator<Item = &'a str>) -> Result<Vec<u32>, String> {
    let ids: Vec<&str> = ids.collect();
    if ids.len() > IDS_MAX {
        return Err(format!("at most {IDS_MAX} ids are allowed, not {}", ids.len()));
    }
    let mut numbers: Vec<u32> = ids.into_iter().filter_map(number_of).collect();
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_text_is_parsed_again() {
        for (text, start, empty_pages) in [
            ("at=0", Start::Position(0), 0),
            ("after=42", Start::After(42), 0),
            ("at=7;2", Start::Position(7), 2),
        ] {
            let cursor = Cursor { start, empty_pages };
            assert_eq!((cursor.to_string().as_str(), Cursor::parse(text)), (text, Ok(cursor)));
        }
        for text in ["", "42", "at=", "at=-1", "before=1", "at=1;x"] {
            assert!(Cursor::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_read_as_cents() {
        for (text, expected) in
            [("0", 0), ("12", 1_200), ("12.5", 1_250), ("12.05", 1_205), ("99999999999", u32::MAX)]
        {
            assert_eq!(cents("price_to", text), Ok(expected), "{text}");
        }
        for text in ["", "-1", "1.005", ".5", "1.", "1e3", "ten"] {
            assert!(cents("price_to", text).is_err(), "{text}");
        }
    }

    #[test]
    fn unsupported_parameters_are_rejected() {
        let error = |kind, query| ListRequest::parse(kind, query).unwrap_err();
        assert_eq!(error(RestKind::Offset, "page=1"), "unknown parameter `page`");
        assert_eq!(error(RestKind::SinglePage, "limit=1"), "unknown parameter `limit`");
        assert_eq!(error(RestKind::PageNumber, "page=0"), "the first page is page 1");
        assert_eq!(error(RestKind::Cursor, "limit=1001"), "limit must be between 1 and 1000, not 1001");
        assert_eq!(error(RestKind::Keyset, "after_id=7"), "invalid id `7`");
        assert!(error(RestKind::Offset, "updated_since=2026").contains("must be a time"));
    }
}
