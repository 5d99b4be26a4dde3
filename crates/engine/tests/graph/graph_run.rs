//! The run of a graph in the kernel.

use tidemill_core::graph::record::JobCounts;
use tidemill_core::job::StatusCode as C;
use tidemill_core::run::{CancelOutcome, ChangeOutcome, EndCause, Lane, RunState};
use tidemill_core::task::TaskKind;
use tidemill_store::{ClaimRuns, RefusalCode};
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ended, graph, one, settle};

pub(crate) async fn graph_run_is_never_claimed_or_swept(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    let claim = async |fixture: &GraphFixture| {
        let ask = ClaimRuns { limit: 10, labels: vec!["tidemill.graph".to_owned()], ..ClaimRuns::one("w") };
        fixture.engine.claim(ask).await.expect("claims are answered")
    };
    assert!(claim(&fixture).await.is_empty(), "while it is queued");
    fixture.act().await;
    let order = agent.order().await;
    agent.stage(&order.task_id, "executing").await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Running);
    assert!(claim(&fixture).await.is_empty(), "while it runs");
    fixture.advance(40 * 86_400);
    assert!(fixture.engine.sweep(100, 20.0).await.expect("it is swept").is_empty());
    let stored = fixture.run(&run).await;
    assert_eq!((stored.status, stored.lane), (RunState::Running, Lane::Graph));
    let waiting = fixture.submit(&one("")).await;
    fixture.advance(40 * 86_400);
    assert!(fixture.engine.sweep(100, 20.0).await.expect("it is swept").is_empty());
    assert!(claim(&fixture).await.is_empty());
    assert_eq!(fixture.run(&waiting).await.status, RunState::Queued);
}

pub(crate) async fn graph_run_state_follows_its_jobs(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Queued, "no job has started");
    let mut agent = fixture.agent("one", 1).await;
    fixture.advance(1);
    fixture.act().await;
    let started = fixture.run(&run).await;
    assert_eq!((started.status, started.claimed_by.as_deref()), (RunState::Running, Some("first")));
    fixture.play(std::slice::from_mut(&mut agent), 5).await;
    let over = fixture.run(&run).await;
    assert_eq!((over.status, over.end_cause), (RunState::Success, Some(EndCause::Reported)));
    let graph = fixture.graphs.graph(&run).await.expect("the graph is read");
    assert_eq!(graph.counts, JobCounts { total: 2, succeeded: 2, ..JobCounts::default() });
    let page = tidemill_store::EventPage { after: 0, limit: 100 };
    let events = fixture.base.store.events(run.clone(), page).await.expect("events are read");
    let reply: Vec<&str> = events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(
        reply,
        [
            "Run queued",
            "ann submitted a graph of 2 jobs; 0 of them are reused",
            "Run claimed by worker",
            "Run started",
            "Run succeeded"
        ]
    );
    // A job that can never start: the run fails without having started.
    let failing = fixture.submit(&one("labels: [gpu]")).await;
    fixture.act().await;
    fixture.graphs.cancel(&failing, &[], "ann", None).await.expect("it is cancelled");
    fixture.act().await;
    assert_eq!(fixture.run(&failing).await.status, RunState::Cancelled);
}

pub(crate) async fn cancel_and_retry_of_the_run_apply_to_the_graph(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let task = agent.order().await.task_id;
    agent.stage(&task, "executing").await;
    let cancelled = fixture.engine.cancel(&run, "ann", Some("enough")).await.expect("it is cancelled");
    assert_eq!(cancelled, CancelOutcome::Requested);
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::CancelledByUser);
    assert_eq!(fixture.engine.cancel(&run, "ann", None).await.expect("it has ended"), CancelOutcome::Ended);
    agent.confirm(&task).await;
    let retried = fixture.engine.retry(&run, "ann").await.expect("it is tried again");
    fixture.play(std::slice::from_mut(&mut agent), 5).await;
    let next = fixture.run(&retried.run_id).await;
    assert_eq!((next.status, next.lane, next.retry_of), (RunState::Success, Lane::Graph, Some(run)));
}

pub(crate) async fn graph_run_ended_by_plain_sql_ends_its_jobs(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    fixture.act().await;
    let task = agent.order().await.task_id;
    agent.stage(&task, "executing").await;
    fixture.act().await;
    let change = "UPDATE {ops}.runs SET status = 'failed'";
    fixture.base.plain.execute(change).await.expect("a person may");
    fixture.act().await;
    let job = fixture.job(&run, "a").await;
    assert_eq!((job.code, job.stopping), (C::CancelledByUser, true));
    assert_eq!(fixture.run(&run).await.status, RunState::Failed);
}

