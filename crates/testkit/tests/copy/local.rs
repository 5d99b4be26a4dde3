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
use tidemill_testkit::door::{Kind, at};
use uuid::Uuid;

use super::{Desk, FEED, START_SECS, feed, foreign};

/// A desk, and the file that its copies go to.
struct Local {
    desk: Desk,
    folder: TempDir,
    path: PathBuf,
}

impl Local {
    async fn open(kind: Kind) -> Self {
        let folder = tempfile::tempdir().expect("a folder is made");
        let path = folder.path().join("watermark.json");
        let desk = Desk::open(kind, &path.display().to_string()).await;
        Self { desk, folder, path }
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
                let local = super::Local::open(tidemill_testkit::door::Kind::$kind).await;
                let stage = local.desk.stage.clone();
                super::$case(local).await;
                stage.close().await;
            }
        )+
    };
}

cases! {
    the_copy_says_what_the_watermark_says,
    nothing_is_copied_before_there_is_a_watermark,
    a_copy_follows_a_watermark_that_was_moved_back,
    a_copy_that_died_before_its_note_is_known_by_the_history,
    a_newer_copy_that_was_never_ours_is_left_alone,
    a_file_that_is_no_watermark_is_left_alone,
    the_old_copy_stays_when_the_new_one_cannot_be_written,
    what_a_dead_writer_left_is_cleared_away,
    a_failed_copy_waits_and_is_reported_once,
    a_new_address_is_tried_at_once,
    a_lost_copy_is_written_again_by_the_next_process,
    a_reader_never_finds_a_part_or_an_older_copy,
    a_writer_waits_for_the_others_and_then_asks_the_database,
    an_address_that_cannot_be_used_is_refused,
}

async fn the_copy_says_what_the_watermark_says(local: Local) {
    let run_id = Uuid::new_v4();
    local.desk.complete(run_id, 10).await;
    assert_eq!(local.desk.copy().await, 1);
    let copy: Value = serde_json::from_str(&local.text()).expect("the copy is JSON");
    let expected = json!({
        "lastUpdatedAt": "2026-02-14T10:30:10Z",
        "lastRunId": run_id,
        "lastRunCompletedAt": "2026-02-14T10:30:11Z",
    });
    assert_eq!(copy, expected);
    let record = local.desk.record().await;
    assert_eq!((record.copied_updated_at, record.copy_error), (Some(at(10)), None));
    assert_eq!(local.desk.copy().await, 0);
    assert_eq!(local.files(), ["watermark.json"]);
    let longer = local.desk.set(20).await;
    assert_eq!(local.desk.copy().await, 1);
    assert_eq!(local.copied(), longer);
}

async fn nothing_is_copied_before_there_is_a_watermark(local: Local) {
    assert_eq!(local.desk.copy().await, 0);
    assert!(local.files().is_empty());
    local.desk.set(10).await;
    assert_eq!(local.desk.copy().await, 1);
    local.desk.syncs.set_watermark(FEED, None, "test", None).await.expect("the watermark is taken away");
    assert_eq!(local.desk.copy().await, 0);
    assert_eq!(local.copied().last_updated_at, at(10));
}

async fn a_copy_follows_a_watermark_that_was_moved_back(local: Local) {
    local.desk.set(20).await;
    assert_eq!(local.desk.copy().await, 1);
    let back = local.desk.set(10).await;
    assert_eq!(local.desk.copy().await, 1);
    assert_eq!(local.copied(), back);
    assert_eq!(local.desk.record().await.copied_updated_at, Some(at(10)));
}

async fn a_copy_that_died_before_its_note_is_known_by_the_history(local: Local) {
    local.desk.set(10).await;
    local.desk.copy().await;
    // A process copied the next watermark and died before it could note that.
    let lost = local.desk.set(20).await;
    fs::write(&local.path, serde_json::to_vec(&lost).expect("a watermark is JSON")).expect("it is written");
    let back = local.desk.set(15).await;
    assert_eq!(local.desk.copy().await, 1);
    assert_eq!(local.copied(), back);
}

async fn a_newer_copy_that_was_never_ours_is_left_alone(local: Local) {
    fs::write(&local.path, foreign(100)).expect("the copy is written");
    local.desk.set(10).await;
    assert_eq!(local.desk.copy().await, 0);
    assert_eq!(local.text(), foreign(100));
    let fault = local.desk.fault().await;
    assert!(fault.contains("newer than the watermark"), "{fault}");
    assert_eq!(local.desk.record().await.copied_updated_at, None);
    let past = local.desk.set(200).await;
    local.desk.pass(5);
    assert_eq!(local.desk.copy().await, 1);
    assert_eq!(local.copied(), past);
    assert_eq!(local.desk.record().await.copy_error, None);
}

async fn a_file_that_is_no_watermark_is_left_alone(local: Local) {
    for text in ["", "root:x:0:0", "{\"lastUpdatedAt\":"] {
        fs::write(&local.path, text).expect("the file is written");
        local.desk.set(10).await;
        assert_eq!(local.desk.beside().copy_watermarks().await.expect("the database answers"), 0);
        assert_eq!(local.text(), text);
        let fault = local.desk.fault().await;
        assert!(fault.ends_with("is not a watermark; it is left alone"), "{fault}");
    }
}

