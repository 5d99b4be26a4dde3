//! Sources of alerts: runs, schedules, queues, watermarks and partitions.

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::alert::AlertKind;
use tidemill_core::feed::{Feed, Watermark};
use tidemill_core::queue::{DeadReason, NewMessage, Replay, WORK_ITEMS};
use tidemill_core::reach::DefinedBy;
use tidemill_core::run::{ChangeOutcome, FailRun, FinalStatus};
use tidemill_core::schedule::{MissedPolicy, OverlapPolicy};
use tidemill_core::time::from_micros;
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::alerts::BodyFormat;
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{FeedChange, SyncSettings, Syncs};
use tidemill_engine::{Engine, Identity, NewSchedule, RetryPolicy};
use tidemill_store::{AlertFilter, ClaimRuns, FinishRun, Holder, Queue as _, ReceiveRequest};
use tidemill_testkit::interface::{Kind, at};
use tidemill_testkit::sync_fixture::SyncFixture;
use tidemill_testkit::webhook_receiver::WebhookReceiver;
use uuid::Uuid;

use crate::{AlertFixture, NOTHING, ONE, hook, request};

pub(crate) async fn lost_run_raises_an_alert(kind: Kind) {
    let fixture = AlertFixture::open(kind, Vec::new()).await;
    let run = fixture.engine.queue(request()).await.expect("it is queued").run_id;
    fixture.engine.claim(ClaimRuns::one("worker-1")).await.expect("it is claimed");
    fixture.pass(301);
    fixture.engine.sweep(100, 20.0).await.expect("it is swept");
    fixture.process().await;
    let alert = &fixture.alerts().await[0];
    assert_eq!((alert.kind, &alert.run_id), (AlertKind::RunLost, &Some(run)));
    fixture.end_claimed(FinalStatus::Success).await;
    fixture.process().await;
    assert_eq!(fixture.lasting().await, [], "its successor did it");
}

/// Starts a run with a worker that promises no heartbeats, and lets five silent minutes pass.
async fn stalled(fixture: &AlertFixture) -> RunId {
    let run = fixture.engine.queue(request()).await.expect("it is queued").run_id;
    let ask = ClaimRuns { lease_secs: None, ..ClaimRuns::one("worker-1") };
    fixture.engine.claim(ask).await.expect("it is claimed");
    fixture.engine.start(&run, &Holder::default()).await.expect("it starts");
    fixture.pass(301);
    fixture.engine.sweep(100, 20.0).await.expect("it is swept");
    fixture.process().await;
    run
}

pub(crate) async fn stalled_run_alert_lasts_until_a_heartbeat(kind: Kind) {
    let fixture = AlertFixture::open(kind, Vec::new()).await;
    let run = stalled(&fixture).await;
    let alert = &fixture.alerts().await[0];
    assert_eq!((alert.kind, alert.times, &alert.run_id), (AlertKind::RunStalled, 1, &Some(run.clone())));
    let message = format!(
        "run {run} in shop/staging is stalled: worker worker-1 sends no heartbeat and the run has no lease"
    );
    assert_eq!(alert.message, message);
    assert_eq!(alert.command, Some(format!("tidemill run fail {run}")));
    fixture.pass(3_600);
    fixture.engine.sweep(100, 20.0).await.expect("it is swept");
    fixture.process().await;
    assert_eq!(fixture.lasting().await, [AlertKind::RunStalled], "it lasts, and one message is sent");
    let events = vec![tidemill_testkit::interface::info("still here")];
    fixture.engine.append(&run, events, &Holder::default()).await.expect("the event is appended");
    fixture.process().await;
    assert_eq!(fixture.lasting().await, []);
}