/// A plain statement on a job notifies the controller, which then reads everything.
pub(crate) async fn job_ended_by_plain_sql_is_noticed_without_a_full_pass(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 2).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    fixture.act().await;
    let task = agent.order().await.task_id;
    agent.stage(&task, "executing").await;
    fixture.act().await;
    let changes = "SELECT count(*) FROM {ops}.job_changes";
    assert_eq!(fixture.number(changes).await, 0, "the controller's own changes are not marked");
    let end = "UPDATE {ops}.jobs SET code = 'succeeded', ended_at = updated_at WHERE name = 'a'";
    fixture.base.plain.execute(end).await.expect("a person may");
    fixture.act().await;
    assert_eq!(fixture.code(&run, "b").await, C::Initiated);
    let orders = agent.poll().await;
    assert_eq!(
        orders.iter().map(|order| order.kind).collect::<Vec<_>>(),
        [TaskKind::CancelJob, TaskKind::RunJob]
    );
    for order in &orders {
        agent.succeed(order).await;
    }
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
    assert!(!fixture.job(&run, "a").await.stopping);
}

/// The command of a job that a plain statement changed is stopped, and its capacity is free only then, whether the job
/// has ended or waits again.
pub(crate) async fn job_changed_by_plain_sql_is_stopped_on_its_agent(kind: Kind) {
    for code in [C::Succeeded, C::JobError, C::WaitingOnNewTask] {
        let mut fixture = GraphFixture::open(kind).await;
        let mut agent = fixture.agent("one", 1).await;
        let run = fixture.submit(&one("")).await;
        fixture.act().await;
        let task = agent.order().await.task_id;
        agent.stage(&task, "executing").await;
        fixture.act().await;
        let ended_at = if code.is_terminal() { "updated_at" } else { "NULL" };
        let change = format!("UPDATE {{ops}}.jobs SET code = '{code}', ended_at = {ended_at}");
        fixture.base.plain.execute(&change).await.expect("a person may");
        let first = if code.is_terminal() { fixture.submit(&one("")).await } else { run.clone() };
        fixture.act().await;
        let job = fixture.job(&run, "a").await;
        assert_eq!((job.code, job.stopping), (code, true));
        let waits = if code.is_terminal() { C::WaitingOnWorkers } else { code };
        assert_eq!(fixture.code(&first, "a").await, waits, "{code}: something of it may still run");
        let stop = agent.order().await;
        assert_eq!((stop.kind, stop.cancels.as_deref()), (TaskKind::CancelJob, Some(task.as_str())));
        assert_eq!(agent.stage(&task, "executed").await, ChangeOutcome::Stale);
        assert_eq!(agent.confirm(&task).await, ChangeOutcome::Applied);
        fixture.act().await;
        assert_eq!(fixture.code(&first, "a").await, C::Initiated, "{code}");
        assert_eq!(fixture.number("SELECT count(*) FROM {ops}.tasks WHERE active").await, 1);
    }
}

/// A controller that was not notified finds such runs in its full pass.
pub(crate) async fn graph_run_ends_when_plain_sql_ends_its_last_job(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 2).await;
    let failing = fixture.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    let good = fixture.submit(&one("")).await;
    fixture.act().await;
    for order in agent.poll().await {
        agent.stage(&order.task_id, "executing").await;
    }
    fixture.act().await;
    let end = async |fixture: &GraphFixture, run: &str, code: &str| {
        let change = format!(
            "UPDATE {{ops}}.jobs SET code = '{code}', ended_at = updated_at WHERE run_id = '{run}' AND name = 'a'"
        );
        fixture.base.plain.execute(&change).await.expect("a person may");
    };
    end(&fixture, failing.as_str(), "cancelled_by_user").await;
    end(&fixture, good.as_str(), "succeeded").await;
    fixture.advance(61);
    agent.beat().await;
    fixture.act().await;
    assert_eq!(fixture.code(&failing, "b").await, C::DependencyFailed);
    assert_ne!(fixture.run(&failing).await.finished_at, None);
    let over = fixture.run(&good).await;
    assert_eq!((over.status, over.end_cause), (RunState::Success, Some(EndCause::Reported)));
    assert_eq!(over.metadata["jobs"]["succeeded"], 1);
    // Once is enough.
    let before = fixture.run(&good).await;
    fixture.advance(61);
    fixture.act().await;
    assert_eq!(fixture.run(&good).await, before);
}

