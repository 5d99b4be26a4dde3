//! Delivery of alerts: mail, webhooks, retries, throttling and pruning.

use serde_json::{Value, json};
use std::time::Duration;
use tidemill_core::alert::AlertKind;
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_core::signature::verify;
use tidemill_engine::alerts::{Address, BodyFormat, Channel, DeliveryCounts, Security, Target, Webhook};
use tidemill_engine::{Engine, RetryPolicy, Upkeep};
use tidemill_testkit::interface::{Kind, at};
use tidemill_testkit::smtp::{Encryption, SmtpServer};
use tidemill_testkit::webhook_receiver::{SILENCE, WebhookReceiver};

use crate::sources::schedule;
use crate::{AlertFixture, NOTHING, ONE, SECRET_ENV, hook, mail, request};

pub(crate) async fn failed_run_is_mailed_over_starttls(kind: Kind) {
    let smtp = SmtpServer::start(Encryption::StartTls).await;
    let fixture = AlertFixture::open(kind, vec![mail(&smtp, Security::StartTls)]).await;
    let run = fixture.fail().await;
    assert_eq!(fixture.process().await, ONE);
    assert_eq!(fixture.process().await, NOTHING, "one alert is raised");
    let mails = smtp.mails();
    let received = mails.first().expect("a mail has arrived");
    assert_eq!(mails.len(), 1);
    assert!(received.secure, "no mail was sent unencrypted");
    assert_eq!(received.login.as_deref(), Some("AG1pbGwAdGlkZW1pbGwtZW5naW5l"));
    assert!(received.from.contains("<fixture@example.com>"), "{received:?}");
    assert_eq!(received.to.len(), 2, "{received:?}");
    assert_eq!(received.header("Subject"), Some("Tidemill: a run failed (shop)"));
    assert_eq!(received.header("Auto-Submitted"), Some("auto-generated"));
    assert_eq!(received.header("Date"), Some("Sat, 14 Feb 2026 10:30:00 +0000"));
    let id = received.header("X-Tidemill-Delivery").expect("it has an id");
    assert_eq!(received.header("Message-ID"), Some(format!("<{id}@example.com>").as_str()));
    let text = received.data.replace("=\r\n", "");
    assert!(
        text.contains(&format!("Run {run} in shop/staging failed (reported): the till is stuck.")),
        "{text}"
    );
    assert!(text.contains(&format!("tidemill run show {run}")), "{text}");
    let alert = &fixture.alerts().await[0];
    assert_eq!((alert.kind, alert.times, &alert.run_id), (AlertKind::RunFailed, 1, &Some(run)));
    assert_eq!(alert.project_id.as_deref(), Some("shop"));
}

pub(crate) async fn mail_over_tls_requires_a_trusted_certificate(kind: Kind) {
    let smtp = SmtpServer::start(Encryption::Tls).await;
    let mut stranger = mail(&smtp, Security::Tls);
    (stranger.name, stranger.ca_file) = ("stranger".to_owned(), None);
    let fixture = AlertFixture::open(kind, vec![mail(&smtp, Security::Tls), stranger]).await;
    fixture.fail().await;
    assert_eq!(fixture.process().await, DeliveryCounts { sent: 1, failed: 1, dead: 0 });
    let mails = smtp.mails();
    assert_eq!((mails.len(), mails[0].secure), (1, true));
    let errors = "SELECT error FROM {ops}.deliveries WHERE error IS NOT NULL";
    let errors = fixture.base.plain.texts(errors).await.expect("the outbox is read");
    assert!(errors.len() == 1 && errors[0].to_lowercase().contains("certificate"), "{errors:?}");
}

pub(crate) async fn temporary_smtp_error_is_retried(kind: Kind) {
    let smtp = SmtpServer::start(Encryption::StartTls).await;
    smtp.defer(2);
    let fixture = AlertFixture::open(kind, vec![mail(&smtp, Security::StartTls)]).await;
    fixture.fail().await;
    let failed = DeliveryCounts { sent: 0, failed: 1, dead: 0 };
    assert_eq!(fixture.process().await, failed);
    assert_eq!(fixture.process().await, NOTHING, "not before the end of the back-off");
    fixture.pass(30);
    assert_eq!(fixture.process().await, failed);
    fixture.pass(59);
    assert_eq!(fixture.process().await, NOTHING, "the second wait is longer");
    fixture.pass(1);
    assert_eq!(fixture.process().await, ONE);
    assert_eq!((smtp.attempts(), smtp.mails().len()), (3, 1));
}

