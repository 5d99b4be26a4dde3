//! Helpers of the sync cases: a fixture with several partitions, the roles one by one, and what operators see.

use std::time::Duration;

use tidemill_core::RunId;
use tidemill_core::records::{Partition, Sync};
use tidemill_core::run::{Run, RunState};
use tidemill_engine::Identity;
use tidemill_engine::sync::{ConsolidatorOptions, PagerOptions, SyncSettings};
use tidemill_supplier::Config;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture, quick};
use tokio::sync::watch;

/// Returns settings under which a thousand records make several partitions.
pub(crate) fn many() -> SyncSettings {
    SyncSettings { unlimited: true, partition_target: 150, partition_min: 50, ..quick() }
}

/// Opens a fixture whose feed is read in several partitions.
pub(crate) async fn open(kind: Kind, records: u32) -> SyncFixture {
    SyncFixture::with(kind, Config { stones: records, ..SyncFixture::config() }, many()).await
}

fn identity(role: &str) -> Identity {
    Identity { name: format!("once-{role}"), host: "here".to_owned(), labels: Vec::new() }
}

/// Runs a scheduler until everything queued is planned.
pub(crate) async fn plan(fixture: &SyncFixture) -> u64 {
    let (_stop, message) = watch::channel(false);
    fixture.syncs.schedule(identity("scheduler"), true, message).await.expect("the scheduler ends well")
}

/// Runs a worker until no page is due.
pub(crate) async fn work(fixture: &SyncFixture) -> u64 {
    let (_stop, message) = watch::channel(false);
    let options = PagerOptions { once: true, ..PagerOptions::default() };
    fixture.syncs.work_pages(identity("worker"), &options, message).await.expect("the worker ends well")
}

/// Runs a consolidator until nothing is due.
pub(crate) async fn consolidate(fixture: &SyncFixture) -> u64 {
    let (_stop, message) = watch::channel(false);
    let options = ConsolidatorOptions { once: true, ..ConsolidatorOptions::default() };
    fixture
        .syncs
        .consolidate(identity("consolidator"), &options, message)
        .await
        .expect("the consolidator ends well")
}

/// Queues a sync and plans it; returns it.
pub(crate) async fn planned(fixture: &SyncFixture, full: bool) -> Sync {
    let run = fixture.queue(full).await;
    assert_eq!(plan(fixture).await, 1, "one run is planned");
    fixture.record(&run).await
}

/// Reads the sync again.
pub(crate) async fn reload(fixture: &SyncFixture, sync: &Sync) -> Sync {
    fixture.base.store.sync(sync.run_id.to_string()).await.expect("the sync is read")
}

pub(crate) async fn run(fixture: &SyncFixture, run: &RunId) -> Run {
    fixture.base.store.run(run.clone()).await.expect("the run is read").expect("the run exists")
}

/// Returns the partitions of a sync.
pub(crate) async fn partitions(fixture: &SyncFixture, sync: &Sync) -> Vec<Partition> {
    fixture.base.store.partitions(sync.run_id).await.expect("the partitions are read")
}

/// Returns the failed partitions of a sync.
pub(crate) async fn failed(fixture: &SyncFixture, sync: &Sync) -> Vec<Partition> {
    let mut all = partitions(fixture, sync).await;
    all.retain(|partition| partition.state.failed());
    all
}

/// Returns the status of the seeds' query.
pub(crate) async fn seed_status(fixture: &SyncFixture, sync: &Sync) -> String {
    let text = format!(
        "SELECT CASE WHEN completed_at IS NOT NULL THEN 'completed' WHEN failed_workers > 0 THEN 'failed' \
         WHEN completed_workers < expected_workers THEN 'in_progress' ELSE 'consolidating' END AS status \
         FROM run_metadata WHERE run_id = '{}'",
        sync.run_id
    );
    let mut found = fixture.base.plain.texts(&text).await.expect("the status is read");
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// Returns the alerts, oldest first.
pub(crate) async fn alerts(fixture: &SyncFixture) -> Vec<String> {
    let text = "SELECT kind || ': ' || message FROM {ops}.alerts ORDER BY alert_id";
    fixture.base.plain.texts(text).await.expect("the alerts are read")
}

/// Returns the watermark of the feed.
pub(crate) async fn watermark(fixture: &SyncFixture) -> Option<tidemill_core::Timestamp> {
    let feed = fixture.base.store.feed(FEED.to_owned()).await.expect("the feed is read");
    feed.watermark.map(|mark| mark.last_updated_at)
}

/// Returns a number selected by plain SQL.
pub(crate) async fn number(fixture: &SyncFixture, text: &str) -> i64 {
    fixture.base.plain.number(text).await.unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Plans and reads a sync of which exactly one partition fails permanently; returns it.
pub(crate) async fn with_one_failed(fixture: &SyncFixture, full: bool) -> Sync {
    let sync = planned(fixture, full).await;
    assert!(sync.expected_workers > 2, "{sync:?}");
    fixture.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 1);
    work(fixture).await;
    let sync = reload(fixture, &sync).await;
    let ended = run(fixture, &sync.ops_run_id).await;
    assert_eq!((ended.status, sync.failed_workers), (RunState::Failed, 1), "{ended:?}");
    sync
}

/// Waits until a condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, look: impl Fn() -> F) {
    let began = tokio::time::Instant::now();
    while !look().await {
        assert!(began.elapsed() < Duration::from_mins(1), "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
