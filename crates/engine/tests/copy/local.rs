//! Copies in a local file.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidemill_core::feed::Watermark;
use tidemill_store::{Error, RefusalCode};
use tidemill_testkit::interface::{Kind, at};
use uuid::Uuid;

use super::{CopyFixture, FEED, START_SECS, feed, foreign};

/// A fixture, and the file of its copies.
struct Local {
    fixture: CopyFixture,
    folder: TempDir,
    path: PathBuf,
}

impl Local {
    async fn open(kind: Kind) -> Self {
        let folder = tempfile::tempdir().expect("a folder is made");
        let path = folder.path().join("watermark.json");
        let fixture = CopyFixture::open(kind, &path.display().to_string()).await;
        Self { fixture, folder, path }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).expect("the copy is read")
    }

    fn copied(&self) -> Watermark {
        serde_json::from_str(&self.text()).expect("the copy is a watermark")
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).expect("the folder is read");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }
}

/// Makes a test of each case on both stores.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod postgres { cases! { @store Postgres, $($case),+ } }
        mod sqlite { cases! { @store Sqlite, $($case),+ } }
    };
    (@store $kind:ident, $($case:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let local = super::Local::open(tidemill_testkit::interface::Kind::$kind).await;
                let base = local.fixture.base.clone();
                super::$case(local).await;
                base.close().await;
            }
        )+
    };
}

cases! {
    copy_equals_the_watermark,
    feed_without_watermark_is_not_copied,
    copy_follows_a_watermark_moved_back,
    unrecorded_copy_is_recognized_from_the_history,
    newer_foreign_copy_is_not_overwritten,
    file_without_a_watermark_is_not_overwritten,
    failed_write_keeps_the_old_copy,
    temporary_files_of_a_dead_writer_are_removed,
    failed_copy_backs_off_and_is_reported_once,
    changed_copy_url_is_tried_at_once,
    deleted_copy_is_rewritten_by_the_next_process,
    reader_never_sees_a_partial_or_older_copy,
    writer_waits_for_the_lock_then_reads_the_watermark,
    unusable_copy_url_is_refused,
}

async fn copy_equals_the_watermark(local: Local) {
    let run_id = Uuid::new_v4();
    local.fixture.complete(run_id, 10).await;
    assert_eq!(local.fixture.copy().await, 1);
    let copy: Value = serde_json::from_str(&local.text()).expect("the copy is JSON");
    let expected = json!({
        "lastUpdatedAt": "2026-02-14T10:30:10Z",
        "lastRunId": run_id,
        "lastRunCompletedAt": "2026-02-14T10:30:11Z",
    });
    assert_eq!(copy, expected);
    let record = local.fixture.record().await;
    assert_eq!((record.copied_updated_at, record.copy_error), (Some(at(10)), None));
    assert_eq!(local.fixture.copy().await, 0);
    assert_eq!(local.files(), ["watermark.json"]);
    let longer = local.fixture.set(20).await;
    assert_eq!(local.fixture.copy().await, 1);
    assert_eq!(local.copied(), longer);
}

async fn feed_without_watermark_is_not_copied(local: Local) {
    assert_eq!(local.fixture.copy().await, 0);
    assert!(local.files().is_empty());
    local.fixture.set(10).await;
    assert_eq!(local.fixture.copy().await, 1);
    local.fixture.syncs.set_watermark(FEED, None, "test", None).await.expect("the watermark is deleted");
    assert_eq!(local.fixture.copy().await, 0);
    assert_eq!(local.copied().last_updated_at, at(10));
}

async fn copy_follows_a_watermark_moved_back(local: Local) {
    local.fixture.set(20).await;
    assert_eq!(local.fixture.copy().await, 1);
    let back = local.fixture.set(10).await;
    assert_eq!(local.fixture.copy().await, 1);
    assert_eq!(local.copied(), back);
    assert_eq!(local.fixture.record().await.copied_updated_at, Some(at(10)));
}

async fn unrecorded_copy_is_recognized_from_the_history(local: Local) {
    local.fixture.set(10).await;
    local.fixture.copy().await;
    // A process copied the next watermark and died before it recorded that.
    let lost = local.fixture.set(20).await;
    fs::write(&local.path, serde_json::to_vec(&lost).expect("a watermark is JSON")).expect("it is written");
    let back = local.fixture.set(15).await;
    assert_eq!(local.fixture.copy().await, 1);
    assert_eq!(local.copied(), back);
}

