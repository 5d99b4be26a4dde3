//! Schedules on a clock that the test moves: according to the policy, and never twice.

use std::sync::Arc;

use serde_json::json;
use tidemill_core::Timestamp;
use tidemill_core::run::QueueRun;
use tidemill_core::schedule::{Decision, MissedPolicy, OverlapPolicy};
use tidemill_engine::{Clock, Engine, NewSchedule, RetryPolicy};
use tidemill_store::{FireRecord, RefusalCode};

use super::at_once;
use crate::interface::{Fixture, refused, request};

fn moment(text: &str) -> Timestamp {
    text.parse().unwrap_or_default()
}

fn engine(fixture: &Fixture, now: &str) -> Engine {
    Engine::new(fixture.store.clone(), Clock::fixed(moment(now)), RetryPolicy::None)
}

fn nightly(cron: &str, missed: MissedPolicy, overlap: OverlapPolicy) -> NewSchedule {
    NewSchedule {
        name: "nightly".to_owned(),
        cron: cron.to_owned(),
        time_zone: "Europe/Berlin".to_owned(),
        request: QueueRun { metadata: json!({"job": "backup"}), ..request() },
        missed,
        overlap,
    }
}

/// Moves the clock and fires due schedules.
async fn fire_at(engine: &Engine, now: &str) -> Vec<FireRecord> {
    if let Some(before) = engine.clock().now() {
        engine.clock().advance(moment(now) - before);
    }
    engine.fire_due().await.unwrap_or_else(|bad| panic!("the schedules do not fire: {bad}"))
}

fn times(fired: &[FireRecord], decision: Decision) -> Vec<String> {
    let wanted = fired.iter().filter(|fire| fire.decision == decision);
    wanted.map(|fire| fire.fire_at.format("%m-%dT%H:%M").to_string()).collect()
}

async fn put(engine: &Engine, wanted: NewSchedule) {
    assert!(engine.put_schedule(wanted).await.is_ok());
}

/// The metadata of the run names the schedule, and the decision is recorded.
pub async fn due_schedule_queues_its_request(fixture: Fixture) {
    let engine = engine(&fixture, "2026-02-14T10:00:00Z");
    put(&engine, nightly("30 2 * * *", MissedPolicy::Skip, OverlapPolicy::Allow)).await;
    assert!(
        fire_at(&engine, "2026-02-15T01:29:59Z").await.is_empty(),
        "half past two in Berlin is half past one"
    );
    let fired = fire_at(&engine, "2026-02-15T01:30:00Z").await;
    assert_eq!(times(&fired, Decision::Queue), ["02-15T01:30"]);
    let Some(run) = &fired[0].run_id else { panic!("no run was queued") };
    let queued = fixture.run(run).await;
    assert_eq!(
        queued.metadata,
        json!({"job": "backup", "schedule": "nightly", "fire_at": "2026-02-15T01:30:00+00:00"})
    );
    assert!(fire_at(&engine, "2026-02-15T01:30:30Z").await.is_empty(), "once is once");
    let stored = fixture.store.fires("nightly".to_owned(), 10).await.unwrap_or_default();
    assert_eq!(stored, fired);
    let schedules = fixture.store.schedules(None).await.unwrap_or_default();
    assert_eq!(schedules[0].next_fire_at, Some(moment("2026-02-16T01:30:00Z")));
    assert_eq!(schedules[0].last_run_id.as_ref(), Some(run));
}

/// In spring 02:30 does not exist in Berlin, in autumn it exists twice: one run on each of these days.
pub async fn daylight_saving_change_neither_loses_nor_doubles_a_fire(fixture: Fixture) {
    let spring = engine(&fixture, "2026-03-27T12:00:00Z");
    put(&spring, nightly("30 2 * * *", MissedPolicy::All, OverlapPolicy::Allow)).await;
    let fired = fire_at(&spring, "2026-03-30T12:00:00Z").await;
    assert_eq!(times(&fired, Decision::Queue), ["03-28T01:30", "03-29T01:00", "03-30T00:30"]);
    let autumn = engine(&fixture, "2026-10-23T12:00:00Z");
    put(&autumn, nightly("30 2 * * *", MissedPolicy::All, OverlapPolicy::Allow)).await;
    let fired = fire_at(&autumn, "2026-10-26T12:00:00Z").await;
    assert_eq!(times(&fired, Decision::Queue), ["10-24T00:30", "10-25T00:30", "10-26T01:30"]);
}

