//! Feeds that come in by themselves: what changed by one schedule, all of it by another.

use tidemill_core::feed::RunType;
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_engine::sync::{FeedChange, full_schedule_name, schedule_name};
use tidemill_supplier::{Change, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill};

use crate::scene::open;

/// Lets the time of a schedule come, fires it, and waits for the sync that it queued; its record.
async fn fired(mill: &Mill, schedule: &str) -> Sync {
    let moment = match mill.stage.kind {
        Kind::Sqlite => "next_fire_at - 86400 * 1000000",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "next_fire_at - interval '1 day'",
    };
    let text =
        format!("UPDATE {{ops}}.schedules SET next_fire_at = {moment} WHERE schedule_id = '{schedule}'");
    mill.stage.plain.execute(&text).await.expect("its time comes");
    let fires = mill.syncs.engine().fire_due().await.expect("schedules fire");
    let runs: Vec<_> = fires.iter().filter_map(|fire| fire.run_id.clone()).collect();
    assert_eq!(runs.len(), 1, "{fires:?}");
    let ended = mill.settle(&runs[0]).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    mill.record(&runs[0]).await
}

/// A schedule that fires makes a sync that completes, and the schedule of full syncs finds what is gone, without
/// anybody's hand.
pub(crate) async fn a_full_schedule_finds_what_is_gone(kind: Kind) {
    let mill = open(kind, 600).await;
    let feed = mill.stage.store.feed(FEED.to_owned()).await.expect("the feed is read").feed;
    let change = FeedChange {
        feed,
        copy_url: None,
        schedule: Some("0 3 * * *".to_owned()),
        full_schedule: Some("0 3 * * *".to_owned()),
        time_zone: "UTC".to_owned(),
    };
    mill.syncs.put_feed(change).await.expect("the feed has two schedules");
    let roles = mill.roles();
    let first = fired(&mill, &schedule_name(FEED)).await;
    assert_eq!(first.run_type, RunType::Full, "there is no watermark yet");
    mill.check_equal().await;

    mill.supplier.handle.change(&Change::some(What::Remove, 30, 1)).expect("stones are removed");
    let changes = mill.sync(false).await;
    assert_eq!((changes.run_type, changes.deleted), (RunType::Incremental, 0));
    let all = fired(&mill, &full_schedule_name(FEED)).await;
    assert_eq!((all.run_type, all.deleted), (RunType::Full, 30));
    roles.stop().await;
    mill.check_equal().await;
}
