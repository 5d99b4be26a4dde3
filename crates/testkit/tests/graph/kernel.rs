//! The run of a graph, as the kernel sees it.

use tidemill_core::graph::record::JobCounts;
use tidemill_core::job::StatusCode as C;
use tidemill_core::run::{Applied, Cancelled, EndCause, Lane, RunState};
use tidemill_core::task::TaskKind;
use tidemill_store::{ClaimRuns, RefusalCode};
use tidemill_testkit::door::Kind;

use crate::scene::{Scene, ended, graph, one, settle};

pub(crate) async fn a_graph_is_never_claimed_nor_swept(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    let claim = async |scene: &Scene| {
        let ask = ClaimRuns { limit: 10, labels: vec!["tidemill.graph".to_owned()], ..ClaimRuns::one("w") };
        scene.engine.claim(ask).await.expect("claims are answered")
    };
    assert!(claim(&scene).await.is_empty(), "while it is queued");
    scene.act().await;
    let order = robot.order().await;
    robot.stage(&order.task_id, "executing").await;
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Running);
    assert!(claim(&scene).await.is_empty(), "while it runs");
    scene.advance(40 * 86_400);
    assert!(scene.engine.sweep(100, 20.0).await.expect("it is swept").is_empty());
    let kept = scene.run(&run).await;
    assert_eq!((kept.status, kept.lane), (RunState::Running, Lane::Graph));
    let waiting = scene.submit(&one("")).await;
    scene.advance(40 * 86_400);
    assert!(scene.engine.sweep(100, 20.0).await.expect("it is swept").is_empty());
    assert!(claim(&scene).await.is_empty());
    assert_eq!(scene.run(&waiting).await.status, RunState::Queued);
}

pub(crate) async fn the_run_follows_its_jobs(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Queued, "nothing has begun");
    let mut robot = scene.agent("one", 1).await;
    scene.advance(1);
    scene.act().await;
    let started = scene.run(&run).await;
    assert_eq!((started.status, started.claimed_by.as_deref()), (RunState::Running, Some("first")));
    scene.play(std::slice::from_mut(&mut robot), 5).await;
    let over = scene.run(&run).await;
    assert_eq!((over.status, over.end_cause), (RunState::Success, Some(EndCause::Reported)));
    let graph = scene.graphs.graph(&run).await.expect("the graph is read");
    assert_eq!(graph.counts, JobCounts { total: 2, succeeded: 2, ..JobCounts::default() });
    let page = tidemill_store::EventPage { after: 0, limit: 100 };
    let events = scene.stage.store.events(run.clone(), page).await.expect("events are read");
    let told: Vec<&str> = events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(
        told,
        [
            "Run queued",
            "ann submitted a graph of 2 jobs; 0 of them are reused",
            "Run claimed by worker",
            "Run started",
            "Run succeeded"
        ]
    );
    // A job that can never begin: the run fails without having begun.
    let failing = scene.submit(&one("labels: [gpu]")).await;
    scene.act().await;
    scene.graphs.cancel(&failing, &[], "ann", None).await.expect("it is cancelled");
    scene.act().await;
    assert_eq!(scene.run(&failing).await.status, RunState::Cancelled);
}

pub(crate) async fn cancelling_and_retrying_the_run_is_the_same(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let task = robot.order().await.task_id;
    robot.stage(&task, "executing").await;
    let cancelled = scene.engine.cancel(&run, "ann", Some("enough")).await.expect("it is cancelled");
    assert_eq!(cancelled, Cancelled::Requested);
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::CancelledByUser);
    assert_eq!(scene.engine.cancel(&run, "ann", None).await.expect("it is over"), Cancelled::Ended);
    robot.confirm(&task).await;
    let retried = scene.engine.retry(&run, "ann").await.expect("it is tried again");
    scene.play(std::slice::from_mut(&mut robot), 5).await;
    let next = scene.run(&retried.run_id).await;
    assert_eq!((next.status, next.lane, next.retry_of), (RunState::Success, Lane::Graph, Some(run)));
}

pub(crate) async fn a_run_that_is_ended_by_hand_takes_its_jobs_with_it(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let task = robot.order().await.task_id;
    robot.stage(&task, "executing").await;
    scene.act().await;
    let change = "UPDATE {ops}.runs SET status = 'failed'";
    scene.stage.plain.execute(change).await.expect("a person may");
    scene.act().await;
    let job = scene.job(&run, "a").await;
    assert_eq!((job.code, job.stopping), (C::CancelledByUser, true));
    assert_eq!(scene.run(&run).await.status, RunState::Failed);
}