pub(crate) async fn stalled_run_alert_lasts_until_the_run_ends(kind: Kind) {
    let fixture = AlertFixture::open(kind, Vec::new()).await;
    let run = stalled(&fixture).await;
    let end = FinishRun { run_id: run, status: FinalStatus::Success, metadata: json!({}), epoch: None };
    fixture.engine.finish(vec![end], None).await.expect("it ends");
    fixture.process().await;
    assert_eq!(fixture.lasting().await, [], "its worker was only slow");

    let run = stalled(&fixture).await;
    let ask = FailRun { run_id: run.clone(), by: "ann".to_owned(), reason: None, retry: true };
    let failed = fixture.engine.fail_run(ask).await.expect("it is failed");
    assert_eq!((failed.outcome, failed.successor.is_some()), (ChangeOutcome::Applied, true));
    fixture.process().await;
    assert_eq!(fixture.lasting().await, [AlertKind::RunLost], "its worker is lost, and its successor waits");
    fixture.end_claimed(FinalStatus::Success).await;
    fixture.process().await;
    assert_eq!(fixture.lasting().await, []);
}

pub(crate) async fn schedule(fixture: &AlertFixture) {
    let wanted = NewSchedule {
        name: "nightly".to_owned(),
        cron: "* * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        request: request(),
        missed: MissedPolicy::Once,
        overlap: OverlapPolicy::Skip,
    };
    fixture.engine.put_schedule(wanted).await.expect("it is scheduled");
}

pub(crate) async fn skipped_fire_raises_an_alert(kind: Kind) {
    let fixture = AlertFixture::open(kind, Vec::new()).await;
    schedule(&fixture).await;
    for _ in 0..3 {
        fixture.pass(60);
        fixture.engine.fire_due().await.expect("it fires");
    }
    let alert = fixture.alerts().await[0].clone();
    assert_eq!((alert.kind, alert.times), (AlertKind::RunSkipped, 2), "{alert:?}");
    assert!(alert.message.contains("schedule nightly skipped"), "{alert:?}");
    fixture.end_claimed(FinalStatus::Success).await;
    fixture.pass(60);
    fixture.engine.fire_due().await.expect("it fires");
    assert_eq!(fixture.lasting().await, []);
}

pub(crate) async fn dead_letter_raises_one_alert(kind: Kind) {
    let receiver = WebhookReceiver::start().await;
    let fixture = AlertFixture::open(kind, vec![hook(&receiver, BodyFormat::Generic)]).await;
    let (store, worker) = (&fixture.base.store, WorkerId(Uuid::new_v4()));
    for id in ["one", "two"] {
        let now = fixture.clock.now();
        let message = NewMessage::new(WORK_ITEMS, id, "nivoda", json!({}));
        store.send(vec![message], now).await.expect("it is sent");
        let got =
            store.receive(ReceiveRequest::new(WORK_ITEMS, worker, 1), now).await.expect("it is received");
        let receipt = got.received[0].receipt.clone();
        store.kill(receipt, DeadReason::Permanent, Some("no".to_owned()), now).await.expect("it is given up");
        fixture.process().await;
        fixture.process().await;
        fixture.pass(60);
    }
    let alerts = fixture.alerts().await;
    assert_eq!((alerts.len(), alerts[0].kind, alerts[0].times), (1, AlertKind::DeadLetter, 2), "{alerts:?}");
    assert_eq!(alerts[0].command.as_deref(), Some("tidemill queue dead work-items"));
    assert_eq!(receiver.requests().len(), 1, "the second one is held back for now");
    store.replay(WORK_ITEMS.to_owned(), Replay::All, fixture.clock.now()).await.expect("they are sent again");
    fixture.process().await;
    assert_eq!(fixture.lasting().await, []);
}

pub(crate) async fn deep_queue_alert_lasts_until_the_queue_is_short(kind: Kind) {
    let receiver = WebhookReceiver::start().await;
    let fixture = AlertFixture::open(kind, vec![hook(&receiver, BodyFormat::Generic)]).await;
    for _ in 0..100 {
        fixture.engine.queue(request()).await.expect("it is queued");
    }
    assert_eq!(fixture.process().await, NOTHING, "a hundred may wait");
    fixture.engine.queue(request()).await.expect("it is queued");
    assert_eq!(fixture.process().await, ONE);
    fixture.pass(7_200);
    assert_eq!(fixture.process().await, NOTHING, "a lasting condition sends nothing");
    let alert = &fixture.alerts().await[0];
    assert_eq!((alert.kind, alert.project_id.as_deref()), (AlertKind::QueueDeep, Some("shop")));
    assert_eq!(alert.message, "more than 100 runs of project shop wait for a worker");
    fixture.engine.claim(ClaimRuns::one("worker-1")).await.expect("one is claimed");
    fixture.process().await;
    assert_eq!(fixture.lasting().await, []);
}

