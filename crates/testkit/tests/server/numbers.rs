//! What can be watched: health, and the figures for Prometheus.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidemill_api::server::Limits;
use tidemill_testkit::cluster::{Cluster, Options, Shutdown};
use tidemill_testkit::door::Kind;
use tokio::time::Instant;

use crate::ground::{PATIENCE, Served, claim};
use crate::on_both;

on_both! {
    the_figures_can_be_read_and_move_when_runs_move,
    health_is_said_without_a_token,
    a_server_whose_schema_does_not_fit_is_not_ready_and_says_what_to_do,
}

async fn health_is_said_without_a_token(kind: Kind) {
    let served = Served::open(kind, Limits::default()).await;
    let (lives, ready) = (served.get("/healthz").await, served.get("/readyz").await);
    assert_eq!((lives.status, lives.json()), (200, json!({"status": "lives"})));
    assert_eq!((ready.status, ready.json()), (200, json!({"status": "ready"})));
    served.stop().await;
}

async fn a_server_whose_schema_does_not_fit_is_not_ready_and_says_what_to_do(kind: Kind) {
    let served = Served::open(kind, Limits::default()).await;
    let plain = &served.stage.plain;
    let moved = async |text: &str| {
        plain.execute(text).await.expect("the schema is moved");
        let told = served.get("/readyz").await;
        assert_eq!((told.status, told.json()["code"].as_str()), (503, Some("not_ready")), "{told:?}");
        assert_eq!(served.get("/healthz").await.status, 200, "it lives all the same");
        told.json()["hint"].as_str().map(str::to_owned)
    };
    let newer = moved("UPDATE {ops}.tidemill_migrations SET oldest_binary = '99.0.0'").await;
    assert_eq!(newer.as_deref(), Some("install Tidemill 99.0.0 or newer"));
    plain.execute("UPDATE {ops}.tidemill_migrations SET oldest_binary = '0.1.0'").await.expect("it is back");
    assert_eq!(served.get("/readyz").await.status, 200);
    let last = "(SELECT max(version) FROM {ops}.tidemill_migrations)";
    let older = moved(&format!("DELETE FROM {{ops}}.tidemill_migrations WHERE version = {last}")).await;
    assert_eq!(older.as_deref(), Some("tidemill migrate"));
    served.stop().await;
}

/// Everything that a text in the format of Prometheus says, by name and labels. Fails where the text is none.
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
        assert!(figures.insert(series.to_owned(), value).is_none(), "{series} is said twice");
    }
    figures
}

async fn scrape(served: &Served) -> BTreeMap<String, f64> {
    let told = served.get("/metrics").await;
    assert_eq!(told.status, 200, "{told:?}");
    assert!(told.head.contains("content-type: text/plain; version=0.0.4"), "{}", told.head);
    figures(&told.text())
}

/// Waits until a figure is this one: what the database says is kept for a second.
async fn until(served: &Served, series: &str, wanted: f64) {
    let began = Instant::now();
    loop {
        let found = scrape(served).await.get(series).copied();
        if found.is_some_and(|found| (found - wanted).abs() < f64::EPSILON) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{series} is {found:?}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn the_figures_can_be_read_and_move_when_runs_move(kind: Kind) {
    let served = Served::open(kind, Limits::default()).await;
    let before = scrape(&served).await;
    for queue in ["work-items", "work-done", "consolidate"] {
        assert_eq!(
            before.get(&format!("tidemill_queue_ready{{queue=\"{queue}\"}}")),
            Some(&0.0),
            "{before:?}"
        );
    }
    assert!(before.get("tidemill_pool_connections{state=\"most\"}").is_some_and(|most| *most >= 1.0));
    for _ in 0..3 {
        served.queue().await;
    }
    until(&served, "tidemill_runs_queued{gate=\"open\"}", 3.0).await;
    let claimed = served.post("/v1/claims", &claim("one", 0)).await.json();
    until(&served, "tidemill_runs_queued{gate=\"open\"}", 2.0).await;
    until(&served, "tidemill_runs_held{state=\"claimed\"}", 1.0).await;
    let run = claimed["runs"][0]["run_id"].as_str().expect("a run");
    let finish = json!({"status": "success", "metadata": {}, "worker": "ann"});
    assert_eq!(served.post(&format!("/v1/runs/{run}/finish"), &finish).await.status, 200);
    until(&served, "tidemill_runs_held{state=\"claimed\"}", 0.0).await;
    let after = scrape(&served).await;
    // Other tests count in the same process: at least what was done here.
    let grew = |series: &str, by: f64| {
        let (was, is) = (before.get(series).copied().unwrap_or(0.0), after.get(series).copied());
        assert!(is.is_some_and(|is| is >= was + by), "{series} was {was} and is {is:?}");
    };
    grew("tidemill_transitions_total{to=\"queued\"}", 3.0);
    grew("tidemill_transitions_total{to=\"claimed\"}", 1.0);
    grew("tidemill_transitions_total{to=\"success\"}", 1.0);
    grew("tidemill_claims_total{outcome=\"given\"}", 1.0);
    grew(
        "tidemill_http_request_seconds_count{method=\"POST\",route=\"/v1/runs/{run}/finish\",class=\"2xx\"}",
        1.0,
    );
    let age = after.get("tidemill_runs_oldest_seconds{gate=\"open\"}").copied();
    assert!(age.is_some_and(|age| (0.0..60.0).contains(&age)), "{age:?}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_database_is_down_lives_and_is_not_ready() {
    let mut cluster = Cluster::start(&Options::default()).expect("a server starts");
    let served = Served::on_server(&cluster.url("postgres"), Limits::default()).await;
    assert_eq!(served.get("/readyz").await.status, 200);
    cluster.stop(Shutdown::Fast).expect("it stops");
    let told = served.get("/readyz").await;
    assert_eq!((told.status, told.json()["code"].as_str()), (503, Some("not_ready")), "{told:?}");
    assert!(!told.text().contains("postgres://"), "{told:?}");
    assert_eq!(served.get("/healthz").await.status, 200);
    cluster.resume().expect("it comes back");
    let began = Instant::now();
    loop {
        let told = served.get("/readyz").await;
        if told.status == 200 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "it is not ready again: {}", told.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    served.stop().await;
}
