//! Each way of misbehaving, by the admin endpoint.

use crate::stage::{COUNT, Stage, ids, usual};
use serde_json::json;
use std::time::{Duration, Instant};
use tidemill_supplier::{Config, Stats};

#[tokio::test]
async fn the_next_requests_fail_as_told_and_then_no_more() {
    let stage = Stage::stones(10).await;
    for (with, status) in
        [("429", 429), ("500", 500), ("502", 502), ("503", 503), ("graphql", 200), ("token", 200)]
    {
        stage.admin("behaviour", json!({"fail_next": 2, "fail_with": with, "retry_after_secs": 7})).await;
        for _ in 0..2 {
            let answer = stage.raw_page(&usual(), 0, 10).await;
            assert_eq!(answer.status, status, "{with}");
            assert!(!answer.error().is_empty(), "{with}");
            let waits = answer.headers.get("retry-after").map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(waits.as_deref(), matches!(with, "429" | "503").then_some("7"), "{with}");
            assert_eq!(answer.error().contains("token"), with == "token");
        }
        assert_eq!(stage.page(&usual(), 0, 10).await.len(), 10, "{with}");
    }
    stage.admin("behaviour", json!({"fail_next": 1, "fail_with": "closed"})).await;
    assert!(stage.post("/api/diamonds", json!({"query": "{a}"}).to_string()).await.is_err());
    assert_eq!(stage.supplier.handle.stats().failed, 13);
}

#[tokio::test]
async fn failures_can_be_for_one_kind_of_request() {
    let stage = Stage::stones(10).await;
    stage.admin("behaviour", json!({"fail_next": 1, "fail_on": "count"})).await;
    assert_eq!(stage.raw_page(&usual(), 0, 10).await.status, 200);
    assert!(stage.login("a", "b").await.is_ok());
    assert_eq!(stage.ask(COUNT, json!({"token": stage.token})).await.status, 503);
    assert_eq!(stage.count(&usual()).await, 10);
    stage.admin("behaviour", json!({"fail_next": 1, "fail_on": "login"})).await;
    assert_eq!(stage.count(&usual()).await, 10);
    assert!(stage.login("a", "b").await.is_err());
}

#[tokio::test]
async fn tokens_expire_with_time_and_on_demand() {
    let stage = Stage::stones(10).await;
    assert_eq!(stage.count(&usual()).await, 10);
    let now = stage.supplier.handle.now();
    stage.admin("clock", json!({"now": now + chrono::Duration::hours(5)})).await;
    assert_eq!(stage.count(&usual()).await, 10);
    stage.admin("clock", json!({"now": now + chrono::Duration::hours(7)})).await;
    let refused = stage.ask(COUNT, json!({"token": stage.token})).await;
    assert!(refused.error().contains("token") && refused.error().contains("expired"), "{}", refused.text);
    let token = stage.login("a", "b").await.unwrap();
    let counted = async || stage.ask(COUNT, json!({"token": token})).await.error().is_empty();
    assert!(counted().await);
    let behaviour = stage.admin("behaviour", json!({"expire_tokens": true})).await;
    assert_eq!(behaviour["expire_tokens"], false);
    assert!(!counted().await);
    stage.admin("clock", json!({"now": null})).await;
    stage.admin("behaviour", json!({"token_lifetime_secs": 0})).await;
    let token = stage.login("a", "b").await.unwrap();
    assert!(!stage.ask(COUNT, json!({"token": token})).await.error().is_empty());
}

#[tokio::test]
async fn an_outage_closes_connections_or_answers_503_and_the_admin_stays_reachable() {
    let stage = Stage::stones(10).await;
    stage.admin("behaviour", json!({"outage": "closed"})).await;
    for _ in 0..3 {
        assert!(stage.post("/api/diamonds", json!({"query": "{a}"}).to_string()).await.is_err());
    }
    stage.admin("behaviour", json!({"outage": "unavailable"})).await;
    assert_eq!(stage.raw_page(&usual(), 0, 10).await.status, 503);
    stage.admin("behaviour", json!({"outage": "off"})).await;
    assert_eq!(stage.page(&usual(), 0, 10).await.len(), 10);
}

