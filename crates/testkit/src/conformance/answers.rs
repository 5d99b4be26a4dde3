//! PostgreSQL only: the connection dies after a commit was sent and before its answer came.
//!
//! A proxy lets the commit through and swallows the answer. The engine asks again, and must learn the truth: what was
//! done is done, nothing is done twice, and the caller is told what it would have been told.

use std::time::Duration;

use serde_json::json;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::run::{Applied, FinalStatus, QueueRun, RunState};
use tidemill_core::schedule::{Decision, Missed, Overlap};
use tidemill_engine::clock::host_now;
use tidemill_engine::{Clock, Engine, NewSchedule, Patience};
use tidemill_store::{Cancelled, ClaimRuns, FinishRun, Holder, Options, Pooler, Store};

use crate::door::{Kind, Stage, at, info, request};
use crate::proxy::{Armed, Fault, Proxy};

/// An engine behind a proxy, whose clock stands at second 10.
struct Far {
    engine: Engine,
    proxy: Proxy,
}

impl Far {
    async fn from(stage: &Stage) -> Self {
        let Ok(proxy) = Proxy::in_front_of(&stage.url).await else { panic!("there is no proxy") };
        let database = stage.url.rsplit('/').next().unwrap_or_default();
        let pooler = if stage.kind == Kind::Pgbouncer { Pooler::Transaction } else { Pooler::Session };
        let options = Options { pooler, ..Options::new(proxy.url(database), host_now) };
        let Ok(store) = Store::open(&options).await else { panic!("the proxy lets nobody in") };
        let patience = Patience::For(Duration::from_mins(1));
        Self { engine: Engine::new(store, Clock::fixed(at(10)), patience), proxy }
    }

    /// Loses the next two answers to a statement that contains this, commits included.
    fn lose_answers_to(&self, substring: &str) -> Armed {
        self.proxy.arm(Fault::cut_after_commit_of(substring).times(2))
    }
}

fn lost(armed: &Armed) {
    assert_eq!(armed.fired(), 2, "no answer was lost");
}

/// Two lost answers, one run; with a key and without.
pub async fn a_queue_call_whose_answer_was_lost_makes_one_run(stage: Stage) {
    let far = Far::from(&stage).await;
    for (count, key) in [(1, None), (2, Some("once".to_owned()))] {
        let armed = far.lose_answers_to("queue_run(");
        let wanted = QueueRun { idempotency_key: key, concurrency_key: Some("k".to_owned()), ..request() };
        let Ok(queued) = far.engine.queue(wanted).await else { panic!("it was not queued") };
        lost(&armed);
        assert!(queued.created, "this call made it, whatever became of the answers");
        assert_eq!(stage.status(&queued.run_id).await, RunState::Queued);
        assert_eq!(stage.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), Some(count));
    }
}

/// Two lost answers, the same runs; nothing else is claimed.
pub async fn a_claim_whose_answer_was_lost_gives_the_same_runs(stage: Stage) {
    for second in 0..6 {
        stage.queue(request(), at(second)).await;
    }
    let far = Far::from(&stage).await;
    for (limit, held) in [(1, 1), (3, 4)] {
        let armed = far.lose_answers_to("claim_next_run(");
        let ask = ClaimRuns { limit, ..ClaimRuns::one("worker-001") };
        let claims = far.engine.claim(ask).await.unwrap_or_default();
        lost(&armed);
        assert_eq!(claims.len(), limit);
        let claimed = stage.plain.number("SELECT count(*) FROM {ops}.runs WHERE status = 'claimed'").await;
        assert_eq!(claimed.ok(), Some(held));
    }
}

/// Started once, said once, beaten for: each verb of a worker can lose its answer.
pub async fn what_a_worker_says_is_kept_once_though_its_answers_are_lost(stage: Stage) {
    let claim = stage.claimed(request(), "worker-001", at(0)).await;
    let run = &claim.run_id;
    let holder = Holder { worker: Some("worker-001".to_owned()), epoch: Some(claim.epoch) };
    let far = Far::from(&stage).await;
    let armed = far.lose_answers_to("start_run(");
    assert_eq!(far.engine.start(run, &holder).await.ok(), Some(Applied::Applied));
    lost(&armed);
    let armed = far.lose_answers_to("append_events(");
    let events = vec![info("one").keyed("1"), info("two")];
    let ids = far.engine.append(run, events, &holder).await.unwrap_or_default();
    lost(&armed);
    assert_eq!(ids.len(), 2);
    assert!(ids.iter().all(Option::is_some));
    let armed = far.lose_answers_to("heartbeat(");
    assert!(far.engine.heartbeat(run, &holder).await.is_ok_and(|held| held.held));
    lost(&armed);
    let messages = ["Run queued", "Run claimed by worker", "Run started", "one", "two"];
    assert_eq!(stage.messages(run).await, messages);
}

