//! Recognition of the paginator and the total.

use super::walk;
use crate::feed_definition::paging::{Paginator, TotalLocation};
use crate::feed_definition::path::JsonPath;
use crate::feed_definition::request::ParamTarget;
use crate::feed_definition::value::JsonValue;
use crate::limits::{FEED_PAGE_SIZE, FEED_PAGE_SIZE_MAX};
use url::Url;

const TOTAL_HEADERS: [&str; 5] =
    ["x-total-count", "x-total", "total-count", "x-pagination-total-count", "x-pagination-total"];
const TOTAL_NAMES: [&str; 9] = [
    "total",
    "total_count",
    "totalcount",
    "total_results",
    "totalresults",
    "count",
    "@odata.count",
    "total_items",
    "filtered_table_rows_count",
];
const URL_NAMES: [&str; 8] =
    ["next_url", "nexturl", "next_page_url", "next_link", "nextlink", "@odata.nextlink", "next", "href"];
/// Names of cursors in answers and the parameters of requests that usually belong to them.
const CURSOR_NAMES: [(&str, &str); 10] = [
    ("next_cursor", "cursor"),
    ("nextCursor", "cursor"),
    ("end_cursor", "after"),
    ("endCursor", "after"),
    ("next_page_token", "page_token"),
    ("nextPageToken", "pageToken"),
    ("next_token", "next_token"),
    ("nextToken", "nextToken"),
    ("continuation", "continuation"),
    ("cursor", "cursor"),
];
const PAGE_PARAMS: [&str; 4] = ["page", "_page", "page_number", "pageNumber"];
const OFFSET_PARAMS: [&str; 5] = ["offset", "skip", "_start", "$skip", "start"];
const LIMIT_PARAMS: [&str; 9] =
    ["limit", "per_page", "perPage", "page_size", "pageSize", "_limit", "_per_page", "$top", "size"];