#[tokio::test]
async fn it_can_answer_html() {
    let stage = Stage::stones(10).await;
    stage.admin("behaviour", json!({"html": true})).await;
    let answer = stage.raw_page(&usual(), 0, 10).await;
    assert_eq!(answer.status, 200);
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/html"));
    assert!(answer.text.starts_with("<!doctype html>"));
}

#[tokio::test]
async fn requests_beyond_the_rate_are_refused_until_the_second_is_over() {
    let stage = Stage::stones(10).await;
    stage.admin("behaviour", json!({"rate_limit": 3})).await;
    let (mut refused, start) = (0, Instant::now());
    for _ in 0..20 {
        let answer = stage.ask(COUNT, json!({"token": stage.token})).await;
        if answer.status == 429 {
            assert_eq!(answer.headers["retry-after"], "1");
            refused += 1;
        }
    }
    // Three in every second that has begun; a busy machine may need many for twenty requests.
    let most = 3 * (start.elapsed().as_secs() + 2);
    assert!(20 - refused <= most, "{refused} of 20 were refused in {:?}", start.elapsed());
    assert_eq!(stage.supplier.handle.stats().limited, refused);
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    assert_eq!(stage.ask(COUNT, json!({"token": stage.token})).await.status, 200);
}

#[tokio::test]
async fn answers_take_as_long_as_told() {
    let stage = Stage::stones(10).await;
    stage.admin("behaviour", json!({"latency_ms": 120, "jitter_ms": 30})).await;
    let start = Instant::now();
    assert_eq!(stage.count(&usual()).await, 10);
    assert!(start.elapsed() >= Duration::from_millis(120));
}

#[tokio::test]
async fn pages_can_be_short_and_lose_nothing() {
    let stage = Stage::stones(200).await;
    stage.admin("behaviour", json!({"short_next": 2})).await;
    for _ in 0..2 {
        let length = stage.page(&usual(), 0, 30).await.len();
        assert!((1..30).contains(&length), "{length}");
    }
    assert_eq!(stage.page(&usual(), 0, 30).await.len(), 30);
    stage.admin("behaviour", json!({"short_percent": 100})).await;
    assert!(stage.page(&usual(), 0, 30).await.len() < 30);
    let mut found = ids(&stage.all(&usual()).await);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 200);
}

#[tokio::test]
async fn a_page_can_repeat_for_a_while_or_for_ever() {
    let stage = Stage::stones(200).await;
    let first = stage.page(&usual(), 0, 30).await;
    let third = stage.page(&usual(), 60, 30).await;
    stage.admin("behaviour", json!({"repeat_next": 1})).await;
    assert_eq!(stage.page(&usual(), 60, 30).await, first);
    assert_eq!(stage.page(&usual(), 60, 30).await, third);
    stage.admin("behaviour", json!({"repeat_always": true})).await;
    for offset in [30, 60, 9_000] {
        assert_eq!(stage.page(&usual(), offset, 30).await, first);
    }
}

#[tokio::test]
async fn pages_can_lack_ids_or_have_a_stone_twice() {
    let stage = Stage::stones(200).await;
    let right = stage.page(&usual(), 30, 30).await;
    stage.admin("behaviour", json!({"without_ids_next": 1})).await;
    let bare = stage.page(&usual(), 30, 30).await;
    assert!(bare.iter().all(|item| item["id"].is_null() && item["diamond"]["id"].is_null()));
    assert_eq!(bare[0]["price"], right[0]["price"]);
    stage.admin("behaviour", json!({"duplicate_next": 1})).await;
    let twice = stage.page(&usual(), 30, 30).await;
    assert_eq!((twice.len(), &twice[30], &twice[..30]), (31, &right[0], &right[..]));
    assert_eq!(stage.page(&usual(), 30, 30).await, right);
}

