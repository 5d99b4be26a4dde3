//! Cancel: before a task exists, in every stage, twice, and while the agent is away.

use tidemill_core::job::StatusCode as C;
use tidemill_core::project::FlagName;
use tidemill_core::run::{CancelOutcome, ChangeOutcome, RunState};
use tidemill_core::task::{Stage, TaskKind, TaskResult, cancel_id};
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ended, failed, graph, one};
use crate::transitions::site;

pub(crate) async fn cancel_before_a_task_exists_stops_none(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    // Once before the controller's pass, and once while the jobs wait.
    for looked in [false, true] {
        let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
        if looked {
            fixture.act().await;
            assert_eq!(fixture.code(&run, "a").await, C::WaitingOnWorkers);
        }
        let cancelled =
            fixture.graphs.cancel(&run, &[], "ann", Some("a mistake")).await.expect("it is cancelled");
        assert_eq!((cancelled.jobs, cancelled.outcome), (2, CancelOutcome::Requested));
        fixture.act().await;
        assert_eq!(fixture.code(&run, "a").await, C::CancelledByUser);
        assert_eq!(fixture.code(&run, "b").await, C::CancelledByUser);
        let ended = fixture.run(&run).await;
        assert_eq!(ended.status, RunState::Cancelled);
        assert_eq!(ended.metadata["cancelled_by"], "ann");
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.tasks").await, 0);
}

pub(crate) async fn cancel_in_each_stage_frees_capacity_when_confirmed(kind: Kind) {
    let stages = std::iter::once(None).chain(Stage::ALL.iter().map(|stage| Some(*stage)));
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    for stage in stages {
        let run = fixture.submit(&one("")).await;
        fixture.act().await;
        let order = agent.order().await;
        if let Some(stage) = stage {
            assert_eq!(agent.stage(&order.task_id, stage.as_str()).await, ChangeOutcome::Applied);
            fixture.act().await;
        }
        fixture.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
        fixture.act().await;
        let job = fixture.job(&run, "a").await;
        assert_eq!((job.code, job.stopping), (C::CancelledByUser, true), "{stage:?}");
        assert_eq!(fixture.run(&run).await.status, RunState::Cancelled);
        // The capacity is used until the agent confirms that nothing runs.
        let next = fixture.submit(&one("")).await;
        fixture.act().await;
        assert_eq!(fixture.code(&next, "a").await, C::WaitingOnWorkers, "{stage:?}");
        let stop = agent.order().await;
        assert_eq!(stop.kind, TaskKind::CancelJob);
        assert_eq!(stop.cancels.as_deref(), Some(order.task_id.as_str()));
        assert_eq!(agent.stage(&order.task_id, "finalized").await, ChangeOutcome::Stale);
        assert_eq!(agent.confirm(&order.task_id).await, ChangeOutcome::Applied);
        fixture.act().await;
        assert!(!fixture.job(&run, "a").await.stopping);
        assert_eq!(fixture.code(&next, "a").await, C::Initiated, "{stage:?}");
        let order = agent.order().await;
        agent.succeed(&order).await;
        fixture.act().await;
        agent.have.clear();
    }
}

pub(crate) async fn repeated_cancel_counts_once(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let order = agent.order().await;
    agent.stage(&order.task_id, "executing").await;
    for jobs in [1, 0] {
        let cancelled = fixture.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
        assert_eq!(cancelled.jobs, jobs);
    }
    fixture.act().await;
    let late = fixture.graphs.cancel(&run, &[], "ann", None).await.expect("it has ended");
    assert_eq!(late.outcome, CancelOutcome::Ended);
    assert_eq!(agent.confirm(&order.task_id).await, ChangeOutcome::Applied);
    assert_eq!(agent.confirm(&order.task_id).await, ChangeOutcome::Duplicate);
    fixture.act().await;
    assert_eq!(agent.confirm(&order.task_id).await, ChangeOutcome::Duplicate);
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.tasks").await, 2);
}

pub(crate) async fn task_result_confirms_the_cancel(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let order = agent.order().await;
    agent.stage(&order.task_id, "executing").await;
    fixture.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
    fixture.act().await;
    // An agent that does not know cancel tasks has not stopped anything.
    let message = "unknown kind CANCELJOB".to_owned();
    let strange = TaskResult::Failed { fatal: true, elsewhere: false, message };
    assert_eq!(agent.result(&cancel_id(&order.task_id), strange).await, ChangeOutcome::Applied);
    fixture.act().await;
    assert!(fixture.job(&run, "a").await.stopping);
    // It succeeded before it received the cancel. That does not count, but confirms that nothing runs.
    assert_eq!(agent.result(&order.task_id, ended(0)).await, ChangeOutcome::Stale);
    fixture.act().await;
    let job = fixture.job(&run, "a").await;
    assert_eq!((job.code, job.stopping), (C::CancelledByUser, false));
}

/// An agent that does not confirm is ordered again, a limited number of times. Then an ended job releases its capacity,
/// and a job that was to run again fails instead of running twice. Both are recorded.
pub(crate) async fn unconfirmed_cancel_is_ordered_repeatedly(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 2).await;
    let over = fixture.submit(&one("")).await;
    let held = fixture.submit(&one("pool: database")).await;
    fixture.act().await;
    for order in agent.poll().await {
        agent.stage(&order.task_id, "executing").await;
    }
    fixture.act().await;
    fixture.graphs.cancel(&over, &[], "ann", None).await.expect("it is cancelled");
    fixture.graphs.set_flag(site(&fixture, FlagName::Maintenance)).await.expect("the flag is set");
    for turn in 1..=5 {
        fixture.act().await;
        let (over, held) = (fixture.job(&over, "a").await, fixture.job(&held, "a").await);
        assert_eq!((over.code, over.stopping), (C::CancelledByUser, true), "{turn}");
        assert_eq!((held.code, held.stopping), (C::WaitingDbMaintenance, true), "{turn}");
        let orders = agent.poll().await;
        assert_eq!(orders.len(), 2, "{turn}: {orders:?}");
        for order in orders {
            assert_eq!(order.kind, TaskKind::CancelJob);
            assert_eq!(
                agent.result(&order.task_id, failed("the disk is gone")).await,
                ChangeOutcome::Applied
            );
        }
    }
    fixture.act().await;
    assert!(agent.poll().await.is_empty());
    let reply = "agent one could not stop its last task in 5 attempts, so processes of it may still run there: \
                the disk is gone";
    let job = fixture.job(&over, "a").await;
    assert_eq!((job.code, job.stopping), (C::CancelledByUser, false));
    let page = tidemill_store::EventPage { after: 0, limit: 100 };
    let events = fixture.base.store.events(over.clone(), page).await.expect("events are read");
    assert_eq!(events.last().map(|event| event.message.as_str()), Some(format!("job a: {reply}").as_str()));
    let job = fixture.job(&held, "a").await;
    assert_eq!((job.code, job.stopping, job.message.as_deref()), (C::JobError, false, Some(reply)));
    assert_eq!(fixture.run(&held).await.status, RunState::Failed);
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.tasks WHERE active").await, 0);
    assert_eq!(
        agent.heartbeat_with_stage(None).await.len(),
        agent.have.len(),
        "every sign of life says that it is over"
    );
}

