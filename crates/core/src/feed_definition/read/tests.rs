//! Tests of the parser of feed definitions.

mod missing_keys;

use super::*;
use crate::feed_definition::paging::{
    Bound, CursorKind, EndRule, Lookup, Paginator, Partition, TotalLocation,
};
use crate::feed_definition::request::{Auth, Body, Method};
use crate::feed_definition::target::{ColumnSource, ColumnType, ContractMode, WriteDisposition};

const FULL: &str = r#"
version: 1
feed: orders
client:
  base_url: https://api.example.com/v1
  headers: {Accept: application/json}
  timeout: 20s
  rate: 5
  budget: shop
  auth: {type: bearer, token: {env: SHOP_TOKEN}}
resource:
  path: /orders
  params: {status: any, page_version: 2}
  data_selector: data.orders
  primary_key: id
paginator:
  type: offset
  limit: 250
incremental:
  cursor_path: updated_at
  start_param: updated_since
  overlap: 10m
  initial_value: 2020-01-01
partition:
  type: heatmap
  field: total.amount
  kind: money
  from: 0
  to: 10000
  granularity: 0.01
  from_param: total_gte
  to_param: total_lte
  to_bound: inclusive
  count: {total_path: meta.total}
trust: {end: total, total_path: meta.total, recount: false}
deletes:
  lookup: {param: ids, separator: ","}
  flag: {path: deleted_at}
  threshold: 0.05
into:
  table: shop.orders
  write_disposition: merge
  deleted_at: deleted_at
  schema_contract: {tables: evolve, columns: discard_value}
  columns:
    id: {type: integer, nullable: false}
    total: {path: total.amount, type: decimal, default: 0}
    paid_at: {path: paid_at, type: timestamp, format: unix}
    name: customer.name
    label: {cel: "record.id + 'x'"}
    source: {constant: shop}
"#;

#[test]
fn complete_definition_is_parsed() {
    let feed = parse(FULL).unwrap();
    assert_eq!((feed.feed.as_str(), feed.client.timeout_secs, feed.client.rate), ("orders", 20, 5));
    assert!(matches!(&feed.client.auth, Auth::Bearer { token } if token.env == "SHOP_TOKEN"));
    assert_eq!(feed.resource.request.params["page_version"], "2");
    assert!(matches!(feed.paginator, Paginator::Offset { page_size: 250, .. }));
    let incremental = feed.incremental.as_ref().unwrap();
    assert!(matches!(incremental.kind, CursorKind::Time { overlap_secs: 600, .. }));
    let Partition::Heatmap { range, count } = &feed.partition else { panic!() };
    assert_eq!((range.min, range.max, range.granularity), (0, Some(1_000_000), 1));
    assert_eq!(
        (range.to_bound, &count.total),
        (Bound::Inclusive, &TotalLocation::Path("meta.total".parse().unwrap()))
    );
    assert_eq!((&feed.trust.end, feed.trust.recount, feed.trust.repeats), (&EndRule::Total, false, true));
    assert!(matches!(&feed.deletes.lookup, Some(Lookup::Ids { ids_max: 50, .. })));
    assert_eq!(feed.deletes.threshold_permille, 50);
    assert_eq!(
        (feed.into.table.to_string().as_str(), feed.into.primary_key.as_slice()),
        ("shop.orders", &["id".to_owned()][..])
    );
    assert_eq!(feed.into.schema_contract.columns, ContractMode::DiscardValue);
    assert_eq!(feed.into.deleted_at.as_deref(), Some("deleted_at"));
    assert_eq!(feed.into.columns.len(), 6);
    assert_eq!(feed.into.columns[3].source, ColumnSource::Path("customer.name".parse().unwrap()));
    assert_eq!(feed.into.columns[0].column_type, ColumnType::Integer);
}

