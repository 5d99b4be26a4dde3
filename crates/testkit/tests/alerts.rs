//! Alerts, from what happened to the mail in somebody's box: one list of cases, run on each store.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

use chrono::TimeDelta;
use serde_json::{Value, json};
use std::time::Duration;
use tidemill_core::alert::{Alert, AlertKind};
use tidemill_core::feed::{Feed, Watermark};
use tidemill_core::queue::{DeadReason, NewMessage, Replay, WORK_ITEMS};
use tidemill_core::run::{Applied, FailRun, FinalStatus, QueueRun};
use tidemill_core::schedule::{Missed, Overlap};
use tidemill_core::signature::verify;
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::alerts::{Address, AlertSettings, Mail, Security, Sent, Shape, Target, Way, Webhook};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{FeedChange, SyncSettings, Syncs};
use tidemill_engine::{Engine, Identity, NewSchedule, Patience, Upkeep};
use tidemill_store::{AlertFilter, ClaimRuns, FinishRun, Holder, Queue as _, Receive};
use tidemill_testkit::door::{Kind, Stage, at};
use tidemill_testkit::mill::Mill;
use tidemill_testkit::post::{Protection, Receiver, SILENCE, Smtp};
use uuid::Uuid;

/// An environment variable that every test has: its value is the password and the secret.
const SECRET_ENV: &str = "CARGO_PKG_NAME";

macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(tidemill_testkit::door::Kind::Postgres).await; })+
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(tidemill_testkit::door::Kind::Sqlite).await; })+
        }
    };
}

on_both! {
    a_failed_run_is_told_by_mail_over_starttls,
    a_mail_goes_out_over_tls_and_to_nobody_that_is_not_trusted,
    a_server_that_says_later_is_tried_again,
    a_target_that_cannot_be_reached_is_given_up_in_the_end,
    one_message_about_a_kind_in_an_interval,
    a_request_that_succeeds_after_all_has_recovered,
    a_scheduled_run_makes_good_what_the_one_before_did_not,
    a_process_that_dies_after_it_sent_sends_the_same_id_again,
    two_processes_send_one_message,
    slack_and_generic_shapes,
    a_run_that_lost_its_worker_is_told_of,
    a_stalled_run_is_told_of_until_it_gives_a_sign_of_life,
    a_stalled_run_is_told_of_until_it_ends,
    a_schedule_that_skips_is_told_of,
    a_dead_letter_is_told_of_once,
    a_deep_queue_lasts_until_it_is_worked_off,
    an_old_watermark_is_told_of_while_it_is_old,
    a_stuck_partition_is_told_of,
    what_is_old_is_pruned,
    a_test_message_reaches_its_target,
}

struct Desk {
    stage: Stage,
    clock: Clock,
    engine: Engine,
}

impl Desk {
    async fn open(kind: Kind, targets: Vec<Target>) -> Self {
        let stage = Stage::open(kind).await;
        let clock = Clock::fixed(at(0));
        let engine = Engine::new(stage.store.clone(), clock.clone(), Patience::None)
            .with_alerts(AlertSettings { targets, ..AlertSettings::default() });
        Self { stage, clock, engine }
    }

    fn pass(&self, secs: i64) {
        self.clock.advance(TimeDelta::seconds(secs));
    }

    /// Queues a run, claims it, and ends it.
    async fn end(&self, request: QueueRun, status: FinalStatus) -> RunId {
        let run = self.engine.queue(request).await.expect("it is queued").run_id;
        self.end_claimed(status).await;
        run
    }

    async fn end_claimed(&self, status: FinalStatus) {
        let claims = self.engine.claim(ClaimRuns::one("worker-1")).await.expect("something is claimed");
        let run = &claims.first().expect("there is a run").run_id;
        self.engine.start(run, &Holder::default()).await.expect("it starts");
        let metadata = json!({"error": "the till is stuck\nand more"});
        let end = FinishRun { run_id: run.clone(), status, metadata, epoch: None };
        self.engine.finish(vec![end], Some("worker-1")).await.expect("it ends");
    }

    async fn fail(&self) -> RunId {
        self.end(request(), FinalStatus::Failed).await
    }

    async fn tell(&self) -> Sent {
        self.engine.tell().await.expect("people are told")
    }