/// Shows that what a plain statement does to a job is named to the controller, which reads everything anew at once.
pub(crate) async fn a_job_that_a_statement_ended_is_seen_without_a_pass(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 2).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    scene.act().await;
    let task = robot.order().await.task_id;
    robot.stage(&task, "executing").await;
    scene.act().await;
    let changes = "SELECT count(*) FROM {ops}.job_changes";
    assert_eq!(scene.number(changes).await, 0, "what the controller does it need not be told");
    let end = "UPDATE {ops}.jobs SET code = 'succeeded', ended_at = updated_at WHERE name = 'a'";
    scene.stage.plain.execute(end).await.expect("a person may");
    scene.act().await;
    assert_eq!(scene.code(&run, "b").await, C::Initiated);
    let orders = robot.poll().await;
    assert_eq!(
        orders.iter().map(|order| order.kind).collect::<Vec<_>>(),
        [TaskKind::CancelJob, TaskKind::RunJob]
    );
    for order in &orders {
        robot.succeed(order).await;
    }
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
    assert!(!scene.job(&run, "a").await.stopping);
}

/// Shows that the command of a job that a plain statement moved is stopped, and that its room is free only then:
/// whether the job has ended, or was put back to wait.
pub(crate) async fn what_a_statement_moved_is_stopped_on_its_agent(kind: Kind) {
    for code in [C::Succeeded, C::JobError, C::WaitingOnNewTask] {
        let mut scene = Scene::open(kind).await;
        let mut robot = scene.agent("one", 1).await;
        let run = scene.submit(&one("")).await;
        scene.act().await;
        let task = robot.order().await.task_id;
        robot.stage(&task, "executing").await;
        scene.act().await;
        let ended_at = if code.is_terminal() { "updated_at" } else { "NULL" };
        let change = format!("UPDATE {{ops}}.jobs SET code = '{code}', ended_at = {ended_at}");
        scene.stage.plain.execute(&change).await.expect("a person may");
        let first = if code.is_terminal() { scene.submit(&one("")).await } else { run.clone() };
        scene.act().await;
        let job = scene.job(&run, "a").await;
        assert_eq!((job.code, job.stopping), (code, true));
        let waits = if code.is_terminal() { C::WaitingOnWorkers } else { code };
        assert_eq!(scene.code(&first, "a").await, waits, "{code}: something of it may still run");
        let stop = robot.order().await;
        assert_eq!((stop.kind, stop.cancels.as_deref()), (TaskKind::CancelJob, Some(task.as_str())));
        assert_eq!(robot.stage(&task, "executed").await, Applied::Stale);
        assert_eq!(robot.confirm(&task).await, Applied::Applied);
        scene.act().await;
        assert_eq!(scene.code(&first, "a").await, C::Initiated, "{code}");
        assert_eq!(scene.number("SELECT count(*) FROM {ops}.tasks WHERE active").await, 1);
    }
}

/// A controller that was not told of it finds such runs when it passes over everything.
pub(crate) async fn a_run_whose_last_job_a_statement_ended_ends(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 2).await;
    let failing = scene.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    let good = scene.submit(&one("")).await;
    scene.act().await;
    for order in robot.poll().await {
        robot.stage(&order.task_id, "executing").await;
    }
    scene.act().await;
    let end = async |scene: &Scene, run: &str, code: &str| {
        let change = format!(
            "UPDATE {{ops}}.jobs SET code = '{code}', ended_at = updated_at WHERE run_id = '{run}' AND name = 'a'"
        );
        scene.stage.plain.execute(&change).await.expect("a person may");
    };
    end(&scene, failing.as_str(), "cancelled_by_user").await;
    end(&scene, good.as_str(), "succeeded").await;
    scene.advance(61);
    robot.beat().await;
    scene.act().await;
    assert_eq!(scene.code(&failing, "b").await, C::DependencyFailed);
    assert_ne!(scene.run(&failing).await.finished_at, None);
    let over = scene.run(&good).await;
    assert_eq!((over.status, over.end_cause), (RunState::Success, Some(EndCause::Reported)));
    assert_eq!(over.metadata["jobs"]["succeeded"], 1);
    // Once is enough.
    let before = scene.run(&good).await;
    scene.advance(61);
    scene.act().await;
    assert_eq!(scene.run(&good).await, before);
}

