//! Alerts, from the event to the delivered mail: one list of cases, run on each store.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

#[path = "alerts/delivery.rs"]
mod delivery;
#[path = "alerts/sources.rs"]
mod sources;

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::alert::{Alert, AlertKind};
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_engine::alerts::{
    Address, AlertSettings, BodyFormat, Channel, DeliveryCounts, Mail, Security, Target, Webhook,
};
use tidemill_engine::clock::Clock;
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_store::{AlertFilter, ClaimRuns, FinishRun, Holder};
use tidemill_testkit::interface::{Fixture, Kind, at};
use tidemill_testkit::smtp::SmtpServer;
use tidemill_testkit::webhook_receiver::WebhookReceiver;

/// An environment variable that exists in every test: its value is the password and the secret.
const SECRET_ENV: &str = "CARGO_PKG_NAME";

macro_rules! on_both {
    ($($topic:ident: $($case:ident),+ $(,)?;)+) => {
        mod postgres {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { crate::$topic::$case(tidemill_testkit::interface::Kind::Postgres).await; })+)+
        }
        mod sqlite {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { crate::$topic::$case(tidemill_testkit::interface::Kind::Sqlite).await; })+)+
        }
    };
}

on_both! {
    delivery:
        failed_run_is_mailed_over_starttls,
        mail_over_tls_requires_a_trusted_certificate,
        temporary_smtp_error_is_retried,
        unreachable_target_is_given_up_after_its_attempts,
        alerts_of_a_group_are_throttled_to_one_message,
        successful_retry_sends_a_recovery,
        next_scheduled_success_resolves_the_alert,
        crash_after_sending_repeats_the_same_delivery_id,
        concurrent_processes_send_one_message,
        slack_and_generic_payloads_have_their_shapes,
        old_alerts_are_pruned,
        test_message_reaches_its_target;
    sources:
        lost_run_raises_an_alert,
        stalled_run_alert_lasts_until_a_heartbeat,
        stalled_run_alert_lasts_until_the_run_ends,
        skipped_fire_raises_an_alert,
        dead_letter_raises_one_alert,
        deep_queue_alert_lasts_until_the_queue_is_short,
        old_watermark_alert_lasts_while_it_is_old,
        stuck_partition_raises_an_alert;
}

struct AlertFixture {
    base: Fixture,
    clock: Clock,
    engine: Engine,
}

impl AlertFixture {
    async fn open(kind: Kind, targets: Vec<Target>) -> Self {
        let base = Fixture::open(kind).await;
        let clock = Clock::fixed(at(0));
        let engine = Engine::new(base.store.clone(), clock.clone(), RetryPolicy::None)
            .with_alerts(AlertSettings { targets, ..AlertSettings::default() });
        Self { base, clock, engine }
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

    async fn process(&self) -> DeliveryCounts {
        self.engine.process_alerts().await.expect("alerts are processed")
    }

    async fn alerts(&self) -> Vec<Alert> {
        let filter = AlertFilter { resolved: true, limit: 100, ..AlertFilter::default() };
        self.base.store.alerts(filter).await.expect("the alerts are read")
    }

    async fn lasting(&self) -> Vec<AlertKind> {
        let filter = AlertFilter { limit: 100, ..AlertFilter::default() };
        let alerts = self.base.store.alerts(filter).await.expect("the alerts are read");
        alerts.into_iter().map(|alert| alert.kind).collect()
    }
}

fn request() -> QueueRun {
    QueueRun::new("shop", "staging")
}

fn mail(smtp: &SmtpServer, security: Security) -> Target {
    let way = Mail {
        host: "localhost".to_owned(),
        port: smtp.port,
        security,
        username: Some("mill".to_owned()),
        password_env: Some(SECRET_ENV.to_owned()),
        from: "Tidemill <fixture@example.com>".to_owned(),
        to: vec!["ann@example.com".to_owned(), "bob@example.com".to_owned()],
    };
    Target { ca_file: Some(smtp.ca_file.clone()), ..Target::new("ops", Channel::Mail(way)) }
}

fn hook(receiver: &WebhookReceiver, format: BodyFormat) -> Target {
    let way = Webhook {
        address: Address::Plain(receiver.url.clone()),
        format,
        secret_env: Some(SECRET_ENV.to_owned()),
    };
    Target::new("chat", Channel::Webhook(way))
}

const ONE: DeliveryCounts = DeliveryCounts { sent: 1, failed: 0, dead: 0 };
const NOTHING: DeliveryCounts = DeliveryCounts { sent: 0, failed: 0, dead: 0 };
