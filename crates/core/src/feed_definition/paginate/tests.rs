//! Tests of the requests for pages and their next places.

use super::*;

/// An answer with a body of `records` records.
struct Reply {
    url: String,
    headers: Vec<(String, String)>,
    body: JsonValue,
    records: usize,
    last: Option<JsonValue>,
}

fn reply(body: &str, records: usize) -> Reply {
    let body = JsonValue::parse(body.as_bytes(), 64).unwrap();
    Reply { url: "https://api.test/v1/items?page=1".into(), headers: Vec::new(), body, records, last: None }
}

impl Reply {
    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn last(mut self, record: &str) -> Self {
        self.last = Some(JsonValue::parse(record.as_bytes(), 64).unwrap());
        self
    }

    fn answer(&self) -> Answer<'_> {
        Answer {
            url: &self.url,
            headers: &self.headers,
            body: &self.body,
            records: self.records,
            last_record: self.last.as_ref(),
        }
    }
}

fn trust(end: EndRule) -> Trust {
    Trust { end, total: None, recount: true, repeats: true, complete: false }
}

fn with_total(end: EndRule) -> Trust {
    Trust { total: Some(TotalLocation::Path("total".parse().unwrap())), ..trust(end) }
}

fn query(name: &str) -> ParamTarget {
    ParamTarget::Query(name.to_owned())
}

fn path(text: &str) -> JsonPath {
    text.parse().unwrap()
}

fn at(offset: u64) -> Place {
    Place { offset, token: None }
}

fn token(offset: u64, token: &str) -> Place {
    Place { offset, token: Some(token.to_owned()) }
}

fn offset() -> Paginator {
    Paginator::Offset { offset: query("offset"), limit: Some(query("limit")), page_size: 10 }
}

fn page_number() -> Paginator {
    Paginator::PageNumber { page: query("page"), base_page: 1, page_size: 10, size: Some(query("size")) }
}

fn cursor() -> Paginator {
    Paginator::Cursor { cursor_path: path("next"), cursor: query("cursor"), limit: None, page_size: 10 }
}

fn json_link() -> Paginator {
    Paginator::JsonLink { next_url_path: path("next"), limit: Some(query("limit")), page_size: 10 }
}

fn keyset() -> Paginator {
    Paginator::Keyset {
        key_path: path("id"),
        cursor: query("after"),
        limit: Some(query("limit")),
        page_size: 10,
    }
}

fn connection() -> Paginator {
    Paginator::GraphqlConnection {
        connection_path: path("data.items"),
        cursor_variable: "after".into(),
        limit_variable: "first".into(),
        page_size: 10,
    }
}

fn next(
    paginator: &Paginator,
    trust: &Trust,
    place: &Place,
    reply: &Reply,
) -> Result<Option<Place>, PaginationError> {
    next_page(paginator, trust, place, 10, &reply.answer()).map(|page| page.next)
}

