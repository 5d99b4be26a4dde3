//! Configured misbehaviour, set through the admin endpoint.

use crate::fixture::{COUNT, SupplierFixture, default_query, ids};
use serde_json::json;
use std::time::{Duration, Instant};
use tidemill_supplier::{Config, Stats};

#[tokio::test]
async fn configured_number_of_requests_fails() {
    let fixture = SupplierFixture::stones(10).await;
    for (with, status) in
        [("429", 429), ("500", 500), ("502", 502), ("503", 503), ("graphql", 200), ("token", 200)]
    {
        fixture.admin("behaviour", json!({"fail_next": 2, "fail_with": with, "retry_after_secs": 7})).await;
        for _ in 0..2 {
            let response = fixture.raw_page(&default_query(), 0, 10).await;
            assert_eq!(response.status, status, "{with}");
            assert!(!response.error().is_empty(), "{with}");
            let waits = response.headers.get("retry-after").map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(waits.as_deref(), matches!(with, "429" | "503").then_some("7"), "{with}");
            assert_eq!(response.error().contains("token"), with == "token");
        }
        assert_eq!(fixture.page(&default_query(), 0, 10).await.len(), 10, "{with}");
    }
    fixture.admin("behaviour", json!({"fail_next": 1, "fail_with": "closed"})).await;
    assert!(fixture.post("/api/diamonds", json!({"query": "{a}"}).to_string()).await.is_err());
    assert_eq!(fixture.supplier.handle.stats().failed, 13);
}

#[tokio::test]
async fn failures_can_be_limited_to_one_kind_of_request() {
    let fixture = SupplierFixture::stones(10).await;
    fixture.admin("behaviour", json!({"fail_next": 1, "fail_on": "count"})).await;
    assert_eq!(fixture.raw_page(&default_query(), 0, 10).await.status, 200);
    assert!(fixture.login("a", "b").await.is_ok());
    assert_eq!(fixture.query(COUNT, json!({"token": fixture.token})).await.status, 503);
    assert_eq!(fixture.count(&default_query()).await, 10);
    fixture.admin("behaviour", json!({"fail_next": 1, "fail_on": "login"})).await;
    assert_eq!(fixture.count(&default_query()).await, 10);
    assert!(fixture.login("a", "b").await.is_err());
}

#[tokio::test]
async fn tokens_expire_with_time_and_on_demand() {
    let fixture = SupplierFixture::stones(10).await;
    assert_eq!(fixture.count(&default_query()).await, 10);
    let now = fixture.supplier.handle.now();
    fixture.admin("clock", json!({"now": now + chrono::Duration::hours(5)})).await;
    assert_eq!(fixture.count(&default_query()).await, 10);
    fixture.admin("clock", json!({"now": now + chrono::Duration::hours(7)})).await;
    let refused = fixture.query(COUNT, json!({"token": fixture.token})).await;
    assert!(refused.error().contains("token") && refused.error().contains("expired"), "{}", refused.text);
    let token = fixture.login("a", "b").await.unwrap();
    let counted = async || fixture.query(COUNT, json!({"token": token})).await.error().is_empty();
    assert!(counted().await);
    let behaviour = fixture.admin("behaviour", json!({"expire_tokens": true})).await;
    assert_eq!(behaviour["expire_tokens"], false);
    assert!(!counted().await);
    fixture.admin("clock", json!({"now": null})).await;
    fixture.admin("behaviour", json!({"token_lifetime_secs": 0})).await;
    let token = fixture.login("a", "b").await.unwrap();
    assert!(!fixture.query(COUNT, json!({"token": token})).await.error().is_empty());
}

#[tokio::test]
async fn outage_affects_the_api_but_not_the_admin_endpoints() {
    let fixture = SupplierFixture::stones(10).await;
    fixture.admin("behaviour", json!({"outage": "closed"})).await;
    for _ in 0..3 {
        assert!(fixture.post("/api/diamonds", json!({"query": "{a}"}).to_string()).await.is_err());
    }
    fixture.admin("behaviour", json!({"outage": "unavailable"})).await;
    assert_eq!(fixture.raw_page(&default_query(), 0, 10).await.status, 503);
    fixture.admin("behaviour", json!({"outage": "off"})).await;
    assert_eq!(fixture.page(&default_query(), 0, 10).await.len(), 10);
}

#[tokio::test]
async fn responses_can_be_html() {
    let fixture = SupplierFixture::stones(10).await;
    fixture.admin("behaviour", json!({"html": true})).await;
    let response = fixture.raw_page(&default_query(), 0, 10).await;
    assert_eq!(response.status, 200);
    assert!(response.headers["content-type"].to_str().unwrap().starts_with("text/html"));
    assert!(response.text.starts_with("<!doctype html>"));
}