/// The parts of an answer that may reveal pagination.
pub(super) struct Evidence<'a> {
    url: Option<Url>,
    headers: &'a [(String, String)],
    /// Entries outside the records.
    entries: Vec<(JsonPath, &'a str, &'a JsonValue)>,
    records: usize,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(
        url: &str,
        headers: &'a [(String, String)],
        body: &'a JsonValue,
        data_selector: Option<&JsonPath>,
        records: usize,
    ) -> Self {
        // A list at the root has nothing beside it.
        let is_root = data_selector.is_some_and(JsonPath::is_root);
        let entries = if is_root { Vec::new() } else { walk(body) };
        Self { url: Url::parse(url).ok(), headers, entries, records }
    }

    fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the first entry of a name, in the order of the names.
    fn entry(
        &self,
        names: &[&str],
        accept: impl Fn(&JsonValue) -> bool,
    ) -> Option<&(JsonPath, &'a str, &'a JsonValue)> {
        let find = |name: &&str| {
            self.entries.iter().find(|(_, key, value)| key.eq_ignore_ascii_case(name) && accept(value))
        };
        names.iter().find_map(find)
    }

    /// Returns the value of a query parameter of the request.
    fn param(&self, names: &[&str]) -> Option<(String, String)> {
        let url = self.url.as_ref()?;
        let mut pairs = url.query_pairs();
        pairs
            .find(|(key, _)| names.contains(&&**key))
            .map(|(key, value)| (key.into_owned(), value.into_owned()))
    }

    /// Finds the total: a count that is not smaller than the number of records.
    pub(super) fn total(&self) -> Option<TotalLocation> {
        let fits = |count: u64| count >= self.records as u64;
        for name in TOTAL_HEADERS {
            if self.header(name).is_some_and(|text| text.trim().parse().is_ok_and(fits)) {
                return Some(TotalLocation::Header(name.to_owned()));
            }
        }
        let (path, ..) = self.entry(&TOTAL_NAMES, |value| value.count().is_some_and(fits))?;
        Some(TotalLocation::Path(path.clone()))
    }

    /// Finds the paginator. Explicit signs (links, cursors) come before parameters of the request.
    pub(super) fn paginator(
        &self,
        total: Option<&TotalLocation>,
        key: Option<&JsonPath>,
    ) -> Option<Paginator> {
        self.header_paginator()
            .or_else(|| self.connection())
            .or_else(|| self.link())
            .or_else(|| self.cursor())
            .or_else(|| self.positions())
            .or_else(|| self.single_page(total, key))
    }

    fn header_paginator(&self) -> Option<Paginator> {
        let (limit, page_size) = self.limit();
        if self.header("link").is_some_and(|link| link.contains("rel=\"next\"") || link.contains("rel=next"))
        {
            return Some(Paginator::HeaderLink { links_next_key: "next".to_owned(), limit, page_size });
        }
        let name = ["x-next-page-url", "x-next-url", "x-next"].into_iter().find(|name| {
            self.header(name).is_some_and(|value| value.contains("://") || value.starts_with(['/', '?']))
        });
        if let Some(name) = name {
            return Some(Paginator::HeaderUrl { header: name.to_owned(), limit, page_size });
        }
        let name = ["x-next-cursor", "x-cursor-next"].into_iter().find(|name| self.header(name).is_some())?;
        let cursor = ParamTarget::Query("cursor".to_owned());
        Some(Paginator::HeaderCursor { cursor_key: name.to_owned(), cursor, limit, page_size })
    }

    fn connection(&self) -> Option<Paginator> {
        let (path, ..) = self.entry(&["pageInfo"], |value| value.get("hasNextPage").is_some())?;
        let connection = path.to_string();
        let connection_path: JsonPath = connection.strip_suffix(".pageInfo")?.parse().ok()?;
        let (cursor_variable, limit_variable) = ("after".to_owned(), "first".to_owned());
        Some(Paginator::GraphqlConnection {
            connection_path,
            cursor_variable,
            limit_variable,
            page_size: self.page_size(),
        })
    }

    fn link(&self) -> Option<Paginator> {
        let is_url = |value: &JsonValue| {
            value.scalar().is_some_and(|text| text.contains("://") || text.starts_with(['/', '?']))
        };
        let (path, ..) = self.entry(&URL_NAMES, is_url).filter(|(path, key, _)| {
            // A link such as `links.self.href` leads back to this page.
            !key.eq_ignore_ascii_case("href") || path.to_string().contains("next")
        })?;
        let (limit, page_size) = self.limit();
        Some(Paginator::JsonLink { next_url_path: path.clone(), limit, page_size })
    }

    fn cursor(&self) -> Option<Paginator> {
        let is_token = |value: &JsonValue| value.scalar().is_some_and(|text| !text.is_empty());
        let found =
            CURSOR_NAMES.iter().find_map(|(name, param)| Some((self.entry(&[name], is_token)?, *param)));
        let ((path, ..), param) = found?;
        let (limit, page_size) = self.limit();
        let cursor = ParamTarget::Query(param.to_owned());
        Some(Paginator::Cursor { cursor_path: path.clone(), cursor, limit, page_size })
    }

    /// Finds positions: a parameter of the request, or a number that the answer repeats.
    fn positions(&self) -> Option<Paginator> {
        let (limit, page_size) = self.limit();
        let is_count = |value: &JsonValue| value.count().is_some();
        let named = |names: &[&str]| {
            let echoed =
                || self.entry(names, is_count).map(|(_, key, value)| ((*key).to_owned(), value.to_json()));
            self.param(names).or_else(echoed)
        };
        if let Some((name, value)) = named(&PAGE_PARAMS) {
            let base_page = u32::from(value.trim_matches('"') != "0");
            let page = ParamTarget::Query(name);
            return Some(Paginator::PageNumber { page, base_page, page_size, size: limit });
        }
        let (name, _) = named(&OFFSET_PARAMS)?;
        let limit = limit.or_else(|| Some(ParamTarget::Query("limit".to_owned())));
        Some(Paginator::Offset { offset: ParamTarget::Query(name), limit, page_size })
    }

    /// Recognises a complete list: the total equals the number of records.
    fn single_page(&self, total: Option<&TotalLocation>, _key: Option<&JsonPath>) -> Option<Paginator> {
        let total = match total? {
            TotalLocation::Header(name) => self.header(name)?.trim().parse().ok()?,
            TotalLocation::Path(path) => self.entries.iter().find(|(other, ..)| other == path)?.2.count()?,
        };
        (total == self.records as u64).then_some(Paginator::SinglePage)
    }

    /// Returns the limit parameter of the request or the answer, and the page size.
    fn limit(&self) -> (Option<ParamTarget>, u32) {
        let bounded =
            |size: u64| u32::try_from(size).ok().filter(|size| (1..=FEED_PAGE_SIZE_MAX).contains(size));
        if let Some((name, value)) = self.param(&LIMIT_PARAMS) {
            let size = value.parse().ok().and_then(bounded).unwrap_or_else(|| self.page_size());
            return (Some(ParamTarget::Query(name)), size);
        }
        let echoed = self.entry(&LIMIT_PARAMS, |value| value.count().is_some_and(|count| count > 0));
        match echoed {
            Some((_, key, value)) => {
                let size = value.count().and_then(bounded).unwrap_or_else(|| self.page_size());
                (Some(ParamTarget::Query((*key).to_owned())), size)
            }
            None => (None, self.page_size()),
        }
    }

    fn page_size(&self) -> u32 {
        u32::try_from(self.records)
            .ok()
            .filter(|size| (1..=FEED_PAGE_SIZE_MAX).contains(size))
            .unwrap_or(FEED_PAGE_SIZE)
    }
}