    async fn alerts(&self) -> Vec<Alert> {
        let filter = AlertFilter { resolved: true, limit: 100, ..AlertFilter::default() };
        self.stage.store.alerts(filter).await.expect("the alerts are read")
    }

    async fn lasting(&self) -> Vec<AlertKind> {
        let filter = AlertFilter { limit: 100, ..AlertFilter::default() };
        let alerts = self.stage.store.alerts(filter).await.expect("the alerts are read");
        alerts.into_iter().map(|alert| alert.kind).collect()
    }
}

fn request() -> QueueRun {
    QueueRun::new("shop", "staging")
}

fn mail(smtp: &Smtp, security: Security) -> Target {
    let way = Mail {
        host: "localhost".to_owned(),
        port: smtp.port,
        security,
        username: Some("mill".to_owned()),
        password_env: Some(SECRET_ENV.to_owned()),
        from: "Tidemill <mill@example.com>".to_owned(),
        to: vec!["ann@example.com".to_owned(), "bob@example.com".to_owned()],
    };
    Target { ca_file: Some(smtp.ca_file.clone()), ..Target::new("ops", Way::Mail(way)) }
}

fn hook(receiver: &Receiver, shape: Shape) -> Target {
    let way = Webhook {
        address: Address::Plain(receiver.url.clone()),
        shape,
        secret_env: Some(SECRET_ENV.to_owned()),
    };
    Target::new("chat", Way::Webhook(way))
}

const ONE: Sent = Sent { sent: 1, failed: 0, dead: 0 };
const NOTHING: Sent = Sent { sent: 0, failed: 0, dead: 0 };

async fn a_failed_run_is_told_by_mail_over_starttls(kind: Kind) {
    let smtp = Smtp::start(Protection::StartTls).await;
    let desk = Desk::open(kind, vec![mail(&smtp, Security::StartTls)]).await;
    let run = desk.fail().await;
    assert_eq!(desk.tell().await, ONE);
    assert_eq!(desk.tell().await, NOTHING, "people are told once");
    let letters = smtp.letters();
    let letter = letters.first().expect("a mail has arrived");
    assert_eq!(letters.len(), 1);
    assert!(letter.secure, "nothing was said in the clear");
    assert_eq!(letter.login.as_deref(), Some("AG1pbGwAdGlkZW1pbGwtdGVzdGtpdA=="));
    assert!(letter.from.contains("<mill@example.com>"), "{letter:?}");
    assert_eq!(letter.to.len(), 2, "{letter:?}");
    assert_eq!(letter.header("Subject"), Some("Tidemill: a run failed (shop)"));
    assert_eq!(letter.header("Auto-Submitted"), Some("auto-generated"));
    assert_eq!(letter.header("Date"), Some("Sat, 14 Feb 2026 10:30:00 +0000"));
    let id = letter.header("X-Tidemill-Delivery").expect("it has an id");
    assert_eq!(letter.header("Message-ID"), Some(format!("<{id}@example.com>").as_str()));
    let text = letter.data.replace("=\r\n", "");
    assert!(
        text.contains(&format!("Run {run} in shop/staging failed (reported): the till is stuck.")),
        "{text}"
    );
    assert!(text.contains(&format!("tidemill run show {run}")), "{text}");
    let alert = &desk.alerts().await[0];
    assert_eq!((alert.kind, alert.times, &alert.run_id), (AlertKind::RunFailed, 1, &Some(run)));
    assert_eq!(alert.project_id.as_deref(), Some("shop"));
}

async fn a_mail_goes_out_over_tls_and_to_nobody_that_is_not_trusted(kind: Kind) {
    let smtp = Smtp::start(Protection::Tls).await;
    let mut stranger = mail(&smtp, Security::Tls);
    (stranger.name, stranger.ca_file) = ("stranger".to_owned(), None);
    let desk = Desk::open(kind, vec![mail(&smtp, Security::Tls), stranger]).await;
    desk.fail().await;
    assert_eq!(desk.tell().await, Sent { sent: 1, failed: 1, dead: 0 });
    let letters = smtp.letters();
    assert_eq!((letters.len(), letters[0].secure), (1, true));
    let errors = "SELECT error FROM {ops}.deliveries WHERE error IS NOT NULL";
    let errors = desk.stage.plain.texts(errors).await.expect("the outbox is read");
    assert!(errors.len() == 1 && errors[0].to_lowercase().contains("certificate"), "{errors:?}");
}