/// Ended once, and followed once; the worker learns that its report counts.
pub async fn a_report_whose_answer_was_lost_counts_once(stage: Stage) {
    let wanted = QueueRun { max_attempts: 2, ..request() };
    let claim = stage.running(wanted, "worker-001", at(0)).await;
    let far = Far::from(&stage).await;
    let armed = far.lose_answers_to("finish_run_outcome(");
    let end = FinishRun {
        run_id: claim.run_id.clone(),
        status: FinalStatus::Failed,
        metadata: json!({"exit_code": 1, "artifacts": [{"type": "log", "url": "u"}]}),
        epoch: Some(claim.epoch),
    };
    let outcomes = far.engine.finish(vec![end], Some("worker-001")).await.unwrap_or_default();
    lost(&armed);
    assert_eq!(outcomes, [Applied::Duplicate], "it is recognised, and not refused");
    let tries = stage.store.tries(claim.run_id.clone()).await.unwrap_or_default();
    assert_eq!(tries.iter().map(|run| run.status).collect::<Vec<_>>(), [RunState::Failed, RunState::Queued]);
    assert_eq!(stage.messages(&claim.run_id).await.last().map(String::as_str), Some("Run failed"));
    assert_eq!(stage.store.artifacts(claim.run_id).await.map(|all| all.len()).ok(), Some(1));
}

/// A person's cancel and retry, and an artifact: done once, and answered as what they were.
pub async fn what_a_person_asks_for_is_done_once_though_the_answer_is_lost(stage: Stage) {
    let run = stage.queue(request(), at(0)).await;
    let far = Far::from(&stage).await;
    let armed = far.lose_answers_to("cancel_run(");
    assert_eq!(far.engine.cancel(&run, "ann", None).await.ok(), Some(Cancelled::Cancelled));
    lost(&armed);
    let armed = far.lose_answers_to("retry_run(");
    let Ok(retried) = far.engine.retry(&run, "ann").await else { panic!("it was not retried") };
    lost(&armed);
    assert_eq!(stage.successor(&run).await.map(|next| next.run_id), Some(retried.run_id));
    let armed = far.lose_answers_to("add_artifact(");
    let artifact = NewArtifact {
        artifact_type: "log".to_owned(),
        url: "u".to_owned(),
        digest: None,
        size_bytes: None,
        metadata: json!({}),
    };
    assert!(far.engine.add_artifact(&run, artifact).await.is_ok());
    lost(&armed);
    assert_eq!(stage.messages(&run).await, ["Run queued", "Run cancelled", "Retry requested"]);
    assert_eq!(stage.store.artifacts(run).await.map(|all| all.len()).ok(), Some(1));
}

/// The sweeper's own answer is lost: every run is ended once, and followed once.
pub async fn a_sweep_whose_answer_was_lost_is_not_done_twice(stage: Stage) {
    let mut runs = Vec::new();
    for second in 0..3 {
        runs.push(stage.running(request(), "worker-001", at(second - 400)).await.run_id);
    }
    let far = Far::from(&stage).await;
    let armed = far.lose_answers_to(".sweep(");
    assert!(far.engine.sweep(100, 20.0).await.is_ok());
    lost(&armed);
    for run in runs {
        assert_eq!(stage.status(&run).await, RunState::Failed);
        let tries = stage.store.tries(run).await.unwrap_or_default();
        assert_eq!(tries.len(), 2);
    }
}

/// The commit of a fire is lost on its way back: the scheduler may fail, but it does not fire again.
pub async fn f19_a_fire_whose_answer_was_lost_is_not_fired_again(stage: Stage) {
    let near = Engine::new(stage.store.clone(), Clock::fixed(at(0)), Patience::None);
    let wanted = NewSchedule {
        name: "minutely".to_owned(),
        cron: "* * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        request: request(),
        missed: Missed::All,
        overlap: Overlap::Allow,
    };
    assert!(near.put_schedule(wanted).await.is_ok());
    let far = Far::from(&stage).await;
    far.engine.clock().advance(chrono::TimeDelta::seconds(60));
    let armed = far.proxy.arm(Fault::cut_after_commit_of("queue_run("));
    let _ = far.engine.fire_due().await;
    assert_eq!(armed.fired(), 1, "no answer was lost");
    assert!(far.engine.fire_due().await.is_ok_and(|fired| fired.is_empty()));
    let fires = stage.store.fires("minutely".to_owned(), 10).await.unwrap_or_default();
    assert_eq!(fires.iter().map(|fire| fire.decision).collect::<Vec<_>>(), [Decision::Queue]);
    assert_eq!(stage.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), Some(1));
}
