//! Pagination as pure functions: the parameters of a page, and the place of the next page.
//!
//! A source that contradicts itself is a typed error with the evidence. Examples are the same cursor twice, a next URL
//! on another host, and a total that does not match.

mod error;
mod link;
#[cfg(test)]
mod tests;

pub use error::PaginationError;

use super::paging::{EndRule, PageAccess, Paginator, TotalLocation, Trust};
use super::path::JsonPath;
use super::request::{Param, ParamTarget, ParamValue};
use super::value::JsonValue;
use crate::limits::FEED_TOKEN_BYTES_MAX;
use error::excerpt;
use std::borrow::Cow;

/// A place in a list: the number of records before it, and the paginator's token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Place {
    /// Records before this place.
    pub offset: u64,
    /// Cursor, key or URL of the page. `None` for the first page and for lists with offsets.
    pub token: Option<String>,
}

/// The parameters of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageRequest {
    /// Complete URL of the page. It replaces path and query parameters of the resource.
    pub url: Option<String>,
    pub params: Vec<Param>,
}

/// The answer to a page request.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// URL of the request.
    pub url: &'a str,
    /// Headers with names in lower case.
    pub headers: &'a [(String, String)],
    pub body: &'a JsonValue,
    /// Number of records on the page.
    pub records: usize,
    /// Last record of the page.
    pub last_record: Option<&'a JsonValue>,
}

impl<'a> Answer<'a> {
    /// Returns the first header of a name.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the total at a location.
    pub fn total(&self, location: &TotalLocation) -> Option<u64> {
        match location {
            TotalLocation::Path(path) => path.select(self.body)?.count(),
            TotalLocation::Header(name) => self.header(name)?.trim().parse().ok(),
        }
    }
}

/// The place after a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextPage {
    /// Place of the next page; `None` at the end of the list.
    pub next: Option<Place>,
    /// Total that the answer reported.
    pub total: Option<u64>,
}

/// Returns the parameters of the page at a place.
pub fn request_page(
    paginator: &Paginator,
    place: &Place,
    limit: u32,
) -> Result<PageRequest, PaginationError> {
    let number = |value: u64| ParamValue::Integer(i64::try_from(value).unwrap_or(i64::MAX));
    let variable = |name: &str| ParamTarget::Body(JsonPath::key("variables").child(name));
    let mut params: Vec<Param> = Vec::new();
    let mut url = None;
    let token = |target: &ParamTarget, params: &mut Vec<Param>| {
        let token = place_token(place)?;
        params.extend(token.map(|token| (target.clone(), ParamValue::Text(token.to_owned()))));
        Ok::<(), PaginationError>(())
    };
    match paginator {
        Paginator::SinglePage | Paginator::Auto { .. } if place.offset == 0 => {}
        Paginator::SinglePage | Paginator::Auto { .. } => {
            return Err(PaginationError::UnreachablePlace { offset: place.offset });
        }
        Paginator::PageNumber { page, base_page, page_size, size } => {
            let page_size = u64::from((*page_size).max(1));
            if !place.offset.is_multiple_of(page_size) {
                return Err(PaginationError::Misaligned { offset: place.offset, page_size });
            }
            params.push((page.clone(), number(place.offset / page_size + u64::from(*base_page))));
            params.extend(size.clone().map(|size| (size, number(page_size))));
        }
        Paginator::Offset { offset, limit: target, .. } => {
            params.push((offset.clone(), number(place.offset)));
            params.extend(target.clone().map(|target| (target, number(limit.into()))));
        }
        Paginator::Cursor { cursor, limit: target, .. }
        | Paginator::HeaderCursor { cursor, limit: target, .. }
        | Paginator::Keyset { cursor, limit: target, .. } => {
            token(cursor, &mut params)?;
            params.extend(target.clone().map(|target| (target, number(limit.into()))));
        }
        Paginator::JsonLink { limit: target, .. }
        | Paginator::HeaderUrl { limit: target, .. }
        | Paginator::HeaderLink { limit: target, .. } => {
            url = place_token(place)?.map(str::to_owned);
            // The source has put the limit into the next URL itself.
            let target = target.clone().filter(|_| url.is_none());
            params.extend(target.map(|target| (target, number(limit.into()))));
        }
        Paginator::GraphqlOffset { offset_variable, limit_variable, .. } => {
            params.push((variable(offset_variable), number(place.offset)));
            params.push((variable(limit_variable), number(limit.into())));
        }
        Paginator::GraphqlConnection { cursor_variable, limit_variable, .. } => {
            token(&variable(cursor_variable), &mut params)?;
            params.push((variable(limit_variable), number(limit.into())));
        }
    }
    Ok(PageRequest { url, params })
}