async fn a_server_that_says_later_is_tried_again(kind: Kind) {
    let smtp = Smtp::start(Protection::StartTls).await;
    smtp.put_off(2);
    let desk = Desk::open(kind, vec![mail(&smtp, Security::StartTls)]).await;
    desk.fail().await;
    let failed = Sent { sent: 0, failed: 1, dead: 0 };
    assert_eq!(desk.tell().await, failed);
    assert_eq!(desk.tell().await, NOTHING, "not before the back-off is over");
    desk.pass(30);
    assert_eq!(desk.tell().await, failed);
    desk.pass(59);
    assert_eq!(desk.tell().await, NOTHING, "the second wait is longer");
    desk.pass(1);
    assert_eq!(desk.tell().await, ONE);
    assert_eq!((smtp.asked(), smtp.letters().len()), (3, 1));
}

async fn a_target_that_cannot_be_reached_is_given_up_in_the_end(kind: Kind) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it has one").port();
    drop(listener);
    let way = Webhook {
        address: Address::Plain(format!("http://127.0.0.1:{port}/services/T0KEN")),
        shape: Shape::Slack,
        secret_env: None,
    };
    let desk = Desk::open(kind, vec![Target::new("chat", Way::Webhook(way))]).await;
    desk.fail().await;
    for attempt in 1..=10 {
        let done = desk.tell().await;
        let dead = u64::from(attempt == 10);
        assert_eq!(done, Sent { sent: 0, failed: 1 - dead, dead }, "{attempt}");
        desk.pass(3_600);
    }
    assert_eq!(desk.tell().await, NOTHING, "what is given up is not tried again");
    let rows = "SELECT error || CASE WHEN dead_at IS NULL THEN '' ELSE ' dead' END FROM {ops}.deliveries";
    let rows = desk.stage.plain.texts(rows).await.expect("the outbox is read");
    assert!(rows[0].starts_with("127.0.0.1 does not answer: ") && rows[0].ends_with(" dead"), "{rows:?}");
    assert!(!rows[0].contains("T0KEN"), "{rows:?}");
}

async fn one_message_about_a_kind_in_an_interval(kind: Kind) {
    let smtp = Smtp::start(Protection::StartTls).await;
    let desk = Desk::open(kind, vec![mail(&smtp, Security::StartTls)]).await;
    desk.fail().await;
    assert_eq!(desk.tell().await, ONE);
    for _ in 0..3 {
        desk.pass(60);
        desk.fail().await;
        assert_eq!(desk.tell().await, NOTHING);
    }
    // Another project is another matter.
    desk.end(QueueRun::new("bank", "staging"), FinalStatus::Failed).await;
    assert_eq!(desk.tell().await, ONE);
    desk.pass(3_600 - 180 - 1);
    assert_eq!(desk.tell().await, NOTHING);
    desk.pass(1);
    assert_eq!(desk.tell().await, ONE);
    let letters = smtp.letters();
    assert_eq!(letters.len(), 3);
    assert!(letters[2].data.contains("2 more alerts of this kind were held back"), "{}", letters[2].data);
    assert_eq!(desk.alerts().await.len(), 5, "every failure is on record");
}

