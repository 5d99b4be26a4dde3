//! Faults of keys that are missing, that exclude each other, or whose value cannot be sent.

use super::{check_fault, minimal, parse};
use crate::limits::{FEED_BODY_BYTES_MAX, FEED_PARAM_BYTES_MAX};

fn client(auth: &str) -> String {
    format!("{{base_url: https://x.test, auth: {auth}}}")
}

#[test]
fn missing_key_of_each_authentication_is_reported() {
    let oauth = "type: oauth2_client_credentials";
    for (auth, words) in [
        ("{type: http_basic, password: {env: P}}".to_owned(), "has no `username`"),
        ("{type: http_basic, username: u}".to_owned(), "has no `password`"),
        ("{type: api_key, name: K}".to_owned(), "has no `api_key`"),
        ("{type: api_key, api_key: {env: K}}".to_owned(), "has no `name`"),
        ("{type: api_key, name: 'a b', api_key: {env: K}}".to_owned(), "`a b` is not a valid header name"),
        (format!("{{{oauth}, client_id: i, client_secret: {{env: S}}}}"), "has no `access_token_url`"),
        (format!("{{{oauth}, access_token_url: /t, client_secret: {{env: S}}}}"), "has no `client_id`"),
        (format!("{{{oauth}, access_token_url: /t, client_id: i}}"), "has no `client_secret`"),
        (
            format!(
                "{{{oauth}, access_token_url: /t, client_id: i, client_secret: {{env: S}}, \
                 access_token_request_data: {{grant_type: password}}}}"
            ),
            "the client sets `grant_type` itself",
        ),
        ("{type: login, token_path: t}".to_owned(), "has no `path`"),
        ("{type: login, path: /l}".to_owned(), "has no `token_path`"),
        (
            "{type: login, path: /l, token_path: t, json: {password: {env: 1X}}}".to_owned(),
            "`1X` is not a valid variable name",
        ),
    ] {
        check_fault("client", &client(&auth), words);
    }
}

#[test]
fn missing_key_of_each_paginator_is_reported() {
    for (paginator, words) in [
        ("{type: header_cursor, cursor_param: c}", "has no `cursor_key`"),
        ("{type: header_cursor, cursor_key: X-Next}", "has no `cursor_param`"),
        ("{type: header_url}", "has no `header`"),
        ("{type: json_link}", "has no `next_url_path`"),
        ("{type: keyset, key_path: id}", "has no `cursor_param`"),
    ] {
        check_fault("paginator", paginator, words);
    }
    let resource = ("resource", "{path: /x, primary_key: [a, b]}");
    let keyset = parse(&minimal(&[resource, ("paginator", "{type: keyset, cursor_param: c}")])).unwrap_err();
    assert!(keyset.iter().any(|error| error.message.contains("has no `key_path`")), "{keyset:?}");
    let graphql = ("resource", "{path: /x, primary_key: id, graphql: {query: q}}");
    let connection = parse(&minimal(&[graphql, ("paginator", "{type: graphql_connection}")])).unwrap_err();
    assert!(
        connection.iter().any(|error| error.message.contains("has no `connection_path`")),
        "{connection:?}"
    );
}

#[test]
fn values_that_cannot_be_sent_are_reported() {
    let long = "x".repeat(FEED_PARAM_BYTES_MAX + 1);
    let large = "x".repeat(FEED_BODY_BYTES_MAX);
    for (section, text, words) in [
        (
            "client",
            r#"{base_url: https://x.test, headers: {A: "x\ny"}}"#.to_owned(),
            "contains a control character",
        ),
        ("resource", format!("{{path: /x, primary_key: id, params: {{a: {long}}}}}"), "is longer than"),
        ("resource", r#"{path: /x, primary_key: id, params: {a: "x\0y"}}"#.to_owned(), "or contains NUL"),
        ("resource", "{path: /x, primary_key: id, params: {a: [b]}}".to_owned(), "it must be text"),
        ("resource", format!("{{path: /x, primary_key: id, json: {{a: {large}}}}}"), "`json` is 65"),
        (
            "resource",
            "{path: /x, primary_key: id, graphql: {query: q, variables: [a]}}".to_owned(),
            "`variables` must be a mapping",
        ),
        ("resource", "{path: /x, primary_key: id, graphql: {}}".to_owned(), "has no `query`"),
        (
            "paginator",
            "{type: cursor, cursor_path: c, cursor_body_path: 'a[0]'}".to_owned(),
            "must consist of keys",
        ),
        (
            "partition",
            "{type: heatmap, kind: number, from: 0, to: 9, from_param: a, to_param: b, \
             count: {total_path: t, header: T}}"
                .to_owned(),
            "`total_path` and `header` exclude each other",
        ),
        ("deletes", "{lookup: {param: ids, gone_status: [404]}}".to_owned(), "`gone_status` needs a `path`"),
        (
            "deletes",
            "{lookup: {path: '/x/{id}', param: ids}}".to_owned(),
            "`param` and `path` exclude each other",
        ),
        ("deletes", "{flag: {equals: x}}".to_owned(), "has no `path`"),
        (
            "into",
            "{table: shop.x, columns: {a: {type: json, nullable: false}}, primary_key: a}".to_owned(),
            "of the primary key has the type json",
        ),
    ] {
        check_fault(section, &text, words);
    }
}