#[test]
fn parsed_definition_round_trips_through_json() {
    let feed = parse(FULL).unwrap();
    let text = serde_json::to_string(&feed).unwrap();
    assert_eq!(serde_json::from_str::<FeedDefinition>(&text).unwrap(), feed);
}

/// A minimal definition. `{sections}` are replaced or appended.
fn minimal(sections: &[(&str, &str)]) -> String {
    let mut all = vec![
        ("version", "1"),
        ("feed", "f"),
        ("client", "{base_url: https://api.test}"),
        ("resource", "{path: /x, primary_key: id}"),
        ("into", "{table: shop.x}"),
    ];
    for (section, text) in sections {
        match all.iter_mut().find(|(name, _)| name == section) {
            Some(found) => found.1 = text,
            None => all.push((section, text)),
        }
    }
    let lines: Vec<String> = all.iter().map(|(name, text)| format!("{name}: {text}")).collect();
    lines.join("\n") + "\n"
}

#[test]
fn minimal_definition_has_defaults() {
    let feed = parse(&minimal(&[])).unwrap();
    assert_eq!(feed.paginator, Paginator::Auto { page_size: 100 });
    assert_eq!((feed.partition, feed.trust.end, feed.incremental), (Partition::None, EndRule::NoNext, None));
    assert_eq!((feed.deletes.absence, feed.deletes.threshold_permille), (true, 200));
    assert_eq!((feed.client.rate, feed.client.timeout_secs), (25, 45));
    assert_eq!(
        (feed.into.primary_key, feed.into.write_disposition),
        (vec!["id".to_owned()], WriteDisposition::Merge)
    );
}

/// Each paginator with its keys.
#[test]
fn every_paginator_is_parsed() {
    let graphql = "{path: /graphql, graphql: {query: 'query { x }'}, primary_key: id}";
    let rest = "{path: /x, primary_key: id}";
    for (resource, text, word) in [
        (rest, "single_page", "single_page"),
        (
            rest,
            "{type: page_number, page_param: p, base_page: 0, limit: 20, limit_param: size}",
            "page_number",
        ),
        (rest, "{type: offset, offset_param: skip, limit_param: take}", "offset"),
        (rest, "{type: cursor, cursor_path: meta.next, cursor_param: cursor}", "cursor"),
        (rest, "{type: json_link, next_url_path: links.next}", "json_link"),
        (rest, "{type: header_cursor, cursor_key: X-Next, cursor_param: cursor}", "header_cursor"),
        (rest, "{type: header_url, header: X-Next}", "header_url"),
        (rest, "header_link", "header_link"),
        (rest, "{type: keyset, cursor_param: after, limit_param: limit}", "keyset"),
        (graphql, "graphql_offset", "graphql_offset"),
        (graphql, "{type: graphql_connection, connection_path: data.x}", "graphql_connection"),
        (rest, "{type: auto, limit: 50}", "auto"),
    ] {
        let feed = parse(&minimal(&[("resource", resource), ("paginator", text)]));
        let feed = feed.unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
        assert_eq!(feed.paginator.word(), word);
    }
}

#[test]
fn every_authentication_is_parsed() {
    for (text, names) in [
        ("{type: none}", vec![]),
        ("{type: bearer, token: {env: T}}", vec!["T"]),
        ("{type: http_basic, username: ali, password: {env: P}}", vec!["P"]),
        ("{type: http_basic, username: {env: U}, password: {env: P}}", vec!["P", "U"]),
        ("{type: api_key, name: X-Key, api_key: {env: K}}", vec!["K"]),
        ("{type: api_key, name: key, location: query, api_key: {env: K}}", vec!["K"]),
        ("{type: api_key, name: sid, location: cookie, api_key: {env: K}}", vec!["K"]),
        (
            "{type: oauth2_client_credentials, access_token_url: https://id.test/token, client_id: me, \
             client_secret: {env: S}, access_token_request_data: {scope: read}, default_token_expiration: 1h}",
            vec!["S"],
        ),
        ("{type: login, path: /login, json: {user: ali, password: {env: P}}, token_path: token}", vec!["P"]),
    ] {
        let feed = parse(&minimal(&[("client", &format!("{{base_url: https://api.test, auth: {text}}}"))]));
        let feed = feed.unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
        assert_eq!(feed.secret_names().into_iter().collect::<Vec<_>>(), names, "{text}");
        let urls = if text.contains("id.test") { 2 } else { 1 };
        assert_eq!(feed.urls().len(), urls);
    }
}

