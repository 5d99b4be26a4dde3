//! Odd lists: stones that are listed twice, ids with spaces, records without an id, and records that are never shown.

use tidemill_core::records::Stage;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_supplier::{Behaviour, Change, Double, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill};

use crate::scene::{again, consolidate, failed, partitions, planned, run, work};

/// Stones of every list here. A page has 30.
const STONES: u32 = 200;

/// The warnings in the record of a run.
async fn warnings(mill: &Mill, run: &str) -> Vec<String> {
    let text = format!(
        "SELECT message FROM {{ops}}.run_events WHERE run_id = '{run}' AND level = 'warn' ORDER BY seq"
    );
    mill.stage.plain.texts(&text).await.expect("the events are read")
}

/// A mill whose one partition was read from a list like this, and consolidated where that was possible; its sync.
async fn read(kind: Kind, odd: impl FnOnce(&mut Behaviour)) -> (Mill, tidemill_core::records::Sync) {
    let mill = Mill::open(kind, STONES).await;
    mill.supplier.handle.behave(odd);
    let sync = planned(&mill, false).await;
    assert_eq!(sync.expected_workers, 1, "{sync:?}");
    work(&mill).await;
    consolidate(&mill).await;
    let sync = again(&mill, &sync).await;
    (mill, sync)
}

/// A stone that is listed twice is read in one pass and noted: within a page, across a page border, far apart, and at
/// the end.
pub(crate) async fn a_stone_listed_twice_is_read_once_and_noted(kind: Kind) {
    let double = |at, of| Double { at, of };
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
        let (mill, sync) = read(kind, |behaviour| behaviour.doubles.clone_from(&doubles)).await;
        assert_eq!(sync.state, SyncState::Completed, "{doubles:?}: {:?}", failed(&mill, &sync).await);
        let part = partitions(&mill, &sync).await.remove(0);
        assert_eq!(part.pass, 1, "{doubles:?}: the list was read again");
        mill.check_equal().await;
        let told = warnings(&mill, sync.ops_run_id.as_str()).await;
        let words =
            format!("{} of {} records were listed more than once", doubles.len(), 200 + doubles.len());
        assert!(told.iter().any(|told| told.contains(&words)), "{doubles:?}: {told:?}");
    }
}

/// Two ids that differ in a space are two stones, and a lookup asks for them as they are.
pub(crate) async fn ids_with_spaces_are_ordinary_ids(kind: Kind) {
    let (mill, sync) = read(kind, |behaviour| behaviour.spaced_ids = true).await;
    assert_eq!(sync.state, SyncState::Completed, "{:?}", failed(&mill, &sync).await);
    assert_eq!(mill.rows("active").await.len(), STONES as usize);
    mill.check_equal().await;
    mill.supplier.handle.change(&Change::some(What::Vanish, 12, 5)).expect("stones vanish");
    let sync = planned(&mill, true).await;
    work(&mill).await;
    consolidate(&mill).await;
    assert_eq!(again(&mill, &sync).await.deleted, 12);
    mill.check_equal().await;
}

/// Records without an id are rejected with their payload, wherever they stand, and everything else is in the table.
pub(crate) async fn records_without_an_id_are_rejected_and_counted(kind: Kind) {
    for nameless in
        [vec![0], vec![10], vec![29, 30], vec![30], vec![199], (50..70).collect(), (195..200).collect()]
    {
        let (mill, sync) = read(kind, |behaviour| behaviour.nameless.clone_from(&nameless)).await;
        assert_eq!(sync.state, SyncState::Completed, "{nameless:?}: {:?}", failed(&mill, &sync).await);
        let part = partitions(&mill, &sync).await.remove(0);
        let count = nameless.len();
        assert_eq!(
            (part.pass, part.rejected),
            (1, i64::try_from(count).unwrap_or(0)),
            "{nameless:?}: {part:?}"
        );
        let rejects = mill.stage.store.rejects(Some(FEED.to_owned()), 100).await.expect("rejects are listed");
        assert_eq!(rejects.len(), count, "{nameless:?}");
        for reject in &rejects {
            assert_eq!((reject.stage, reject.times), (Stage::Fetch, 1), "{reject:?}");
            assert!(reject.reason.contains("`diamond.id` is missing"), "{}", reject.reason);
            assert!(reject.payload.contains("\"price\""), "{}", reject.payload);
        }
        let (found, expected) = (mill.rows("active").await, mill.expected());
        assert_eq!(found.len(), STONES as usize - count, "{nameless:?}");
        assert!(found.iter().all(|(id, row)| expected.get(id) == Some(row)), "{nameless:?}");
        let told = warnings(&mill, sync.ops_run_id.as_str()).await;
        let words = format!("{count} of 200 records have no id");
        assert!(told.iter().any(|told| told.contains(&words)), "{nameless:?}: {told:?}");
        // The same records in the next sync are the same rejects.
        let sync = planned(&mill, true).await;
        work(&mill).await;
        consolidate(&mill).await;
        assert_eq!(again(&mill, &sync).await.state, SyncState::Completed);
        let rejects = mill.stage.store.rejects(Some(FEED.to_owned()), 100).await.expect("rejects are listed");
        assert_eq!(rejects.len(), count, "{nameless:?}");
    }
}

/// A list of which no record has an id, and which is too short for a pattern, is read too.
pub(crate) async fn a_list_of_one_record_without_an_id_is_read(kind: Kind) {
    let mill = Mill::open(kind, 1).await;
    mill.supplier.handle.behave(|behaviour| behaviour.nameless = vec![0]);
    let sync = planned(&mill, false).await;
    work(&mill).await;
    consolidate(&mill).await;
    assert_eq!(again(&mill, &sync).await.state, SyncState::Completed, "{:?}", failed(&mill, &sync).await);
    let rejects = mill.stage.store.rejects(Some(FEED.to_owned()), 100).await.expect("rejects are listed");
    assert_eq!(rejects.len(), 1);
}

/// A record that is counted and never shown fails its partition, whatever else is odd about the list.
pub(crate) async fn a_record_that_is_never_shown_is_missed(kind: Kind) {
    let double = |at, of| Double { at, of };
    for (nameless, doubles) in [
        (vec![10], vec![]),
        (vec![], vec![]),
        (vec![29, 30], vec![]),
        (vec![], vec![double(30, 29)]),
        (vec![], vec![double(150, 3)]),
        (vec![10], vec![double(30, 29), double(60, 1)]),
    ] {
        let (mill, sync) = read(kind, |behaviour| {
            behaviour.hidden = vec![120];
            behaviour.nameless.clone_from(&nameless);
            behaviour.doubles.clone_from(&doubles);
        })
        .await;
        let case = format!("without an id {nameless:?}, twice {doubles:?}");
        assert_eq!(sync.state, SyncState::Failed, "{case}");
        assert_eq!(run(&mill, &sync.ops_run_id).await.status, RunState::Failed, "{case}");
        let error = failed(&mill, &sync).await.remove(0).error.unwrap_or_default();
        let (counted, seen) = (200 + doubles.len(), 199 + doubles.len());
        let words = format!("the feed counts {counted} records, and {seen} were seen in 3 passes");
        assert!(error.contains(&words), "{case}: {error}");
    }
}
