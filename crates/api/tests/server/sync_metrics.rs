//! Metrics of syncs, messages and sweeps, observed while the counted work happens.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{Request, StatusCode};
use tidemill_api::access::Access;
use tidemill_api::{App, router};
use tidemill_core::run::QueueRun;
use tidemill_engine::sync::PagerOptions;
use tidemill_testkit::interface::{Kind, at};
use tidemill_testkit::sync_fixture::{FEED, Roles, SyncFixture};
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::fixture::TIMEOUT;
use crate::metrics::figures;
use crate::on_both;

on_both! { sync_metrics_follow_the_sync, run_taken_from_a_silent_worker_is_counted }

const RECORDS: f64 = 300.0;

fn interface(fixture: &SyncFixture) -> Router {
    tidemill_api::metrics::install();
    router(App::new(fixture.syncs.clone(), Access::Open { name: "ann".to_owned() }))
}

async fn scrape(interface: &Router) -> BTreeMap<String, f64> {
    let ask = Request::get("/metrics").body(Body::empty()).expect("a request");
    let response = interface.clone().oneshot(ask).await.expect("the API answers");
    assert_eq!(response.status(), StatusCode::OK);
    let body = to_bytes(response.into_body(), 1 << 20).await.expect("the answer is read");
    figures(std::str::from_utf8(&body).expect("it is text"))
}

/// Waits until a metric has at least this value. Database counts are cached for a second.
async fn until(interface: &Router, series: &str, least: f64) -> f64 {
    let began = Instant::now();
    loop {
        let found = scrape(interface).await.get(series).copied();
        if let Some(found) = found.filter(|found| *found >= least) {
            return found;
        }
        assert!(began.elapsed() < TIMEOUT, "{series} is {found:?}, and should be {least}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn of(name: &str, label: &str, value: &str) -> String {
    format!("tidemill_{name}{{{label}=\"{value}\"}}")
}

async fn sync_metrics_follow_the_sync(kind: Kind) {
    let fixture = SyncFixture::open(kind, 300).await;
    let interface = interface(&fixture);
    let mut roles = Roles::none();
    roles.scheduler(&fixture.syncs);
    let run = fixture.queue(true).await;
    // Planned, and no worker is running.
    until(&interface, &of("queue_ready", "queue", "work-items"), 1.0).await;
    until(&interface, &of("queue_oldest_seconds", "queue", "work-items"), 0.001).await;
    assert_eq!(scrape(&interface).await.get(&of("partitions_stuck", "feed", FEED)), Some(&0.0));
    let long_ago = match kind {
        Kind::Sqlite => "0",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "now() - interval '11 minutes'",
    };
    let stale = format!("UPDATE partition_progress SET updated_at = {long_ago}");
    fixture.base.plain.execute(&stale).await.expect("the partitions are made to look stuck");
    until(&interface, &of("partitions_stuck", "feed", FEED), 1.0).await;
    assert_eq!(scrape(&interface).await.get(&of("sync_fetched_records", "feed", FEED)), Some(&0.0));
    roles.worker(&fixture.syncs, PagerOptions::default());
    until(&interface, &of("sync_fetched_records", "feed", FEED), RECORDS).await;
    until(&interface, &of("pages_total", "feed", FEED), 1.0).await;
    until(&interface, &of("page_records_total", "feed", FEED), RECORDS).await;
    until(&interface, &of("message_hold_seconds_count", "queue", "work-items"), 1.0).await;
    // Observed during the sync, because a consolidated sync completes soon after.
    let some = "UPDATE partition_progress SET consolidated = 1 WHERE fetched > 0";
    fixture.base.plain.execute(some).await.expect("some are consolidated");
    until(&interface, &of("sync_consolidated_records", "feed", FEED), 1.0).await;
    let back = "UPDATE partition_progress SET consolidated = 0";
    fixture.base.plain.execute(back).await.expect("none are");
    roles.consolidator(&fixture.syncs);
    fixture.settle(&run).await;
    until(&interface, &of("consolidated_records_total", "feed", FEED), RECORDS).await;
    let age = until(&interface, &of("watermark_age_seconds", "feed", FEED), 0.0).await;
    assert!(age < 366.0 * 86_400.0, "a watermark of this sync is not {age} seconds old");
    assert_eq!(scrape(&interface).await.get(&of("feed_down", "feed", FEED)), Some(&0.0));
    fixture.check_equal().await;
    roles.stop().await;
    fixture.base.close().await;
}

async fn run_taken_from_a_silent_worker_is_counted(kind: Kind) {
    let fixture = SyncFixture::open(kind, 0).await;
    let interface = interface(&fixture);
    let expired = |figures: &BTreeMap<String, f64>| {
        let decisions = figures.get("tidemill_sweeper_decisions_total{cause=\"lost\"}");
        (
            figures.get("tidemill_lease_expiries_total").copied().unwrap_or(0.0),
            decisions.copied().unwrap_or(0.0),
        )
    };
    let before = expired(&scrape(&interface).await);
    fixture.base.store.create_project("shop", vec!["staging".to_owned()], None).await.expect("a project");
    fixture.base.running(QueueRun::new("shop", "staging"), "ann", at(0)).await;
    fixture.syncs.engine().sweep(100, 30.0).await.expect("the sweep is done");
    let after = expired(&scrape(&interface).await);
    assert!(after.0 >= before.0 + 1.0 && after.1 >= before.1 + 1.0, "{before:?}, then {after:?}");
    fixture.base.close().await;
}
