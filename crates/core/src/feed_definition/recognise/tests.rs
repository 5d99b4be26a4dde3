//! Tests of the recognition of unknown sources.

use super::*;
use crate::feed_definition::parse;
use crate::feed_definition::request::ParamTarget;
use url::Url;

fn recognised(url: &str, headers: &[(&str, &str)], body: &str) -> Recognition {
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    recognise(url, &headers, &JsonValue::parse(body.as_bytes(), 64).unwrap())
}

fn word(found: &Recognition) -> Option<&'static str> {
    found.paginator.as_ref().map(Paginator::word)
}

fn selector(found: &Recognition) -> Option<String> {
    found.data_selector.as_ref().map(ToString::to_string)
}

#[test]
fn json_server_with_link_header_is_recognised() {
    let found = recognised(
        "http://localhost:3000/posts?_page=1&_limit=2",
        &[("x-total-count", "5"), ("link", "<http://localhost:3000/posts?_page=2&_limit=2>; rel=\"next\"")],
        r#"[{"id":1,"title":"a"},{"id":2,"title":"b"}]"#,
    );
    assert_eq!(
        (selector(&found).as_deref(), found.records, word(&found)),
        (Some("$"), 2, Some("header_link"))
    );
    assert_eq!(found.total, Some(TotalLocation::Header("x-total-count".into())));
    assert_eq!(found.primary_key, Some(JsonPath::key("id")));
}

#[test]
fn datasette_answer_is_recognised() {
    let found = recognised(
        "http://localhost:8001/db/t.json?_shape=objects",
        &[],
        r#"{"ok":true,"next":"2","next_url":"http://localhost:8001/db/t.json?_next=2","rows":[{"rowid":1,"n":"x"},
        {"rowid":2,"n":"x"}],"filtered_table_rows_count":9}"#,
    );
    assert_eq!((selector(&found).as_deref(), word(&found)), (Some("rows"), Some("json_link")));
    assert_eq!(found.primary_key, Some(JsonPath::key("rowid")));
    assert_eq!(found.total, Some(TotalLocation::Path(JsonPath::key("filtered_table_rows_count"))));
}

#[test]
fn relay_connection_is_recognised() {
    let found = recognised(
        "http://localhost:5000/graphql",
        &[],
        r#"{"data":{"allItems":{"edges":[{"node":{"id":"a"}},{"node":{"id":"b"}}],"totalCount":2,
        "pageInfo":{"hasNextPage":false,"endCursor":"x"}}}}"#,
    );
    assert_eq!(selector(&found).as_deref(), Some("data.allItems.edges[*].node"));
    assert_eq!((word(&found), found.records), (Some("graphql_connection"), 2));
}

#[test]
fn positions_are_recognised_from_the_answer_or_the_request() {
    let echoed =
        recognised("https://x.test/p", &[], r#"{"products":[{"id":1}],"total":9,"skip":0,"limit":1}"#);
    let Some(Paginator::Offset { offset, limit, page_size }) = echoed.paginator else { panic!("{echoed:?}") };
    assert_eq!(
        (offset, limit, page_size),
        (ParamTarget::Query("skip".into()), Some(ParamTarget::Query("limit".into())), 1)
    );
    let asked = recognised("https://x.test/p?page=0&per_page=20", &[], r#"{"results":[{"id":1}]}"#);
    let Some(Paginator::PageNumber { base_page, page_size, .. }) = asked.paginator else {
        panic!("{asked:?}")
    };
    assert_eq!((base_page, page_size), (0, 20));
}

#[test]
fn cursor_and_its_parameter_are_recognised() {
    let found = recognised("https://x.test/p", &[], r#"{"items":[{"id":1}],"nextPageToken":"abc"}"#);
    let Some(Paginator::Cursor { cursor_path, cursor, .. }) = found.paginator else { panic!("{found:?}") };
    assert_eq!(
        (cursor_path.to_string().as_str(), cursor),
        ("nextPageToken", ParamTarget::Query("pageToken".into()))
    );
}

#[test]
fn undecided_parts_are_listed() {
    let found = recognised("https://x.test/p", &[], r#"{"message":"hello"}"#);
    assert_eq!((found.data_selector, found.paginator, found.undecided.len()), (None, None, 4));
    let complete = recognised("https://x.test/p", &[], r#"{"data":[{"id":1},{"id":2}],"total":2}"#);
    assert_eq!(word(&complete), Some("single_page"));
    let unclear = recognised("https://x.test/p", &[], r#"[{"id":1},{"id":2}]"#);
    assert_eq!(word(&unclear), None);
}

#[test]
fn id_must_be_unique_and_present() {
    let found = recognised("https://x.test/p", &[], r#"[{"id":1,"uuid":"a"},{"id":1,"uuid":"b"}]"#);
    assert_eq!(found.primary_key, Some(JsonPath::key("uuid")));
    let none = recognised("https://x.test/p", &[], r#"[{"a":1},{"a":1}]"#);
    assert_eq!(none.primary_key, None);
}

#[test]
fn time_of_the_last_change_is_recognised() {
    let found = recognised(
        "https://x.test/p",
        &[],
        r#"[{"id":1,"createdAt":"2026-01-01","updatedAt":"2026-01-02T00:00:00Z"}]"#,
    );
    assert_eq!(found.time_field, Some(JsonPath::key("updatedAt")));
}

#[test]
fn definition_of_a_recognised_api_parses() {
    for (url, headers, body) in [
        ("http://localhost:3000/posts?_page=1&_limit=2&q=a b", vec![], r#"[{"id":1,"a.b":"x","true":null}]"#),
        (
            "https://x.test/v1/p?status=open",
            vec![("x-total-count", "9")],
            r#"[{"id":1,"createdAt":"2026-01-01"}]"#,
        ),
        ("https://x.test/p", vec![], r#"{"data":[{"id":1}],"next_cursor":"n","meta":{"total":7}}"#),
        ("https://x.test/p", vec![], r#"{"items":[{"id":1}],"links":{"next":"/p?c=2"}}"#),
    ] {
        let found = recognised(url, &headers, body);
        let text = found.to_yaml("try", &Url::parse(url).unwrap(), "shop.posts", &ClientKeys::default());
        let definition = parse(&text).unwrap_or_else(|errors| panic!("{text}\n{errors:?}"));
        assert_eq!(definition.resource.primary_key, [JsonPath::key("id")], "{text}");
        if let Some(paginator) = found.paginator {
            assert_eq!(definition.paginator, paginator, "{text}");
        }
    }
}