async fn a_request_that_succeeds_after_all_has_recovered(kind: Kind) {
    let smtp = Smtp::start(Protection::StartTls).await;
    let desk = Desk::open(kind, vec![mail(&smtp, Security::StartTls)]).await;
    let mut patient = request();
    (patient.max_attempts, patient.backoff_secs) = (2, 1);
    let first = desk.end(patient, FinalStatus::Failed).await;
    assert_eq!(desk.tell().await, NOTHING, "a try that another follows is nobody's business");
    desk.pass(2);
    desk.end_claimed(FinalStatus::Failed).await;
    assert_eq!(desk.tell().await, ONE);
    let failed = desk.alerts().await[0].clone();
    assert_eq!((failed.kind, failed.resolved_at), (AlertKind::RunFailed, None));
    assert_eq!(failed.subject, format!("run:{first}"), "the request is the subject, by its first try");
    let retried = desk.engine.retry(&failed.run_id.expect("it names the run"), "ann").await.expect("again");
    desk.end_claimed(FinalStatus::Success).await;
    assert_eq!(desk.tell().await, ONE);
    let letters = smtp.letters();
    assert_eq!(letters[1].header("Subject"), Some("Tidemill: a run recovered (shop)"));
    assert!(letters[1].data.contains(retried.run_id.as_str()), "{}", letters[1].data);
    assert_eq!(desk.lasting().await, []);
    desk.end(request(), FinalStatus::Success).await;
    assert_eq!(desk.tell().await, NOTHING, "a success that makes nothing good is no news");
}

async fn a_scheduled_run_makes_good_what_the_one_before_did_not(kind: Kind) {
    let desk = Desk::open(kind, Vec::new()).await;
    schedule(&desk).await;
    desk.pass(60);
    desk.engine.fire_due().await.expect("it fires");
    desk.end_claimed(FinalStatus::Failed).await;
    desk.tell().await;
    assert_eq!(desk.lasting().await, [AlertKind::RunFailed]);
    desk.pass(60);
    desk.engine.fire_due().await.expect("it fires");
    desk.end_claimed(FinalStatus::Success).await;
    desk.tell().await;
    assert_eq!(desk.lasting().await, []);
    assert_eq!(desk.alerts().await[0].kind, AlertKind::RunRecovered);
}

async fn a_process_that_dies_after_it_sent_sends_the_same_id_again(kind: Kind) {
    let receiver = Receiver::start().await;
    let desk = Desk::open(kind, vec![hook(&receiver, Shape::Generic)]).await;
    desk.fail().await;
    receiver.answer(SILENCE);
    let engine = desk.engine.clone();
    let dying = tokio::spawn(async move { engine.tell().await });
    receiver.arrival().await;
    dying.abort();
    receiver.answer(200);
    assert_eq!(desk.tell().await, NOTHING, "it may still be on its way");
    desk.pass(120);
    assert_eq!(desk.tell().await, ONE);
    let parcels = receiver.parcels();
    assert_eq!(parcels.len(), 2);
    let ids: Vec<_> = parcels.iter().map(|parcel| parcel.header("x-tidemill-delivery")).collect();
    assert!(ids[0].is_some() && ids[0] == ids[1], "{ids:?}");
    assert_eq!(parcels[0].body, parcels[1].body, "and says the same");
}

async fn two_processes_send_one_message(kind: Kind) {
    let receiver = Receiver::start().await;
    let desk = Desk::open(kind, vec![hook(&receiver, Shape::Generic)]).await;
    let other =
        Engine::new(desk.stage.beside().await, desk.clock.clone(), Patience::For(Duration::from_secs(5)))
            .with_alerts(desk.engine.alerts().clone());
    for _ in 0..5 {
        desk.fail().await;
        let (one, two) = tokio::join!(desk.engine.tell(), other.tell());
        let sent = one.expect("people are told").sent + two.expect("people are told").sent;
        assert_eq!(sent, 1);
        desk.pass(3_600);
    }
    assert_eq!(receiver.parcels().len(), 5);
    other.store().close().await;
}

