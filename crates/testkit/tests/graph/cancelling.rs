//! Cancelling: before a task exists, in every stage, twice, and while the agent is away.

use tidemill_core::job::StatusCode as C;
use tidemill_core::project::FlagName;
use tidemill_core::run::{Applied, Cancelled, RunState};
use tidemill_core::task::{Stage, TaskKind, TaskResult, cancel_id};
use tidemill_testkit::door::Kind;

use crate::arrows::site;
use crate::scene::{Scene, ended, failed, graph, one};

pub(crate) async fn before_there_is_a_task_none_is_stopped(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    // Once before the controller has looked, and once while the jobs wait.
    for looked in [false, true] {
        let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
        if looked {
            scene.act().await;
            assert_eq!(scene.code(&run, "a").await, C::WaitingOnWorkers);
        }
        let cancelled =
            scene.graphs.cancel(&run, &[], "ann", Some("a mistake")).await.expect("it is cancelled");
        assert_eq!((cancelled.jobs, cancelled.outcome), (2, Cancelled::Requested));
        scene.act().await;
        assert_eq!(scene.code(&run, "a").await, C::CancelledByUser);
        assert_eq!(scene.code(&run, "b").await, C::CancelledByUser);
        let ended = scene.run(&run).await;
        assert_eq!(ended.status, RunState::Cancelled);
        assert_eq!(ended.metadata["cancelled_by"], "ann");
    }
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.tasks").await, 0);
}

pub(crate) async fn in_each_stage_the_room_is_free_when_the_agent_confirms(kind: Kind) {
    let stages = std::iter::once(None).chain(Stage::ALL.iter().map(|stage| Some(*stage)));
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    for stage in stages {
        let run = scene.submit(&one("")).await;
        scene.act().await;
        let order = robot.order().await;
        if let Some(stage) = stage {
            assert_eq!(robot.stage(&order.task_id, stage.as_str()).await, Applied::Applied);
            scene.act().await;
        }
        scene.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
        scene.act().await;
        let job = scene.job(&run, "a").await;
        assert_eq!((job.code, job.stopping), (C::CancelledByUser, true), "{stage:?}");
        assert_eq!(scene.run(&run).await.status, RunState::Cancelled);
        // The room is taken until the agent says that nothing runs any more.
        let next = scene.submit(&one("")).await;
        scene.act().await;
        assert_eq!(scene.code(&next, "a").await, C::WaitingOnWorkers, "{stage:?}");
        let stop = robot.order().await;
        assert_eq!(stop.kind, TaskKind::CancelJob);
        assert_eq!(stop.cancels.as_deref(), Some(order.task_id.as_str()));
        assert_eq!(robot.stage(&order.task_id, "finalized").await, Applied::Stale);
        assert_eq!(robot.confirm(&order.task_id).await, Applied::Applied);
        scene.act().await;
        assert!(!scene.job(&run, "a").await.stopping);
        assert_eq!(scene.code(&next, "a").await, C::Initiated, "{stage:?}");
        let order = robot.order().await;
        robot.succeed(&order).await;
        scene.act().await;
        robot.have.clear();
    }
}

pub(crate) async fn twice_is_once(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let order = robot.order().await;
    robot.stage(&order.task_id, "executing").await;
    for jobs in [1, 0] {
        let cancelled = scene.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
        assert_eq!(cancelled.jobs, jobs);
    }
    scene.act().await;
    let late = scene.graphs.cancel(&run, &[], "ann", None).await.expect("it is over");
    assert_eq!(late.outcome, Cancelled::Ended);
    assert_eq!(robot.confirm(&order.task_id).await, Applied::Applied);
    assert_eq!(robot.confirm(&order.task_id).await, Applied::Duplicate);
    scene.act().await;
    assert_eq!(robot.confirm(&order.task_id).await, Applied::Duplicate);
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.tasks").await, 2);
}

pub(crate) async fn the_result_of_the_task_confirms_as_well(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let order = robot.order().await;
    robot.stage(&order.task_id, "executing").await;
    scene.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
    scene.act().await;
    // An agent that does not know how to stop has not stopped anything.
    let message = "unknown kind CANCELJOB".to_owned();
    let strange = TaskResult::Failed { fatal: true, elsewhere: false, message };
    assert_eq!(robot.result(&cancel_id(&order.task_id), strange).await, Applied::Applied);
    scene.act().await;
    assert!(scene.job(&run, "a").await.stopping);
    // It ended well before it heard; that does not count, but nothing runs any more.
    assert_eq!(robot.result(&order.task_id, ended(0)).await, Applied::Stale);
    scene.act().await;
    let job = scene.job(&run, "a").await;
    assert_eq!((job.code, job.stopping), (C::CancelledByUser, false));
}

