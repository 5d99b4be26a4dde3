//! Feeds, syncs and queues.

use crate::fixture::{ApiFixture, refused};
use http::Method;
use serde_json::{Value, json};
use tidemill_core::alert::AlertKind;
use tidemill_core::feed::Watermark;
use tidemill_core::queue::{DeadReason, NewMessage, WORK_ITEMS};
use tidemill_core::sync::SyncState;
use tidemill_core::{Timestamp, WorkerId};
use tidemill_engine::Identity;
use tidemill_engine::sync::{PagerOptions, SyncSettings};
use tidemill_store::{NewReject, Queue as _, ReceiveRequest};
use tidemill_supplier::Config;
use tidemill_testkit::interface::{Kind, at};
use tidemill_testkit::list_api::ListApi;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture, quick};
use tidemill_wire::alerts::ListAlerts;
use tidemill_wire::feeds::{ListGaps, ListRejects, PutFeed, SetWatermark, StartSync};
use tidemill_wire::projects::Pause;
use tidemill_wire::queues::{ListDead, Peek, ReplayDead};
use tidemill_wire::rules::Reprice;
use tidemill_wire::syncs::{Consolidate, ListSyncs, RetrySync};
use tokio::sync::watch;
use uuid::Uuid;

fn put(value: Value) -> PutFeed {
    serde_json::from_value(value).expect("a feed is read")
}

/// Opens a sync fixture and an API on its database.
async fn open_with_sync(kind: Kind) -> (SyncFixture, ApiFixture) {
    let settings = SyncSettings { unlimited: true, partition_target: 150, partition_min: 50, ..quick() };
    let fixture = SyncFixture::with(kind, Config { stones: 800, ..SyncFixture::config() }, settings).await;
    let api = ApiFixture::of(fixture.base.clone(), fixture.syncs.clone());
    (fixture, api)
}

pub(crate) async fn feed_is_added_shown_and_synced(kind: Kind) {
    let (fixture, api) = open_with_sync(kind).await;
    let admin = &api.admin;
    let other = put(json!({
        "project_id": "default", "endpoint": "http://127.0.0.1:9/graphql", "username": "u",
        "password_env": "FEED_PASSWORD", "schedule": "0 3 * * *",
    }));
    let stored = admin.put_feed("other", &other).await.expect("a feed is added");
    assert_eq!(
        (stored.feed.kind.as_str(), stored.feed.password_env.as_deref()),
        ("nivoda", Some("FEED_PASSWORD"))
    );
    assert!(admin.schedule("feed-other").await.is_ok(), "its schedule is stored");
    let bad = put(json!({"project_id": "default", "kind": "none", "endpoint": "http://localhost"}));
    assert_eq!(refused(admin.put_feed("bad", &bad).await).0, 422);
    assert_eq!(refused(admin.heatmap(FEED).await), (404, "nothing_yet".to_owned()));

    let roles = fixture.roles();
    let key = || Some("first".to_owned());
    let queued = admin.start_sync(FEED, StartSync { full: true }, key()).await.expect("a sync is queued");
    let again = admin.start_sync(FEED, StartSync { full: true }, key()).await.expect("it is there");
    assert_eq!((queued.created, again.created, &again.run_id), (true, false, &queued.run_id));
    fixture.settle(&queued.run_id).await;
    let status = admin.sync(queued.run_id.as_str()).await.expect("the sync is shown");
    assert_eq!(status.sync.state, SyncState::Completed);
    let id = status.sync.run_id.to_string();
    let partitions = admin.partitions(&id).await.expect("partitions are listed").items;
    assert_eq!(partitions, status.partitions);
    let heat = admin.heatmap(FEED).await.expect("a scan");
    assert_eq!((heat.sync, heat.partitions.len()), (status.sync.run_id, partitions.len()));
    let repriced = admin.reprice(FEED, &Reprice::default()).await.expect("stones are priced again");
    assert_eq!(repriced.rejected, 0);
    roles.stop().await;

    let lines = admin.feeds().await.expect("feeds are listed").items;
    let line = lines.iter().find(|line| line.feed.feed.feed == FEED).expect("the feed is listed");
    assert_eq!(line.last_sync.as_ref().map(|sync| sync.run_id), Some(status.sync.run_id));
    let detail = admin.feed(FEED).await.expect("the feed is shown");
    assert_eq!((detail.syncs.len(), detail.gaps.len(), detail.watermark_changes.len()), (1, 0, 1));
    let mark: Timestamp = "2026-01-16T02:00:00Z".parse().expect("a time");
    let watermark = Watermark { last_updated_at: mark, last_run_id: None, last_run_completed_at: None };
    let set = SetWatermark { watermark: Some(watermark), note: Some("again".to_owned()) };
    let now = admin.set_watermark(FEED, &set).await.expect("the watermark is moved");
    assert_eq!(now.watermark.as_ref().map(|mark| mark.last_updated_at), Some(mark));
    assert_eq!((now.changes.len(), now.changes[0].by.as_str()), (2, "ann"));
    assert_eq!(admin.watermark(FEED).await.expect("the watermark"), now);
    let flag = admin.pause_feed(FEED, &Pause::default()).await.expect("it is paused");
    assert_eq!(flag.scope, format!("feed:{FEED}"));
    assert!(admin.resume_feed(FEED).await.expect("it continues").resumed);
}

