//! Irregular lists: records listed twice, ids with spaces, records without an id, and records that are never listed.

use tidemill_core::records::Stage;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_supplier::{Behaviour, Change, ChangeKind, DuplicateListing};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture};

use crate::fixture::{consolidate, failed, partitions, planned, reload, run, work};

/// Records of every list here. A page has 30.
const RECORDS: u32 = 200;

/// Returns the warnings among the events of a run.
async fn warnings(fixture: &SyncFixture, run: &str) -> Vec<String> {
    let text = format!(
        "SELECT message FROM {{ops}}.run_events WHERE run_id = '{run}' AND level = 'warn' ORDER BY seq"
    );
    fixture.base.plain.texts(&text).await.expect("the events are read")
}

/// Opens a fixture whose only partition is read from such a list, and consolidated if possible; returns its sync.
async fn read(kind: Kind, odd: impl FnOnce(&mut Behaviour)) -> (SyncFixture, tidemill_core::records::Sync) {
    let fixture = SyncFixture::open(kind, RECORDS).await;
    fixture.supplier.handle.behave(odd);
    let sync = planned(&fixture, false).await;
    assert_eq!(sync.expected_workers, 1, "{sync:?}");
    work(&fixture).await;
    consolidate(&fixture).await;
    let sync = reload(&fixture, &sync).await;
    (fixture, sync)
}

/// Within a page, across a page border, far apart, and at the end.
pub(crate) async fn record_listed_twice_is_read_once_with_a_warning(kind: Kind) {
    let double = |at, of| DuplicateListing { at, of };
    for doubles in [
        vec![double(11, 10)],
        vec![double(30, 29)],
        vec![double(29, 28)],
        vec![double(31, 29)],
        vec![double(30, 29), double(31, 29)],
        vec![double(0, 0)],
        vec![double(150, 3)],
        vec![double(200, 199)],
        vec![double(200, 0)],
        vec![double(60, 59), double(90, 12), double(202, 199)],
    ] {
        let (fixture, sync) = read(kind, |behaviour| behaviour.doubles.clone_from(&doubles)).await;
        assert_eq!(sync.state, SyncState::Completed, "{doubles:?}: {:?}", failed(&fixture, &sync).await);
        let part = partitions(&fixture, &sync).await.remove(0);
        assert_eq!(part.pass, 1, "{doubles:?}: the list was read again");
        fixture.check_equal().await;
        let message = warnings(&fixture, sync.ops_run_id.as_str()).await;
        let words =
            format!("{} of {} records were listed more than once", doubles.len(), 200 + doubles.len());
        assert!(message.iter().any(|message| message.contains(&words)), "{doubles:?}: {message:?}");
    }
}

/// Two ids that differ in a space are two records, and a lookup sends them unchanged.
pub(crate) async fn ids_with_spaces_are_accepted(kind: Kind) {
    let (fixture, sync) = read(kind, |behaviour| behaviour.spaced_ids = true).await;
    assert_eq!(sync.state, SyncState::Completed, "{:?}", failed(&fixture, &sync).await);
    assert_eq!(fixture.rows("active").await.len(), RECORDS as usize);
    fixture.check_equal().await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Vanish, 12, 5)).expect("records vanish");
    let sync = planned(&fixture, true).await;
    work(&fixture).await;
    consolidate(&fixture).await;
    assert_eq!(reload(&fixture, &sync).await.deleted, 12);
    fixture.check_equal().await;
}

/// They are rejected with their payload at any position, and everything else is in the table.
pub(crate) async fn records_without_id_are_rejected_and_counted(kind: Kind) {
    for nameless in
        [vec![0], vec![10], vec![29, 30], vec![30], vec![199], (50..70).collect(), (195..200).collect()]
    {
        let (fixture, sync) = read(kind, |behaviour| behaviour.nameless.clone_from(&nameless)).await;
        assert_eq!(sync.state, SyncState::Completed, "{nameless:?}: {:?}", failed(&fixture, &sync).await);
        let part = partitions(&fixture, &sync).await.remove(0);
        let count = nameless.len();
        assert_eq!(
            (part.pass, part.rejected),
            (1, i64::try_from(count).unwrap_or(0)),
            "{nameless:?}: {part:?}"
        );
        let rejects =
            fixture.base.store.rejects(Some(FEED.to_owned()), 100).await.expect("rejects are listed");
        assert_eq!(rejects.len(), count, "{nameless:?}");
        for reject in &rejects {
            assert_eq!((reject.stage, reject.times), (Stage::Fetch, 1), "{reject:?}");
            assert!(reject.reason.contains("`diamond.id` is missing"), "{}", reject.reason);
            assert!(reject.payload.contains("\"price\""), "{}", reject.payload);
        }
        let (found, expected) = (fixture.rows("active").await, fixture.expected());
        assert_eq!(found.len(), RECORDS as usize - count, "{nameless:?}");
        assert!(found.iter().all(|(id, row)| expected.get(id) == Some(row)), "{nameless:?}");
        let message = warnings(&fixture, sync.ops_run_id.as_str()).await;
        let words = format!("{count} of 200 records have no id");
        assert!(message.iter().any(|message| message.contains(&words)), "{nameless:?}: {message:?}");
        // The same records in the next sync are the same rejects.
        let sync = planned(&fixture, true).await;
        work(&fixture).await;
        consolidate(&fixture).await;
        assert_eq!(reload(&fixture, &sync).await.state, SyncState::Completed);
        let rejects =
            fixture.base.store.rejects(Some(FEED.to_owned()), 100).await.expect("rejects are listed");
        assert_eq!(rejects.len(), count, "{nameless:?}");
    }
}

/// A list without any ids that is too short to detect a pattern.
pub(crate) async fn list_of_one_record_without_id_is_read(kind: Kind) {
    let fixture = SyncFixture::open(kind, 1).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.nameless = vec![0]);
    let sync = planned(&fixture, false).await;
    work(&fixture).await;
    consolidate(&fixture).await;
    assert_eq!(
        reload(&fixture, &sync).await.state,
        SyncState::Completed,
        "{:?}",
        failed(&fixture, &sync).await
    );
    let rejects = fixture.base.store.rejects(Some(FEED.to_owned()), 100).await.expect("rejects are listed");
    assert_eq!(rejects.len(), 1);
}

/// A counted record that is never listed fails its partition.
pub(crate) async fn record_that_is_never_listed_is_missing(kind: Kind) {
    let double = |at, of| DuplicateListing { at, of };
    for (nameless, doubles) in [
        (vec![10], vec![]),
        (vec![], vec![]),
        (vec![29, 30], vec![]),
        (vec![], vec![double(30, 29)]),
        (vec![], vec![double(150, 3)]),
        (vec![10], vec![double(30, 29), double(60, 1)]),
    ] {
        let (fixture, sync) = read(kind, |behaviour| {
            behaviour.hidden = vec![120];
            behaviour.nameless.clone_from(&nameless);
            behaviour.doubles.clone_from(&doubles);
        })
        .await;
        let case = format!("without an id {nameless:?}, twice {doubles:?}");
        assert_eq!(sync.state, SyncState::Failed, "{case}");
        assert_eq!(run(&fixture, &sync.ops_run_id).await.status, RunState::Failed, "{case}");
        let error = failed(&fixture, &sync).await.remove(0).error.unwrap_or_default();
        let (counted, seen) = (200 + doubles.len(), 199 + doubles.len());
        let words = format!("the feed reports {counted} records, but {seen} were read in 3 passes");
        assert!(error.contains(&words), "{case}: {error}");
    }
}
