//! PostgreSQL only: the connection dies after a commit was sent and before its answer arrived.
//!
//! A proxy passes the commit on and drops the answer. The engine retries, and must find out that the operation was
//! executed. Nothing is executed twice, and the caller gets the answer of the first call.

use std::time::Duration;

use serde_json::json;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::run::{ChangeOutcome, FinalStatus, QueueRun, RunState};
use tidemill_core::schedule::{Decision, MissedPolicy, OverlapPolicy};
use tidemill_engine::clock::host_now;
use tidemill_engine::{Clock, Engine, NewSchedule, RetryPolicy};
use tidemill_store::{CancelOutcome, ClaimRuns, FinishRun, Holder, Options, Pooler, Store};

use crate::interface::{Fixture, Kind, at, info, request};
use crate::proxy::{Armed, Fault, Proxy};

/// An engine behind a proxy, with its clock at second 10.
struct ProxiedEngine {
    engine: Engine,
    proxy: Proxy,
}

impl ProxiedEngine {
    async fn from(fixture: &Fixture) -> Self {
        let Ok(proxy) = Proxy::in_front_of(&fixture.url).await else { panic!("there is no proxy") };
        let database = fixture.url.rsplit('/').next().unwrap_or_default();
        let pooler = if fixture.kind == Kind::Pgbouncer { Pooler::Transaction } else { Pooler::Session };
        let options = Options { pooler, ..Options::new(proxy.url(database), host_now) };
        let Ok(store) = Store::open(&options).await else { panic!("the proxy refuses connections") };
        let retry_policy = RetryPolicy::For(Duration::from_mins(1));
        Self { engine: Engine::new(store, Clock::fixed(at(10)), retry_policy), proxy }
    }

    /// Drops the next two answers to a statement that contains this text, including commits.
    fn lose_answers_to(&self, substring: &str) -> Armed {
        self.proxy.arm(Fault::cut_after_commit_of(substring).times(2))
    }
}

fn check_lost(armed: &Armed) {
    assert_eq!(armed.fired(), 2, "no answer was check_lost");
}

pub async fn repeated_queue_call_after_lost_answer_makes_one_run(fixture: Fixture) {
    let proxied = ProxiedEngine::from(&fixture).await;
    for (count, key) in [(1, None), (2, Some("once".to_owned()))] {
        let armed = proxied.lose_answers_to("queue_run(");
        let wanted = QueueRun { idempotency_key: key, concurrency_key: Some("k".to_owned()), ..request() };
        let Ok(queued) = proxied.engine.queue(wanted).await else { panic!("it was not queued") };
        check_lost(&armed);
        assert!(queued.created, "this call created it despite the lost answers");
        assert_eq!(fixture.status(&queued.run_id).await, RunState::Queued);
        assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), Some(count));
    }
}

pub async fn repeated_claim_after_lost_answer_returns_the_same_runs(fixture: Fixture) {
    for second in 0..6 {
        fixture.queue(request(), at(second)).await;
    }
    let proxied = ProxiedEngine::from(&fixture).await;
    for (limit, held) in [(1, 1), (3, 4)] {
        let armed = proxied.lose_answers_to("claim_next_run(");
        let ask = ClaimRuns { limit, ..ClaimRuns::one("worker-001") };
        let claims = proxied.engine.claim(ask).await.unwrap_or_default();
        check_lost(&armed);
        assert_eq!(claims.len(), limit);
        let claimed = fixture.plain.number("SELECT count(*) FROM {ops}.runs WHERE status = 'claimed'").await;
        assert_eq!(claimed.ok(), Some(held));
    }
}

/// Each operation of a worker can lose its answer.
pub async fn events_and_artifacts_are_stored_once_despite_lost_answers(fixture: Fixture) {
    let claim = fixture.claimed(request(), "worker-001", at(0)).await;
    let run = &claim.run_id;
    let holder = Holder { worker: Some("worker-001".to_owned()), epoch: Some(claim.epoch) };
    let proxied = ProxiedEngine::from(&fixture).await;
    let armed = proxied.lose_answers_to("start_run(");
    assert_eq!(proxied.engine.start(run, &holder).await.ok(), Some(ChangeOutcome::Applied));
    check_lost(&armed);
    let armed = proxied.lose_answers_to("append_events(");
    let events = vec![info("one").keyed("1"), info("two")];
    let ids = proxied.engine.append(run, events, &holder).await.unwrap_or_default();
    check_lost(&armed);
    assert_eq!(ids.len(), 2);
    assert!(ids.iter().all(Option::is_some));
    let armed = proxied.lose_answers_to("heartbeat(");
    assert!(proxied.engine.heartbeat(run, &holder).await.is_ok_and(|held| held.held));
    check_lost(&armed);
    let messages = ["Run queued", "Run claimed by worker", "Run started", "one", "two"];
    assert_eq!(fixture.messages(run).await, messages);
}