pub(crate) async fn repricing_runs_in_batches_from_any_offset(kind: Kind) {
    let (fixture, api) = open_with_sync(kind).await;
    let admin = &api.admin;
    let roles = fixture.roles();
    fixture.sync(true).await;
    roles.stop().await;
    let rule =
        |markup: i32| serde_json::from_value(json!({"markup": markup, "priority": 1})).expect("a rule");
    admin.add_rule(&rule(20_000), None).await.expect("a rule is added");
    let ask = |after: Option<String>, limit| Reprice { after, limit: Some(limit) };
    let first = admin.reprice(FEED, &ask(None, 300)).await.expect("some stones are priced");
    assert_eq!((first.stones, first.rejected), (300, 0));
    // A rule is added meanwhile: the repricing restarts with the current rules, so that prices are not mixed.
    admin.add_rule(&rule(30_000), None).await.expect("a rule is added");
    let anew = admin.reprice(FEED, &ask(first.next.clone(), 150)).await.expect("it starts again");
    assert!(anew.stones == 0 && anew.rules_version > first.rules_version, "{anew:?}");
    let mut place = anew.next.clone();
    let mut priced = 0;
    while let Some(after) = place {
        let some = admin.reprice(FEED, &ask(Some(after.clone()), 150)).await.expect("some stones are priced");
        assert!(some.stones <= 150 && some.rules_version == anew.rules_version, "{some:?}");
        // A repeated request after a lost answer skips the finished part.
        let again = admin.reprice(FEED, &ask(Some(after), 1)).await.expect("it is requested again");
        assert!(again.stones <= 1, "{again:?}");
        priced += some.stones + again.stones;
        place = some.next;
    }
    assert_eq!(priced, 800, "each stone was priced once");
    let by_newest = format!("SELECT count(*) FROM diamonds WHERE rules_version = {}", anew.rules_version);
    assert_eq!(fixture.base.plain.number(&by_newest).await.ok(), Some(800));
    let doubled = "SELECT count(*) FROM diamonds WHERE retail_price_cents = 2 * feed_price_cents";
    assert_eq!(fixture.base.plain.number(doubled).await.ok(), Some(800), "of two rules the older counts");
    let nothing = admin.reprice(FEED, &Reprice::default()).await.expect("the existing rows are read");
    assert_eq!((nothing.stones, nothing.next), (0, None));

    for bad in [ask(None, 0), ask(None, 10_001), ask(Some("x".to_owned()), 1)] {
        assert_eq!(refused(admin.reprice(FEED, &bad).await), (422, "invalid".to_owned()), "{bad:?}");
    }
    let elsewhere = ask(Some("[99999,\"\"]".to_owned()), 1);
    assert_eq!(refused(admin.reprice(FEED, &elsewhere).await).0, 422, "there are no such rules");
}

fn identity(name: &str) -> Identity {
    Identity { name: name.to_owned(), host: "here".to_owned(), labels: Vec::new() }
}

