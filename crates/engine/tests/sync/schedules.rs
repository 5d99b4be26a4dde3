//! Scheduled feeds: one schedule for changes, another for full syncs.

use tidemill_core::feed::RunType;
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_engine::sync::{FeedChange, full_schedule_name, schedule_name};
use tidemill_supplier::{Change, ChangeKind};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture};

use crate::fixture::open;

/// Makes a schedule due, fires it, and waits for its sync; returns it.
async fn fired(fixture: &SyncFixture, schedule: &str) -> Sync {
    let moment = match fixture.base.kind {
        Kind::Sqlite => "next_fire_at - 86400 * 1000000",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "next_fire_at - interval '1 day'",
    };
    let text =
        format!("UPDATE {{ops}}.schedules SET next_fire_at = {moment} WHERE schedule_id = '{schedule}'");
    fixture.base.plain.execute(&text).await.expect("its time is reached");
    let fires = fixture.syncs.engine().fire_due().await.expect("schedules fire");
    let runs: Vec<_> = fires.iter().filter_map(|fire| fire.run_id.clone()).collect();
    assert_eq!(runs.len(), 1, "{fires:?}");
    let ended = fixture.settle(&runs[0]).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    fixture.record(&runs[0]).await
}

/// A fired schedule makes a sync that completes, and the full schedule detects removed records without human action.
pub(crate) async fn full_schedule_detects_removed_records(kind: Kind) {
    let fixture = open(kind, 600).await;
    let feed = fixture.base.store.feed(FEED.to_owned()).await.expect("the feed is read").feed;
    let change = FeedChange {
        feed,
        definition: None,
        copy_url: None,
        schedule: Some("0 3 * * *".to_owned()),
        full_schedule: Some("0 3 * * *".to_owned()),
        time_zone: "UTC".to_owned(),
    };
    fixture.syncs.put_feed(change).await.expect("the feed has two schedules");
    let roles = fixture.roles();
    let first = fired(&fixture, &schedule_name(FEED)).await;
    assert_eq!(first.run_type, RunType::Full, "there is no watermark yet");
    fixture.check_equal().await;

    fixture.supplier.handle.change(&Change::random(ChangeKind::Remove, 30, 1)).expect("records are removed");
    let changes = fixture.sync(false).await;
    assert_eq!((changes.run_type, changes.deleted), (RunType::Incremental, 0));
    let all = fired(&fixture, &full_schedule_name(FEED)).await;
    assert_eq!((all.run_type, all.deleted), (RunType::Full, 30));
    roles.stop().await;
    fixture.check_equal().await;
}
