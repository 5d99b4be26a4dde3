//! Invalid input: one typed error, nothing lost, the watermark unchanged, and every sync ends.

use std::time::Duration;

use tidemill_core::Json;
use tidemill_core::feed::Feed;
use tidemill_core::reach::DefinedBy;
use tidemill_core::run::{Run, RunState};
use tidemill_core::sync::SyncState;
use tidemill_engine::Identity;
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::FeedChange;
use tidemill_store::{Class, RefusalCode};
use tidemill_supplier::{Account, Behaviour, Config};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, Offsets, SyncFixture};

use crate::fixture::{alerts, failed, many, number, open, planned, reload, run, watermark, work};

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
        defined_by: DefinedBy::Operator,
        created_at: host_now(),
    };
    FeedChange {
        feed,
        definition: None,
        copy_url: None,
        schedule: schedule.map(str::to_owned),
        full_schedule: None,
        time_zone: zone.to_owned(),
    }
}

/// An invalid feed is refused before anything is written.
pub(crate) async fn invalid_feed_is_refused_completely(kind: Kind) {
    let fixture = SyncFixture::open(kind, 10).await;
    let good = "http://127.0.0.1:9/api/diamonds";
    for (feed, url, of_kind, cron, zone, words) in [
        ("other", good, "nivoda", Some("every day"), "UTC", "cron"),
        ("other", good, "nivoda", Some("61 * * * *"), "UTC", "61"),
        ("other", good, "nivoda", Some("0 2 * * *"), "Atlantis/Capital", "Atlantis/Capital"),
        ("other", "not a url", "nivoda", None, "UTC", "not a URL"),
        ("other", "ftp://example.org/x", "nivoda", None, "UTC", "unsupported scheme `ftp`"),
        ("other", "https://ann:secret@example.org/x", "nivoda", None, "UTC", "contains credentials"),
        ("other", good, "fax", None, "UTC", "unknown feed kind `fax`"),
        ("Other Feed", good, "nivoda", None, "UTC", "feed"),
    ] {
        let refused = fixture.syncs.put_feed(change(feed, of_kind, url, cron, zone)).await;
        let refused = refused.expect_err(words);
        assert!(refused.to_string().contains(words), "{refused}");
        assert!(!refused.to_string().contains("secret"), "{refused}");
        assert_eq!(fixture.base.store.feeds().await.expect("feeds are listed").len(), 1, "{words}");
        assert_eq!(number(&fixture, "SELECT count(*) FROM {ops}.schedules").await, 0, "{words}");
        let projects = "SELECT count(*) FROM {ops}.projects WHERE project_id = 'elsewhere'";
        assert_eq!(number(&fixture, projects).await, 0, "{words}");
    }
    let unknown = fixture.syncs.start("nowhere", false, None).await.expect_err("there is no such feed");
    assert_eq!(unknown.refusal_code(), Some(RefusalCode::UnknownFeed));
    assert!(unknown.to_string().contains("feed `nowhere` does not exist"), "{unknown}");
    let unknown = fixture.syncs.apply_rules("nowhere", |_| {}).await.expect_err("there is no such feed");
    assert_eq!(unknown.refusal_code(), Some(RefusalCode::UnknownFeed));
    let unknown =
        fixture.syncs.set_watermark("nowhere", None, "ann", None).await.expect_err("there is no such feed");
    assert_eq!(unknown.refusal_code(), Some(RefusalCode::UnknownFeed));
    for id in ["nonsense", "run-00000000-0000-0000-0000-000000000000"] {
        let unknown =
            fixture.syncs.retry_sync(id, false, None, "ann").await.expect_err("there is no such sync");
        assert_eq!(unknown.refusal_code(), Some(RefusalCode::UnknownSync), "{unknown}");
    }
    assert_eq!(number(&fixture, "SELECT count(*) FROM {ops}.runs").await, 0);
}

/// Syncs the feed with all roles; returns the run, which must end soon.
async fn ends_soon(fixture: &SyncFixture) -> Run {
    let roles = fixture.roles();
    let run = fixture.queue(true).await;
    let ended = fixture.settle_within(&run, Duration::from_mins(2)).await;
    roles.stop().await;
    ended
}

fn error_of(run: &Run) -> String {
    run.metadata["error"].as_str().unwrap_or_default().to_owned()
}