pub(crate) async fn sync_pace_is_returned_in_few_intervals(kind: Kind) {
    let (fixture, api) = open_with_sync(kind).await;
    let roles = fixture.roles();
    let sync = fixture.sync(true).await;
    roles.stop().await;
    let id = sync.run_id.to_string();
    let partitions = api.admin.partitions(&id).await.expect("partitions are listed").items;
    let stored: i64 = partitions.iter().map(|partition| partition.stored).sum();
    let pace = api.admin.pace(&id).await.expect("the pace is returned");
    assert_eq!(pace.from, partitions.iter().filter_map(|partition| partition.first_page_at).min());
    assert_eq!((pace.stored.iter().sum::<i64>(), stored > 0), (stored, true), "{pace:?}");
    // A sync that took two hours and stored everything half an hour after its start.
    let (later, end) = match kind {
        Kind::Sqlite => ("stored_at + 1800000000", "ended_at + 7200000000"),
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            ("stored_at + interval '30 minutes'", "ended_at + interval '2 hours'")
        }
    };
    let plain = &fixture.base.plain;
    plain.execute(&format!("UPDATE {{ops}}.pages SET stored_at = {later}")).await.expect("pages are moved");
    let moved = format!("UPDATE partition_progress SET ended_at = {end}");
    plain.execute(&moved).await.expect("partitions are moved");
    let pace = api.admin.pace(&id).await.expect("the pace is returned");
    assert_eq!((pace.interval_secs >= 120, pace.stored.len() <= 60), (true, true), "{pace:?}");
    assert_eq!(pace.stored.iter().sum::<i64>(), stored, "{pace:?}");
    let full: Vec<usize> = (0..pace.stored.len()).filter(|place| pace.stored[*place] > 0).collect();
    assert!(full.iter().all(|place| (14..=17).contains(place)), "about a quarter of the way: {pace:?}");
    assert_eq!(refused(api.of_project("shop").admin.pace(&id).await), (404, "unknown_sync".to_owned()));
}

pub(crate) async fn failed_sync_is_shown_retried_and_consolidated(kind: Kind) {
    let (fixture, api) = open_with_sync(kind).await;
    let admin = &api.admin;
    let queued = admin.start_sync(FEED, StartSync::default(), None).await.expect("a sync is queued");
    let (_stop, response) = watch::channel(false);
    fixture.syncs.schedule(identity("scheduler"), true, response.clone()).await.expect("it is planned");
    let id = fixture.record(&queued.run_id).await.run_id.to_string();
    let early = refused(admin.consolidate_sync(&id, Consolidate { force: true, advance: false }).await);
    assert_eq!(early, (409, "not_retryable".to_owned()));
    fixture.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 1);
    let once = PagerOptions { once: true, ..PagerOptions::default() };
    fixture.syncs.work_pages(identity("worker"), &once, response).await.expect("pages are executed");
    let failed = admin.sync(&id).await.expect("the sync is shown");
    assert_eq!((failed.sync.state, failed.sync.failed_workers), (SyncState::Failed, 1));
    assert!(!admin.cancel_sync(&id, None).await.expect("it had ended").cancelled);
    let soft = refused(admin.consolidate_sync(&id, Consolidate::default()).await);
    assert_eq!(soft, (409, "not_retryable".to_owned()));
    let wrong = RetrySync { restart: true, partition: Some("partition-999".to_owned()) };
    assert_eq!(refused(admin.retry_sync(&id, &wrong).await), (422, "bad_value".to_owned()));
    let retried = admin.retry_sync(&id, &RetrySync::default()).await.expect("it is tried again");
    assert!(retried.created);
    assert!(!admin.retry_sync(&id, &RetrySync::default()).await.expect("once").created);

    let listed = admin.syncs(&ListSyncs { limit: Some(1), ..ListSyncs::default() }).await.expect("syncs");
    assert_eq!(listed.items.len(), 1);
    let next: Uuid = listed.next.expect("a page that is full has a next").parse().expect("an id");
    let last = ListSyncs { after: Some(next), ..ListSyncs::default() };
    assert!(admin.syncs(&last).await.expect("syncs").items.is_empty());
    let none = ListSyncs { feed: Some("none".to_owned()), ..ListSyncs::default() };
    assert_eq!(refused(admin.syncs(&none).await), (404, "unknown_feed".to_owned()));
}

