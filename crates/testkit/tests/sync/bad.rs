//! Bad input: one clear typed error, nothing lost, the watermark where it was, and every sync ends.

use std::time::Duration;

use tidemill_core::Json;
use tidemill_core::feed::Feed;
use tidemill_core::run::{Run, RunState};
use tidemill_core::sync::SyncState;
use tidemill_engine::Identity;
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::FeedChange;
use tidemill_store::{Class, RefusalCode};
use tidemill_supplier::{Account, Behaviour, Config};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill, Offsets};

use crate::scene::{again, alerts, failed, many, number, open, planned, run, watermark, work};

fn change(name: &str, kind: &str, endpoint: &str, schedule: Option<&str>, zone: &str) -> FeedChange {
    let feed = Feed {
        feed: name.to_owned(),
        project_id: "elsewhere".to_owned(),
        kind: kind.to_owned(),
        endpoint: endpoint.to_owned(),
        username: Some("tester".to_owned()),
        password_env: Some("PATH".to_owned()),
        rate: 25,
        settings: Json::Object(serde_json::Map::new()),
        created_at: host_now(),
    };
    FeedChange {
        feed,
        copy_url: None,
        schedule: schedule.map(str::to_owned),
        full_schedule: None,
        time_zone: zone.to_owned(),
    }
}

/// A feed that cannot be used is refused before anything of it is written.
pub(crate) async fn a_feed_that_cannot_be_used_is_refused_whole(kind: Kind) {
    let mill = Mill::open(kind, 10).await;
    let good = "http://127.0.0.1:9/api/diamonds";
    for (feed, url, of_kind, cron, zone, words) in [
        ("other", good, "nivoda", Some("every day"), "UTC", "cron"),
        ("other", good, "nivoda", Some("61 * * * *"), "UTC", "61"),
        ("other", good, "nivoda", Some("0 2 * * *"), "Atlantis/Capital", "Atlantis/Capital"),
        ("other", "not a url", "nivoda", None, "UTC", "not a URL"),
        ("other", "ftp://example.org/x", "nivoda", None, "UTC", "`ftp` is not spoken here"),
        ("other", "https://ann:secret@example.org/x", "nivoda", None, "UTC", "contains an account"),
        ("other", good, "fax", None, "UTC", "`fax` is not a kind of feed"),
        ("Other Feed", good, "nivoda", None, "UTC", "feed"),
    ] {
        let refused = mill.syncs.put_feed(change(feed, of_kind, url, cron, zone)).await;
        let refused = refused.expect_err(words);
        assert!(refused.to_string().contains(words), "{refused}");
        assert!(!refused.to_string().contains("secret"), "{refused}");
        assert_eq!(mill.stage.store.feeds().await.expect("feeds are listed").len(), 1, "{words}");
        assert_eq!(number(&mill, "SELECT count(*) FROM {ops}.schedules").await, 0, "{words}");
        let projects = "SELECT count(*) FROM {ops}.projects WHERE project_id = 'elsewhere'";
        assert_eq!(number(&mill, projects).await, 0, "{words}");
    }
    let unknown = mill.syncs.start("nowhere", false, None).await.expect_err("there is no such feed");
    assert_eq!(unknown.refusal_code(), Some(RefusalCode::UnknownFeed));
    assert!(unknown.to_string().contains("feed `nowhere` does not exist"), "{unknown}");
    let unknown = mill.syncs.apply_rules("nowhere", |_| {}).await.expect_err("there is no such feed");
    assert_eq!(unknown.refusal_code(), Some(RefusalCode::UnknownFeed));
    let unknown =
        mill.syncs.set_watermark("nowhere", None, "ann", None).await.expect_err("there is no such feed");
    assert_eq!(unknown.refusal_code(), Some(RefusalCode::UnknownFeed));
    for id in ["nonsense", "run-00000000-0000-0000-0000-000000000000"] {
        let unknown = mill.syncs.retry_sync(id, false, None, "ann").await.expect_err("there is no such sync");
        assert_eq!(unknown.refusal_code(), Some(RefusalCode::UnknownSync), "{unknown}");
    }
    assert_eq!(number(&mill, "SELECT count(*) FROM {ops}.runs").await, 0);
}

/// Brings the feed in with everything running; the run, which must have ended soon.
async fn ends_soon(mill: &Mill) -> Run {
    let roles = mill.roles();
    let run = mill.queue(true).await;
    let ended = mill.settle_within(&run, Duration::from_mins(2)).await;
    roles.stop().await;
    ended
}

fn error_of(run: &Run) -> String {
    run.metadata["error"].as_str().unwrap_or_default().to_owned()
}

