//! Background loops: a bad item affects only itself, and a failing loop is shown and restarted. Run on each store.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

use chrono::TimeDelta;
use serde_json::{Value, json};
use std::time::Duration;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_core::RunId;
use tidemill_core::alert::{Alert, AlertKind};
use tidemill_core::run::{FinalStatus, QueueRun, RunState};
use tidemill_core::schedule::{MissedPolicy, OverlapPolicy};
use tidemill_engine::alerts::{Address, AlertSettings, BodyFormat, Channel, Target, Webhook};
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Clock, Engine, NewSchedule, RetryPolicy, Upkeep};
use tidemill_store::{AlertFilter, ClaimRuns, Class, Error, FinishRun, Holder};
use tidemill_testkit::interface::{Fixture, Kind, PlainSql, at};
use tidemill_testkit::webhook_receiver::WebhookReceiver;
use tower::ServiceExt as _;

tidemill_testkit::on_both! {
    panicking_transaction_fails_its_caller_only,
    unreadable_run_loses_its_own_notice_only,
    unreadable_notice_does_not_stop_sweep_and_prune,
    unreadable_schedule_is_paused_and_others_fire,
    unreadable_alert_and_message_do_not_stop_others,
    failing_loop_is_shown_and_recovers,
}

/// Time limit for every wait; reached only by a failure.
const TIMEOUT: Duration = Duration::from_mins(1);

struct LoopFixture {
    base: Fixture,
    clock: Clock,
    engine: Engine,
}

impl LoopFixture {
    async fn open(kind: Kind, targets: Vec<Target>) -> Self {
        let base = Fixture::open(kind).await;
        let clock = Clock::fixed(at(0));
        let engine = Engine::new(base.store.clone(), clock.clone(), RetryPolicy::None)
            .with_alerts(AlertSettings { targets, ..AlertSettings::default() });
        Self { base, clock, engine }
    }

    /// Queues a run and fails it, which leaves a notice.
    async fn fail(&self) -> RunId {
        let run = self.engine.queue(request()).await.expect("it is queued").run_id;
        self.engine.claim(ClaimRuns::one("worker-1")).await.expect("it is claimed");
        self.engine.start(&run, &Holder::default()).await.expect("it starts");
        let end = FinishRun {
            run_id: run.clone(),
            status: FinalStatus::Failed,
            metadata: json!({"error": "broken"}),
            epoch: None,
        };
        self.engine.finish(vec![end], Some("worker-1")).await.expect("it ends");
        run
    }

    /// Changes a row without any check, like damage or an older version.
    async fn damage(&self, table: &str, change: &str) {
        match &self.base.plain {
            PlainSql::Postgres(_) => {
                self.sql(&format!("ALTER TABLE {{ops}}.{table} DISABLE TRIGGER USER")).await;
            }
            PlainSql::Sqlite(pool) => {
                let names = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = $1";
                let names: Vec<String> =
                    sqlx::query_scalar(names).bind(table).fetch_all(pool).await.expect("triggers are listed");
                for name in names {
                    self.sql(&format!("DROP TRIGGER {name}")).await;
                }
            }
        }
        self.sql(&format!("UPDATE {{ops}}.{table} {change}")).await;
    }