pub(crate) async fn old_watermark_alert_lasts_while_it_is_old(kind: Kind) {
    let fixture = AlertFixture::open(kind, Vec::new()).await;
    let syncs = Syncs::new(fixture.engine.clone(), SyncSettings::default());
    let feed = Feed {
        feed: "nivoda".to_owned(),
        project_id: "default".to_owned(),
        kind: "nivoda".to_owned(),
        endpoint: "http://127.0.0.1:9/api/diamonds".to_owned(),
        username: Some("tester".to_owned()),
        password_env: Some("PATH".to_owned()),
        rate: 25,
        settings: json!({}),
        defined_by: DefinedBy::Operator,
        created_at: at(0),
    };
    let numbered = Feed { feed: "numbered".to_owned(), kind: "rest".to_owned(), ..feed.clone() };
    let change = FeedChange {
        feed,
        definition: None,
        copy_url: None,
        schedule: None,
        full_schedule: None,
        time_zone: "UTC".to_owned(),
    };
    // The watermark of this feed is a number, which has no age.
    let definition = "version: 1\nfeed: numbered\nclient: {base_url: 'http://127.0.0.1:9'}\n\
        resource: {path: /orders, primary_key: id, data_selector: items}\npaginator: {type: single_page}\n\
        incremental: {cursor_path: seq, start_param: since, kind: number}\n\
        into: {table: public.orders, columns: {id: {path: id, type: text, nullable: false}}}\n";
    let numbered = FeedChange { feed: numbered, definition: Some(definition.to_owned()), ..change.clone() };
    syncs.put_feed(numbered).await.expect("the feed is added");
    syncs.put_feed(change).await.expect("the feed is added");
    let seven = Watermark { last_updated_at: from_micros(7), last_run_id: None, last_run_completed_at: None };
    syncs.set_watermark("numbered", Some(seven), "test", None).await.expect("it is set");
    let mark =
        |secs| Some(Watermark { last_updated_at: at(secs), last_run_id: None, last_run_completed_at: None });
    syncs.set_watermark("nivoda", mark(0), "test", None).await.expect("it is set");
    fixture.pass(24 * 3_600);
    fixture.process().await;
    assert_eq!(fixture.lasting().await, []);
    fixture.pass(1);
    fixture.process().await;
    assert_eq!(fixture.lasting().await, [AlertKind::WatermarkOld]);
    assert_eq!(fixture.alerts().await[0].project_id.as_deref(), Some("default"));
    syncs.set_watermark("nivoda", mark(3_600), "test", None).await.expect("it is set");
    fixture.process().await;
    assert_eq!(fixture.lasting().await, []);
}

pub(crate) async fn stuck_partition_raises_an_alert(kind: Kind) {
    let fixture = SyncFixture::open(kind, 200).await;
    fixture.queue(false).await;
    let (_stop, message) = tokio::sync::watch::channel(false);
    let who = Identity { name: "once".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    assert_eq!(fixture.syncs.schedule(who, true, message).await.expect("it is planned"), 1);
    let clock = Clock::fixed(host_now() + TimeDelta::minutes(9));
    let engine = Engine::new(fixture.base.store.clone(), clock.clone(), RetryPolicy::None);
    let lasting = async || {
        engine.process_alerts().await.expect("alerts are processed");
        let filter = AlertFilter { limit: 10, ..AlertFilter::default() };
        fixture.base.store.alerts(filter).await.expect("the alerts are read")
    };
    assert_eq!(lasting().await, []);
    clock.advance(TimeDelta::minutes(2));
    let alerts = lasting().await;
    assert_eq!((alerts.len(), alerts[0].kind), (1, AlertKind::PartitionStuck), "{alerts:?}");
    assert!(alerts[0].message.contains("made no progress since"), "{alerts:?}");
    assert!(alerts[0].command.as_deref().is_some_and(|text| text.starts_with("tidemill run why run-")));
}