pub(crate) async fn a_graph_that_is_cancelled_in_sql_stops_soon(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let running = scene.submit(&one("")).await;
    let waiting = scene.submit(&one("")).await;
    scene.act().await;
    let task = robot.order().await.task_id;
    robot.stage(&task, "executing").await;
    scene.act().await;
    // What `SELECT ops.cancel_run(…)` does, and its twin on SQLite.
    let store = scene.stage.store.clone();
    let cancel = async |run: &tidemill_core::RunId| {
        let reason = Some("enough".to_owned());
        store.cancel_run(run.clone(), "ann".to_owned(), reason, scene.engine.clock().now()).await
    };
    for run in [&running, &waiting, &running] {
        assert_eq!(cancel(run).await.expect("it is cancelled"), Cancelled::Requested);
    }
    settle(&mut scene.controller).await;
    assert_eq!(scene.code(&running, "a").await, C::CancelledByUser, "without a pass over everything");
    assert_eq!(scene.code(&waiting, "a").await, C::CancelledByUser);
    for run in [&running, &waiting] {
        let over = scene.run(run).await;
        assert_eq!((over.status, over.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
        assert_eq!(over.metadata["cancelled_by"], "ann");
    }
    let wishes = format!(
        "SELECT count(*) FROM {{ops}}.run_events WHERE run_id = '{running}' AND kind = 'request' AND level = 'warn'"
    );
    assert_eq!(scene.number(&wishes).await, 1, "asked twice, it is one wish");
    assert_eq!(cancel(&running).await.expect("it is over"), Cancelled::Ended);
    robot.confirm(&task).await;
    settle(&mut scene.controller).await;
    assert!(!scene.job(&running, "a").await.stopping);
}

pub(crate) async fn a_graph_is_not_tried_again_without_its_jobs(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let run = scene.submit(&one("")).await;
    scene.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
    settle(&mut scene.controller).await;
    let before = scene.number("SELECT count(*) FROM {ops}.runs").await;
    // What `SELECT ops.retry_run(…)` does, and its twin on SQLite.
    let refused =
        scene.stage.store.retry_run(run.clone(), "ann".to_owned(), scene.engine.clock().now()).await;
    let refused = refused.expect_err("it would be a run that nobody ends");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::NotRetryable));
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.runs").await, before);
    assert!(scene.engine.retry(&run, "ann").await.expect("it is tried again, with its jobs").created);
}

pub(crate) async fn what_ended_long_ago_is_removed(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let old = scene.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    scene.play(std::slice::from_mut(&mut robot), 5).await;
    let line = crate::reporting::line("hello");
    let task = robot.have[0].clone();
    robot.graphs.report_log(&robot.who, &task, 0, vec![line]).await.expect("it is kept");
    scene.advance(100 * 86_400);
    robot.beat().await;
    let young = scene.submit(&one("")).await;
    scene.act().await;
    let task = robot.order().await.task_id;
    robot.result(&task, ended(0)).await;
    scene.act().await;
    let pruned = scene.stage.store.prune(scene.now() - chrono::TimeDelta::days(90), 100).await;
    assert_eq!(pruned.expect("it is removed").runs, 1);
    assert!(scene.graphs.graph(&old).await.is_err());
    assert_eq!(scene.graphs.graph(&young).await.expect("it is kept").counts.succeeded, 1);
    for (table, rows) in
        [("graphs", 1), ("jobs", 1), ("job_needs", 0), ("tasks", 1), ("task_logs", 0), ("job_outputs", 0)]
    {
        assert_eq!(scene.number(&format!("SELECT count(*) FROM {{ops}}.{table}")).await, rows, "{table}");
    }
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.job_events").await, 2);
}

/// Shows that a graph with more jobs and output than one step may delete goes at once, and the rest of it step by step.
pub(crate) async fn what_ended_long_ago_goes_step_by_step(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 5).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[]), ("e", &["a"])])).await;
    scene.play(std::slice::from_mut(&mut robot), 5).await;
    for seq in 0..7 {
        let lines = vec![crate::reporting::line("hello")];
        robot.graphs.report_log(&robot.who, &robot.have[0], seq, lines).await.expect("it is kept");
    }
    scene.advance(100 * 86_400);
    let store = &scene.stage.store;
    let before = scene.now() - chrono::TimeDelta::days(90);
    let mut steps = Vec::new();
    loop {
        let pruned = store.prune_within(before, 100, 3).await.expect("it is removed");
        assert!(scene.graphs.graph(&run).await.is_err(), "it goes at once");
        if (pruned.runs, pruned.events, pruned.jobs, pruned.pieces) == (0, 0, 0, 0) {
            break;
        }
        steps.push((pruned.pieces, pruned.jobs));
    }
    assert_eq!(steps, [(3, 0), (3, 0), (1, 3), (0, 2)]);
    for table in
        ["graphs", "jobs", "job_needs", "job_events", "tasks", "task_logs", "job_outputs", "run_events"]
    {
        assert_eq!(scene.number(&format!("SELECT count(*) FROM {{ops}}.{table}")).await, 0, "{table}");
    }
}