pub(crate) async fn unreachable_target_is_given_up_after_its_attempts(kind: Kind) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it has one").port();
    drop(listener);
    let way = Webhook {
        address: Address::Plain(format!("http://127.0.0.1:{port}/services/T0KEN")),
        format: BodyFormat::Slack,
        secret_env: None,
    };
    let fixture = AlertFixture::open(kind, vec![Target::new("chat", Channel::Webhook(way))]).await;
    fixture.fail().await;
    for attempt in 1..=10 {
        let done = fixture.process().await;
        let dead = u64::from(attempt == 10);
        assert_eq!(done, DeliveryCounts { sent: 0, failed: 1 - dead, dead }, "{attempt}");
        fixture.pass(3_600);
    }
    assert_eq!(fixture.process().await, NOTHING, "a given up message is not retried");
    let rows = "SELECT error || CASE WHEN dead_at IS NULL THEN '' ELSE ' dead' END FROM {ops}.deliveries";
    let rows = fixture.base.plain.texts(rows).await.expect("the outbox is read");
    assert!(rows[0].starts_with("127.0.0.1 does not answer: ") && rows[0].ends_with(" dead"), "{rows:?}");
    assert!(!rows[0].contains("T0KEN"), "{rows:?}");
}

pub(crate) async fn alerts_of_a_group_are_throttled_to_one_message(kind: Kind) {
    let smtp = SmtpServer::start(Encryption::StartTls).await;
    let fixture = AlertFixture::open(kind, vec![mail(&smtp, Security::StartTls)]).await;
    fixture.fail().await;
    assert_eq!(fixture.process().await, ONE);
    for _ in 0..3 {
        fixture.pass(60);
        fixture.fail().await;
        assert_eq!(fixture.process().await, NOTHING);
    }
    // Another project is another group.
    fixture.end(QueueRun::new("bank", "staging"), FinalStatus::Failed).await;
    assert_eq!(fixture.process().await, ONE);
    fixture.pass(3_600 - 180 - 1);
    assert_eq!(fixture.process().await, NOTHING);
    fixture.pass(1);
    assert_eq!(fixture.process().await, ONE);
    let mails = smtp.mails();
    assert_eq!(mails.len(), 3);
    assert!(mails[2].data.contains("2 more alerts of this kind were held back"), "{}", mails[2].data);
    assert_eq!(fixture.alerts().await.len(), 5, "every failure is recorded");
}

pub(crate) async fn successful_retry_sends_a_recovery(kind: Kind) {
    let smtp = SmtpServer::start(Encryption::StartTls).await;
    let fixture = AlertFixture::open(kind, vec![mail(&smtp, Security::StartTls)]).await;
    let mut patient = request();
    (patient.max_attempts, patient.backoff_secs) = (2, 1);
    let first = fixture.end(patient, FinalStatus::Failed).await;
    assert_eq!(fixture.process().await, NOTHING, "a retried attempt raises no alert");
    fixture.pass(2);
    fixture.end_claimed(FinalStatus::Failed).await;
    assert_eq!(fixture.process().await, ONE);
    let failed = fixture.alerts().await[0].clone();
    assert_eq!((failed.kind, failed.resolved_at), (AlertKind::RunFailed, None));
    assert_eq!(failed.subject, format!("run:{first}"), "the request is the subject, by its first try");
    let retried =
        fixture.engine.retry(&failed.run_id.expect("it names the run"), "ann").await.expect("again");
    fixture.end_claimed(FinalStatus::Success).await;
    assert_eq!(fixture.process().await, ONE);
    let mails = smtp.mails();
    assert_eq!(mails[1].header("Subject"), Some("Tidemill: a run recovered (shop)"));
    assert!(mails[1].data.contains(retried.run_id.as_str()), "{}", mails[1].data);
    assert_eq!(fixture.lasting().await, []);
    fixture.end(request(), FinalStatus::Success).await;
    assert_eq!(fixture.process().await, NOTHING, "a success without an open alert sends nothing");
}

pub(crate) async fn next_scheduled_success_resolves_the_alert(kind: Kind) {
    let fixture = AlertFixture::open(kind, Vec::new()).await;
    schedule(&fixture).await;
    fixture.pass(60);
    fixture.engine.fire_due().await.expect("it fires");
    fixture.end_claimed(FinalStatus::Failed).await;
    fixture.process().await;
    assert_eq!(fixture.lasting().await, [AlertKind::RunFailed]);
    fixture.pass(60);
    fixture.engine.fire_due().await.expect("it fires");
    fixture.end_claimed(FinalStatus::Success).await;
    fixture.process().await;
    assert_eq!(fixture.lasting().await, []);
    assert_eq!(fixture.alerts().await[0].kind, AlertKind::RunRecovered);
}

pub(crate) async fn crash_after_sending_repeats_the_same_delivery_id(kind: Kind) {
    let receiver = WebhookReceiver::start().await;
    let fixture = AlertFixture::open(kind, vec![hook(&receiver, BodyFormat::Generic)]).await;
    fixture.fail().await;
    receiver.answer(SILENCE);
    let engine = fixture.engine.clone();
    let dying = tokio::spawn(async move { engine.process_alerts().await });
    receiver.wait_for_request().await;
    dying.abort();
    receiver.answer(200);
    assert_eq!(fixture.process().await, NOTHING, "it may still be on its way");
    fixture.pass(120);
    assert_eq!(fixture.process().await, ONE);
    let parcels = receiver.requests();
    assert_eq!(parcels.len(), 2);
    let ids: Vec<_> = parcels.iter().map(|parcel| parcel.header("x-tidemill-delivery")).collect();
    assert!(ids[0].is_some() && ids[0] == ids[1], "{ids:?}");
    assert_eq!(parcels[0].body, parcels[1].body, "and returns the same");
}

