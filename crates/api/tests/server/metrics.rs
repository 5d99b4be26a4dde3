//! Health and Prometheus metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidemill_api::server::Limits;
use tidemill_testkit::cluster::{Cluster, Options, Shutdown};
use tidemill_testkit::interface::Kind;
use tokio::time::Instant;

use crate::fixture::{ServerFixture, TIMEOUT, claim};
use crate::on_both;

on_both! {
    metrics_change_when_runs_change,
    health_needs_no_token,
    server_with_wrong_schema_is_not_ready_and_hints_at_migrate,
}

async fn health_needs_no_token(kind: Kind) {
    let fixture = ServerFixture::open(kind, Limits::default()).await;
    let (lives, ready) = (fixture.get("/healthz").await, fixture.get("/readyz").await);
    assert_eq!((lives.status, lives.json()), (200, json!({"status": "lives"})));
    assert_eq!((ready.status, ready.json()), (200, json!({"status": "ready"})));
    fixture.stop().await;
}

async fn server_with_wrong_schema_is_not_ready_and_hints_at_migrate(kind: Kind) {
    let fixture = ServerFixture::open(kind, Limits::default()).await;
    let plain = &fixture.base.plain;
    let moved = async |text: &str| {
        plain.execute(text).await.expect("the schema is moved");
        let response = fixture.get("/readyz").await;
        assert_eq!(
            (response.status, response.json()["code"].as_str()),
            (503, Some("not_ready")),
            "{response:?}"
        );
        assert_eq!(fixture.get("/healthz").await.status, 200, "it lives all the same");
        response.json()["hint"].as_str().map(str::to_owned)
    };
    let newer = moved("UPDATE {ops}.tidemill_migrations SET oldest_binary = '99.0.0'").await;
    assert_eq!(newer.as_deref(), Some("install Tidemill 99.0.0 or newer"));
    plain.execute("UPDATE {ops}.tidemill_migrations SET oldest_binary = '0.1.0'").await.expect("it is back");
    assert_eq!(fixture.get("/readyz").await.status, 200);
    let last = "(SELECT max(version) FROM {ops}.tidemill_migrations)";
    let older = moved(&format!("DELETE FROM {{ops}}.tidemill_migrations WHERE version = {last}")).await;
    assert_eq!(older.as_deref(), Some("tidemill migrate"));
    fixture.stop().await;
}

/// Parses a text in the Prometheus format into values by name and labels. Fails on malformed text.
pub(crate) fn figures(text: &str) -> BTreeMap<String, f64> {
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut figures = BTreeMap::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a kind");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(kinds.insert(name, kind).is_none(), "{name} is declared twice");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        let name = series.split('{').next().expect("a name");
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let family = family.filter(|family| kinds.get(family) == Some(&"histogram")).unwrap_or(name);
        assert!(kinds.contains_key(family), "{line} has no kind");
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
        if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            assert!(labels.starts_with('{') && labels.ends_with("\"}"), "{line}");
        }
        let value: f64 = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(figures.insert(series.to_owned(), value).is_none(), "{series} appears twice");
    }
    figures
}

async fn scrape(fixture: &ServerFixture) -> BTreeMap<String, f64> {
    let response = fixture.get("/metrics").await;
    assert_eq!(response.status, 200, "{response:?}");
    assert!(response.head.contains("content-type: text/plain; version=0.0.4"), "{}", response.head);
    figures(&response.text())
}