/// Shows that an agent that cannot stop a task is told so again, and not for ever: then a job that is over gives its
/// room back, one that was to run again fails instead of running twice, and both are told.
pub(crate) async fn an_agent_that_cannot_stop_a_task_is_told_so_often(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 2).await;
    let over = scene.submit(&one("")).await;
    let held = scene.submit(&one("pool: database")).await;
    scene.act().await;
    for order in robot.poll().await {
        robot.stage(&order.task_id, "executing").await;
    }
    scene.act().await;
    scene.graphs.cancel(&over, &[], "ann", None).await.expect("it is cancelled");
    scene.graphs.set_flag(site(&scene, FlagName::Maintenance)).await.expect("the flag is set");
    for turn in 1..=5 {
        scene.act().await;
        let (over, held) = (scene.job(&over, "a").await, scene.job(&held, "a").await);
        assert_eq!((over.code, over.stopping), (C::CancelledByUser, true), "{turn}");
        assert_eq!((held.code, held.stopping), (C::WaitingDbMaintenance, true), "{turn}");
        let orders = robot.poll().await;
        assert_eq!(orders.len(), 2, "{turn}: {orders:?}");
        for order in orders {
            assert_eq!(order.kind, TaskKind::CancelJob);
            assert_eq!(robot.result(&order.task_id, failed("the disk is gone")).await, Applied::Applied);
        }
    }
    scene.act().await;
    assert!(robot.poll().await.is_empty());
    let told = "agent one was told 5 times to stop its last task, and could not, so that something of it may still \
                run there: the disk is gone";
    let job = scene.job(&over, "a").await;
    assert_eq!((job.code, job.stopping), (C::CancelledByUser, false));
    let page = tidemill_store::EventPage { after: 0, limit: 100 };
    let events = scene.stage.store.events(over.clone(), page).await.expect("events are read");
    assert_eq!(events.last().map(|event| event.message.as_str()), Some(format!("job a: {told}").as_str()));
    let job = scene.job(&held, "a").await;
    assert_eq!((job.code, job.stopping, job.message.as_deref()), (C::JobError, false, Some(told)));
    assert_eq!(scene.run(&held).await.status, RunState::Failed);
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.tasks WHERE active").await, 0);
    assert_eq!(robot.beat_in(None).await.len(), robot.have.len(), "every sign of life says that it is over");
}

pub(crate) async fn while_the_agent_is_away(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 2).await;
    let begun = scene.submit(&one("")).await;
    let untouched = scene.submit(&one("")).await;
    scene.act().await;
    let orders = robot.poll().await;
    let of = |run: &tidemill_core::RunId| {
        let order = orders.iter().find(|order| order.work.as_ref().is_some_and(|work| work.run_id == *run));
        order.expect("it is ordered").task_id.clone()
    };
    robot.stage(&of(&begun), "executing").await;
    scene.graphs.cancel(&untouched, &[], "ann", None).await.expect("it is cancelled");
    scene.act().await;
    assert!(scene.job(&untouched, "a").await.stopping, "the agent may just be about to begin it");
    scene.advance(25);
    scene.graphs.cancel(&begun, &[], "ann", None).await.expect("it is cancelled");
    scene.act().await;
    // What was never begun cannot run: a late `preparing` is refused. What was begun may run for as long as it
    // likes.
    assert!(!scene.job(&untouched, "a").await.stopping);
    assert!(scene.job(&begun, "a").await.stopping);
    assert_eq!(robot.stage(&of(&untouched), "preparing").await, Applied::Stale);
    scene.advance(100_000);
    scene.act().await;
    assert!(scene.job(&begun, "a").await.stopping);
    robot.beat().await;
    let stop = robot.poll().await;
    assert_eq!(stop.len(), 1, "{stop:?}");
    robot.confirm(&of(&begun)).await;
    scene.act().await;
    assert!(!scene.job(&begun, "a").await.stopping);
}

pub(crate) async fn one_job_of_a_graph(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 4).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &[])])).await;
    scene.act().await;
    let refused = scene.graphs.cancel(&run, &["d".to_owned()], "ann", None).await;
    assert_eq!(refused.expect_err("there is no d").to_string(), format!("graph {run} has no job `d`"));
    scene.graphs.cancel(&run, &["a".to_owned()], "ann", None).await.expect("it is cancelled");
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::CancelledByUser);
    assert_eq!(scene.code(&run, "b").await, C::DependencyFailed);
    assert_eq!(scene.code(&run, "c").await, C::Initiated);
    for order in robot.poll().await {
        if order.kind == TaskKind::CancelJob || order.work.is_some_and(|work| work.spec.name == "c") {
            let result = if order.kind == TaskKind::CancelJob { TaskResult::Stopped } else { ended(0) };
            robot.result(&order.task_id, result).await;
        }
    }
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Cancelled, "nothing failed otherwise");
}