async fn slack_and_generic_shapes(kind: Kind) {
    let (chat, any) = (Receiver::start().await, Receiver::start().await);
    let mut generic = hook(&any, Shape::Generic);
    (generic.name, generic.kinds) = ("any".to_owned(), vec![AlertKind::RunFailed]);
    let mut deaf = hook(&any, Shape::Generic);
    (deaf.name, deaf.kinds) = ("deaf".to_owned(), vec![AlertKind::QueueDeep]);
    let desk = Desk::open(kind, vec![hook(&chat, Shape::Slack), generic, deaf]).await;
    let run = desk.fail().await;
    assert_eq!(desk.tell().await.sent, 2, "who does not want to hear of it does not");
    let slack: Value = serde_json::from_str(&chat.parcels()[0].body).expect("it is JSON");
    let text = slack["text"].as_str().expect("it has a text");
    assert!(text.starts_with("*Tidemill: a run failed (shop)*\n") && text.contains(run.as_str()), "{text}");
    assert_eq!(slack.as_object().map(serde_json::Map::len), Some(1));

    let parcel = &any.parcels()[0];
    let told: Value = serde_json::from_str(&parcel.body).expect("it is JSON");
    assert_eq!((&told["alert"]["kind"], &told["alert"]["run_id"]), (&json!("run_failed"), &json!(run)));
    assert_eq!(parcel.header("x-tidemill-delivery"), told["delivery_id"].as_str());
    let time = parcel.header("x-tidemill-timestamp").expect("it has a time");
    assert_eq!(time, at(0).timestamp().to_string());
    let signature = parcel.header("x-tidemill-signature").and_then(|text| text.strip_prefix("v1="));
    let secret = std::env::var(SECRET_ENV).expect("cargo sets it");
    let parts: [&[u8]; 3] = [time.as_bytes(), b".", parcel.body.as_bytes()];
    assert!(verify(secret.as_bytes(), &parts, signature.expect("it is signed")));
    any.answer(503);
    desk.pass(3_600);
    desk.fail().await;
    assert_eq!(desk.tell().await, Sent { sent: 1, failed: 1, dead: 0 });
}

async fn a_run_that_lost_its_worker_is_told_of(kind: Kind) {
    let desk = Desk::open(kind, Vec::new()).await;
    let run = desk.engine.queue(request()).await.expect("it is queued").run_id;
    desk.engine.claim(ClaimRuns::one("worker-1")).await.expect("it is claimed");
    desk.pass(301);
    desk.engine.sweep(100, 20.0).await.expect("it is swept");
    desk.tell().await;
    let alert = &desk.alerts().await[0];
    assert_eq!((alert.kind, &alert.run_id), (AlertKind::RunLost, &Some(run)));
    desk.end_claimed(FinalStatus::Success).await;
    desk.tell().await;
    assert_eq!(desk.lasting().await, [], "its successor did it");
}

/// Has a worker that promises nothing start a run, and lets it be silent for five minutes.
async fn stalled(desk: &Desk) -> RunId {
    let run = desk.engine.queue(request()).await.expect("it is queued").run_id;
    let ask = ClaimRuns { lease_secs: None, ..ClaimRuns::one("worker-1") };
    desk.engine.claim(ask).await.expect("it is claimed");
    desk.engine.start(&run, &Holder::default()).await.expect("it starts");
    desk.pass(301);
    desk.engine.sweep(100, 20.0).await.expect("it is swept");
    desk.tell().await;
    run
}

async fn a_stalled_run_is_told_of_until_it_gives_a_sign_of_life(kind: Kind) {
    let desk = Desk::open(kind, Vec::new()).await;
    let run = stalled(&desk).await;
    let alert = &desk.alerts().await[0];
    assert_eq!((alert.kind, alert.times, &alert.run_id), (AlertKind::RunStalled, 1, &Some(run.clone())));
    let message = format!(
        "run {run} in shop/staging is stalled: its worker worker-1 gives no sign of life and has promised none"
    );
    assert_eq!(alert.message, message);
    assert_eq!(alert.command, Some(format!("tidemill run fail {run}")));
    desk.pass(3_600);
    desk.engine.sweep(100, 20.0).await.expect("it is swept");
    desk.tell().await;
    assert_eq!(desk.lasting().await, [AlertKind::RunStalled], "it lasts, and is told once");
    let events = vec![tidemill_testkit::door::info("still here")];
    desk.engine.append(&run, events, &Holder::default()).await.expect("the event is appended");
    desk.tell().await;
    assert_eq!(desk.lasting().await, []);
}

async fn a_stalled_run_is_told_of_until_it_ends(kind: Kind) {
    let desk = Desk::open(kind, Vec::new()).await;
    let run = stalled(&desk).await;
    let end = FinishRun { run_id: run, status: FinalStatus::Success, metadata: json!({}), epoch: None };
    desk.engine.finish(vec![end], None).await.expect("it ends");
    desk.tell().await;
    assert_eq!(desk.lasting().await, [], "its worker was only slow");

    let run = stalled(&desk).await;
    let ask = FailRun { run_id: run.clone(), by: "ann".to_owned(), reason: None, retry: true };
    let failed = desk.engine.fail_run(ask).await.expect("it is failed");
    assert_eq!((failed.outcome, failed.successor.is_some()), (Applied::Applied, true));
    desk.tell().await;
    assert_eq!(desk.lasting().await, [AlertKind::RunLost], "its worker is lost, and its successor waits");
    desk.end_claimed(FinalStatus::Success).await;
    desk.tell().await;
    assert_eq!(desk.lasting().await, []);
}