async fn newer_foreign_copy_is_not_overwritten(local: Local) {
    fs::write(&local.path, foreign(100)).expect("the copy is written");
    local.fixture.set(10).await;
    assert_eq!(local.fixture.copy().await, 0);
    assert_eq!(local.text(), foreign(100));
    let fault = local.fixture.fault().await;
    assert!(fault.contains("newer than the watermark"), "{fault}");
    assert_eq!(local.fixture.record().await.copied_updated_at, None);
    let past = local.fixture.set(200).await;
    local.fixture.advance(5);
    assert_eq!(local.fixture.copy().await, 1);
    assert_eq!(local.copied(), past);
    assert_eq!(local.fixture.record().await.copy_error, None);
}

async fn file_without_a_watermark_is_not_overwritten(local: Local) {
    for text in ["", "root:x:0:0", "{\"lastUpdatedAt\":"] {
        fs::write(&local.path, text).expect("the file is written");
        local.fixture.set(10).await;
        assert_eq!(local.fixture.second_process().copy_watermarks().await.expect("the database answers"), 0);
        assert_eq!(local.text(), text);
        let fault = local.fixture.fault().await;
        assert!(fault.ends_with("is not a watermark; it is not overwritten"), "{fault}");
    }
}

async fn failed_write_keeps_the_old_copy(local: Local) {
    let old = local.fixture.set(10).await;
    local.fixture.copy().await;
    // Tests may run as root, who can write in any directory, so a directory blocks the file name instead.
    let beside = local.folder.path().join(".watermark.json.tidemill-new");
    fs::create_dir(&beside).expect("a folder is made");
    let new = local.fixture.set(20).await;
    assert_eq!(local.fixture.copy().await, 0);
    assert_eq!(local.copied(), old);
    let fault = local.fixture.fault().await;
    assert!(fault.starts_with("could not write "), "{fault}");
    assert_eq!(local.fixture.record().await.copied_updated_at, Some(at(10)));
    fs::remove_dir(&beside).expect("the folder is removed");
    local.fixture.advance(5);
    assert_eq!(local.fixture.copy().await, 1);
    assert_eq!(local.copied(), new);
}

async fn temporary_files_of_a_dead_writer_are_removed(local: Local) {
    fs::write(local.folder.path().join(".watermark.json.tidemill-new"), "{\"lastUp").expect("it is written");
    let watermark = local.fixture.set(10).await;
    assert_eq!(local.fixture.copy().await, 1);
    assert_eq!(local.copied(), watermark);
    assert_eq!(local.files(), ["watermark.json"]);
}

async fn failed_copy_backs_off_and_is_reported_once(local: Local) {
    let away = local.folder.path().with_extension("away");
    fs::rename(local.folder.path(), &away).expect("the folder is moved away");
    local.fixture.set(10).await;
    assert_eq!(local.fixture.copy().await, 0);
    let fault = local.fixture.fault().await;
    assert!(fault.starts_with("could not read ") && fault.contains("No such file"), "{fault}");
    // Another record would have the time of the second failure.
    local.fixture.advance(5);
    assert_eq!(local.fixture.copy().await, 0);
    assert_eq!(noted_at(&local).await, at(START_SECS).timestamp());
    fs::rename(&away, local.folder.path()).expect("the folder is moved back");
    local.fixture.advance(9);
    assert_eq!(local.fixture.copy().await, 0, "ten seconds have not passed");
    assert!(local.files().is_empty());
    local.fixture.advance(1);
    assert_eq!(local.fixture.copy().await, 1);
    assert_eq!(local.fixture.record().await.copy_error, None);
    assert_eq!(local.copied().last_updated_at, at(10));
}

/// Returns the second at which the copy was last recorded.
async fn noted_at(local: &Local) -> i64 {
    let text = match local.fixture.base.kind {
        Kind::Sqlite => "SELECT copied_at / 1000000 FROM {ops}.feeds",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            "SELECT extract(epoch FROM copied_at)::bigint FROM {ops}.feeds"
        }
    };
    local.fixture.base.plain.number(text).await.expect("the feed is read")
}