#[test]
fn body_makes_a_post_request() {
    let feed = parse(&minimal(&[(
        "resource",
        "{path: /x, primary_key: id, json: {a: 1, b: '1', c: [true, null]}}",
    )]));
    let request = feed.unwrap().resource.request;
    assert_eq!(request.method, Method::Post);
    assert_eq!(request.body, Some(Body::Json(serde_json::json!({"a": 1, "b": "1", "c": [true, null]}))));
}

/// Faults, each with a part of its message.
const FAULTS: &[(&str, &str, &str)] = &[
    ("version", "2", "unsupported version"),
    ("feed", "a b", "`a b` is not a valid feed name"),
    ("feed", "orders_c", "`orders_c` is not a valid feed name"),
    ("feed", "Orders", "`Orders` is not a valid feed name"),
    ("feed", "orders.v2", "`orders.v2` is not a valid feed name"),
    ("feed", "-a", "`-a` is not a valid feed name"),
    ("feed", "", "`feed` is empty"),
    ("clinet", "{}", "`clinet` is not a key of `feed definition`"),
    ("client", "7", "`client` is text; it must be a mapping"),
    ("client", "{}", "`client` has no `base_url`"),
    ("client", "{base_url: nonsense}", "`base_url` is not a URL"),
    ("client", "{base_url: 'ftp://x'}", "must use https or http"),
    ("client", "{base_url: 'https://a:b@x.test'}", "contains credentials"),
    ("client", "{base_url: 'https://x.test?a=1'}", "contains a query"),
    ("client", "{base_url: https://x.test, timeout: 0}", "must be between 1s and 10m"),
    ("client", "{base_url: https://x.test, rate: fast}", "must be a whole number"),
    (
        "client",
        "{base_url: https://x.test, headers: {Authorization: x}}",
        "must not be written into the definition",
    ),
    ("client", "{base_url: https://x.test, headers: {Host: x}}", "the client sets the header `Host` itself"),
    ("client", "{base_url: https://x.test, headers: {'a b': x}}", "not a valid header name"),
    ("client", "{base_url: https://x.test, auth: {}}", "`auth` has no `type`"),
    ("client", "{base_url: https://x.test, auth: {type: bearor}}", "unknown value `bearor` for `type`"),
    (
        "client",
        "{base_url: https://x.test, auth: {type: bearer, token: hush}}",
        "`token` must not be written",
    ),
    (
        "client",
        "{base_url: https://x.test, auth: {type: bearer, token: {env: 1X}}}",
        "not a valid variable name",
    ),
    ("client", "{base_url: https://x.test, auth: {type: bearer}}", "`auth` has no `token`"),
    (
        "client",
        "{base_url: https://x.test, auth: {type: bearer, tokn: {env: X}}}",
        "not a key of `auth` of type bearer",
    ),
    (
        "client",
        "{base_url: https://x.test, auth: {type: login, path: /l, token_path: t, location: header}}",
        "has no `name`",
    ),
    (
        "client",
        "{base_url: https://x.test, auth: {type: login, path: /l, token_path: t, location: variable, name: t}}",
        "needs a GraphQL request",
    ),
    ("resource", "{path: /x}", "`resource` has no `primary_key`"),
    ("resource", "{path: 'https://evil.test/x', primary_key: id}", "not a path below the base URL"),
    ("resource", "{path: /../x, primary_key: id}", "not a path below the base URL"),
    ("resource", "{path: '/x?a=1', primary_key: id}", "not a path below the base URL"),
    ("resource", "{path: '/page/{g}', primary_key: id}", "`path` contains the unknown placeholder `{g}`"),
    ("resource", "{path: '/page/{id}', primary_key: id}", "`path` contains the unknown placeholder `{id}`"),
    ("resource", "{path: '/page/a}b', primary_key: id}", "`path` contains a single brace"),
    ("client", "{base_url: 'https://x.test/{shop}'}", "`base_url` contains the unknown placeholder `{shop}`"),
    ("resource", "{path: /x, primary_key: 'a..b'}", "has an empty key"),
    ("resource", "{path: /x, primary_key: '[*].id'}", "must select one value"),
    ("resource", "{path: /x, primary_key: id, method: PUT}", "unknown value `PUT` for `method`"),
    ("resource", "{path: /x, primary_key: id, method: GET, json: {a: 1}}", "a GET request has no body"),
    (
        "resource",
        "{path: /x, primary_key: id, json: {a: {env: X}}}",
        "only the login request may contain secrets",
    ),
    ("resource", "{path: /x, primary_key: id, json: {}, graphql: {query: q}}", "exclude each other"),
    ("resource", "{path: /x, primary_key: id, data_selector: 'a['}", "has a bracket without an index"),
    ("paginator", "ofset", "unknown paginator `ofset`"),
    ("paginator", "{type: page_number, limit: 10}", "has no `base_page`"),
    ("paginator", "{type: page_number, base_page: 1}", "has no `limit`"),
    ("paginator", "{type: offset, limit: 0}", "must be a whole number between 1"),
    ("paginator", "{type: cursor, cursor_param: c}", "has no `cursor_path`"),
    ("paginator", "{type: cursor, cursor_path: c}", "has no `cursor_param`"),
    (
        "paginator",
        "{type: cursor, cursor_path: c, cursor_param: a, cursor_body_path: b}",
        "exclude each other",
    ),
    ("paginator", "{type: cursor, cursor_path: c, cursor_body_path: b}", "a GET request has none"),
    ("paginator", "{type: json_link, next_url_path: 'a[*].b'}", "must select one value"),
    ("paginator", "graphql_offset", "needs a GraphQL request"),
    ("incremental", "{cursor_path: u}", "has no `start_param`"),
    (
        "incremental",
        "{cursor_path: u, start_param: s, kind: number, format: unix}",
        "belongs to the kind `time`",
    ),
    (
        "incremental",
        "{cursor_path: u, start_param: s, kind: number, initial_value: 2026-01-31}",
        "`2026-01-31` is not a whole number",
    ),
    ("incremental", "{cursor_path: u, start_param: s, initial_value: soon}", "`soon` is not a time"),
    (
        "incremental",
        "{cursor_path: u, start_param: s, format: unix, initial_value: '1.5.2'}",
        "is not a time",
    ),
    (
        "partition",
        "{type: heatmap, kind: number, from: 0, to: 9, from_param: a, to_param: b}",
        "has no `count`",
    ),
    (
        "partition",
        "{type: heatmap, kind: number, from: 0, to: 9, from_param: a, to_param: b, count: {}}",
        "has no `total_path`",
    ),
    (
        "partition",
        "{type: heatmap, kind: number, from: 9, to: 0, from_param: a, to_param: b, count: {header: T}}",
        "must be greater than `from`",
    ),
    (
        "partition",
        "{type: heatmap, kind: number, from: x, to: 0, from_param: a, to_param: b, count: {header: T}}",
        "not a boundary of this kind",
    ),
    (
        "partition",
        "{type: heatmap, kind: number, from: 0, to: 9, granularity: 2, from_param: a, to_param: b, count: {header: T}}",
        "not a multiple of `granularity`",
    ),
    ("partition", "{type: time_windows, from: 2020-01-01, from_param: a, to_param: b}", "has no `window`"),
    ("partition", "{type: values, param: c, values: [a, a]}", "contains `a` twice"),
    ("partition", "{type: values, param: c, values: []}", "must have 1 to"),
    ("trust", "{end: has_more}", "has no `has_more_path`"),
    ("trust", "{end: total}", "has no `total_path`"),
    ("trust", "{total_path: a, total_header: b}", "exclude each other"),
    ("deletes", "{threshold: 2}", "must be a fraction between 0 and 1"),
    ("deletes", "{lookup: {path: /x}}", "must contain `{id}` once"),
    ("deletes", "{lookup: {path: '/x/{id}/{id}'}}", "must contain `{id}` once"),
    ("deletes", "{lookup: {path: '/{shop}/{id}'}}", "`path` contains the unknown placeholder `{shop}`"),
    ("deletes", "{lookup: {path: '/x/{id}', gone_status: [200]}}", "between 400 and 499"),
    ("deletes", "{lookup: {path: '/x/{id}', gone_status: [403]}}", "do not mean that a record is gone"),
    ("into", "{table: orders}", "`orders` has no schema"),
    ("into", "{table: 'shop.or ders'}", "not a valid identifier"),
    ("into", "{table: pg_catalog.x}", "belongs to the database"),
    ("into", "{table: shop.x, columns: {'a b': {}}}", "not a valid column name"),
    ("into", "{table: shop.x, columns: {a: {path: x, constant: 1}}, primary_key: a}", "exclude each other"),
    (
        "into",
        "{table: shop.x, columns: {a: {type: money}}, primary_key: a}",
        "unknown value `money` for `type`",
    ),
    (
        "into",
        "{table: shop.x, columns: {a: {type: integer, default: x}}, primary_key: a}",
        "`x` is not an integer",
    ),
    (
        "into",
        "{table: shop.x, columns: {a: {type: text, format: unix}}, primary_key: a}",
        "belongs to timestamps",
    ),
    ("into", "{table: shop.x, columns: {a: {nullable: false}}, primary_key: b}", "unknown column `b`"),
    ("into", "{table: shop.x, columns: {a: {}}, primary_key: a}", "is nullable"),
    ("into", "{table: shop.x, columns: {a: {}}}", "`into` has no `primary_key`"),
    ("into", "{table: shop.x, deleted_at: 'a b'}", "not a valid column name"),
    ("into", "{table: shop.x, columns: {gone: {}}, deleted_at: Gone}", "cannot have another value"),
    ("into", "{table: shop.x, write_disposition: append, deleted_at: gone}", "are not deleted"),
    ("into", "{table: shop.x, schema_contract: frozen}", "unknown value `frozen`"),
];