/// Returns the token of a place; it may be missing only on the first page.
fn place_token(place: &Place) -> Result<Option<&str>, PaginationError> {
    match &place.token {
        None if place.offset > 0 => Err(PaginationError::UnreachablePlace { offset: place.offset }),
        token => Ok(token.as_deref()),
    }
}

/// Returns the place after a page, or the end of the list.
///
/// `limit` is the number of requested records.
pub fn next_page(
    paginator: &Paginator,
    trust: &Trust,
    place: &Place,
    limit: u32,
    answer: &Answer<'_>,
) -> Result<NextPage, PaginationError> {
    let total = trust.total.as_ref().map(|location| {
        answer.total(location).ok_or_else(|| PaginationError::NoTotal { location: location.to_string() })
    });
    let total = total.transpose()?;
    let read = place.offset.saturating_add(answer.records as u64);
    let token = next_token(paginator, place, answer)?;
    let is_end = match (&token, paginator.access()) {
        (_, _) if matches!(paginator, Paginator::SinglePage) => true,
        (Token::Positions, _) => ends_positions(&trust.end, read, limit, paginator, total, answer)?,
        (Token::None, _) => ends_without_token(&trust.end, answer)?,
        (Token::Next(_), _) => ends_with_token(&trust.end, read, limit, paginator, total, answer)?,
    };
    if let Some(total) = total {
        // Positions beyond the total cannot contain records. Lists without positions may shrink or grow before the
        // place while they are read; the new count after the last page decides about those.
        let has_positions = matches!(token, Token::Positions);
        let is_short = is_end && read < total && (has_positions || !trust.recount);
        if is_short || has_positions && read > total && answer.records > 0 {
            return Err(PaginationError::TotalContradiction { total, read });
        }
    }
    if is_end {
        return Ok(NextPage { next: None, total });
    }
    if let (EndRule::Total, PageAccess::Aligned(page_size)) = (&trust.end, paginator.access())
        && answer.records < page_size as usize
    {
        return Err(PaginationError::ShortPage { records: answer.records, page_size });
    }
    let offset = match paginator.access() {
        PageAccess::Aligned(size) => place.offset.saturating_add(size.into()),
        PageAccess::Random | PageAccess::Sequential => read,
    };
    let token = match token {
        Token::Next(token) => Some(token),
        Token::Positions | Token::None => None,
    };
    Ok(NextPage { next: Some(Place { offset, token }), total })
}

/// The token of the next page.
enum Token {
    /// The paginator uses positions instead of tokens.
    Positions,
    /// The answer has no token.
    None,
    Next(String),
}

fn next_token(paginator: &Paginator, place: &Place, answer: &Answer<'_>) -> Result<Token, PaginationError> {
    let found: Option<Cow<'_, str>> = match paginator {
        Paginator::SinglePage
        | Paginator::PageNumber { .. }
        | Paginator::Offset { .. }
        | Paginator::GraphqlOffset { .. }
        | Paginator::Auto { .. } => return Ok(Token::Positions),
        Paginator::Cursor { cursor_path, .. } => scalar(cursor_path, answer.body)?.map(Cow::Borrowed),
        Paginator::HeaderCursor { cursor_key, .. } => answer.header(cursor_key).map(Cow::Borrowed),
        Paginator::JsonLink { next_url_path, .. } => {
            let link = scalar(next_url_path, answer.body)?.filter(|link| !link.is_empty());
            link.map(|link| link::next_url(answer.url, link)).transpose()?.map(Cow::Owned)
        }
        Paginator::HeaderUrl { header, .. } => {
            let link = answer.header(header).filter(|link| !link.trim().is_empty());
            link.map(|link| link::next_url(answer.url, link.trim())).transpose()?.map(Cow::Owned)
        }
        Paginator::HeaderLink { links_next_key, .. } => {
            let links = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("link"));
            let mut targets = links.filter_map(|(_, value)| link::target(value, links_next_key));
            targets.next().map(|link| link::next_url(answer.url, link)).transpose()?.map(Cow::Owned)
        }
        Paginator::Keyset { key_path, .. } => match answer.last_record {
            None => None,
            Some(record) => {
                let key = scalar(key_path, record)?.filter(|key| !key.is_empty());
                let no_key = || PaginationError::NoKey { path: key_path.to_string() };
                Some(Cow::Borrowed(key.ok_or_else(no_key)?))
            }
        },
        Paginator::GraphqlConnection { connection_path, .. } => connection_token(connection_path, answer)?,
    };
    let Some(token) = found.filter(|token| !token.is_empty()) else { return Ok(Token::None) };
    if token.len() > FEED_TOKEN_BYTES_MAX {
        return Err(PaginationError::TokenTooLong { bytes: token.len() });
    }
    if token.contains('\0') {
        return Err(PaginationError::NulInToken);
    }
    let is_same = place.token.as_deref() == Some(&*token) || link::is_same_url(paginator, answer.url, &token);
    if is_same {
        return Err(PaginationError::RepeatedToken { token: excerpt(&token) });
    }
    Ok(Token::Next(token.into_owned()))
}