async fn changed_copy_url_is_tried_at_once(local: Local) {
    fs::write(&local.path, "no watermark").expect("the file is written");
    let watermark = local.fixture.set(10).await;
    assert_eq!(local.fixture.copy().await, 0);
    let other = local.folder.path().join("other.json");
    let change = feed(&format!("file://{}", other.display()));
    local.fixture.syncs.put_feed(change).await.expect("the feed is changed");
    assert_eq!(local.fixture.copy().await, 1);
    let text = fs::read_to_string(other).expect("the copy is read");
    assert_eq!(serde_json::from_str::<Watermark>(&text).expect("a watermark"), watermark);
    // And back again, although the database says that this watermark was copied.
    fs::remove_file(&local.path).expect("the file is removed");
    let change = feed(&local.path.display().to_string());
    local.fixture.syncs.put_feed(change).await.expect("the feed is changed");
    assert_eq!(local.fixture.copy().await, 1);
    assert_eq!(local.copied(), watermark);
}

async fn deleted_copy_is_rewritten_by_the_next_process(local: Local) {
    let watermark = local.fixture.set(10).await;
    local.fixture.copy().await;
    fs::remove_file(&local.path).expect("the copy is removed");
    assert_eq!(local.fixture.second_process().copy_watermarks().await.expect("the database answers"), 1);
    assert_eq!(local.copied(), watermark);
}

async fn reader_never_sees_a_partial_or_older_copy(local: Local) {
    local.fixture.set(0).await;
    local.fixture.copy().await;
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let (syncs, over) = (local.fixture.second_process(), over.clone());
        tasks.push(tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                syncs.copy_watermarks().await.expect("the database answers");
            }
            syncs.copy_watermarks().await.expect("the database answers");
        }));
    }
    let (path, ended, seen) = (local.path.clone(), over.clone(), Arc::new(AtomicU32::new(0)));
    let different = seen.clone();
    let reader = tokio::task::spawn_blocking(move || {
        let mut last = at(-1);
        while !ended.load(Ordering::SeqCst) {
            let text = fs::read_to_string(&path).expect("the copy is there");
            let copy: Watermark = serde_json::from_str(&text).expect("the copy is whole");
            assert!(copy.last_updated_at >= last, "{} after {last}", copy.last_updated_at);
            different.fetch_add(u32::from(copy.last_updated_at > last), Ordering::SeqCst);
            last = copy.last_updated_at;
        }
    });
    for secs in 1..=40 {
        local.fixture.set(secs).await;
        // The watermark may move faster than the copies, so the writer waits for the reader halfway.
        for _ in 0..1_000 {
            if secs != 20 || seen.load(Ordering::SeqCst) > 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("the process lives");
    }
    reader.await.expect("the reader lives");
    assert!(seen.load(Ordering::SeqCst) > 1, "the reader saw no change");
    assert_eq!(local.copied().last_updated_at, at(40));
    let record = local.fixture.record().await;
    assert_eq!(record.copy_error, None);
}

async fn writer_waits_for_the_lock_then_reads_the_watermark(local: Local) {
    local.fixture.set(10).await;
    let other = fs::File::open(local.folder.path()).expect("the folder opens");
    other.lock().expect("another writer has its turn");
    let syncs = local.fixture.second_process();
    let mut copying =
        tokio::spawn(async move { syncs.copy_watermarks().await.expect("the database answers") });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut copying).await;
    assert!(early.is_err() && local.files().is_empty(), "it did not wait");
    let newest = local.fixture.set(20).await;
    drop(other);
    assert_eq!(copying.await.expect("the process lives"), 1);
    assert_eq!(local.copied(), newest);
}

async fn unusable_copy_url_is_refused(local: Local) {
    for url in ["relative.json", "gs://bucket/key", "s3://bucket", "az://UPPER/key"] {
        match local.fixture.syncs.put_feed(feed(url)).await {
            Err(Error::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::BadValue),
            other => panic!("{url}: {other:?}"),
        }
    }
    let kept = local.fixture.record().await.copy_url;
    assert_eq!(kept, Some(local.path.display().to_string()));
}