pub(crate) async fn cancel_while_the_agent_is_away_waits(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 2).await;
    let begun = fixture.submit(&one("")).await;
    let untouched = fixture.submit(&one("")).await;
    fixture.act().await;
    let orders = agent.poll().await;
    let of = |run: &tidemill_core::RunId| {
        let order = orders.iter().find(|order| order.work.as_ref().is_some_and(|work| work.run_id == *run));
        order.expect("it is ordered").task_id.clone()
    };
    agent.stage(&of(&begun), "executing").await;
    fixture.graphs.cancel(&untouched, &[], "ann", None).await.expect("it is cancelled");
    fixture.act().await;
    assert!(fixture.job(&untouched, "a").await.stopping, "the agent may just be about to begin it");
    fixture.advance(25);
    fixture.graphs.cancel(&begun, &[], "ann", None).await.expect("it is cancelled");
    fixture.act().await;
    // An unstarted task cannot run: a late `preparing` is refused. A started one may run indefinitely.
    assert!(!fixture.job(&untouched, "a").await.stopping);
    assert!(fixture.job(&begun, "a").await.stopping);
    assert_eq!(agent.stage(&of(&untouched), "preparing").await, ChangeOutcome::Stale);
    fixture.advance(100_000);
    fixture.act().await;
    assert!(fixture.job(&begun, "a").await.stopping);
    agent.beat().await;
    let stop = agent.poll().await;
    assert_eq!(stop.len(), 1, "{stop:?}");
    agent.confirm(&of(&begun)).await;
    fixture.act().await;
    assert!(!fixture.job(&begun, "a").await.stopping);
}

pub(crate) async fn cancel_of_one_job_leaves_independent_jobs(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 4).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &[])])).await;
    fixture.act().await;
    let refused = fixture.graphs.cancel(&run, &["d".to_owned()], "ann", None).await;
    assert_eq!(refused.expect_err("there is no d").to_string(), format!("graph {run} has no job `d`"));
    fixture.graphs.cancel(&run, &["a".to_owned()], "ann", None).await.expect("it is cancelled");
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::CancelledByUser);
    assert_eq!(fixture.code(&run, "b").await, C::DependencyFailed);
    assert_eq!(fixture.code(&run, "c").await, C::Initiated);
    for order in agent.poll().await {
        if order.kind == TaskKind::CancelJob || order.work.is_some_and(|work| work.spec.name == "c") {
            let result = if order.kind == TaskKind::CancelJob { TaskResult::Stopped } else { ended(0) };
            agent.result(&order.task_id, result).await;
        }
    }
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Cancelled, "nothing failed otherwise");
}