/// Checks that a section has an error with these words, in its line.
fn check_fault(section: &str, text: &str, words: &str) {
    let text = minimal(&[(section, text)]);
    let line = 1 + text.lines().position(|line| line.starts_with(&format!("{section}:"))).unwrap();
    let errors = parse(&text).expect_err(&text);
    let found = errors.iter().find(|error| error.message.contains(words));
    let found = found.unwrap_or_else(|| panic!("{text}\nexpected: {words}\nfound: {errors:#?}"));
    assert_eq!(found.line, line, "{text}\n{found:?}");
}

#[test]
fn each_fault_is_reported_with_its_line() {
    for (section, text, words) in FAULTS {
        check_fault(section, text, words);
    }
}

#[test]
fn combinations_that_cannot_work_are_errors() {
    let cursor = ("paginator", "{type: cursor, cursor_path: c, cursor_param: a}");
    for (sections, words) in [
        (vec![cursor, ("trust", "{end: short_page}")], "needs the page size"),
        (vec![("paginator", "single_page"), ("trust", "{end: short_page}")], "a single page has no size"),
        (vec![("paginator", "offset"), ("trust", "{end: no_next}")], "has no cursor"),
        (
            vec![("paginator", "{type: keyset, cursor_param: a}"), ("trust", "{end: no_next}")],
            "a keyset always has a next key",
        ),
        (
            vec![("resource", "{path: /x, primary_key: [a, b]}"), ("deletes", "{lookup: {param: ids}}")],
            "composite id cannot be looked up",
        ),
        (
            vec![("into", "{table: shop.x, write_disposition: append}"), ("deletes", "{flag: {path: gone}}")],
            "keeps every version",
        ),
        (
            vec![
                ("into", "{table: shop.x, write_disposition: replace}"),
                ("incremental", "{cursor_path: u, start_param: s}"),
            ],
            "cannot be incremental",
        ),
        (
            vec![
                ("paginator", "single_page"),
                (
                    "partition",
                    "{type: heatmap, kind: number, from: 0, to: 9, from_param: a, to_param: b, count: {header: T}}",
                ),
            ],
            "read completely for each count",
        ),
    ] {
        let errors = parse(&minimal(&sections)).expect_err(words);
        let found = errors.iter().find(|error| error.message.contains(words));
        assert!(found.is_some_and(|error| error.hint.is_some()), "{words}: {errors:?}");
    }
}