#[tokio::test]
async fn answers_can_be_bodies_that_nobody_reads() {
    let stage = Stage::stones(10).await;
    for (with, status, start) in [
        ("html", 200, "<!doctype html>"),
        ("broken-json", 200, "{\"data\":"),
        ("null-list", 200, "{\"data\":"),
        ("429-bare", 429, "{\"data\":null"),
    ] {
        stage.admin("behaviour", json!({"fail_next": 1, "fail_with": with})).await;
        let answer = stage.raw_page(&usual(), 0, 10).await;
        assert_eq!(answer.status, status, "{with}");
        assert!(answer.text.starts_with(start), "{with}: {}", answer.text);
        assert!(!answer.headers.contains_key("retry-after"), "{with}");
    }
    let text = "Unexpected token <";
    stage.admin("behaviour", json!({"fail_next": 1, "fail_with": "graphql", "error_text": text})).await;
    assert_eq!(stage.raw_page(&usual(), 0, 10).await.error(), text);
}

#[tokio::test]
async fn a_list_can_have_stones_twice_without_ids_and_left_out() {
    let stage = Stage::stones(100).await;
    let right = stage.all(&usual()).await;
    let doubles = json!([{"at": 30, "of": 29}, {"at": 101, "of": 0}]);
    stage.admin("behaviour", json!({"doubles": doubles})).await;
    assert_eq!(stage.count(&usual()).await, 102);
    let twice = stage.all(&usual()).await;
    assert_eq!(twice.len(), 102);
    assert_eq!((&twice[29], &twice[30], &twice[101]), (&right[29], &right[29], &right[0]));
    assert_eq!((&twice[..30], &twice[31..101]), (&right[..30], &right[30..]));
    let odd = json!({"doubles": [], "nameless": [3], "hidden": [5], "count_ahead_next": 1});
    stage.admin("behaviour", odd).await;
    assert_eq!((stage.count(&usual()).await, stage.count(&usual()).await), (101, 100));
    let page = stage.page(&usual(), 0, 10).await;
    assert_eq!((page.len(), &page[3]["diamond"]["id"]), (9, &json!(null)));
    assert_eq!((&page[4], &page[5]), (&right[4], &right[6]));
}

#[tokio::test]
async fn ids_can_have_spaces_and_items_any_size() {
    let stage = Stage::stones(10).await;
    let right = ids(&stage.all(&usual()).await);
    stage.admin("behaviour", json!({"spaced_ids": true, "padding_bytes": 5_000})).await;
    let items = stage.all(&usual()).await;
    let found = ids(&items);
    assert_eq!((&found[0], found[1].clone()), (&right[0], format!("{} ", right[0])));
    assert!(items.iter().all(|item| (5_000..8_000).contains(&item.to_string().len())));
    let mut query = usual();
    query["ids"] = json!([found[1], found[2]]);
    assert_eq!(ids(&stage.all(&query).await), [found[1].clone(), found[2].clone()]);
    let truth: Vec<_> = stage.supplier.handle.truth().into_iter().map(|stone| stone.id).collect();
    assert_eq!(truth, found);
}

#[tokio::test]
async fn counts_can_lie() {
    let stage = Stage::stones(200).await;
    stage.admin("behaviour", json!({"count_lies_by": 17})).await;
    assert_eq!(stage.count(&usual()).await, 217);
    stage.admin("behaviour", json!({"count_lies_by": -500})).await;
    assert_eq!(stage.count(&usual()).await, 0);
}

#[tokio::test]
async fn a_text_can_have_a_nul_character_and_a_certificate_can_be_missing() {
    let config = Config { stones: 100, nul_stones: 1, uncertified_stones: 2, ..Config::default() };
    let stage = Stage::new(config).await;
    let spoilt = async || {
        let items = stage.all(&usual()).await;
        let nul =
            items.iter().filter(|one| one["diamond"]["supplierStockId"].as_str().unwrap().contains('\0'));
        (nul.count(), items.iter().filter(|one| one["diamond"]["certificate"].is_null()).count())
    };
    assert_eq!(spoilt().await, (1, 2));
    stage.admin("change", json!({"what": "nul", "count": 3, "seed": 77})).await;
    let lost = stage.admin("change", json!({"what": "no-certificate", "count": 4, "seed": 78})).await;
    assert_eq!(lost["ids"].as_array().unwrap().len(), 4);
    let (nul, lost) = spoilt().await;
    assert!((3..=4).contains(&nul) && (4..=6).contains(&lost), "{nul} and {lost}");
    stage.admin("change", json!({"what": "mend", "count": 100})).await;
    assert_eq!(spoilt().await, (0, 0));
}