pub(crate) async fn dead_letters_are_listed_in_pages_and_replayed(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let store = &api.base.store;
    let ids: Vec<String> = (0..7).map(|number| format!("page-{number}")).collect();
    let messages = ids.iter().map(|id| NewMessage::new(WORK_ITEMS, id.as_str(), "gems", json!({}))).collect();
    store.send(messages, Some(at(0))).await.expect("messages are sent");
    let seen = api.admin.peek(WORK_ITEMS, Peek { limit: Some(3) }).await.expect("a look").items;
    assert_eq!(seen.len(), 3);
    let worker = WorkerId(Uuid::new_v4());
    let taken =
        store.receive(ReceiveRequest::new(WORK_ITEMS, worker, 10), Some(at(0))).await.expect("messages");
    for message in taken.received {
        let killed = store.kill(message.receipt, DeadReason::Permanent, None, Some(at(1))).await;
        killed.expect("it is a dead letter");
    }
    let line = api.admin.queue(WORK_ITEMS).await.expect("a queue");
    assert_eq!((line.depth.dead, line.depth.waiting, line.depth.groups.len()), (7, 0, 1));
    assert_eq!(api.admin.queues().await.expect("queues are listed").items.len(), 3);
    let mut request = ListDead { limit: Some(3), after: None };
    let mut found = Vec::new();
    loop {
        let page = api.admin.dead_letters(WORK_ITEMS, &request).await.expect("dead letters");
        found.extend(page.items.into_iter().map(|letter| letter.message_id));
        request.after = page.next;
        if request.after.is_none() {
            break;
        }
    }
    assert_eq!(found, ids);
    let one = ReplayDead { ids: vec![ids[0].clone()], all: false };
    assert_eq!(api.admin.replay(WORK_ITEMS, &one).await.expect("one is sent").replayed, 1);
    assert_eq!(api.admin.replay(WORK_ITEMS, &one).await.expect("it was sent").replayed, 0);
    let all = ReplayDead { ids: Vec::new(), all: true };
    assert_eq!(api.admin.replay(WORK_ITEMS, &all).await.expect("all are sent").replayed, 6);
    let both = ReplayDead { ids, all: true };
    assert_eq!(refused(api.admin.replay(WORK_ITEMS, &both).await), (422, "invalid".to_owned()));
    let neither = ReplayDead::default();
    assert_eq!(refused(api.admin.replay(WORK_ITEMS, &neither).await), (422, "invalid".to_owned()));
}