#[test]
fn cursor_with_partition_counts_is_allowed() {
    let text = minimal(&[
        ("paginator", "{type: cursor, cursor_path: c, cursor_param: a, limit_param: n}"),
        (
            "partition",
            "{type: heatmap, kind: number, from: 0, to: 9, from_param: a, to_param: b, count: {header: T}}",
        ),
        ("trust", "{end: short_page}"),
    ]);
    parse(&text).unwrap();
}

#[test]
fn all_errors_are_reported_at_once_with_hints() {
    let text =
        minimal(&[("feed", "a b"), ("clint", "{}"), ("paginator", "cursr"), ("into", "{tabel: shop.x}")]);
    let errors = parse(&text).unwrap_err();
    let lines: Vec<_> = errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 5, 5, 6, 7], "{errors:#?}");
    let hints: Vec<_> = errors.iter().filter_map(|error| error.hint.as_deref()).collect();
    assert!(
        hints.contains(&"did you mean `client`?") && hints.contains(&"did you mean `cursor`?"),
        "{hints:?}"
    );
    assert!(hints.contains(&"did you mean `table`?"), "{hints:?}");
}

#[test]
fn file_that_is_not_a_mapping_is_an_error() {
    for (text, words) in [
        ("", "the file is empty"),
        ("- a", "must be a mapping"),
        ("a: [", "this is not YAML"),
        ("version: 1\n---\nversion: 1", "more than one document"),
        ("a: &x 1", "an anchor"),
    ] {
        let errors = parse(text).unwrap_err();
        assert!(errors.iter().any(|error| error.message.contains(words)), "{text}: {errors:?}");
    }
    let large = format!("# {}\n", "x".repeat(FEED_DEFINITION_BYTES_MAX));
    assert!(parse(&large).unwrap_err()[0].message.contains("bytes long"));
}

#[test]
fn expressions_are_checked_by_the_given_function() {
    let text = minimal(&[("into", "{table: shop.x, columns: {id: {nullable: false}, a: {cel: '1 +'}}}")]);
    let errors = parse_with(&text, &|_| Err("does not compile: oops".to_owned())).unwrap_err();
    assert_eq!(errors[0].message, "the expression of `a` does not compile: oops");
    assert!(parse(&text).is_ok());
    let long = minimal(&[(
        "into",
        &format!(
            "{{table: shop.x, columns: {{id: {{nullable: false}}, a: {{cel: '{}'}}}}}}",
            "1".repeat(2_000)
        ),
    )]);
    assert!(parse(&long).unwrap_err()[0].message.contains("at most 1024"));
}