#[tokio::test]
async fn requests_above_the_rate_limit_get_429() {
    let fixture = SupplierFixture::stones(10).await;
    fixture.admin("behaviour", json!({"rate_limit": 3})).await;
    let (mut refused, start) = (0, Instant::now());
    for _ in 0..20 {
        let response = fixture.query(COUNT, json!({"token": fixture.token})).await;
        if response.status == 429 {
            assert_eq!(response.headers["retry-after"], "1");
            refused += 1;
        }
    }
    // Three per started second; a busy machine may need several seconds for twenty requests.
    let accepted_max = 3 * (start.elapsed().as_secs() + 2);
    assert!(20 - refused <= accepted_max, "{refused} of 20 were refused in {:?}", start.elapsed());
    assert_eq!(fixture.supplier.handle.stats().limited, refused);
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    assert_eq!(fixture.query(COUNT, json!({"token": fixture.token})).await.status, 200);
}

#[tokio::test]
async fn responses_take_at_least_the_latency() {
    let fixture = SupplierFixture::stones(10).await;
    fixture.admin("behaviour", json!({"latency_ms": 120, "jitter_ms": 30})).await;
    let start = Instant::now();
    assert_eq!(fixture.count(&default_query()).await, 10);
    assert!(start.elapsed() >= Duration::from_millis(120));
}

#[tokio::test]
async fn short_pages_omit_no_stone() {
    let fixture = SupplierFixture::stones(200).await;
    fixture.admin("behaviour", json!({"short_next": 2})).await;
    for _ in 0..2 {
        let length = fixture.page(&default_query(), 0, 30).await.len();
        assert!((1..30).contains(&length), "{length}");
    }
    assert_eq!(fixture.page(&default_query(), 0, 30).await.len(), 30);
    fixture.admin("behaviour", json!({"short_percent": 100})).await;
    assert!(fixture.page(&default_query(), 0, 30).await.len() < 30);
    let mut found = ids(&fixture.all(&default_query()).await);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 200);
}

#[tokio::test]
async fn pages_can_ignore_their_offset() {
    let fixture = SupplierFixture::stones(200).await;
    let first = fixture.page(&default_query(), 0, 30).await;
    let third = fixture.page(&default_query(), 60, 30).await;
    fixture.admin("behaviour", json!({"repeat_next": 1})).await;
    assert_eq!(fixture.page(&default_query(), 60, 30).await, first);
    assert_eq!(fixture.page(&default_query(), 60, 30).await, third);
    fixture.admin("behaviour", json!({"repeat_always": true})).await;
    for offset in [30, 60, 9_000] {
        assert_eq!(fixture.page(&default_query(), offset, 30).await, first);
    }
}

#[tokio::test]
async fn pages_can_lack_ids_or_repeat_a_stone() {
    let fixture = SupplierFixture::stones(200).await;
    let right = fixture.page(&default_query(), 30, 30).await;
    fixture.admin("behaviour", json!({"without_ids_next": 1})).await;
    let bare = fixture.page(&default_query(), 30, 30).await;
    assert!(bare.iter().all(|item| item["id"].is_null() && item["diamond"]["id"].is_null()));
    assert_eq!(bare[0]["price"], right[0]["price"]);
    fixture.admin("behaviour", json!({"duplicate_next": 1})).await;
    let twice = fixture.page(&default_query(), 30, 30).await;
    assert_eq!((twice.len(), &twice[30], &twice[..30]), (31, &right[0], &right[..]));
    assert_eq!(fixture.page(&default_query(), 30, 30).await, right);
}

#[tokio::test]
async fn response_bodies_can_be_invalid() {
    let fixture = SupplierFixture::stones(10).await;
    for (with, status, start) in [
        ("html", 200, "<!doctype html>"),
        ("broken-json", 200, "{\"data\":"),
        ("null-list", 200, "{\"data\":"),
        ("429-bare", 429, "{\"data\":null"),
    ] {
        fixture.admin("behaviour", json!({"fail_next": 1, "fail_with": with})).await;
        let response = fixture.raw_page(&default_query(), 0, 10).await;
        assert_eq!(response.status, status, "{with}");
        assert!(response.text.starts_with(start), "{with}: {}", response.text);
        assert!(!response.headers.contains_key("retry-after"), "{with}");
    }
    let text = "Unexpected token <";
    fixture.admin("behaviour", json!({"fail_next": 1, "fail_with": "graphql", "error_text": text})).await;
    assert_eq!(fixture.raw_page(&default_query(), 0, 10).await.error(), text);
}