/// Replaying dead letters of a failed sync has no effect, and the response names the command that helps.
pub(crate) async fn replay_for_a_failed_sync_hints_at_the_retry(kind: Kind) {
    let (fixture, api) = open_with_sync(kind).await;
    let run = fixture.queue(true).await;
    let identity = Identity { name: "once".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    let (_stop, response) = watch::channel(false);
    assert_eq!(fixture.syncs.schedule(identity, true, response).await.expect("it is planned"), 1);
    let store = &fixture.base.store;
    let worker = WorkerId(Uuid::new_v4());
    let taken = store.receive(ReceiveRequest::new(WORK_ITEMS, worker, 100), None).await.expect("messages");
    for message in taken.received {
        store.kill(message.receipt, DeadReason::Permanent, None, None).await.expect("it is a dead letter");
    }
    fixture.syncs.repair().await.expect("repairs are done");
    let sync = fixture.record(&run).await;
    assert_eq!(sync.state, SyncState::Failed);
    let all = ReplayDead { ids: Vec::new(), all: true };
    let answer = api.admin.replay(WORK_ITEMS, &all).await.expect("they are sent");
    assert_eq!(answer.hints, [format!("tidemill sync retry {}", sync.run_id)]);
    let again = api.admin.replay(WORK_ITEMS, &all).await.expect("there are none");
    assert_eq!((again.replayed, again.hints), (0, Vec::new()));
}

pub(crate) async fn rejects_and_gaps_are_listed_in_pages(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let feed = put(json!({"project_id": "shop", "endpoint": "http://127.0.0.1:9/graphql", "username": "u",
        "password_env": "FEED_PASSWORD"}));
    api.admin.put_feed("gems", &feed).await.expect("a feed is added");
    let write = api.base.store.write(|mut tx| {
        Box::pin(async move {
            for number in 0..5 {
                let reject = NewReject {
                    record_id: format!("record-{number}"),
                    stage: tidemill_core::records::Stage::Map,
                    reason: "it is none".to_owned(),
                    payload: "{}".to_owned(),
                };
                // Two rejects have the same time, so the page position must contain more than the time.
                tx.reject("gems", Uuid::nil(), None, &reject, Some(at(number / 2))).await?;
            }
            Ok(())
        })
    });
    write.await.expect("rows are rejected");
    let mut request = ListRejects { feed: Some("gems".to_owned()), after: None, limit: Some(2) };
    let mut found = Vec::new();
    loop {
        let page = api.admin.rejects(&request).await.expect("rejected rows");
        found.extend(page.items.into_iter().map(|reject| reject.record_id));
        request.after = page.next;
        if request.after.is_none() {
            break;
        }
    }
    assert_eq!(found, ["record-4", "record-2", "record-3", "record-0", "record-1"]);

    let moment = if kind == Kind::Sqlite { "0" } else { "now()" };
    let insert = format!(
        "INSERT INTO {{ops}}.feed_gaps (feed, range_from, range_to, updated_to, left_by, reason, created_at) \
         VALUES ('gems', 0, 100, {moment}, '{0}', 'x', {moment}), ('gems', 100, 200, {moment}, '{0}', 'y', {moment})",
        Uuid::nil()
    );
    api.base.plain.execute(&insert).await.expect("gaps are left");
    let request = ListGaps { limit: Some(1), ..ListGaps::default() };
    let first = api.admin.gaps(&request).await.expect("gaps");
    let after = first.next.and_then(|next| next.parse().ok());
    let second = api.admin.gaps(&ListGaps { after, ..request }).await.expect("gaps");
    assert_eq!((first.items[0].reason.as_str(), second.items[0].reason.as_str()), ("x", "y"));
    let unknown = ListGaps { feed: Some("none".to_owned()), ..ListGaps::default() };
    assert_eq!(refused(api.admin.gaps(&unknown).await), (404, "unknown_feed".to_owned()));
}

/// A record, two without an id, and one with a character that no database stores.
pub(crate) async fn outcomes_of_listed_records_are_shown(kind: Kind) {
    let (fixture, api) = open_with_sync(kind).await;
    let records = [json!({"id": "a"}), json!({"n": 1}), json!({"n": 2}), json!({"id": "b", "note": "\u{0}"})];
    let list = ListApi::start(records.to_vec()).await;
    let definition = format!(
        "version: 1\nfeed: orders\nclient: {{base_url: '{}', rate: 0}}\n\
         resource: {{path: /items, primary_key: id, data_selector: data}}\npaginator: {{type: single_page}}\n\
         into:\n  table: public.orders\n  primary_key: id\n  columns: {{id: {{nullable: false}}, note: {{}}}}\n",
        list.base_url
    );
    let feed = PutFeed::of_definition("default".to_owned(), definition);
    api.admin.put_feed("orders", &feed).await.expect("the feed is stored");
    api.admin.create_feed_table("orders").await.expect("the table is created");
    let roles = fixture.roles();
    let queued =
        api.admin.start_sync("orders", StartSync { full: true }, None).await.expect("a sync is queued");
    let run = fixture.settle(&queued.run_id).await;
    roles.stop().await;
    let summary = "4 records listed: 1 stored, 3 rejected (fetch 3)";
    let status = api.admin.sync(queued.run_id.as_str()).await.expect("the sync is shown");
    assert_eq!((status.summary().as_str(), status.ledger().difference()), (summary, 0));
    assert_eq!(run.metadata["summary"], summary);
    let (_, shown) = api.raw(Method::GET, &format!("/v1/syncs/{}", status.sync.run_id), "").await;
    let expected = json!({
        "listed": 4, "stored": 1, "unchanged": 0, "flagged": 0, "rejected": {"fetch": 3}, "repeats": 0,
        "deleted_by_flag": 0,
    });
    assert_eq!((&shown["sync"]["ledger"], &run.metadata["ledger"]), (&expected, &expected));
    assert_eq!(shown["partitions"][0]["ledger"], expected);
    let alerts = api.admin.alerts(&ListAlerts::default()).await.expect("alerts are listed").items;
    assert!(alerts.iter().any(|alert| alert.kind == AlertKind::RecordsRejected), "{alerts:?}");
}