pub(crate) async fn concurrent_processes_send_one_message(kind: Kind) {
    let receiver = WebhookReceiver::start().await;
    let fixture = AlertFixture::open(kind, vec![hook(&receiver, BodyFormat::Generic)]).await;
    let other = Engine::new(
        fixture.base.open_second_store().await,
        fixture.clock.clone(),
        RetryPolicy::For(Duration::from_secs(5)),
    )
    .with_alerts(fixture.engine.alerts().clone());
    for _ in 0..5 {
        fixture.fail().await;
        let (one, two) = tokio::join!(fixture.engine.process_alerts(), other.process_alerts());
        let sent = one.expect("alerts are processed").sent + two.expect("alerts are processed").sent;
        assert_eq!(sent, 1);
        fixture.pass(3_600);
    }
    assert_eq!(receiver.requests().len(), 5);
    other.store().close().await;
}

pub(crate) async fn slack_and_generic_payloads_have_their_shapes(kind: Kind) {
    let (chat, any) = (WebhookReceiver::start().await, WebhookReceiver::start().await);
    let mut generic = hook(&any, BodyFormat::Generic);
    (generic.name, generic.kinds) = ("any".to_owned(), vec![AlertKind::RunFailed]);
    let mut deaf = hook(&any, BodyFormat::Generic);
    (deaf.name, deaf.kinds) = ("deaf".to_owned(), vec![AlertKind::QueueDeep]);
    let fixture = AlertFixture::open(kind, vec![hook(&chat, BodyFormat::Slack), generic, deaf]).await;
    let run = fixture.fail().await;
    assert_eq!(fixture.process().await.sent, 2, "a target that excludes the kind gets no message");
    let slack: Value = serde_json::from_str(&chat.requests()[0].body).expect("it is JSON");
    let text = slack["text"].as_str().expect("it has a text");
    assert!(text.starts_with("*Tidemill: a run failed (shop)*\n") && text.contains(run.as_str()), "{text}");
    assert_eq!(slack.as_object().map(serde_json::Map::len), Some(1));

    let parcel = &any.requests()[0];
    let message: Value = serde_json::from_str(&parcel.body).expect("it is JSON");
    assert_eq!((&message["alert"]["kind"], &message["alert"]["run_id"]), (&json!("run_failed"), &json!(run)));
    assert_eq!(parcel.header("x-tidemill-delivery"), message["delivery_id"].as_str());
    let time = parcel.header("x-tidemill-timestamp").expect("it has a time");
    assert_eq!(time, at(0).timestamp().to_string());
    let signature = parcel.header("x-tidemill-signature").and_then(|text| text.strip_prefix("v1="));
    let secret = std::env::var(SECRET_ENV).expect("cargo sets it");
    let parts: [&[u8]; 3] = [time.as_bytes(), b".", parcel.body.as_bytes()];
    assert!(verify(secret.as_bytes(), &parts, signature.expect("it is signed")));
    any.answer(503);
    fixture.pass(3_600);
    fixture.fail().await;
    assert_eq!(fixture.process().await, DeliveryCounts { sent: 1, failed: 1, dead: 0 });
}

pub(crate) async fn old_alerts_are_pruned(kind: Kind) {
    let receiver = WebhookReceiver::start().await;
    let fixture = AlertFixture::open(kind, vec![hook(&receiver, BodyFormat::Generic)]).await;
    fixture.fail().await;
    fixture.process().await;
    fixture.pass(91 * 24 * 3_600);
    let done = fixture.engine.upkeep(&Upkeep::default()).await.expect("upkeep is done");
    assert_eq!((done.pruned.alerts, fixture.alerts().await.len()), (1, 0));
    let left = fixture.base.plain.number("SELECT count(*) FROM {ops}.deliveries").await.expect("a number");
    assert_eq!(left, 0);
}

pub(crate) async fn test_message_reaches_its_target(kind: Kind) {
    let smtp = SmtpServer::start(Encryption::StartTls).await;
    let receiver = WebhookReceiver::start().await;
    receiver.answer(500);
    let fixture =
        AlertFixture::open(kind, vec![mail(&smtp, Security::StartTls), hook(&receiver, BodyFormat::Slack)])
            .await;
    let tested = fixture.engine.test_targets(None).await.expect("they are tried");
    assert_eq!(tested[0].error, None);
    assert_eq!(tested[1].error.as_deref(), Some("127.0.0.1 answered with status 500"));
    assert_eq!(smtp.mails()[0].header("X-Tidemill-Alert"), Some("test"));
    assert_eq!(fixture.engine.test_targets(Some("chat")).await.expect("it is tried").len(), 1);
    assert!(fixture.engine.test_targets(Some("nobody")).await.is_err());
    assert_eq!(fixture.alerts().await, [], "a test is no alert");
}
