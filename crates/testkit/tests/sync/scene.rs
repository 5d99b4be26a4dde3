//! What the cases of syncs share: a mill with several partitions, the roles one by one, and what operators
//! look at.

use std::time::Duration;

use tidemill_core::RunId;
use tidemill_core::records::{Partition, Sync};
use tidemill_core::run::{Run, RunState};
use tidemill_engine::Identity;
use tidemill_engine::sync::{ConsolidatorOptions, PagerOptions, SyncSettings};
use tidemill_supplier::Config;
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill, quick};
use tokio::sync::watch;

/// Settings under which a thousand stones make several partitions.
pub(crate) fn many() -> SyncSettings {
    SyncSettings { unlimited: true, partition_target: 150, partition_min: 50, ..quick() }
}

/// A mill whose feed is read in several partitions.
pub(crate) async fn open(kind: Kind, stones: u32) -> Mill {
    Mill::with(kind, Config { stones, ..Mill::config() }, many()).await
}

fn identity(role: &str) -> Identity {
    Identity { name: format!("once-{role}"), host: "here".to_owned(), labels: Vec::new() }
}

/// A scheduler plans what is queued, and ends.
pub(crate) async fn plan(mill: &Mill) -> u64 {
    let (_stop, told) = watch::channel(false);
    mill.syncs.schedule(identity("scheduler"), true, told).await.expect("the scheduler ends well")
}

/// A worker carries out every page that is due, and ends.
pub(crate) async fn work(mill: &Mill) -> u64 {
    let (_stop, told) = watch::channel(false);
    let options = PagerOptions { once: true, ..PagerOptions::default() };
    mill.syncs.work_pages(identity("worker"), &options, told).await.expect("the worker ends well")
}

/// A consolidator does what is due, and ends.
pub(crate) async fn consolidate(mill: &Mill) -> u64 {
    let (_stop, told) = watch::channel(false);
    let options = ConsolidatorOptions { once: true, ..ConsolidatorOptions::default() };
    mill.syncs
        .consolidate(identity("consolidator"), &options, told)
        .await
        .expect("the consolidator ends well")
}

/// Queues a sync and plans it; its record.
pub(crate) async fn planned(mill: &Mill, full: bool) -> Sync {
    let run = mill.queue(full).await;
    assert_eq!(plan(mill).await, 1, "one run is planned");
    mill.record(&run).await
}

/// The sync as it is now.
pub(crate) async fn again(mill: &Mill, sync: &Sync) -> Sync {
    mill.stage.store.sync(sync.run_id.to_string()).await.expect("the sync is read")
}

/// A run as it is now.
pub(crate) async fn run(mill: &Mill, run: &RunId) -> Run {
    mill.stage.store.run(run.clone()).await.expect("the run is read").expect("the run exists")
}

/// The partitions of a sync.
pub(crate) async fn partitions(mill: &Mill, sync: &Sync) -> Vec<Partition> {
    mill.stage.store.partitions(sync.run_id).await.expect("the partitions are read")
}

/// Partitions of a sync that failed.
pub(crate) async fn failed(mill: &Mill, sync: &Sync) -> Vec<Partition> {
    let mut all = partitions(mill, sync).await;
    all.retain(|partition| partition.state.failed());
    all
}

/// The status that the seeds' query gives.
pub(crate) async fn seed_status(mill: &Mill, sync: &Sync) -> String {
    let text = format!(
        "SELECT CASE WHEN completed_at IS NOT NULL THEN 'completed' WHEN failed_workers > 0 THEN 'failed' \
         WHEN completed_workers < expected_workers THEN 'in_progress' ELSE 'consolidating' END AS status \
         FROM run_metadata WHERE run_id = '{}'",
        sync.run_id
    );
    let mut found = mill.stage.plain.texts(&text).await.expect("the status is read");
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// What people were told, the oldest first.
pub(crate) async fn alerts(mill: &Mill) -> Vec<String> {
    let text = "SELECT kind || ': ' || message FROM {ops}.alerts ORDER BY alert_id";
    mill.stage.plain.texts(text).await.expect("the alerts are read")
}

/// The feed's watermark.
pub(crate) async fn watermark(mill: &Mill) -> Option<tidemill_core::Timestamp> {
    let feed = mill.stage.store.feed(FEED.to_owned()).await.expect("the feed is read");
    feed.watermark.map(|mark| mark.last_updated_at)
}

/// One number of plain SQL.
pub(crate) async fn number(mill: &Mill, text: &str) -> i64 {
    mill.stage.plain.number(text).await.unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Plans and reads a sync of which exactly one partition fails for good; its record.
pub(crate) async fn with_one_failed(mill: &Mill, full: bool) -> Sync {
    let sync = planned(mill, full).await;
    assert!(sync.expected_workers > 2, "{sync:?}");
    mill.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 1);
    work(mill).await;
    let sync = again(mill, &sync).await;
    let ended = run(mill, &sync.ops_run_id).await;
    assert_eq!((ended.status, sync.failed_workers), (RunState::Failed, 1), "{ended:?}");
    sync
}

/// Waits until something is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, look: impl Fn() -> F) {
    let began = tokio::time::Instant::now();
    while !look().await {
        assert!(began.elapsed() < Duration::from_mins(1), "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
