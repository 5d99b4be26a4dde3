//! What a pause of a feed, of its project and of the lane holds: planning, scans and pages, however long it lasts.

use tidemill_core::project::{Flag, FlagName, FlagSource};
use tidemill_core::run::RunState;
use tidemill_core::{Json, RunId};
use tidemill_engine::clock::host_now;
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill, Roles};

use crate::scene::{number, open, partitions, planned, run, until, work};

/// Everything that holds the feed of a mill, and what `why` says of it.
fn scopes() -> [(String, String); 3] {
    [
        (format!("feed:{FEED}"), format!("Feed {FEED} is paused (stock-taking).")),
        ("project:default".to_owned(), "Its project default is paused (stock-taking).".to_owned()),
        ("lane:sync".to_owned(), "Its lane sync is paused (stock-taking).".to_owned()),
    ]
}

async fn pause(mill: &Mill, scope: &str) {
    let flag = Flag {
        flag: FlagName::Paused,
        scope: scope.to_owned(),
        note: Some("stock-taking".to_owned()),
        since: host_now(),
        until_at: None,
        set_by: Some("ann".to_owned()),
        source: FlagSource::Manual,
    };
    mill.stage.store.set_flag(flag).await.expect("it is paused");
}

async fn resume(mill: &Mill, scope: &str) {
    assert!(mill.stage.store.clear_flag(FlagName::Paused, scope.to_owned()).await.expect("it is resumed"));
}

async fn why(mill: &Mill, run: &RunId) -> String {
    mill.syncs.engine().why(run).await.expect("there is a reason").sentence()
}

/// A pause before a sync is planned: the feed is not asked for anything, `why` says so, and it goes on afterwards.
pub(crate) async fn what_is_paused_is_not_planned(kind: Kind) {
    let mill = open(kind, 300).await;
    mill.add_feed("second", &mill.supplier.endpoint).await;
    for (scope, told) in scopes() {
        pause(&mill, &scope).await;
        let roles = mill.roles();
        let held = mill.queue(true).await;
        until("why names the pause", || async { why(&mill, &held).await == told }).await;
        if scope.starts_with("feed:") {
            // The scheduler has taken it, and plans another feed meanwhile.
            until("it is claimed", || async { run(&mill, &held).await.status == RunState::Claimed }).await;
            let asked = mill.supplier.handle.stats().requests;
            assert_eq!(asked, 0, "a paused feed was asked");
            let second = mill.syncs.start("second", false, None).await.expect("the sync is queued").run_id;
            assert_eq!(mill.settle(&second).await.status, RunState::Success);
        } else {
            // A scheduler that looks for one run, and ends, finds none.
            assert_eq!(crate::scene::plan(&mill).await, 0, "{scope}");
            assert_eq!(run(&mill, &held).await.status, RunState::Queued, "{scope}");
        }
        assert!(mill.stage.store.sync(held.to_string()).await.is_err(), "{scope}: it was planned");
        assert_eq!(why(&mill, &held).await, told);
        resume(&mill, &scope).await;
        assert_eq!(mill.settle(&held).await.status, RunState::Success, "{scope}");
        roles.stop().await;
    }
    mill.check_equal().await;
}

/// A pause of the other lane holds no sync.
pub(crate) async fn a_pause_of_the_other_lane_holds_no_sync(kind: Kind) {
    let mill = open(kind, 300).await;
    pause(&mill, "lane:ops").await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    mill.check_equal().await;
}

/// A pause while pages wait, in each scope: `why` says so, and no page is carried out.
pub(crate) async fn why_names_what_holds_the_pages(kind: Kind) {
    let mill = open(kind, 300).await;
    let sync = planned(&mill, false).await;
    for (scope, told) in scopes() {
        pause(&mill, &scope).await;
        assert_eq!(work(&mill).await, 0, "{scope}: a page was carried out");
        assert_eq!(why(&mill, &sync.ops_run_id).await, told);
        resume(&mill, &scope).await;
    }
    let roles = mill.roles();
    assert_eq!(mill.settle(&sync.ops_run_id).await.status, RunState::Success);
    roles.stop().await;
    mill.check_equal().await;
}

/// A pause that lasts longer than messages are kept: they are there when it ends, and the sync goes on.
pub(crate) async fn pages_outlive_a_long_pause(kind: Kind) {
    let mill = open(kind, 300).await;
    let sync = planned(&mill, false).await;
    pause(&mill, &format!("feed:{FEED}")).await;
    let moment = match kind {
        Kind::Sqlite => "expires_at - 25 * 3600 * 1000000",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "expires_at - interval '25 hours'",
    };
    let text = format!("UPDATE {{ops}}.messages SET expires_at = {moment}");
    mill.stage.plain.execute(&text).await.expect("a day passes");
    let mut roles = Roles::none();
    roles.scheduler(&mill.syncs);
    roles.consolidator(&mill.syncs);
    mill.syncs.repair().await.expect("repairs are done");
    let dead = "SELECT count(*) FROM {ops}.messages WHERE state = 'dead'";
    assert_eq!(number(&mill, dead).await, 0, "pages were given up");
    assert!(partitions(&mill, &sync).await.iter().all(|partition| partition.state.is_open()));
    resume(&mill, &format!("feed:{FEED}")).await;
    mill.syncs.repair().await.expect("repairs are done");
    work(&mill).await;
    let ended = mill.settle(&sync.ops_run_id).await;
    assert_eq!(ended.status, RunState::Success, "{}", Json::clone(&ended.metadata));
    roles.stop().await;
    mill.check_equal().await;
}