/// No scheduler ran for three nights.
pub async fn missed_fires_follow_the_policy(fixture: Fixture) {
    for (missed, queued, passed) in [
        (MissedPolicy::Skip, vec![], vec!["02-15T01:30", "02-16T01:30", "02-17T01:30"]),
        (MissedPolicy::Once, vec!["02-17T01:30"], vec!["02-15T01:30", "02-16T01:30"]),
        (MissedPolicy::All, vec!["02-15T01:30", "02-16T01:30", "02-17T01:30"], vec![]),
    ] {
        let engine = engine(&fixture, "2026-02-14T10:00:00Z");
        let name = format!("nightly-{missed}");
        put(
            &engine,
            NewSchedule { name: name.clone(), ..nightly("30 2 * * *", missed, OverlapPolicy::Allow) },
        )
        .await;
        let fired = fire_at(&engine, "2026-02-17T10:00:00Z").await;
        assert_eq!(
            (times(&fired, Decision::Queue), times(&fired, Decision::Missed)),
            (
                queued.into_iter().map(str::to_owned).collect(),
                passed.into_iter().map(str::to_owned).collect(),
            ),
            "{missed}"
        );
        assert_eq!(fixture.store.remove_schedule(name).await.ok(), Some(()));
    }
}

/// The previous run or one of its retries is still live.
pub async fn f19_fire_does_not_overlap_the_previous_run(fixture: Fixture) {
    let engine = engine(&fixture, "2026-02-14T10:00:30Z");
    let wanted = nightly("* * * * *", MissedPolicy::Skip, OverlapPolicy::Skip);
    let request = QueueRun { max_attempts: 2, backoff_secs: 0, ..wanted.request.clone() };
    put(&engine, NewSchedule { request, ..wanted }).await;
    let fired = fire_at(&engine, "2026-02-14T10:01:00Z").await;
    assert_eq!(times(&fired, Decision::Queue).len(), 1);
    let Some(first) = fired[0].run_id.clone() else { panic!("no run was queued") };
    let fired = fire_at(&engine, "2026-02-14T10:02:00Z").await;
    assert_eq!(times(&fired, Decision::Overlapped).len(), 1, "it waits");
    let now = |second| moment("2026-02-14T10:02:00Z") + chrono::TimeDelta::seconds(second);
    fixture.claim("worker-001", now(1)).await;
    fixture.fail(&first, now(2)).await;
    let fired = fire_at(&engine, "2026-02-14T10:03:00Z").await;
    assert_eq!(times(&fired, Decision::Overlapped).len(), 1, "its second try waits");
    let Some(second) = fixture.claim("worker-001", now(61)).await else { panic!("there is no second try") };
    fixture.succeed(&second.run_id, now(62)).await;
    let fired = fire_at(&engine, "2026-02-14T10:04:00Z").await;
    assert_eq!(times(&fired, Decision::Queue).len(), 1);
}

/// Four concurrent schedulers over five due schedules: each fire queues one run.
pub async fn f19_simultaneous_schedulers_fire_once(fixture: Fixture) {
    let first = engine(&fixture, "2026-02-14T10:00:30Z");
    for number in 0..5 {
        let wanted = nightly("* * * * *", MissedPolicy::All, OverlapPolicy::Allow);
        put(&first, NewSchedule { name: format!("schedule-{number}"), ..wanted }).await;
    }
    let mut engines = vec![first];
    for _ in 0..3 {
        let beside = fixture.open_second_store().await;
        engines.push(Engine::new(beside, Clock::fixed(moment("2026-02-14T10:00:30Z")), RetryPolicy::None));
    }
    let engines = Arc::new(engines);
    let fired = at_once(4, |number| {
        let engines = engines.clone();
        async move { fire_at(&engines[number], "2026-02-14T10:03:05Z").await }
    })
    .await;
    let mut all: Vec<_> = fired.into_iter().flatten().map(|fire| (fire.schedule_id, fire.fire_at)).collect();
    assert_eq!(all.len(), 15, "three minutes of five schedules");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 15);
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), Some(15));
}

