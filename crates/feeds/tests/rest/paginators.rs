//! Every paginator reads all records exactly once.

use crate::fixture::{
    RECORDS, ReceivedRequest, Server, check_complete, definition, json_response, read_all, slice,
};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tidemill_core::feed_definition::{Place, RecordQuery};

fn body(records: &[Value]) -> Value {
    json!({ "data": records })
}

#[tokio::test]
async fn single_page_reads_all_records() {
    let all: Vec<Value> = (0..RECORDS).map(crate::fixture::record).collect();
    let server = Server::fixed(body(&all)).await;
    check_complete(&read_all(&server.source(&definition("single_page", ""))).await.unwrap());
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn page_number_reads_all_records() {
    for base_page in [0, 1] {
        let server = Server::start(move |request| {
            let page = request.number("page").unwrap() - base_page;
            json_response(&body(&slice(page * 10, request.number("size").unwrap())))
        })
        .await;
        let paginator =
            format!("{{type: page_number, base_page: {base_page}, limit: 10, limit_param: size}}");
        check_complete(&read_all(&server.source(&definition(&paginator, ""))).await.unwrap());
    }
}

#[tokio::test]
async fn offset_reads_all_records_with_each_end() {
    for (trust, requests) in [
        ("{end: empty_page}", 6),
        ("{end: short_page}", 5),
        ("{end: has_more, has_more_path: more}", 5),
        ("{end: total, total_path: total}", 5),
        ("{end: total, total_header: X-Total}", 5),
    ] {
        let server = Server::start(|request| {
            let offset = request.number("skip").unwrap();
            let records = slice(offset, request.number("take").unwrap());
            let more = offset + records.len() < RECORDS;
            let body = json!({ "data": records, "more": more, "total": RECORDS });
            ([("x-total", RECORDS.to_string())], json_response(&body)).into_response()
        })
        .await;
        let paginator = "{type: offset, offset_param: skip, limit_param: take, limit: 10}";
        let text = definition(paginator, &format!("trust: {trust}\n"));
        check_complete(&read_all(&server.source(&text)).await.unwrap());
        assert_eq!(server.count(), requests, "{trust}");
    }
}

#[tokio::test]
async fn offset_in_a_json_body_reads_all_records() {
    let server = Server::start(|request| {
        let number =
            |path: &str| usize::try_from(request.body.pointer(path).unwrap().as_u64().unwrap()).unwrap();
        assert_eq!(request.body["filter"], json!({ "open": true }));
        json_response(&body(&slice(number("/page/from"), number("/page/size"))))
    })
    .await;
    let text = "version: 1\nfeed: items\nclient: {base_url: '{base}', rate: 0}\n\
        resource: {path: /items, data_selector: data, primary_key: id, json: {filter: {open: true}}}\n\
        paginator: {type: offset, offset_body_path: page.from, limit_body_path: page.size, limit: 10}\n\
        into: {table: shop.items}\n";
    check_complete(&read_all(&server.source(text)).await.unwrap());
}

fn cursor_of(request: &ReceivedRequest) -> usize {
    request.query.get("cursor").map_or(0, |cursor| cursor.strip_prefix("c=").unwrap().parse().unwrap())
}

/// Returns the cursor after a position, or `None` at the end.
fn next_cursor(from: usize) -> Option<String> {
    (from + 10 < RECORDS).then(|| format!("c={}", from + 10))
}

#[tokio::test]
async fn cursor_in_the_body_reads_all_records() {
    let server = Server::start(|request| {
        let from = cursor_of(request);
        json_response(&json!({ "data": slice(from, 10), "meta": { "next": next_cursor(from) } }))
    })
    .await;
    let text = definition("{type: cursor, cursor_path: meta.next, cursor_param: cursor}", "");
    check_complete(&read_all(&server.source(&text)).await.unwrap());
    assert_eq!(server.count(), 5);
}

#[tokio::test]
async fn cursor_in_a_header_reads_all_records() {
    let server = Server::start(|request| {
        let from = cursor_of(request);
        let response = json_response(&body(&slice(from, 10)));
        match next_cursor(from) {
            Some(next) => ([("x-next-cursor", next)], response).into_response(),
            None => response,
        }
    })
    .await;
    let text = definition("{type: header_cursor, cursor_key: X-Next-Cursor, cursor_param: cursor}", "");
    check_complete(&read_all(&server.source(&text)).await.unwrap());
}

/// Answers a list whose next URL is relative or absolute.
fn linked(request: &ReceivedRequest, add: impl Fn(Response, Option<String>) -> Response) -> Response {
    let from = request.number("from").unwrap_or(0);
    assert_eq!(request.query["status"], "open", "the next URL contains the filters");
    let next = (from + 10 < RECORDS).then(|| {
        let target = format!("/items?status=open&from={}", from + 10);
        let host = request.header("host").unwrap();
        if from.is_multiple_of(20) { format!("http://{host}{target}") } else { target }
    });
    let response = json_response(&json!({ "data": slice(from, 10), "links": { "next": next } }));
    add(response, next)
}

fn linked_definition(paginator: &str) -> String {
    definition(paginator, "").replace("primary_key: id", "primary_key: id, params: {status: open}")
}

#[tokio::test]
async fn next_url_in_the_body_reads_all_records() {
    let server = Server::start(|request| linked(request, |response, _| response)).await;
    let text = linked_definition("{type: json_link, next_url_path: links.next}");
    check_complete(&read_all(&server.source(&text)).await.unwrap());
}

#[tokio::test]
async fn next_url_in_a_header_reads_all_records() {
    let server = Server::start(|request| {
        linked(request, |response, next| match next {
            Some(next) => ([("x-next-page", next)], response).into_response(),
            None => response,
        })
    })
    .await;
    let text = linked_definition("{type: header_url, header: X-Next-Page}");
    check_complete(&read_all(&server.source(&text)).await.unwrap());
}

#[tokio::test]
async fn link_header_reads_all_records() {
    let server = Server::start(|request| {
        linked(request, |response, next| {
            let first = "</items?status=open>; rel=\"first\"".to_owned();
            let link = next.map_or(first.clone(), |next| format!("{first}, <{next}>; rel=\"next\""));
            ([("link", link)], response).into_response()
        })
    })
    .await;
    check_complete(&read_all(&server.source(&linked_definition("header_link"))).await.unwrap());
}

#[tokio::test]
async fn keyset_reads_all_records() {
    let server = Server::start(|request| {
        let from = request.query.get("after").map_or(0, |id| id[1..].parse::<usize>().unwrap() + 1);
        json_response(&body(&slice(from, request.number("limit").unwrap())))
    })
    .await;
    let text = definition("{type: keyset, cursor_param: after, limit_param: limit, limit: 10}", "");
    check_complete(&read_all(&server.source(&text)).await.unwrap());
}

fn graphql_definition(selector: &str, paginator: &str) -> String {
    format!(
        "version: 1\nfeed: items\nclient: {{base_url: '{{base}}', rate: 0}}\nresource:\n  path: /graphql\n  \
         graphql: {{query: 'query Items {{ items }}', variables: {{open: true}}}}\n  data_selector: '{selector}'\n  \
         primary_key: id\npaginator: {paginator}\ninto: {{table: shop.items}}\n"
    )
}

#[tokio::test]
async fn graphql_offset_reads_all_records() {
    let server = Server::start(|request| {
        let variables = &request.body["variables"];
        assert_eq!(variables["open"], true);
        let number = |name: &str| usize::try_from(variables[name].as_u64().unwrap()).unwrap();
        json_response(&json!({ "data": { "items": slice(number("offset"), number("limit")) } }))
    })
    .await;
    let text = graphql_definition("data.items", "{type: graphql_offset, limit: 10}");
    check_complete(&read_all(&server.source(&text)).await.unwrap());
}

#[tokio::test]
async fn graphql_connection_reads_all_records() {
    let server = Server::start(|request| {
        let variables = &request.body["variables"];
        let from = variables["after"].as_str().map_or(0, |cursor| cursor[1..].parse::<usize>().unwrap());
        let first = usize::try_from(variables["first"].as_u64().unwrap()).unwrap();
        let edges: Vec<Value> = slice(from, first).into_iter().map(|node| json!({ "node": node })).collect();
        let end = from + edges.len();
        let info = json!({ "hasNextPage": end < RECORDS, "endCursor": format!("c{end}") });
        json_response(&json!({ "data": { "items": { "edges": edges, "pageInfo": info } } }))
    })
    .await;
    let paginator = "{type: graphql_connection, connection_path: data.items, limit: 10}";
    check_complete(
        &read_all(&server.source(&graphql_definition("data.items.edges[*].node", paginator))).await.unwrap(),
    );
}

#[tokio::test]
async fn auto_recognises_the_paginator_and_reads_all_records() {
    let cursor = Server::start(|request| {
        let from = cursor_of(request);
        json_response(&json!({ "results": slice(from, 10), "next_cursor": next_cursor(from) }))
    })
    .await;
    let positions = Server::start(|request| {
        let from = request.number("skip").unwrap_or(0);
        let limit = request.number("limit").unwrap_or(10);
        json_response(
            &json!({ "products": slice(from, limit), "total": RECORDS, "skip": from, "limit": limit }),
        )
    })
    .await;
    let link = Server::start(|request| {
        let from = request.number("from").unwrap_or(0);
        let next = (from + 10 < RECORDS).then(|| format!("<?from={}>; rel=\"next\"", from + 10));
        ([("link", next.unwrap_or_default())], json_response(&json!(slice(from, 10)))).into_response()
    })
    .await;
    let text = definition("auto", "").replace("data_selector: data, ", "");
    for (server, word) in [(cursor, "cursor"), (positions, "offset"), (link, "header_link")] {
        let source = server.source(&text);
        assert_eq!(source.paginator().await.unwrap().word(), word);
        check_complete(&read_all(&source).await.unwrap());
    }
}

#[tokio::test]
async fn page_at_a_stored_place_continues_the_list() {
    let server = Server::start(|request| {
        let from = cursor_of(request);
        json_response(&json!({ "data": slice(from, 10), "meta": { "next": next_cursor(from) } }))
    })
    .await;
    let text = definition("{type: cursor, cursor_path: meta.next, cursor_param: cursor}", "");
    let place = Place { offset: 40, token: Some("c=40".to_owned()) };
    let stored: Place = serde_json::from_str(&serde_json::to_string(&place).unwrap()).unwrap();
    let page = server.source(&text).page(&RecordQuery::default(), &stored, 10).await.unwrap();
    assert_eq!((page.items.len(), page.is_last), (7, true));
}