#[tokio::test]
async fn the_date_header_follows_the_suppliers_clock_and_its_skew() {
    let stage = Stage::stones(1).await;
    stage.admin("clock", json!({"now": "2026-03-04T05:06:07Z"})).await;
    let date = async || stage.raw_page(&usual(), 0, 1).await.headers["date"].to_str().unwrap().to_owned();
    assert_eq!(date().await, "Wed, 04 Mar 2026 05:06:07 GMT");
    stage.admin("behaviour", json!({"date_skew_secs": -3600})).await;
    assert_eq!(date().await, "Wed, 04 Mar 2026 04:06:07 GMT");
}

#[tokio::test]
async fn faulty_requests_get_json_errors() {
    let stage = Stage::stones(1).await;
    let status = async |path: &str, body: String| {
        let answer = stage.post(path, body).await.unwrap();
        assert!(answer.json().is_object());
        answer.status
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
    assert_eq!(stage.http.get(&stage.supplier.endpoint).send().await.unwrap().status().as_u16(), 405);
    assert_eq!(stage.page(&usual(), 0, 10).await.len(), 1, "and it goes on");
}

#[tokio::test]
async fn stats_say_what_was_asked_and_what_it_cost() {
    let stage = Stage::stones(100).await;
    stage.count(&usual()).await;
    stage.all(&usual()).await;
    let url = format!("http://{}/admin/stats", stage.supplier.local_addr);
    let stats: Stats =
        serde_json::from_str(&stage.http.get(url).send().await.unwrap().text().await.unwrap()).unwrap();
    assert_eq!((stats.logins, stats.counts, stats.pages, stats.stones), (1, 1, 3, 100));
    assert_eq!((stats.requests, stats.general + stats.fast), (5, 5));
    assert!(stats.cpu_seconds > 0.0);
}

#[tokio::test]
async fn an_answer_that_has_begun_is_sent_before_the_end() {
    let stage = Stage::stones(10).await;
    stage.admin("behaviour", json!({"latency_ms": 300})).await;
    let begun = stage.supplier.handle.stats().requests;
    let (url, body) =
        (stage.supplier.endpoint.clone(), json!({"query": COUNT, "variables": {"token": stage.token}}));
    let request = tokio::spawn(stage.http.post(url).body(body.to_string()).send());
    while stage.supplier.handle.stats().requests == begun {
        tokio::task::yield_now().await;
    }
    stage.supplier.stop().await;
    let answer = request.await.unwrap().unwrap().text().await.unwrap();
    assert_eq!(answer, r#"{"data":{"as":{"diamonds_by_query_count":10}}}"#);
}

#[tokio::test]
async fn peers_from_elsewhere_are_kept_from_the_admin_endpoints() {
    // The machine's own outer address, where it has one. Nothing is sent: the kernel only picks the route.
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let outer = probe.connect("192.0.2.1:9").ok().and_then(|()| probe.local_addr().ok());
    let Some(outer) = outer.map(|address| address.ip()).filter(|address| !address.is_loopback()) else {
        return;
    };
    let config = Config { listen: "0.0.0.0:0".parse().unwrap(), ..Config::default() };
    let supplier = tidemill_supplier::Supplier::bind(config).await.unwrap().spawn();
    let url = format!("http://{outer}:{}", supplier.local_addr.port());
    let http = crate::stage::http();
    assert_eq!(http.get(format!("{url}/admin/stats")).send().await.unwrap().status().as_u16(), 403);
    assert_eq!(
        http.post(format!("{url}/api/diamonds")).body("{}").send().await.unwrap().status().as_u16(),
        200
    );
}

#[tokio::test]
async fn it_ends_when_told_and_frees_its_address() {
    let stage = Stage::stones(10).await;
    assert_eq!(stage.page(&usual(), 0, 10).await.len(), 10);
    let (address, endpoint) = (stage.supplier.local_addr, stage.supplier.endpoint.clone());
    stage.supplier.stop().await;
    assert!(stage.http.post(endpoint).body("{}").send().await.is_err());
    let again = tidemill_supplier::Supplier::bind(Config { listen: address, ..Config::default() }).await;
    assert_eq!(again.unwrap().local_addr(), address);
}