/// A database that refuses a plan for good: a scheduler that was asked for one look says so, and not that all is well.
pub(crate) async fn a_database_that_refuses_a_plan_is_no_success(kind: Kind) {
    let mill = open(kind, 300).await;
    mill.queue(true).await;
    let rename = "ALTER TABLE partition_progress RENAME TO put_away";
    mill.stage.plain.execute(rename).await.expect("the table is put away");
    let (_stop, told) = tokio::sync::watch::channel(false);
    let identity = Identity { name: "once".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    let failed = mill.syncs.schedule(identity, true, told).await.expect_err("nothing was planned");
    assert_eq!(failed.class(), Class::Permanent, "{failed}");
    assert!(!failed.to_string().is_empty());
}

/// A wrong password, and a supplier that answers HTML: the scan says so, people are told, and nothing else is
/// there.
pub(crate) async fn a_feed_that_cannot_be_scanned_fails_the_run(kind: Kind) {
    let account = Account { username: "tester".to_owned(), password: "right".to_owned() };
    let locked = Config { stones: 300, account: Some(account), ..Mill::config() };
    let behaviour = Behaviour { html: true, ..Behaviour::default() };
    let html = Config { stones: 300, behaviour, ..Mill::config() };
    for (config, words) in
        [(locked, "check the user name, and the variable that holds the password"), (html, "answered HTML")]
    {
        let mill = Mill::with(kind, config, many()).await;
        let ended = ends_soon(&mill).await;
        assert_eq!(ended.status, RunState::Failed, "{ended:?}");
        assert!(error_of(&ended).contains(words), "{}", ended.metadata);
        assert!(!ended.metadata.to_string().contains("right"), "{}", ended.metadata);
        assert_eq!(number(&mill, "SELECT count(*) FROM run_metadata").await, 0, "no sync was begun");
        assert_eq!(watermark(&mill).await, None);
        let told = alerts(&mill).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(words), "{told:?}");
    }
}

/// What a supplier does wrong while pages are read fails its partitions with a sentence, moves no watermark,
/// loses nothing, and a retry brings everything in once the supplier is well.
async fn wrong_while_paging(kind: Kind, words: &str, wrong: impl Fn(&mut Behaviour)) {
    let mill = open(kind, 900).await;
    let roles = mill.roles();
    let first = mill.sync(false).await;
    roles.stop().await;
    let mark = watermark(&mill).await;
    assert_eq!(mark, Some(first.updated_to));
    let rows = mill.rows("active").await;

    let sync = planned(&mill, true).await;
    mill.supplier.handle.behave(&wrong);
    let offsets = Offsets::watch(&mill, &sync);
    tokio::time::timeout(Duration::from_mins(1), work(&mill)).await.expect("it ends");
    offsets.check().await;
    let waiting = "SELECT message_id || ': ' || coalesce(last_error, '') FROM {ops}.messages \
                   WHERE state = 'live' AND queue = 'work-items'";
    let left = mill.stage.plain.texts(waiting).await.expect("the queue is read");
    assert_eq!(left, Vec::<String>::new(), "a page was given back");
    let after = again(&mill, &sync).await;
    assert_eq!((after.state, after.failed_workers), (SyncState::Failed, after.expected_workers), "{after:?}");
    assert_eq!(run(&mill, &sync.ops_run_id).await.status, RunState::Failed);
    for partition in failed(&mill, &sync).await {
        let error = partition.error.unwrap_or_default();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(alerts(&mill).await.len(), 1);
    assert_eq!(watermark(&mill).await, mark);
    assert_eq!(mill.rows("active").await, rows, "nothing is lost");

    mill.supplier.handle.behave(|behaviour| *behaviour = Behaviour::default());
    let roles = mill.roles();
    let retried = mill.syncs.retry_sync(&sync.run_id.to_string(), false, None, "ann").await;
    let ended = mill.settle(&retried.expect("it is tried again").run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert_eq!(watermark(&mill).await, Some(sync.updated_to));
    mill.check_equal().await;
}

/// A supplier that answers HTML.
pub(crate) async fn html_while_paging(kind: Kind) {
    wrong_while_paging(kind, "answered HTML instead of JSON", |behaviour| behaviour.html = true).await;
}

/// Pages without ids.
pub(crate) async fn pages_without_ids(kind: Kind) {
    let words = "none has an id";
    wrong_while_paging(kind, words, |behaviour| behaviour.without_ids_next = 100_000).await;
}

/// A count that lies.
pub(crate) async fn a_count_that_lies(kind: Kind) {
    wrong_while_paging(kind, "were seen in 3 passes", |behaviour| behaviour.count_lies_by = 10).await;
}

/// A page that repeats for ever.
pub(crate) async fn a_page_that_repeats_for_ever(kind: Kind) {
    wrong_while_paging(kind, "as if it ignored the offset", |behaviour| behaviour.repeat_always = true).await;
}

/// A count that is too low from the start: every stone is there all the same.
pub(crate) async fn a_count_that_is_too_low(kind: Kind) {
    let behaviour = Behaviour { count_lies_by: -20, ..Behaviour::default() };
    let mill = Mill::with(kind, Config { stones: 900, behaviour, ..Mill::config() }, many()).await;
    let ended = ends_soon(&mill).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    mill.check_equal().await;
    assert_eq!(mill.stage.store.rejects(Some(FEED.to_owned()), 1).await.expect("rejects are listed"), []);
}