pub(crate) async fn graph_cancelled_by_sql_function_stops_soon(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let running = fixture.submit(&one("")).await;
    let waiting = fixture.submit(&one("")).await;
    fixture.act().await;
    let task = agent.order().await.task_id;
    agent.stage(&task, "executing").await;
    fixture.act().await;
    // Like `SELECT ops.cancel_run(…)`, and its equivalent on SQLite.
    let store = fixture.base.store.clone();
    let cancel = async |run: &tidemill_core::RunId| {
        let reason = Some("enough".to_owned());
        store.cancel_run(run.clone(), "ann".to_owned(), reason, fixture.engine.clock().now()).await
    };
    for run in [&running, &waiting, &running] {
        assert_eq!(cancel(run).await.expect("it is cancelled"), CancelOutcome::Requested);
    }
    settle(&mut fixture.controller).await;
    assert_eq!(fixture.code(&running, "a").await, C::CancelledByUser, "without a full pass");
    assert_eq!(fixture.code(&waiting, "a").await, C::CancelledByUser);
    for run in [&running, &waiting] {
        let over = fixture.run(run).await;
        assert_eq!((over.status, over.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
        assert_eq!(over.metadata["cancelled_by"], "ann");
    }
    let wishes = format!(
        "SELECT count(*) FROM {{ops}}.run_events WHERE run_id = '{running}' AND kind = 'request' AND level = 'warn'"
    );
    assert_eq!(fixture.number(&wishes).await, 1, "a repeated cancel is one request");
    assert_eq!(cancel(&running).await.expect("it has ended"), CancelOutcome::Ended);
    agent.confirm(&task).await;
    settle(&mut fixture.controller).await;
    assert!(!fixture.job(&running, "a").await.stopping);
}

pub(crate) async fn retry_of_a_graph_with_pruned_jobs_is_refused(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let run = fixture.submit(&one("")).await;
    fixture.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
    settle(&mut fixture.controller).await;
    let before = fixture.number("SELECT count(*) FROM {ops}.runs").await;
    // Like `SELECT ops.retry_run(…)`, and its equivalent on SQLite.
    let refused =
        fixture.base.store.retry_run(run.clone(), "ann".to_owned(), fixture.engine.clock().now()).await;
    let refused = refused.expect_err("no worker would end this run");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::NotRetryable));
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.runs").await, before);
    assert!(fixture.engine.retry(&run, "ann").await.expect("it is tried again, with its jobs").created);
}

pub(crate) async fn old_graphs_are_pruned(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let old = fixture.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    fixture.play(std::slice::from_mut(&mut agent), 5).await;
    let line = crate::reports::line("hello");
    let task = agent.have[0].clone();
    agent.graphs.report_log(&agent.who, &task, 0, vec![line]).await.expect("it is stored");
    fixture.advance(100 * 86_400);
    agent.beat().await;
    let young = fixture.submit(&one("")).await;
    fixture.act().await;
    let task = agent.order().await.task_id;
    agent.result(&task, ended(0)).await;
    fixture.act().await;
    let pruned = fixture.base.store.prune(fixture.now() - chrono::TimeDelta::days(90), 100).await;
    assert_eq!(pruned.expect("it is removed").runs, 1);
    assert!(fixture.graphs.graph(&old).await.is_err());
    assert_eq!(fixture.graphs.graph(&young).await.expect("it is stored").counts.succeeded, 1);
    for (table, rows) in
        [("graphs", 1), ("jobs", 1), ("job_needs", 0), ("tasks", 1), ("task_logs", 0), ("job_outputs", 0)]
    {
        assert_eq!(fixture.number(&format!("SELECT count(*) FROM {{ops}}.{table}")).await, rows, "{table}");
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.job_events").await, 2);
}

/// A graph with more jobs and logs than one transaction may delete is deleted at once, and the rest in batches.
pub(crate) async fn old_graphs_are_pruned_in_batches(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 5).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[]), ("e", &["a"])])).await;
    fixture.play(std::slice::from_mut(&mut agent), 5).await;
    for seq in 0..7 {
        let lines = vec![crate::reports::line("hello")];
        agent.graphs.report_log(&agent.who, &agent.have[0], seq, lines).await.expect("it is stored");
    }
    fixture.advance(100 * 86_400);
    let store = &fixture.base.store;
    let before = fixture.now() - chrono::TimeDelta::days(90);
    let mut steps = Vec::new();
    loop {
        let pruned = store.prune_within(before, 100, 3).await.expect("it is removed");
        assert!(fixture.graphs.graph(&run).await.is_err(), "it goes at once");
        if (pruned.runs, pruned.events, pruned.jobs, pruned.pieces) == (0, 0, 0, 0) {
            break;
        }
        steps.push((pruned.pieces, pruned.jobs));
    }
    assert_eq!(steps, [(3, 0), (3, 0), (1, 3), (0, 2)]);
    for table in
        ["graphs", "jobs", "job_needs", "job_events", "tasks", "task_logs", "job_outputs", "run_events"]
    {
        assert_eq!(fixture.number(&format!("SELECT count(*) FROM {{ops}}.{table}")).await, 0, "{table}");
    }
}