#[tokio::test]
async fn lists_can_have_duplicate_nameless_and_hidden_stones() {
    let fixture = SupplierFixture::stones(100).await;
    let right = fixture.all(&default_query()).await;
    let doubles = json!([{"at": 30, "of": 29}, {"at": 101, "of": 0}]);
    fixture.admin("behaviour", json!({"doubles": doubles})).await;
    assert_eq!(fixture.count(&default_query()).await, 102);
    let twice = fixture.all(&default_query()).await;
    assert_eq!(twice.len(), 102);
    assert_eq!((&twice[29], &twice[30], &twice[101]), (&right[29], &right[29], &right[0]));
    assert_eq!((&twice[..30], &twice[31..101]), (&right[..30], &right[30..]));
    let odd = json!({"doubles": [], "nameless": [3], "hidden": [5], "count_ahead_next": 1});
    fixture.admin("behaviour", odd).await;
    assert_eq!((fixture.count(&default_query()).await, fixture.count(&default_query()).await), (101, 100));
    let page = fixture.page(&default_query(), 0, 10).await;
    assert_eq!((page.len(), &page[3]["diamond"]["id"]), (9, &json!(null)));
    assert_eq!((&page[4], &page[5]), (&right[4], &right[6]));
}

#[tokio::test]
async fn ids_can_have_spaces_and_items_padding() {
    let fixture = SupplierFixture::stones(10).await;
    let right = ids(&fixture.all(&default_query()).await);
    fixture.admin("behaviour", json!({"spaced_ids": true, "padding_bytes": 5_000})).await;
    let items = fixture.all(&default_query()).await;
    let found = ids(&items);
    assert_eq!((&found[0], found[1].clone()), (&right[0], format!("{} ", right[0])));
    assert!(items.iter().all(|item| (5_000..8_000).contains(&item.to_string().len())));
    let mut query = default_query();
    query["ids"] = json!([found[1], found[2]]);
    assert_eq!(ids(&fixture.all(&query).await), [found[1].clone(), found[2].clone()]);
    let truth: Vec<_> = fixture.supplier.handle.truth().into_iter().map(|stone| stone.id).collect();
    assert_eq!(truth, found);
}

#[tokio::test]
async fn counts_can_be_wrong() {
    let fixture = SupplierFixture::stones(200).await;
    fixture.admin("behaviour", json!({"count_lies_by": 17})).await;
    assert_eq!(fixture.count(&default_query()).await, 217);
    fixture.admin("behaviour", json!({"count_lies_by": -500})).await;
    assert_eq!(fixture.count(&default_query()).await, 0);
}

#[tokio::test]
async fn stones_can_have_nul_characters_and_no_certificate() {
    let config = Config { stones: 100, nul_stones: 1, uncertified_stones: 2, ..Config::default() };
    let fixture = SupplierFixture::new(config).await;
    let damaged = async || {
        let items = fixture.all(&default_query()).await;
        let nul =
            items.iter().filter(|one| one["diamond"]["supplierStockId"].as_str().unwrap().contains('\0'));
        (nul.count(), items.iter().filter(|one| one["diamond"]["certificate"].is_null()).count())
    };
    assert_eq!(damaged().await, (1, 2));
    fixture.admin("change", json!({"what": "nul", "count": 3, "seed": 77})).await;
    let lost = fixture.admin("change", json!({"what": "no-certificate", "count": 4, "seed": 78})).await;
    assert_eq!(lost["ids"].as_array().unwrap().len(), 4);
    let (nul, lost) = damaged().await;
    assert!((3..=4).contains(&nul) && (4..=6).contains(&lost), "{nul} and {lost}");
    fixture.admin("change", json!({"what": "mend", "count": 100})).await;
    assert_eq!(damaged().await, (0, 0));
}

#[tokio::test]
async fn date_header_follows_the_clock_and_its_skew() {
    let fixture = SupplierFixture::stones(1).await;
    fixture.admin("clock", json!({"now": "2026-03-04T05:06:07Z"})).await;
    let date =
        async || fixture.raw_page(&default_query(), 0, 1).await.headers["date"].to_str().unwrap().to_owned();
    assert_eq!(date().await, "Wed, 04 Mar 2026 05:06:07 GMT");
    fixture.admin("behaviour", json!({"date_skew_secs": -3600})).await;
    assert_eq!(date().await, "Wed, 04 Mar 2026 04:06:07 GMT");
}

