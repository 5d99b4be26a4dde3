//! Pauses of a feed, of its project and of the lane: planning, scans and pages, for any duration.

use tidemill_core::project::{Flag, FlagName, FlagSource};
use tidemill_core::run::{QueueRun, RunState};
use tidemill_core::sync::SYNC_LABEL;
use tidemill_core::{Json, RunId};
use tidemill_engine::clock::host_now;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, Roles, SyncFixture};

use crate::fixture::{number, open, partitions, planned, run, until, work};

/// Returns every scope that pauses the feed, with the answer of `why`.
fn scopes() -> [(String, String); 3] {
    [
        (format!("feed:{FEED}"), format!("Feed {FEED} is paused (stock-taking).")),
        ("project:default".to_owned(), "Its project default is paused (stock-taking).".to_owned()),
        ("lane:sync".to_owned(), "Its lane sync is paused (stock-taking).".to_owned()),
    ]
}

pub(crate) async fn pause(fixture: &SyncFixture, scope: &str) {
    let flag = Flag {
        flag: FlagName::Paused,
        scope: scope.to_owned(),
        note: Some("stock-taking".to_owned()),
        since: host_now(),
        until_at: None,
        set_by: Some("ann".to_owned()),
        source: FlagSource::Manual,
    };
    fixture.base.store.set_flag(flag).await.expect("it is paused");
}

async fn resume(fixture: &SyncFixture, scope: &str) {
    assert!(fixture.base.store.clear_flag(FlagName::Paused, scope.to_owned()).await.expect("it is resumed"));
}

async fn why(fixture: &SyncFixture, run: &RunId) -> String {
    fixture.syncs.engine().why(run).await.expect("there is a reason").sentence()
}

/// A pause before planning: the feed gets no request, `why` explains it, and the sync continues afterwards.
pub(crate) async fn paused_sync_is_not_planned(kind: Kind) {
    let fixture = open(kind, 300).await;
    fixture.add_feed("second", &fixture.supplier.endpoint).await;
    for (scope, message) in scopes() {
        pause(&fixture, &scope).await;
        let roles = fixture.roles();
        let held = fixture.queue(true).await;
        until("why names the pause", || async { why(&fixture, &held).await == message }).await;
        if scope.starts_with("feed:") {
            // The scheduler has claimed it, and plans another feed meanwhile.
            until("it is claimed", || async { run(&fixture, &held).await.status == RunState::Claimed }).await;
            let requests = fixture.supplier.handle.stats().requests;
            assert_eq!(requests, 0, "a paused feed got a request");
            let second = fixture.syncs.start("second", false, None).await.expect("the sync is queued").run_id;
            assert_eq!(fixture.settle(&second).await.status, RunState::Success);
        } else {
            // A one-shot scheduler finds nothing to plan.
            assert_eq!(crate::fixture::plan(&fixture).await, 0, "{scope}");
            assert_eq!(run(&fixture, &held).await.status, RunState::Queued, "{scope}");
        }
        assert!(fixture.base.store.sync(held.to_string()).await.is_err(), "{scope}: it was planned");
        assert_eq!(why(&fixture, &held).await, message);
        resume(&fixture, &scope).await;
        assert_eq!(fixture.settle(&held).await.status, RunState::Success, "{scope}");
        roles.stop().await;
    }
    fixture.check_equal().await;
}

pub(crate) async fn pause_of_another_lane_blocks_no_sync(kind: Kind) {
    let fixture = open(kind, 300).await;
    pause(&fixture, "lane:ops").await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    fixture.check_equal().await;
}

/// A project queues more runs of a paused feed than a scheduler plans at a time. Another project's feed is planned.
pub(crate) async fn paused_runs_of_one_project_delay_no_other(kind: Kind) {
    let fixture = open(kind, 300).await;
    fixture.syncs.put_feed(fixture.feed_of("bank", "bank-gems")).await.expect("the feed is created");
    pause(&fixture, "feed:bank-gems").await;
    for _ in 0..40 {
        let mut request = QueueRun::new("bank", "sync");
        request.metadata = serde_json::json!({"feed": "bank-gems", "run_type": "full"});
        request.labels = vec![SYNC_LABEL.to_owned()];
        fixture.syncs.engine().queue(request).await.expect("a run is queued");
    }
    let claimed = "SELECT count(*) FROM {ops}.runs WHERE project_id = 'bank' AND status = 'claimed'";
    let roles = fixture.roles();
    until("the project has its share of plans", || async { number(&fixture, claimed).await >= 32 }).await;
    let own = fixture.queue(true).await;
    assert_eq!(fixture.settle(&own).await.status, RunState::Success);
    assert_eq!(number(&fixture, claimed).await, 32, "the project has more than its share");
    roles.stop().await;
    fixture.check_equal().await;
}

/// A pause while pages wait, in each scope: no page is executed.
pub(crate) async fn why_names_the_pause_of_pages(kind: Kind) {
    let fixture = open(kind, 300).await;
    let sync = planned(&fixture, false).await;
    for (scope, message) in scopes() {
        pause(&fixture, &scope).await;
        assert_eq!(work(&fixture).await, 0, "{scope}: a page was executed");
        assert_eq!(why(&fixture, &sync.ops_run_id).await, message);
        resume(&fixture, &scope).await;
    }
    let roles = fixture.roles();
    assert_eq!(fixture.settle(&sync.ops_run_id).await.status, RunState::Success);
    roles.stop().await;
    fixture.check_equal().await;
}

/// A pause longer than the retention of messages.
pub(crate) async fn pages_survive_a_long_pause(kind: Kind) {
    let fixture = open(kind, 300).await;
    let sync = planned(&fixture, false).await;
    pause(&fixture, &format!("feed:{FEED}")).await;
    let moment = match kind {
        Kind::Sqlite => "expires_at - 25 * 3600 * 1000000",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "expires_at - interval '25 hours'",
    };
    let text = format!("UPDATE {{ops}}.messages SET expires_at = {moment}");
    fixture.base.plain.execute(&text).await.expect("a day passes");
    let mut roles = Roles::none();
    roles.scheduler(&fixture.syncs);
    roles.consolidator(&fixture.syncs);
    fixture.syncs.repair().await.expect("repairs are done");
    let dead = "SELECT count(*) FROM {ops}.messages WHERE state = 'dead'";
    assert_eq!(number(&fixture, dead).await, 0, "pages were given up");
    assert!(partitions(&fixture, &sync).await.iter().all(|partition| partition.state.is_open()));
    resume(&fixture, &format!("feed:{FEED}")).await;
    fixture.syncs.repair().await.expect("repairs are done");
    work(&fixture).await;
    let ended = fixture.settle(&sync.ops_run_id).await;
    assert_eq!(ended.status, RunState::Success, "{}", Json::clone(&ended.metadata));
    roles.stop().await;
    fixture.check_equal().await;
}