/// The run is retried once, and the worker learns that its report counts.
pub async fn report_with_lost_answer_counts_once(fixture: Fixture) {
    let wanted = QueueRun { max_attempts: 2, ..request() };
    let claim = fixture.running(wanted, "worker-001", at(0)).await;
    let proxied = ProxiedEngine::from(&fixture).await;
    let armed = proxied.lose_answers_to("finish_run_outcome(");
    let end = FinishRun {
        run_id: claim.run_id.clone(),
        status: FinalStatus::Failed,
        metadata: json!({"exit_code": 1, "artifacts": [{"type": "log", "url": "u"}]}),
        epoch: Some(claim.epoch),
    };
    let outcomes = proxied.engine.finish(vec![end], Some("worker-001")).await.unwrap_or_default();
    check_lost(&armed);
    assert_eq!(outcomes, [ChangeOutcome::Duplicate], "it is recognised, and not refused");
    let tries = fixture.store.tries(claim.run_id.clone()).await.unwrap_or_default();
    assert_eq!(tries.iter().map(|run| run.status).collect::<Vec<_>>(), [RunState::Failed, RunState::Queued]);
    assert_eq!(fixture.messages(&claim.run_id).await.last().map(String::as_str), Some("Run failed"));
    assert_eq!(fixture.store.artifacts(claim.run_id).await.map(|all| all.len()).ok(), Some(1));
}

pub async fn cancel_and_retry_with_lost_answers_happen_once(fixture: Fixture) {
    let run = fixture.queue(request(), at(0)).await;
    let proxied = ProxiedEngine::from(&fixture).await;
    let armed = proxied.lose_answers_to("cancel_run(");
    assert_eq!(proxied.engine.cancel(&run, "ann", None).await.ok(), Some(CancelOutcome::Cancelled));
    check_lost(&armed);
    let armed = proxied.lose_answers_to("retry_run(");
    let Ok(retried) = proxied.engine.retry(&run, "ann").await else { panic!("it was not retried") };
    check_lost(&armed);
    assert_eq!(fixture.successor(&run).await.map(|next| next.run_id), Some(retried.run_id));
    let armed = proxied.lose_answers_to("add_artifact(");
    let artifact = NewArtifact {
        artifact_type: "log".to_owned(),
        url: "u".to_owned(),
        digest: None,
        size_bytes: None,
        metadata: json!({}),
    };
    assert!(proxied.engine.add_artifact(&run, artifact).await.is_ok());
    check_lost(&armed);
    assert_eq!(fixture.messages(&run).await, ["Run queued", "Run cancelled", "Retry requested"]);
    assert_eq!(fixture.store.artifacts(run).await.map(|all| all.len()).ok(), Some(1));
}

pub async fn sweep_with_lost_answer_is_not_repeated(fixture: Fixture) {
    let mut runs = Vec::new();
    for second in 0..3 {
        runs.push(fixture.running(request(), "worker-001", at(second - 400)).await.run_id);
    }
    let proxied = ProxiedEngine::from(&fixture).await;
    let armed = proxied.lose_answers_to(".sweep(");
    assert!(proxied.engine.sweep(100, 20.0).await.is_ok());
    check_lost(&armed);
    for run in runs {
        assert_eq!(fixture.status(&run).await, RunState::Failed);
        let tries = fixture.store.tries(run).await.unwrap_or_default();
        assert_eq!(tries.len(), 2);
    }
}

/// The scheduler may return an error, but must not fire again.
pub async fn f19_fire_with_lost_answer_fires_once(fixture: Fixture) {
    let near = Engine::new(fixture.store.clone(), Clock::fixed(at(0)), RetryPolicy::None);
    let wanted = NewSchedule {
        name: "minutely".to_owned(),
        cron: "* * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        request: request(),
        missed: MissedPolicy::All,
        overlap: OverlapPolicy::Allow,
    };
    assert!(near.put_schedule(wanted).await.is_ok());
    let proxied = ProxiedEngine::from(&fixture).await;
    proxied.engine.clock().advance(chrono::TimeDelta::seconds(60));
    let armed = proxied.proxy.arm(Fault::cut_after_commit_of("queue_run("));
    let _ = proxied.engine.fire_due().await;
    assert_eq!(armed.fired(), 1, "no answer was check_lost");
    assert!(proxied.engine.fire_due().await.is_ok_and(|fired| fired.is_empty()));
    let fires = fixture.store.fires("minutely".to_owned(), 10).await.unwrap_or_default();
    assert_eq!(fires.iter().map(|fire| fire.decision).collect::<Vec<_>>(), [Decision::Queue]);
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), Some(1));
}