/// It does not catch up when it is resumed.
pub async fn paused_schedule_does_not_fire(fixture: Fixture) {
    let engine = engine(&fixture, "2026-02-14T10:00:30Z");
    put(&engine, nightly("0 * * * *", MissedPolicy::All, OverlapPolicy::Allow)).await;
    assert!(engine.pause_schedule("nightly", Some("holidays".to_owned())).await.is_ok());
    assert!(fire_at(&engine, "2026-02-14T13:30:00Z").await.is_empty());
    let stored = fixture.store.schedules(None).await.unwrap_or_default();
    assert_eq!(stored[0].paused_note.as_deref(), Some("holidays"));
    let next = engine.resume_schedule("nightly").await;
    assert_eq!(next.ok(), Some(Some(moment("2026-02-14T14:00:00Z"))));
    let fired = fire_at(&engine, "2026-02-14T14:00:00Z").await;
    assert_eq!(times(&fired, Decision::Queue), ["02-14T14:00"]);
}

/// Refused when it is created, not when it is due.
pub async fn invalid_schedule_is_refused_and_writes_nothing(fixture: Fixture) {
    let engine = engine(&fixture, "2026-02-14T10:00:00Z");
    let before = fixture.tables().await;
    let good = || nightly("30 2 * * *", MissedPolicy::Skip, OverlapPolicy::Allow);
    let answer = engine.put_schedule(NewSchedule { cron: "30 25 * * *".to_owned(), ..good() }).await;
    refused(answer, RefusalCode::BadValue);
    let answer = engine.put_schedule(NewSchedule { time_zone: "Europe/Atlantis".to_owned(), ..good() }).await;
    refused(answer, RefusalCode::BadValue);
    let answer = engine.put_schedule(NewSchedule { request: QueueRun::new("nobody", "x"), ..good() }).await;
    let hint = answer.as_ref().err().and_then(tidemill_store::Error::hint);
    assert_eq!(hint.as_deref(), Some("tidemill project create nobody --env x"));
    refused(answer, RefusalCode::UnknownProject);
    let answer = engine.put_schedule(NewSchedule { request: QueueRun::new("shop", "x"), ..good() }).await;
    refused(answer, RefusalCode::UnknownEnvironment);
    assert!(engine.put_schedule(NewSchedule { name: "Not a name".to_owned(), ..good() }).await.is_err());
    refused(fixture.store.remove_schedule("nobody".to_owned()).await, RefusalCode::UnknownSchedule);
    refused(engine.pause_schedule("nobody", None).await, RefusalCode::UnknownSchedule);
    refused(engine.resume_schedule("nobody").await, RefusalCode::UnknownSchedule);
    fixture.unchanged(&before).await;
}

/// A changed schedule continues at its new fire time. A removed one does not fire, and its runs stay.
pub async fn schedule_can_be_changed_and_removed(fixture: Fixture) {
    let engine = engine(&fixture, "2026-02-14T10:00:30Z");
    put(&engine, nightly("0 * * * *", MissedPolicy::Skip, OverlapPolicy::Allow)).await;
    assert_eq!(fire_at(&engine, "2026-02-14T11:00:00Z").await.len(), 1);
    put(&engine, nightly("15 * * * *", MissedPolicy::Skip, OverlapPolicy::Allow)).await;
    assert!(fire_at(&engine, "2026-02-14T11:14:59Z").await.is_empty());
    assert_eq!(fire_at(&engine, "2026-02-14T11:15:00Z").await.len(), 1);
    assert!(fixture.store.remove_schedule("nightly".to_owned()).await.is_ok());
    assert!(fire_at(&engine, "2026-02-14T12:15:00Z").await.is_empty());
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), Some(2));
}