async fn schedule(desk: &Desk) {
    let wanted = NewSchedule {
        name: "nightly".to_owned(),
        cron: "* * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        request: request(),
        missed: Missed::Once,
        overlap: Overlap::Skip,
    };
    desk.engine.put_schedule(wanted).await.expect("it is scheduled");
}

async fn a_schedule_that_skips_is_told_of(kind: Kind) {
    let desk = Desk::open(kind, Vec::new()).await;
    schedule(&desk).await;
    for _ in 0..3 {
        desk.pass(60);
        desk.engine.fire_due().await.expect("it fires");
    }
    let alert = desk.alerts().await[0].clone();
    assert_eq!((alert.kind, alert.times), (AlertKind::RunSkipped, 2), "{alert:?}");
    assert!(alert.message.contains("schedule nightly skipped"), "{alert:?}");
    desk.end_claimed(FinalStatus::Success).await;
    desk.pass(60);
    desk.engine.fire_due().await.expect("it fires");
    assert_eq!(desk.lasting().await, []);
}

async fn a_dead_letter_is_told_of_once(kind: Kind) {
    let receiver = Receiver::start().await;
    let desk = Desk::open(kind, vec![hook(&receiver, Shape::Generic)]).await;
    let (store, worker) = (&desk.stage.store, WorkerId(Uuid::new_v4()));
    for id in ["one", "two"] {
        let now = desk.clock.now();
        let message = NewMessage::new(WORK_ITEMS, id, "nivoda", json!({}));
        store.send(vec![message], now).await.expect("it is sent");
        let got = store.receive(Receive::new(WORK_ITEMS, worker, 1), now).await.expect("it is received");
        let receipt = got.received[0].receipt.clone();
        store.kill(receipt, DeadReason::Permanent, Some("no".to_owned()), now).await.expect("it is given up");
        desk.tell().await;
        desk.tell().await;
        desk.pass(60);
    }
    let alerts = desk.alerts().await;
    assert_eq!((alerts.len(), alerts[0].kind, alerts[0].times), (1, AlertKind::DeadLetter, 2), "{alerts:?}");
    assert_eq!(alerts[0].command.as_deref(), Some("tidemill queue dead work-items"));
    assert_eq!(receiver.parcels().len(), 1, "the second one is held back for now");
    store.replay(WORK_ITEMS.to_owned(), Replay::All, desk.clock.now()).await.expect("they are sent again");
    desk.tell().await;
    assert_eq!(desk.lasting().await, []);
}

async fn a_deep_queue_lasts_until_it_is_worked_off(kind: Kind) {
    let receiver = Receiver::start().await;
    let desk = Desk::open(kind, vec![hook(&receiver, Shape::Generic)]).await;
    for _ in 0..100 {
        desk.engine.queue(request()).await.expect("it is queued");
    }
    assert_eq!(desk.tell().await, NOTHING, "a hundred may wait");
    desk.engine.queue(request()).await.expect("it is queued");
    assert_eq!(desk.tell().await, ONE);
    desk.pass(7_200);
    assert_eq!(desk.tell().await, NOTHING, "what lasts is no news");
    let alert = &desk.alerts().await[0];
    assert_eq!((alert.kind, alert.project_id.as_deref()), (AlertKind::QueueDeep, Some("shop")));
    assert_eq!(alert.message, "more than 100 runs of project shop wait for a worker");
    desk.engine.claim(ClaimRuns::one("worker-1")).await.expect("one is claimed");
    desk.tell().await;
    assert_eq!(desk.lasting().await, []);
}