/// Waits until a metric has this value. Database counts are cached for a second.
async fn until(fixture: &ServerFixture, series: &str, wanted: f64) {
    let began = Instant::now();
    loop {
        let found = scrape(fixture).await.get(series).copied();
        if found.is_some_and(|found| (found - wanted).abs() < f64::EPSILON) {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "{series} is {found:?}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn metrics_change_when_runs_change(kind: Kind) {
    let fixture = ServerFixture::open(kind, Limits::default()).await;
    let before = scrape(&fixture).await;
    for queue in ["work-items", "work-done", "consolidate"] {
        assert_eq!(
            before.get(&format!("tidemill_queue_ready{{queue=\"{queue}\"}}")),
            Some(&0.0),
            "{before:?}"
        );
    }
    assert!(before.get("tidemill_pool_connections{state=\"most\"}").is_some_and(|most| *most >= 1.0));
    for _ in 0..3 {
        fixture.queue().await;
    }
    until(&fixture, "tidemill_runs_queued{gate=\"open\"}", 3.0).await;
    let claimed = fixture.post("/v1/claims", &claim("one", 0)).await.json();
    until(&fixture, "tidemill_runs_queued{gate=\"open\"}", 2.0).await;
    until(&fixture, "tidemill_runs_held{state=\"claimed\"}", 1.0).await;
    let run = claimed["runs"][0]["run_id"].as_str().expect("a run");
    let epoch = &claimed["runs"][0]["epoch"];
    let finish = json!({"status": "success", "metadata": {}, "worker": "ann", "epoch": epoch});
    assert_eq!(fixture.post(&format!("/v1/runs/{run}/finish"), &finish).await.status, 200);
    until(&fixture, "tidemill_runs_held{state=\"claimed\"}", 0.0).await;
    let emails = json!({"project": "shop", "env": "staging", "kind": "email \"weekly\"", "priority": 9});
    assert_eq!(fixture.post("/v1/runs", &emails).await.status, 201);
    let claimed = fixture.post("/v1/claims", &claim("two", 0)).await.json();
    assert_eq!(claimed["runs"][0]["kind"], "email \"weekly\"");
    let run = claimed["runs"][0]["run_id"].as_str().expect("a run");
    let finish = json!({"status": "failed", "metadata": {}, "worker": "ann", "epoch": 1});
    assert_eq!(fixture.post(&format!("/v1/runs/{run}/finish"), &finish).await.status, 200);
    assert_eq!(fixture.post(&format!("/v1/runs/{run}/retry"), &json!({})).await.status, 200);
    let after = scrape(&fixture).await;
    // Other tests count in the same process, so the growth is at least this.
    let grew = |series: &str, by: f64| {
        let (was, is) = (before.get(series).copied().unwrap_or(0.0), after.get(series).copied());
        assert!(is.is_some_and(|is| is >= was + by), "{series} was {was} and is {is:?}");
    };
    grew("tidemill_transitions_total{to=\"queued\"}", 3.0);
    grew("tidemill_transitions_total{to=\"claimed\"}", 1.0);
    grew("tidemill_transitions_total{to=\"success\"}", 1.0);
    for (state, count) in [("queued", 2.0), ("claimed", 1.0), ("failed", 1.0)] {
        let series = format!("tidemill_transitions_total{{to=\"{state}\",kind=\"email \\\"weekly\\\"\"}}");
        grew(&series, count);
    }
    grew("tidemill_claims_total{outcome=\"given\"}", 1.0);
    grew(
        "tidemill_http_request_seconds_count{method=\"POST\",route=\"/v1/runs/{run}/finish\",class=\"2xx\"}",
        1.0,
    );
    let age = after.get("tidemill_runs_oldest_seconds{gate=\"open\"}").copied();
    assert!(age.is_some_and(|age| (0.0..60.0).contains(&age)), "{age:?}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_database_is_live_but_not_ready() {
    let mut cluster = Cluster::start(&Options::default()).expect("a server starts");
    let fixture = ServerFixture::on_server(&cluster.url("postgres"), Limits::default()).await;
    assert_eq!(fixture.get("/readyz").await.status, 200);
    cluster.stop(Shutdown::Fast).expect("it stops");
    let response = fixture.get("/readyz").await;
    assert_eq!((response.status, response.json()["code"].as_str()), (503, Some("not_ready")), "{response:?}");
    assert!(!response.text().contains("postgres://"), "{response:?}");
    assert_eq!(fixture.get("/healthz").await.status, 200);
    cluster.resume().expect("it returns");
    let began = Instant::now();
    loop {
        let response = fixture.get("/readyz").await;
        if response.status == 200 {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "it is not ready again: {}", response.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    fixture.stop().await;
}