async fn the_old_copy_stays_when_the_new_one_cannot_be_written(local: Local) {
    let old = local.desk.set(10).await;
    local.desk.copy().await;
    // The tests may run as root, who can write in any folder: something is in the way instead.
    let beside = local.folder.path().join(".watermark.json.tidemill-new");
    fs::create_dir(&beside).expect("a folder is made");
    let new = local.desk.set(20).await;
    assert_eq!(local.desk.copy().await, 0);
    assert_eq!(local.copied(), old);
    let fault = local.desk.fault().await;
    assert!(fault.starts_with("could not write "), "{fault}");
    assert_eq!(local.desk.record().await.copied_updated_at, Some(at(10)));
    fs::remove_dir(&beside).expect("the folder is removed");
    local.desk.pass(5);
    assert_eq!(local.desk.copy().await, 1);
    assert_eq!(local.copied(), new);
}

async fn what_a_dead_writer_left_is_cleared_away(local: Local) {
    fs::write(local.folder.path().join(".watermark.json.tidemill-new"), "{\"lastUp").expect("it is written");
    let watermark = local.desk.set(10).await;
    assert_eq!(local.desk.copy().await, 1);
    assert_eq!(local.copied(), watermark);
    assert_eq!(local.files(), ["watermark.json"]);
}

async fn a_failed_copy_waits_and_is_reported_once(local: Local) {
    let away = local.folder.path().with_extension("away");
    fs::rename(local.folder.path(), &away).expect("the folder is moved away");
    local.desk.set(10).await;
    assert_eq!(local.desk.copy().await, 0);
    let fault = local.desk.fault().await;
    assert!(fault.starts_with("could not read ") && fault.contains("No such file"), "{fault}");
    // Noted again, it would have the time of the second failure.
    local.desk.pass(5);
    assert_eq!(local.desk.copy().await, 0);
    assert_eq!(noted_at(&local).await, at(START_SECS).timestamp());
    fs::rename(&away, local.folder.path()).expect("the folder is moved back");
    local.desk.pass(9);
    assert_eq!(local.desk.copy().await, 0, "ten seconds have not passed");
    assert!(local.files().is_empty());
    local.desk.pass(1);
    assert_eq!(local.desk.copy().await, 1);
    assert_eq!(local.desk.record().await.copy_error, None);
    assert_eq!(local.copied().last_updated_at, at(10));
}

/// The second at which something was last noted of the copy.
async fn noted_at(local: &Local) -> i64 {
    let text = match local.desk.stage.kind {
        Kind::Sqlite => "SELECT copied_at / 1000000 FROM {ops}.feeds",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            "SELECT extract(epoch FROM copied_at)::bigint FROM {ops}.feeds"
        }
    };
    local.desk.stage.plain.number(text).await.expect("the feed is read")
}

async fn a_new_address_is_tried_at_once(local: Local) {
    fs::write(&local.path, "no watermark").expect("the file is written");
    let watermark = local.desk.set(10).await;
    assert_eq!(local.desk.copy().await, 0);
    let other = local.folder.path().join("other.json");
    let change = feed(&format!("file://{}", other.display()));
    local.desk.syncs.put_feed(change).await.expect("the feed is changed");
    assert_eq!(local.desk.copy().await, 1);
    let text = fs::read_to_string(other).expect("the copy is read");
    assert_eq!(serde_json::from_str::<Watermark>(&text).expect("a watermark"), watermark);
    // And back again, although the database says that this watermark was copied.
    fs::remove_file(&local.path).expect("the file is removed");
    let change = feed(&local.path.display().to_string());
    local.desk.syncs.put_feed(change).await.expect("the feed is changed");
    assert_eq!(local.desk.copy().await, 1);
    assert_eq!(local.copied(), watermark);
}

async fn a_lost_copy_is_written_again_by_the_next_process(local: Local) {
    let watermark = local.desk.set(10).await;
    local.desk.copy().await;
    fs::remove_file(&local.path).expect("the copy is removed");
    assert_eq!(local.desk.beside().copy_watermarks().await.expect("the database answers"), 1);
    assert_eq!(local.copied(), watermark);
}

async fn a_reader_never_finds_a_part_or_an_older_copy(local: Local) {
    local.desk.set(0).await;
    local.desk.copy().await;
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let (syncs, over) = (local.desk.beside(), over.clone());
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
        local.desk.set(secs).await;
        // The watermark may move faster than anybody copies it: half-way the reader is waited for.
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
    assert!(seen.load(Ordering::SeqCst) > 1, "the reader saw nothing move");
    assert_eq!(local.copied().last_updated_at, at(40));
    let record = local.desk.record().await;
    assert_eq!(record.copy_error, None);
}

async fn a_writer_waits_for_the_others_and_then_asks_the_database(local: Local) {
    local.desk.set(10).await;
    let other = fs::File::open(local.folder.path()).expect("the folder opens");
    other.lock().expect("another writer has its turn");
    let syncs = local.desk.beside();
    let mut copying =
        tokio::spawn(async move { syncs.copy_watermarks().await.expect("the database answers") });
    let early = tokio::time::timeout(Duration::from_millis(300), &mut copying).await;
    assert!(early.is_err() && local.files().is_empty(), "it did not wait");
    let newest = local.desk.set(20).await;
    drop(other);
    assert_eq!(copying.await.expect("the process lives"), 1);
    assert_eq!(local.copied(), newest);
}

async fn an_address_that_cannot_be_used_is_refused(local: Local) {
    for url in ["relative.json", "gs://bucket/key", "s3://bucket", "az://UPPER/key"] {
        match local.desk.syncs.put_feed(feed(url)).await {
            Err(Error::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::BadValue),
            other => panic!("{url}: {other:?}"),
        }
    }
    let kept = local.desk.record().await.copy_url;
    assert_eq!(kept, Some(local.path.display().to_string()));
}
