//! The way of a feed into its table.

use tidemill_core::feed::RunType;
use tidemill_supplier::{Change, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::Mill;

/// A full sync brings everything, an incremental one what changed, and another full one marks what vanished.
pub(crate) async fn full_then_incremental_then_deleted(kind: Kind) {
    let mill = Mill::open(kind, 3_000).await;
    let roles = mill.roles();
    let first = mill.sync(false).await;
    assert_eq!(first.run_type, RunType::Full, "there is no watermark yet");
    assert_eq!((first.predicted, first.completed_workers), (3_000, first.expected_workers));
    mill.check_equal().await;

    let changed = mill.supplier.handle.change(&Change::some(What::Price, 120, 1)).expect("prices change");
    let second = mill.sync(false).await;
    assert_eq!(second.run_type, RunType::Incremental);
    assert!(second.consolidation_processed < 1_000, "{second:?}");
    assert_eq!(changed.ids.len(), 120);
    mill.check_equal().await;

    mill.supplier.handle.change(&Change::some(What::Vanish, 50, 2)).expect("stones vanish");
    let third = mill.sync(true).await;
    assert_eq!((third.run_type, third.deleted), (RunType::Full, 50));
    mill.check_equal().await;
    assert_eq!(mill.rows("deleted").await.len(), 50);
    roles.stop().await;
}