async fn an_old_watermark_is_told_of_while_it_is_old(kind: Kind) {
    let desk = Desk::open(kind, Vec::new()).await;
    let syncs = Syncs::new(desk.engine.clone(), SyncSettings::default());
    let feed = Feed {
        feed: "nivoda".to_owned(),
        project_id: "default".to_owned(),
        kind: "nivoda".to_owned(),
        endpoint: "http://127.0.0.1:9/api/diamonds".to_owned(),
        username: Some("tester".to_owned()),
        password_env: Some("PATH".to_owned()),
        rate: 25,
        settings: json!({}),
        created_at: at(0),
    };
    let change =
        FeedChange { feed, copy_url: None, schedule: None, full_schedule: None, time_zone: "UTC".to_owned() };
    syncs.put_feed(change).await.expect("the feed is added");
    let mark =
        |secs| Some(Watermark { last_updated_at: at(secs), last_run_id: None, last_run_completed_at: None });
    syncs.set_watermark("nivoda", mark(0), "test", None).await.expect("it is set");
    desk.pass(24 * 3_600);
    desk.tell().await;
    assert_eq!(desk.lasting().await, []);
    desk.pass(1);
    desk.tell().await;
    assert_eq!(desk.lasting().await, [AlertKind::WatermarkOld]);
    assert_eq!(desk.alerts().await[0].project_id.as_deref(), Some("default"));
    syncs.set_watermark("nivoda", mark(3_600), "test", None).await.expect("it is set");
    desk.tell().await;
    assert_eq!(desk.lasting().await, []);
}

async fn a_stuck_partition_is_told_of(kind: Kind) {
    let mill = Mill::open(kind, 200).await;
    mill.queue(false).await;
    let (_stop, told) = tokio::sync::watch::channel(false);
    let who = Identity { name: "once".to_owned(), host: "here".to_owned(), labels: Vec::new() };
    assert_eq!(mill.syncs.schedule(who, true, told).await.expect("it is planned"), 1);
    let clock = Clock::fixed(host_now() + TimeDelta::minutes(9));
    let engine = Engine::new(mill.stage.store.clone(), clock.clone(), Patience::None);
    let lasting = async || {
        engine.tell().await.expect("people are told");
        let filter = AlertFilter { limit: 10, ..AlertFilter::default() };
        mill.stage.store.alerts(filter).await.expect("the alerts are read")
    };
    assert_eq!(lasting().await, []);
    clock.advance(TimeDelta::minutes(2));
    let alerts = lasting().await;
    assert_eq!((alerts.len(), alerts[0].kind), (1, AlertKind::PartitionStuck), "{alerts:?}");
    assert!(alerts[0].message.contains("made no progress since"), "{alerts:?}");
    assert!(alerts[0].command.as_deref().is_some_and(|text| text.starts_with("tidemill run why run-")));
}

async fn what_is_old_is_pruned(kind: Kind) {
    let receiver = Receiver::start().await;
    let desk = Desk::open(kind, vec![hook(&receiver, Shape::Generic)]).await;
    desk.fail().await;
    desk.tell().await;
    desk.pass(91 * 24 * 3_600);
    let done = desk.engine.upkeep(&Upkeep::default()).await.expect("upkeep is done");
    assert_eq!((done.pruned.alerts, desk.alerts().await.len()), (1, 0));
    let left = desk.stage.plain.number("SELECT count(*) FROM {ops}.deliveries").await.expect("a number");
    assert_eq!(left, 0);
}

async fn a_test_message_reaches_its_target(kind: Kind) {
    let smtp = Smtp::start(Protection::StartTls).await;
    let receiver = Receiver::start().await;
    receiver.answer(500);
    let desk = Desk::open(kind, vec![mail(&smtp, Security::StartTls), hook(&receiver, Shape::Slack)]).await;
    let tested = desk.engine.test_targets(None).await.expect("they are tried");
    assert_eq!(tested[0].error, None);
    assert_eq!(tested[1].error.as_deref(), Some("127.0.0.1 answered with status 500"));
    assert_eq!(smtp.letters()[0].header("X-Tidemill-Alert"), Some("test"));
    assert_eq!(desk.engine.test_targets(Some("chat")).await.expect("it is tried").len(), 1);
    assert!(desk.engine.test_targets(Some("nobody")).await.is_err());
    assert_eq!(desk.alerts().await, [], "a test is no alert");
}