/// Returns the cursor of a GraphQL connection with more pages.
fn connection_token<'a>(
    connection: &JsonPath,
    answer: &Answer<'a>,
) -> Result<Option<Cow<'a, str>>, PaginationError> {
    let info = connection.child("pageInfo");
    let flag_path = info.child("hasNextPage");
    if !flag(&flag_path, answer.body)? {
        return Ok(None);
    }
    let cursor = scalar(&info.child("endCursor"), answer.body)?.filter(|cursor| !cursor.is_empty());
    let no_token = || PaginationError::NoToken { flag: flag_path.to_string() };
    Ok(Some(Cow::Borrowed(cursor.ok_or_else(no_token)?)))
}

/// Returns the text at a path. Absent values, null and false count as absent.
fn scalar<'a>(path: &JsonPath, value: &'a JsonValue) -> Result<Option<&'a str>, PaginationError> {
    match path.select(value) {
        None | Some(JsonValue::Null | JsonValue::Bool(false)) => Ok(None),
        Some(JsonValue::Text(text) | JsonValue::Number(text)) => Ok(Some(text)),
        Some(other) => Err(PaginationError::InvalidToken { path: path.to_string(), found: other.kind() }),
    }
}

fn flag(path: &JsonPath, body: &JsonValue) -> Result<bool, PaginationError> {
    let found = path.select(body).and_then(JsonValue::truth);
    found.ok_or_else(|| PaginationError::NoFlag { path: path.to_string() })
}

/// Returns whether a list with positions ends with this page.
fn ends_positions(
    end: &EndRule,
    read: u64,
    limit: u32,
    paginator: &Paginator,
    total: Option<u64>,
    answer: &Answer<'_>,
) -> Result<bool, PaginationError> {
    let is_empty = answer.records == 0;
    match end {
        EndRule::EmptyPage | EndRule::NoNext => Ok(is_empty),
        EndRule::ShortPage => Ok(answer.records < page_limit(paginator, limit)),
        EndRule::HasMore(path) => {
            let has_more = flag(path, answer.body)?;
            if has_more && is_empty {
                return Err(PaginationError::EmptyPage { promise: path.to_string() });
            }
            Ok(!has_more)
        }
        EndRule::Total => {
            let total = total.ok_or_else(|| PaginationError::NoTotal { location: "trust".to_owned() })?;
            if is_empty && read < total {
                return Err(PaginationError::TotalContradiction { total, read });
            }
            Ok(read >= total)
        }
    }
}

/// Returns whether a list without a further token ends. It does unless the source reports more records.
fn ends_without_token(end: &EndRule, answer: &Answer<'_>) -> Result<bool, PaginationError> {
    match end {
        EndRule::HasMore(path) if flag(path, answer.body)? => {
            Err(PaginationError::NoToken { flag: path.to_string() })
        }
        EndRule::HasMore(_) | EndRule::EmptyPage | EndRule::ShortPage | EndRule::Total | EndRule::NoNext => {
            Ok(true)
        }
    }
}

/// Returns whether a list ends although the answer has a further token.
fn ends_with_token(
    end: &EndRule,
    read: u64,
    limit: u32,
    paginator: &Paginator,
    total: Option<u64>,
    answer: &Answer<'_>,
) -> Result<bool, PaginationError> {
    match end {
        EndRule::NoNext => Ok(false),
        EndRule::EmptyPage => Ok(answer.records == 0),
        EndRule::ShortPage => Ok(answer.records < page_limit(paginator, limit)),
        EndRule::HasMore(path) => Ok(!flag(path, answer.body)?),
        EndRule::Total => {
            let total = total.ok_or_else(|| PaginationError::NoTotal { location: "trust".to_owned() })?;
            Ok(read >= total)
        }
    }
}

/// Returns the number of records of a full page.
fn page_limit(paginator: &Paginator, limit: u32) -> usize {
    let is_fixed = matches!(paginator, Paginator::PageNumber { .. }) || !paginator.has_limit();
    let limit = if is_fixed { paginator.page_size().unwrap_or(limit) } else { limit };
    limit as usize
}