/// A one-shot scheduler must report the error instead of success.
pub(crate) async fn plan_refused_by_the_database_fails_the_run(kind: Kind) {
    let fixture = open(kind, 300).await;
    fixture.queue(true).await;
    let rename = "ALTER TABLE partition_progress RENAME TO put_away";
    fixture.base.plain.execute(rename).await.expect("the table is put away");
    let (_stop, message) = tokio::sync::watch::channel(false);
    let identity = Identity { name: "once".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    let failed = fixture.syncs.schedule(identity, true, message).await.expect_err("no sync was planned");
    assert_eq!(failed.class(), Class::Permanent, "{failed}");
    assert!(!failed.to_string().is_empty());
}

/// A wrong password, and HTML responses: the scan reports the error, an alert is raised, and nothing is stored.
pub(crate) async fn feed_that_cannot_be_scanned_fails_the_run(kind: Kind) {
    let account = Account { username: "tester".to_owned(), password: "right".to_owned() };
    let locked = Config { stones: 300, account: Some(account), ..SyncFixture::config() };
    let behaviour = Behaviour { html: true, ..Behaviour::default() };
    let html = Config { stones: 300, behaviour, ..SyncFixture::config() };
    for (config, words) in [
        (locked, "check the user name and the environment variable that holds the password"),
        (html, "answered HTML"),
    ] {
        let fixture = SyncFixture::with(kind, config, many()).await;
        let ended = ends_soon(&fixture).await;
        assert_eq!(ended.status, RunState::Failed, "{ended:?}");
        assert!(error_of(&ended).contains(words), "{}", ended.metadata);
        assert!(!ended.metadata.to_string().contains("right"), "{}", ended.metadata);
        assert_eq!(number(&fixture, "SELECT count(*) FROM run_metadata").await, 0, "no sync was started");
        assert_eq!(watermark(&fixture).await, None);
        let message = alerts(&fixture).await;
        assert_eq!(message.len(), 1, "{message:?}");
        assert!(message[0].contains(words), "{message:?}");
    }
}

/// A wrong supplier during paging fails its partitions with a message, keeps the watermark, and loses nothing. A retry
/// completes the sync once the supplier is fixed.
async fn wrong_while_paging(kind: Kind, words: &str, wrong: impl Fn(&mut Behaviour)) {
    let fixture = open(kind, 900).await;
    let roles = fixture.roles();
    let first = fixture.sync(false).await;
    roles.stop().await;
    let mark = watermark(&fixture).await;
    assert_eq!(mark, Some(first.updated_to));
    let rows = fixture.rows("active").await;

    let sync = planned(&fixture, true).await;
    fixture.supplier.handle.behave(&wrong);
    let offsets = Offsets::watch(&fixture, &sync);
    tokio::time::timeout(Duration::from_mins(1), work(&fixture)).await.expect("it ends");
    offsets.check().await;
    let waiting = "SELECT message_id || ': ' || coalesce(last_error, '') FROM {ops}.messages \
                   WHERE state = 'live' AND queue = 'work-items'";
    let left = fixture.base.plain.texts(waiting).await.expect("the queue is read");
    assert_eq!(left, Vec::<String>::new(), "a page was given back");
    let after = reload(&fixture, &sync).await;
    assert_eq!((after.state, after.failed_workers), (SyncState::Failed, after.expected_workers), "{after:?}");
    assert_eq!(run(&fixture, &sync.ops_run_id).await.status, RunState::Failed);
    for partition in failed(&fixture, &sync).await {
        let error = partition.error.unwrap_or_default();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(alerts(&fixture).await.len(), 1);
    assert_eq!(watermark(&fixture).await, mark);
    assert_eq!(fixture.rows("active").await, rows, "no row is lost");

    fixture.supplier.handle.behave(|behaviour| *behaviour = Behaviour::default());
    let roles = fixture.roles();
    let retried = fixture.syncs.retry_sync(&sync.run_id.to_string(), false, None, "ann").await;
    let ended = fixture.settle(&retried.expect("it is tried again").run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert_eq!(watermark(&fixture).await, Some(sync.updated_to));
    fixture.check_equal().await;
}

pub(crate) async fn html_page_fails_its_partition(kind: Kind) {
    Box::pin(wrong_while_paging(kind, "answered HTML instead of JSON", |behaviour| behaviour.html = true))
        .await;
}

pub(crate) async fn page_without_ids_fails_its_partition(kind: Kind) {
    let words = "none has an id";
    Box::pin(wrong_while_paging(kind, words, |behaviour| behaviour.without_ids_next = 100_000)).await;
}

pub(crate) async fn wrong_count_fails_its_partition(kind: Kind) {
    Box::pin(wrong_while_paging(kind, "were read in 3 passes", |behaviour| behaviour.count_lies_by = 10))
        .await;
}

pub(crate) async fn endlessly_repeated_page_fails_its_partition(kind: Kind) {
    Box::pin(wrong_while_paging(kind, "as if it ignored the offset", |behaviour| {
        behaviour.repeat_always = true;
    }))
    .await;
}

/// The count is too low from the start.
pub(crate) async fn too_low_count_reads_every_record(kind: Kind) {
    let behaviour = Behaviour { count_lies_by: -20, ..Behaviour::default() };
    let fixture =
        SyncFixture::with(kind, Config { stones: 900, behaviour, ..SyncFixture::config() }, many()).await;
    let ended = ends_soon(&fixture).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    fixture.check_equal().await;
    assert_eq!(fixture.base.store.rejects(Some(FEED.to_owned()), 1).await.expect("rejects are listed"), []);
}