#[tokio::test]
async fn invalid_requests_get_json_errors() {
    let fixture = SupplierFixture::stones(1).await;
    let status = async |path: &str, body: String| {
        let response = fixture.post(path, body).await.unwrap();
        assert!(response.json().is_object());
        response.status
    };
    assert_eq!(status("/api/diamonds", "not json".to_owned()).await, 400);
    assert_eq!(status("/api/diamonds", json!({"query": "{"}).to_string()).await, 200);
    assert_eq!(status("/api/diamonds", json!({"query": "{a".repeat(100_000)}).to_string()).await, 200);
    assert_eq!(status("/api/diamonds", "x".repeat(1_100_000)).await, 413);
    assert_eq!(status("/elsewhere", String::new()).await, 404);
    assert_eq!(status("/admin/elsewhere", String::new()).await, 404);
    assert_eq!(status("/admin/stats", String::new()).await, 405);
    assert_eq!(status("/admin/behaviour", json!({"latency": 3}).to_string()).await, 400);
    assert_eq!(status("/admin/change", json!({"what": "payload"}).to_string()).await, 400);
    assert_eq!(status("/admin/change", json!({"what": "payload", "ids": ["none"]}).to_string()).await, 400);
    assert_eq!(fixture.http.get(&fixture.supplier.endpoint).send().await.unwrap().status().as_u16(), 405);
    assert_eq!(fixture.page(&default_query(), 0, 10).await.len(), 1, "the supplier stopped serving");
}

#[tokio::test]
async fn stats_count_requests_and_processor_time() {
    let fixture = SupplierFixture::stones(100).await;
    fixture.count(&default_query()).await;
    fixture.all(&default_query()).await;
    let url = format!("http://{}/admin/stats", fixture.supplier.local_addr);
    let stats: Stats =
        serde_json::from_str(&fixture.http.get(url).send().await.unwrap().text().await.unwrap()).unwrap();
    assert_eq!((stats.logins, stats.counts, stats.pages, stats.stones), (1, 1, 3, 100));
    assert_eq!((stats.requests, stats.compiled + stats.cached), (5, 5));
    assert!(stats.cpu_seconds > 0.0);
}

#[tokio::test]
async fn open_request_is_completed_at_shutdown() {
    let fixture = SupplierFixture::stones(10).await;
    fixture.admin("behaviour", json!({"latency_ms": 300})).await;
    let before = fixture.supplier.handle.stats().requests;
    let (url, body) =
        (fixture.supplier.endpoint.clone(), json!({"query": COUNT, "variables": {"token": fixture.token}}));
    let request = tokio::spawn(fixture.http.post(url).body(body.to_string()).send());
    while fixture.supplier.handle.stats().requests == before {
        tokio::task::yield_now().await;
    }
    fixture.supplier.stop().await;
    let response = request.await.unwrap().unwrap().text().await.unwrap();
    assert_eq!(response, r#"{"data":{"as":{"diamonds_by_query_count":10}}}"#);
}

#[tokio::test]
async fn remote_peers_cannot_use_the_admin_endpoints() {
    // The machine's external address, if it has one. No packet is sent: the kernel only selects the route.
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let outer = probe.connect("192.0.2.1:9").ok().and_then(|()| probe.local_addr().ok());
    let Some(outer) = outer.map(|address| address.ip()).filter(|address| !address.is_loopback()) else {
        return;
    };
    let config = Config { listen: "0.0.0.0:0".parse().unwrap(), ..Config::default() };
    let supplier = tidemill_supplier::Supplier::bind(config).await.unwrap().spawn();
    let url = format!("http://{outer}:{}", supplier.local_addr.port());
    let http = crate::fixture::http();
    assert_eq!(http.get(format!("{url}/admin/stats")).send().await.unwrap().status().as_u16(), 403);
    assert_eq!(
        http.post(format!("{url}/api/diamonds")).body("{}").send().await.unwrap().status().as_u16(),
        200
    );
}

#[tokio::test]
async fn stopped_supplier_releases_its_address() {
    let fixture = SupplierFixture::stones(10).await;
    assert_eq!(fixture.page(&default_query(), 0, 10).await.len(), 10);
    let (address, endpoint) = (fixture.supplier.local_addr, fixture.supplier.endpoint.clone());
    fixture.supplier.stop().await;
    assert!(fixture.http.post(endpoint).body("{}").send().await.is_err());
    let again = tidemill_supplier::Supplier::bind(Config { listen: address, ..Config::default() }).await;
    assert_eq!(again.unwrap().local_addr(), address);
}