fn params(paginator: &Paginator, place: &Place) -> Vec<(String, String)> {
    let request = request_page(paginator, place, 10).unwrap();
    let shown = |(target, value): &Param| match target {
        ParamTarget::Query(name) => (name.clone(), value.to_text()),
        ParamTarget::Body(path) => (path.to_string(), value.to_text()),
    };
    let url = request.url.iter().map(|url| ("url".to_owned(), url.clone()));
    url.chain(request.params.iter().map(shown)).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn requests_carry_the_parameters_of_their_paginator() {
    assert_eq!(params(&Paginator::SinglePage, &at(0)), []);
    assert_eq!(params(&offset(), &at(30)), pairs(&[("offset", "30"), ("limit", "10")]));
    assert_eq!(params(&page_number(), &at(30)), pairs(&[("page", "4"), ("size", "10")]));
    assert_eq!(params(&cursor(), &at(0)), []);
    assert_eq!(params(&cursor(), &token(10, "abc")), pairs(&[("cursor", "abc")]));
    assert_eq!(params(&json_link(), &at(0)), pairs(&[("limit", "10")]));
    assert_eq!(params(&json_link(), &token(10, "https://x/2")), pairs(&[("url", "https://x/2")]));
    assert_eq!(params(&keyset(), &token(10, "7")), pairs(&[("after", "7"), ("limit", "10")]));
    let graphql = Paginator::GraphqlOffset {
        offset_variable: "skip".into(),
        limit_variable: "take".into(),
        page_size: 10,
    };
    assert_eq!(params(&graphql, &at(20)), pairs(&[("variables.skip", "20"), ("variables.take", "10")]));
    let expected = pairs(&[("variables.after", "c"), ("variables.first", "10")]);
    assert_eq!(params(&connection(), &token(10, "c")), expected);
}

#[test]
fn unreachable_places_are_errors() {
    for paginator in [Paginator::SinglePage, cursor(), json_link(), keyset(), connection()] {
        let error = request_page(&paginator, &at(10), 10).unwrap_err();
        assert_eq!(error, PaginationError::UnreachablePlace { offset: 10 }, "{}", paginator.word());
    }
    let error = request_page(&page_number(), &at(15), 10).unwrap_err();
    assert_eq!(error, PaginationError::Misaligned { offset: 15, page_size: 10 });
}

#[test]
fn empty_page_ends_a_list_with_positions() {
    let trust = trust(EndRule::EmptyPage);
    assert_eq!(next(&offset(), &trust, &at(0), &reply("[]", 7)), Ok(Some(at(7))));
    assert_eq!(next(&offset(), &trust, &at(7), &reply("[]", 0)), Ok(None));
    assert_eq!(next(&page_number(), &trust, &at(0), &reply("[]", 7)), Ok(Some(at(10))));
}

#[test]
fn short_page_ends_a_list_and_a_full_one_does_not() {
    let trust = trust(EndRule::ShortPage);
    assert_eq!(next(&offset(), &trust, &at(0), &reply("[]", 10)), Ok(Some(at(10))));
    assert_eq!(next(&offset(), &trust, &at(10), &reply("[]", 9)), Ok(None));
    assert_eq!(next(&keyset(), &trust, &at(0), &reply("[]", 9).last("{\"id\":9}")), Ok(None));
}

#[test]
fn short_page_before_the_total_is_a_contradiction() {
    // The source caps its pages at 5 records, so a short page is not the end.
    let lie = next(&offset(), &with_total(EndRule::ShortPage), &at(0), &reply(r#"{"total":12}"#, 5));
    assert_eq!(lie, Err(PaginationError::TotalContradiction { total: 12, read: 5 }));
    let honest = next(&offset(), &with_total(EndRule::ShortPage), &at(10), &reply(r#"{"total":12}"#, 2));
    assert_eq!(honest, Ok(None));
}

#[test]
fn has_more_flag_decides_the_end() {
    let trust = trust(EndRule::HasMore(path("more")));
    assert_eq!(next(&offset(), &trust, &at(0), &reply(r#"{"more":true}"#, 3)), Ok(Some(at(3))));
    assert_eq!(next(&offset(), &trust, &at(0), &reply(r#"{"more":false}"#, 10)), Ok(None));
}

#[test]
fn has_more_flag_with_an_empty_page_is_an_error() {
    let trust = trust(EndRule::HasMore(path("more")));
    let lie = next(&offset(), &trust, &at(0), &reply(r#"{"more":true}"#, 0));
    assert_eq!(lie, Err(PaginationError::EmptyPage { promise: "more".into() }));
    let missing = next(&offset(), &trust, &at(0), &reply("{}", 3));
    assert_eq!(missing, Err(PaginationError::NoFlag { path: "more".into() }));
}

#[test]
fn has_more_flag_without_a_cursor_is_an_error() {
    let trust = trust(EndRule::HasMore(path("more")));
    let lie = next(&cursor(), &trust, &at(0), &reply(r#"{"more":true,"next":null}"#, 3));
    assert_eq!(lie, Err(PaginationError::NoToken { flag: "more".into() }));
    let honest = next(&cursor(), &trust, &at(0), &reply(r#"{"more":false,"next":"x"}"#, 3));
    assert_eq!(honest, Ok(None));
}

#[test]
fn total_decides_the_end() {
    let trust = with_total(EndRule::Total);
    assert_eq!(next(&offset(), &trust, &at(0), &reply(r#"{"total":12}"#, 10)), Ok(Some(at(10))));
    assert_eq!(next(&offset(), &trust, &at(10), &reply(r#"{"total":12}"#, 2)), Ok(None));
    assert_eq!(next(&cursor(), &trust, &at(0), &reply(r#"{"total":3,"next":"x"}"#, 3)), Ok(None));
}

#[test]
fn total_that_the_pages_contradict_is_an_error() {
    let trust = with_total(EndRule::Total);
    let empty = next(&offset(), &trust, &at(5), &reply(r#"{"total":12}"#, 0));
    assert_eq!(empty, Err(PaginationError::TotalContradiction { total: 12, read: 5 }));
    let early = reply(r#"{"total":12,"next":null}"#, 5);
    let unchecked = Trust { recount: false, ..trust.clone() };
    let lie = next(&cursor(), &unchecked, &at(0), &early);
    assert_eq!(lie, Err(PaginationError::TotalContradiction { total: 12, read: 5 }));
    // Records were added before the cursor: the new count after the last page decides.
    assert_eq!(next(&cursor(), &trust, &at(0), &early), Ok(None));
    // The total is the length of the page.
    let page = next(&offset(), &trust, &at(10), &reply(r#"{"total":10}"#, 10));
    assert_eq!(page, Err(PaginationError::TotalContradiction { total: 10, read: 20 }));
    let missing = next(&offset(), &trust, &at(0), &reply("{}", 3));
    assert!(matches!(missing, Err(PaginationError::NoTotal { .. })));
}

#[test]
fn short_page_number_before_the_total_is_an_error() {
    // The source caps its pages at 5 records, so the second page does not begin at position 10.
    let trust = with_total(EndRule::Total);
    let lie = next(&page_number(), &trust, &at(0), &reply(r#"{"total":15}"#, 5));
    assert_eq!(lie, Err(PaginationError::ShortPage { records: 5, page_size: 10 }));
    assert_eq!(next(&page_number(), &trust, &at(0), &reply(r#"{"total":15}"#, 10)), Ok(Some(at(10))));
    assert_eq!(next(&page_number(), &trust, &at(10), &reply(r#"{"total":15}"#, 5)), Ok(None));
}

#[test]
fn list_that_shrinks_while_a_cursor_reads_it_is_honest() {
    let trust = with_total(EndRule::NoNext);
    let shrunk = next(&cursor(), &trust, &token(10, "a"), &reply(r#"{"total":12,"next":null}"#, 5));
    assert_eq!(shrunk, Ok(None));
}

#[test]
fn cursor_leads_to_the_next_page_until_it_is_missing() {
    let trust = trust(EndRule::NoNext);
    assert_eq!(next(&cursor(), &trust, &at(0), &reply(r#"{"next":"b"}"#, 3)), Ok(Some(token(3, "b"))));
    assert_eq!(next(&cursor(), &trust, &at(0), &reply(r#"{"next":17}"#, 3)), Ok(Some(token(3, "17"))));
    for body in [r#"{"next":null}"#, r#"{"next":""}"#, r#"{"next":false}"#, "{}"] {
        assert_eq!(next(&cursor(), &trust, &token(3, "b"), &reply(body, 3)), Ok(None), "{body}");
    }
    // Some sources answer empty pages with a cursor, and later ones have records.
    assert_eq!(next(&cursor(), &trust, &at(0), &reply(r#"{"next":"b"}"#, 0)), Ok(Some(token(0, "b"))));
}

#[test]
fn same_cursor_twice_is_an_error() {
    let trust = trust(EndRule::NoNext);
    let lie = next(&cursor(), &trust, &token(3, "b"), &reply(r#"{"next":"b"}"#, 3));
    assert_eq!(lie, Err(PaginationError::RepeatedToken { token: "b".into() }));
    let odd = next(&cursor(), &trust, &at(0), &reply(r#"{"next":{"a":1}}"#, 3));
    assert_eq!(odd, Err(PaginationError::InvalidToken { path: "next".into(), found: "an object" }));
    let long = reply(&format!("{{\"next\":\"{}\"}}", "x".repeat(FEED_TOKEN_BYTES_MAX + 1)), 3);
    assert!(matches!(next(&cursor(), &trust, &at(0), &long), Err(PaginationError::TokenTooLong { .. })));
    let header_cursor = Paginator::HeaderCursor {
        cursor_key: "X-Next".into(),
        cursor: query("cursor"),
        limit: None,
        page_size: 10,
    };
    let nul = next(&header_cursor, &trust, &at(0), &reply("{}", 3).header("x-next", "a\0b"));
    assert_eq!(nul, Err(PaginationError::NulInToken));
}

#[test]
fn next_url_is_resolved_and_must_stay_on_the_host() {
    let trust = trust(EndRule::NoNext);
    let relative = next(&json_link(), &trust, &at(0), &reply(r#"{"next":"?page=2"}"#, 3));
    assert_eq!(relative, Ok(Some(token(3, "https://api.test/v1/items?page=2"))));
    let foreign = next(&json_link(), &trust, &at(0), &reply(r#"{"next":"https://evil.test/?page=2"}"#, 3));
    assert!(matches!(foreign, Err(PaginationError::ForeignUrl { .. })), "{foreign:?}");
    let same = next(&json_link(), &trust, &at(0), &reply(r#"{"next":"/v1/items?page=1"}"#, 3));
    assert!(matches!(same, Err(PaginationError::RepeatedToken { .. })), "{same:?}");
}

#[test]
fn headers_lead_to_the_next_page() {
    let trust = trust(EndRule::NoNext);
    let cursor = Paginator::HeaderCursor {
        cursor_key: "X-Next".into(),
        cursor: query("cursor"),
        limit: None,
        page_size: 10,
    };
    let found = next(&cursor, &trust, &at(0), &reply("[]", 3).header("x-next", "b"));
    assert_eq!(found, Ok(Some(token(3, "b"))));
    assert_eq!(next(&cursor, &trust, &token(3, "b"), &reply("[]", 3)), Ok(None));
    let url = Paginator::HeaderUrl { header: "X-Next".into(), limit: None, page_size: 10 };
    let found = next(&url, &trust, &at(0), &reply("[]", 3).header("x-next", "/v1/items?page=2"));
    assert_eq!(found, Ok(Some(token(3, "https://api.test/v1/items?page=2"))));
    let lie = next(&url, &trust, &at(0), &reply("[]", 3).header("x-next", "//evil.test/"));
    assert!(matches!(lie, Err(PaginationError::ForeignUrl { .. })));
    let link = Paginator::HeaderLink { links_next_key: "next".into(), limit: None, page_size: 10 };
    let header = r#"</v1/items?page=1>; rel="first", </v1/items?page=2>; rel="next""#;
    let found = next(&link, &trust, &at(0), &reply("[]", 3).header("link", header));
    assert_eq!(found, Ok(Some(token(3, "https://api.test/v1/items?page=2"))));
}

#[test]
fn keyset_continues_after_the_last_key() {
    let trust = trust(EndRule::EmptyPage);
    let found = next(&keyset(), &trust, &at(0), &reply("[]", 3).last(r#"{"id":12345678901234567890}"#));
    assert_eq!(found, Ok(Some(token(3, "12345678901234567890"))));
    assert_eq!(next(&keyset(), &trust, &token(3, "9"), &reply("[]", 0)), Ok(None));
    let ignored = next(&keyset(), &trust, &token(3, "9"), &reply("[]", 3).last(r#"{"id":9}"#));
    assert!(matches!(ignored, Err(PaginationError::RepeatedToken { .. })), "{ignored:?}");
    let missing = next(&keyset(), &trust, &at(0), &reply("[]", 3).last(r#"{"x":9}"#));
    assert_eq!(missing, Err(PaginationError::NoKey { path: "id".into() }));
}

#[test]
fn connection_follows_its_page_info() {
    let trust = trust(EndRule::NoNext);
    let body = |info: &str| format!(r#"{{"data":{{"items":{{"pageInfo":{info}}}}}}}"#);
    let more = reply(&body(r#"{"hasNextPage":true,"endCursor":"b"}"#), 3);
    assert_eq!(next(&connection(), &trust, &at(0), &more), Ok(Some(token(3, "b"))));
    let last = reply(&body(r#"{"hasNextPage":false,"endCursor":"c"}"#), 3);
    assert_eq!(next(&connection(), &trust, &token(3, "b"), &last), Ok(None));
    let lie = reply(&body(r#"{"hasNextPage":true,"endCursor":null}"#), 3);
    assert!(matches!(next(&connection(), &trust, &at(0), &lie), Err(PaginationError::NoToken { .. })));
    let odd = reply(&body("{}"), 3);
    assert!(matches!(next(&connection(), &trust, &at(0), &odd), Err(PaginationError::NoFlag { .. })));
}

#[test]
fn single_page_is_compared_with_its_total() {
    let single = Paginator::SinglePage;
    assert_eq!(next(&single, &trust(EndRule::NoNext), &at(0), &reply("[]", 3)), Ok(None));
    let honest = next(&single, &with_total(EndRule::NoNext), &at(0), &reply(r#"{"total":3}"#, 3));
    assert_eq!(honest, Ok(None));
    let lie = next(&single, &with_total(EndRule::NoNext), &at(0), &reply(r#"{"total":30}"#, 3));
    assert_eq!(lie, Err(PaginationError::TotalContradiction { total: 30, read: 3 }));
}
