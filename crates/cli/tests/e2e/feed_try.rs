//! `feed try` reads a second page, and says what it could not decide: the supplier, json-server and Datasette.

use std::path::Path;

use serde_json::Value;
use tidemill_testkit::real_servers::{Installation, RealServer, ServerKind, sample_orders};

use crate::feed::{stop, supplier};
use crate::feed_definition::tidemill;
use crate::fixture::{Fixture, Kind};
use crate::rest_items::{admin, rest_url};

/// Tries a URL, and returns the printed JSON.
fn try_url(fixture: &Fixture, url: &str) -> Value {
    let printed = tidemill(fixture, &["--json", "feed", "try", url]).ok();
    serde_json::from_str(&printed).unwrap()
}

/// Returns the recognised paginator, and whether the second page confirms it.
fn recognised(found: &Value) -> (Option<&str>, Option<bool>) {
    (found["paginator"].as_str(), found["confirmation"]["is_confirmed"].as_bool())
}

#[test]
fn second_page_confirms_each_recognised_paginator() {
    let fixture = Fixture::new(Kind::Sqlite);
    let (mut source, endpoint) = supplier(&fixture, &["--stones", "300"]);
    let url = rest_url(&endpoint);
    for (path, paginator) in [
        ("page_number/items?page=1&per_page=50", "page_number"),
        ("offset/items?offset=0&limit=50", "offset"),
        ("cursor/items?limit=50", "cursor"),
        ("json_link/items?limit=50", "json_link"),
        ("header_cursor/items?limit=50", "header_cursor"),
        ("header_link/items?per_page=50", "header_link"),
    ] {
        let found = try_url(&fixture, &format!("{url}/{path}"));
        assert_eq!(recognised(&found), (Some(paginator), Some(true)), "{path}: {found}");
    }
    // One page: nothing can be compared.
    let found = try_url(&fixture, &format!("{url}/single_page/items"));
    assert_eq!(recognised(&found), (Some("single_page"), None), "{found}");
    let definition = found["definition"].as_str().unwrap();
    assert!(definition.starts_with("# undecided: the paginator is not confirmed, because "), "{definition}");
    // A key or an unknown header leaves no sign in the answer.
    for path in ["keyset/items?limit=50", "header_url/items?limit=50"] {
        let found = try_url(&fixture, &format!("{url}/{path}"));
        assert_eq!(recognised(&found), (None, None), "{path}: {found}");
        assert!(found["undecided"].to_string().contains("write `paginator: single_page`"), "{path}: {found}");
    }
    stop(&mut source);
}

#[test]
fn second_page_that_repeats_the_first_contradicts_the_paginator() {
    let fixture = Fixture::new(Kind::Sqlite);
    let (mut source, endpoint) = supplier(&fixture, &["--stones", "300"]);
    admin(&endpoint, "POST", "behaviour", r#"{"repeat_always": true}"#);
    let url = format!("{}/offset/items?offset=0&limit=50", rest_url(&endpoint));
    let printed = tidemill(&fixture, &["feed", "try", &url]);
    assert!(printed.stdout.contains("page 2     contradicts the paginator"), "{printed:?}");
    assert!(printed.stderr.contains("50 of 50 records of page 2 are also on page 1"), "{printed:?}");
    printed.ok();
    let definition = std::fs::read_to_string(fixture.path("items.feed.yaml")).unwrap();
    assert!(definition.starts_with("# undecided: the paginator is probably wrong: "), "{definition}");
    stop(&mut source);
}

#[test]
fn paginators_of_real_servers_are_confirmed() {
    let Some(installation) = Installation::ensure(Path::new(env!("CARGO_TARGET_TMPDIR"))) else { return };
    let fixture = Fixture::new(Kind::Sqlite);
    for (kind, path, paginator) in [
        (ServerKind::JsonServer, "/orders?_page=1&_limit=25", "header_link"),
        (ServerKind::JsonServer, "/orders?_start=0&_limit=25", "offset"),
        (ServerKind::Datasette, "/shop/orders.json?_shape=objects&_size=25", "header_link"),
    ] {
        let server = fixture.block(RealServer::start(&installation, kind, &sample_orders(60))).unwrap();
        let found = try_url(&fixture, &format!("{}{path}", server.url()));
        assert_eq!(recognised(&found), (Some(paginator), Some(true)), "{path}: {found}");
    }
}