    async fn sql(&self, text: &str) {
        self.base.plain.execute(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }

    async fn count(&self, text: &str) -> i64 {
        self.base.plain.number(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"))
    }

    async fn alerts(&self) -> Vec<Alert> {
        let filter = AlertFilter { resolved: true, limit: 100, ..AlertFilter::default() };
        self.base.store.alerts(filter).await.expect("the alerts are read")
    }

    async fn schedule(&self, name: &str) {
        let wanted = NewSchedule {
            name: name.to_owned(),
            cron: "* * * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            request: request(),
            missed: MissedPolicy::Once,
            overlap: OverlapPolicy::Allow,
        };
        self.engine.put_schedule(wanted).await.expect("the schedule is stored");
    }
}

fn request() -> QueueRun {
    QueueRun::new("shop", "staging")
}

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(TIMEOUT, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("timed out waiting for: {what}"));
}

async fn panicking_transaction_fails_its_caller_only(kind: Kind) {
    let fixture = LoopFixture::open(kind, Vec::new()).await;
    let (store, clock) = (&fixture.base.store, Clock::Database);
    let write = |panics: bool| {
        let id = clock.run_id();
        let run = id.clone();
        let step = store.write(move |mut tx| {
            Box::pin(async move {
                tx.queue_run(&request(), &id, Some(at(0))).await?;
                assert!(!panics, "a row that cannot be computed");
                Ok(())
            })
        });
        (run, step)
    };
    // Concurrently, so that SQLite commits them as one group.
    let (before, broken, after) = (write(false), write(true), write(false));
    let (one, bad, other) = tokio::join!(before.1, broken.1, after.1);
    one.expect("the step before is committed");
    other.expect("the step after is committed");
    let error = bad.expect_err("the step panicked");
    assert!(matches!(error, Error::Panicked { .. }), "{error:?}");
    assert_eq!(error.class(), Class::Permanent, "repeating it would panic again");
    assert!(error.to_string().contains("a row that cannot be computed"), "{error}");
    for _ in 0..20 {
        let (_, bad) = write(true);
        bad.await.expect_err("the step panicked");
        let (_, good) = write(false);
        good.await.expect("the store writes on");
    }
    assert_eq!(fixture.count("SELECT count(*) FROM {ops}.runs").await, 22, "what panicked is rolled back");
    for (run, exists) in [(before.0, true), (broken.0, false), (after.0, true)] {
        assert_eq!(store.run(run).await.expect("it is read").is_some(), exists);
    }
    assert!(store.monitor().loops().iter().all(|state| state.failure.is_none()), "no loop failed");
}

async fn unreadable_run_loses_its_own_notice_only(kind: Kind) {
    let fixture = LoopFixture::open(kind, Vec::new()).await;
    let runs = [fixture.fail().await, fixture.fail().await, fixture.fail().await];
    // Without triggers, so that the status can be an unknown one.
    fixture.damage("runs", "SET priority = priority").await;
    let change = format!("UPDATE {{ops}}.runs SET status = 'unheard of' WHERE run_id = '{}'", runs[1]);
    match kind {
        Kind::Sqlite => fixture.sql(&format!("PRAGMA ignore_check_constraints = ON; {change}")).await,
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => fixture.sql(&change).await,
    }
    fixture.engine.process_alerts().await.expect("alerts are processed");
    assert_eq!(fixture.count("SELECT count(*) FROM {ops}.run_notices").await, 0, "no notice is tried again");
    let alerts = fixture.alerts().await;
    for run in &runs {
        let alert = alerts.iter().find(|alert| alert.run_id.as_ref() == Some(run));
        let alert = alert.unwrap_or_else(|| panic!("no alert about {run}: {alerts:?}"));
        assert_eq!(alert.kind, AlertKind::RunFailed);
        assert_eq!(alert.message.contains("cannot be read"), *run == runs[1], "{}", alert.message);
    }
    fixture.engine.process_alerts().await.expect("the next pass succeeds");
}

/// A timestamp that the driver cannot hold would panic when it is read; an unknown label fails.
async fn unreadable_notice_does_not_stop_sweep_and_prune(kind: Kind) {
    let fixture = LoopFixture::open(kind, Vec::new()).await;
    let run = fixture.fail().await;
    let change = match kind {
        Kind::Sqlite => "SET end_cause = 'unheard of'",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "SET expires_at = 'infinity'",
    };
    fixture.damage("runs", &format!("{change} WHERE run_id = '{run}'")).await;
    let upkeep =
        Upkeep { every: Duration::from_millis(50), idle: Duration::from_millis(50), ..Upkeep::default() };
    let engine = fixture.engine.clone();
    let keeper = tokio::spawn(async move { engine.run_maintenance(&upkeep).await });
    until("the notice is handled", async || {
        fixture.count("SELECT count(*) FROM {ops}.run_notices").await == 0
    })
    .await;
    // The sweep ends a run that expires, and an old ended run is pruned.
    let mut late = request();
    late.expires_at = Some(at(60));
    let late = fixture.engine.queue(late).await.expect("it is queued").run_id;
    fixture.clock.advance(TimeDelta::seconds(61));
    until("the sweep ends the run", async || {
        let run = fixture.base.store.run(late.clone()).await.ok().flatten();
        run.is_some_and(|run| run.status == RunState::Cancelled)
    })
    .await;
    assert!(!keeper.is_finished(), "upkeep continues");
    keeper.abort();
    let engine = fixture.engine.clone();
    fixture.clock.advance(TimeDelta::days(200));
    let keeper = tokio::spawn(async move { engine.run_maintenance(&Upkeep::default()).await });
    until("the runs are pruned", async || fixture.count("SELECT count(*) FROM {ops}.runs").await == 0).await;
    keeper.abort();
}

async fn unreadable_schedule_is_paused_and_others_fire(kind: Kind) {
    let fixture = LoopFixture::open(kind, Vec::new()).await;
    for name in ["bad-request", "bad-zone", "bad-cron", "good"] {
        fixture.schedule(name).await;
    }
    // The broken schedules are due first.
    for (name, change) in [
        ("bad-request", r#"request = '{"project": 5}'"#),
        ("bad-zone", "time_zone = 'Mars/Olympus'"),
        ("bad-cron", "cron = 'now and then'"),
    ] {
        let earlier =
            "next_fire_at = (SELECT s.next_fire_at FROM {ops}.schedules s WHERE s.schedule_id = 'good')";
        fixture.damage("schedules", &format!("SET {change}, {earlier} WHERE schedule_id = '{name}'")).await;
    }
    fixture.clock.advance(TimeDelta::seconds(61));
    let fired = fixture.engine.fire_due().await.expect("readable schedules fire");
    let names: Vec<&str> = fired.iter().map(|fire| fire.schedule_id.as_str()).collect();
    assert_eq!(names, ["good"]);
    let paused = "SELECT count(*) FROM {ops}.schedules WHERE paused_note LIKE 'could not fire: %'";
    assert_eq!(fixture.count(paused).await, 3);
    fixture.clock.advance(TimeDelta::seconds(60));
    assert_eq!(fixture.engine.fire_due().await.expect("it fires again").len(), 1);
}

async fn unreadable_alert_and_message_do_not_stop_others(kind: Kind) {
    let receiver = WebhookReceiver::start().await;
    let target = Target {
        interval: Duration::ZERO,
        ..Target::new(
            "hook",
            Channel::Webhook(Webhook {
                address: Address::Plain(receiver.url.clone()),
                format: BodyFormat::Generic,
                secret_env: None,
            }),
        )
    };
    let fixture = LoopFixture::open(kind, vec![target]).await;
    let runs = [fixture.fail().await, fixture.fail().await, fixture.fail().await];
    // The notices become alerts; then one alert is damaged.
    let listener = Engine::new(fixture.base.store.clone(), fixture.clock.clone(), RetryPolicy::None);
    listener.process_alerts().await.expect("alerts are raised");
    fixture.damage("alerts", &format!("SET run_id = 'no run id' WHERE run_id = '{}'", runs[0])).await;
    let sent = fixture.engine.process_alerts().await.expect("deliverable messages are sent");
    assert_eq!(sent.sent, 1, "one message covers both remaining alerts: {sent:?}");
    assert_eq!(fixture.count("SELECT count(*) FROM {ops}.alerts WHERE sent_at IS NULL").await, 0);
    // An unreadable message in the outbox is given up.
    fixture.damage("deliveries", r#"SET alert = '{"kind": 5}', sent_at = NULL, next_at = due_at"#).await;
    let last = fixture.fail().await;
    fixture.clock.advance(TimeDelta::seconds(1));
    let sent = fixture.engine.process_alerts().await.expect("deliverable messages are sent");
    assert_eq!(sent.sent, 1, "{sent:?} {last}");
    assert_eq!(fixture.count("SELECT count(*) FROM {ops}.deliveries WHERE dead_at IS NOT NULL").await, 1);
}

async fn failing_loop_is_shown_and_recovers(kind: Kind) {
    tidemill_api::metrics::install();
    let fixture = LoopFixture::open(kind, Vec::new()).await;
    let syncs = Syncs::new(fixture.engine.clone(), SyncSettings::default());
    let router = tidemill_api::router(App::new(syncs, Access::Open { name: "ann".to_owned() }));
    let get = async |path: &str| {
        let request = http::Request::get(path).body(axum::body::Body::empty()).expect("a request");
        let answer = router.clone().oneshot(request).await.expect("an answer");
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.expect("a body");
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    let health = async || {
        let (status, body) = get("/readyz").await;
        (status, serde_json::from_str::<Value>(&body).expect("it is JSON"))
    };
    let upkeep =
        Upkeep { every: Duration::from_millis(50), idle: Duration::from_millis(50), ..Upkeep::default() };
    let engine = fixture.engine.clone();
    let keeper = tokio::spawn(async move { engine.run_maintenance(&upkeep).await });
    assert_eq!(health().await, (200, json!({"status": "ready"})));

    fixture.sql("ALTER TABLE {ops}.run_notices RENAME TO run_notices_away").await;
    until("the server is degraded", async || health().await.1["status"] == "degraded").await;
    let (status, message) = health().await;
    assert_eq!(status, 200, "a load balancer must keep the server: {message}");
    let loops = message["loops"].as_array().expect("the loops are named").clone();
    assert_eq!(loops.len(), 1, "only the loop that needs the table fails: {message}");
    assert_eq!(loops[0]["name"], "alert_notices");
    assert_eq!(loops[0]["error"], "the database could not read notices");
    let info: Value = serde_json::from_str(&get("/v1/info").await.1).expect("it is JSON");
    let detail = info["loops"].as_array().expect("loops").iter().find(|one| one["name"] == "alert_notices");
    let detail = detail.and_then(|one| one["error"].as_str()).unwrap_or_default().to_owned();
    assert!(detail.contains("run_notices"), "admins get all details: {info}");
    let figures = get("/metrics").await.1;
    assert!(figures.contains(r#"tidemill_loop_restarts_total{loop="alert_notices"}"#), "{figures}");
    assert!(figures.contains(r#"tidemill_loops_failing{loop="alert_notices"} 1"#), "{figures}");

    // The other maintenance loops continue.
    fixture.schedule("good").await;
    fixture.clock.advance(TimeDelta::seconds(61));
    until("the schedule fires", async || {
        fixture.count("SELECT count(*) FROM {ops}.schedule_fires").await > 0
    })
    .await;

    fixture.sql("ALTER TABLE {ops}.run_notices_away RENAME TO run_notices").await;
    until("the server is ready again", async || health().await.1 == json!({"status": "ready"})).await;
    let figures = get("/metrics").await.1;
    assert!(figures.contains(r#"tidemill_loops_failing{loop="alert_notices"} 0"#), "{figures}");
    keeper.abort();
}
