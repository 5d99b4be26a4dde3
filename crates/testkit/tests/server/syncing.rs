//! The figures of syncs, messages and sweeps: each is seen while that happens which it counts.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{Request, StatusCode};
use tidemill_api::access::Access;
use tidemill_api::{App, router};
use tidemill_core::run::QueueRun;
use tidemill_engine::sync::PagerOptions;
use tidemill_testkit::door::{Kind, at};
use tidemill_testkit::mill::{FEED, Mill, Roles};
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::ground::PATIENCE;
use crate::numbers::figures;
use crate::on_both;

on_both! { the_figures_of_a_sync_follow_it, a_run_that_is_taken_from_a_silent_worker_is_counted }

const STONES: f64 = 300.0;

fn door(mill: &Mill) -> Router {
    tidemill_api::metrics::install();
    router(App::new(mill.syncs.clone(), Access::Open { name: "ann".to_owned() }))
}

async fn scrape(door: &Router) -> BTreeMap<String, f64> {
    let ask = Request::get("/metrics").body(Body::empty()).expect("a request");
    let told = door.clone().oneshot(ask).await.expect("the door answers");
    assert_eq!(told.status(), StatusCode::OK);
    let body = to_bytes(told.into_body(), 1 << 20).await.expect("the answer is read");
    figures(std::str::from_utf8(&body).expect("it is text"))
}

/// Waits until a figure is at least so much: what the database says is kept for a second.
async fn until(door: &Router, series: &str, least: f64) -> f64 {
    let began = Instant::now();
    loop {
        let found = scrape(door).await.get(series).copied();
        if let Some(found) = found.filter(|found| *found >= least) {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{series} is {found:?}, and should be {least}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn of(name: &str, label: &str, value: &str) -> String {
    format!("tidemill_{name}{{{label}=\"{value}\"}}")
}

async fn the_figures_of_a_sync_follow_it(kind: Kind) {
    let mill = Mill::open(kind, 300).await;
    let door = door(&mill);
    let mut roles = Roles::none();
    roles.scheduler(&mill.syncs);
    let run = mill.queue(true).await;
    // Planned, and nobody to carry it out.
    until(&door, &of("queue_ready", "queue", "work-items"), 1.0).await;
    until(&door, &of("queue_oldest_seconds", "queue", "work-items"), 0.001).await;
    assert_eq!(scrape(&door).await.get(&of("partitions_stuck", "feed", FEED)), Some(&0.0));
    let long_ago = match kind {
        Kind::Sqlite => "0",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "now() - interval '11 minutes'",
    };
    let stale = format!("UPDATE partition_progress SET updated_at = {long_ago}");
    mill.stage.plain.execute(&stale).await.expect("the partitions are made to look stuck");
    until(&door, &of("partitions_stuck", "feed", FEED), 1.0).await;
    assert_eq!(scrape(&door).await.get(&of("sync_fetched_stones", "feed", FEED)), Some(&0.0));
    roles.worker(&mill.syncs, PagerOptions::default());
    until(&door, &of("sync_fetched_stones", "feed", FEED), STONES).await;
    until(&door, &of("pages_total", "feed", FEED), 1.0).await;
    until(&door, &of("page_stones_total", "feed", FEED), STONES).await;
    until(&door, &of("message_hold_seconds_count", "queue", "work-items"), 1.0).await;
    // It is said while the sync goes on: one that is consolidated is over soon after.
    let some = "UPDATE partition_progress SET consolidated = 1 WHERE fetched > 0";
    mill.stage.plain.execute(some).await.expect("some are consolidated");
    until(&door, &of("sync_consolidated_stones", "feed", FEED), 1.0).await;
    let back = "UPDATE partition_progress SET consolidated = 0";
    mill.stage.plain.execute(back).await.expect("none are");
    roles.consolidator(&mill.syncs);
    mill.settle(&run).await;
    until(&door, &of("consolidated_stones_total", "feed", FEED), STONES).await;
    let age = until(&door, &of("watermark_age_seconds", "feed", FEED), 0.0).await;
    assert!(age < 366.0 * 86_400.0, "a watermark of this sync is not {age} seconds old");
    assert_eq!(scrape(&door).await.get(&of("feed_down", "feed", FEED)), Some(&0.0));
    mill.check_equal().await;
    roles.stop().await;
    mill.stage.close().await;
}

async fn a_run_that_is_taken_from_a_silent_worker_is_counted(kind: Kind) {
    let mill = Mill::open(kind, 0).await;
    let door = door(&mill);
    let expired = |figures: &BTreeMap<String, f64>| {
        let decisions = figures.get("tidemill_sweeper_decisions_total{cause=\"lost\"}");
        (
            figures.get("tidemill_lease_expiries_total").copied().unwrap_or(0.0),
            decisions.copied().unwrap_or(0.0),
        )
    };
    let before = expired(&scrape(&door).await);
    mill.stage.store.create_project("shop", vec!["staging".to_owned()], None).await.expect("a project");
    mill.stage.running(QueueRun::new("shop", "staging"), "ann", at(0)).await;
    mill.syncs.engine().sweep(100, 30.0).await.expect("the sweep is done");
    let after = expired(&scrape(&door).await);
    assert!(after.0 >= before.0 + 1.0 && after.1 >= before.1 + 1.0, "{before:?}, then {after:?}");
    mill.stage.close().await;
}
