//! Every transition in the state diagram of a job.

use tidemill_core::job::{StatusCode as C, pairs};
use tidemill_core::project::{Flag, FlagName, FlagSource, SITE_SCOPE};
use tidemill_core::run::RunState;
use tidemill_core::task::TaskResult;
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ended, failed, graph, one};

pub(crate) fn site(fixture: &GraphFixture, flag: FlagName) -> Flag {
    Flag {
        flag,
        scope: SITE_SCOPE.to_owned(),
        note: Some("tonight".to_owned()),
        since: fixture.now(),
        until_at: None,
        set_by: Some("ann".to_owned()),
        source: FlagSource::Manual,
    }
}

pub(crate) async fn every_stage_sets_its_job_status(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Initiated);
    assert_eq!(fixture.code(&run, "b").await, C::WaitingOnDependencies);
    let order = agent.order().await;
    let stages = ["preparing", "prepared", "executing", "error", "executed", "finalizing", "finalized"];
    for stage in stages {
        agent.stage(&order.task_id, stage).await;
        fixture.act().await;
        assert_eq!(fixture.code(&run, "a").await.as_str(), stage);
    }
    agent.result(&order.task_id, ended(0)).await;
    fixture.act().await;
    assert_eq!(
        fixture.path(&run, "a").await,
        [
            C::Created,
            C::Initiated,
            C::Preparing,
            C::Prepared,
            C::Executing,
            C::Error,
            C::Executed,
            C::Finalizing,
            C::Finalized,
            C::Succeeded
        ]
    );
    assert_eq!(fixture.path(&run, "b").await, [C::Created, C::WaitingOnDependencies, C::Initiated]);
    let order = agent.order().await;
    agent.succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
}

pub(crate) async fn failure_transitions_match_the_diagram(kind: Kind) {
    let unmatched = TaskResult::Ended {
        exit_code: 0,
        unmatched: vec!["table".to_owned()],
        hint: vec!["tabel.csv".to_owned()],
        message: None,
    };
    let fatal = TaskResult::Failed { fatal: true, elsewhere: false, message: "no such user".to_owned() };
    for (result, code, words) in [
        (ended(3), C::NonzeroExit, "its command ended with 3"),
        (unmatched, C::UnmatchedPatterns, "no file matches table; new files are tabel.csv"),
        (fatal, C::JobError, "no such user"),
    ] {
        let mut fixture = GraphFixture::open(kind).await;
        let mut agent = fixture.agent("one", 1).await;
        let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"])])).await;
        fixture.act().await;
        let order = agent.order().await;
        agent.stage(&order.task_id, "preparing").await;
        agent.result(&order.task_id, result).await;
        fixture.act().await;
        let job = fixture.job(&run, "a").await;
        assert_eq!((job.code, job.message.as_deref()), (code, Some(words)));
        assert_eq!(fixture.code(&run, "b").await, C::DependencyFailed);
        assert_eq!(fixture.job(&run, "c").await.message.as_deref(), Some("job b did not succeed"));
        let run = fixture.run(&run).await;
        assert_eq!(run.status, RunState::Failed);
        let reply =
            format!("3 of 3 jobs did not succeed: a ({code}), b (dependency_failed), c (dependency_failed)");
        assert_eq!(run.metadata["error"], reply);
        assert!(agent.poll().await.is_empty(), "no job starts after a failure");
    }
}

pub(crate) async fn wait_and_reset_transitions_match_the_diagram(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let run = fixture.submit(&one("pool: database")).await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::WaitingOnWorkers);
    fixture.graphs.set_pool("database", 1).await.expect("the pool is set");
    let mut agent = fixture.agent("one", 8).await;
    let other = fixture.submit(&one("pool: database")).await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Initiated);
    assert_eq!(fixture.code(&other, "a").await, C::WaitingOnPool);
    let order = agent.order().await;
    agent.stage(&order.task_id, "executing").await;
    // Maintenance stops running database jobs and blocks the others.
    fixture.graphs.set_flag(site(&fixture, FlagName::Maintenance)).await.expect("the flag is set");
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::WaitingDbMaintenance);
    assert_eq!(fixture.code(&other, "a").await, C::WaitingDbMaintenance);
    agent.confirm(&order.task_id).await;
    fixture.graphs.clear_flag(FlagName::Maintenance, SITE_SCOPE).await.expect("the flag is cleared");
    fixture.act().await;
    let again = agent.poll().await.into_iter().find(|order| order.work.is_some()).expect("a task is made");
    agent.stage(&again.task_id, "executing").await;
    fixture.act().await;
    let (running, waiting) =
        if fixture.code(&run, "a").await == C::Executing { (&run, &other) } else { (&other, &run) };
    // A reboot stops it, and the others are paused.
    fixture.graphs.prepare_for_reboot(Some("new kernel"), "ann").await.expect("it is prepared");
    fixture.act().await;
    assert_eq!(fixture.code(running, "a").await, C::WaitingOnReboot);
    assert_eq!(fixture.code(waiting, "a").await, C::Paused);
    agent.confirm(&again.task_id).await;
    fixture.graphs.clear_flag(FlagName::Reboot, SITE_SCOPE).await.expect("the flag is cleared");
    fixture.act().await;
    // An agent failure: another task after the back-off.
    let third = agent.poll().await.into_iter().find(|order| order.work.is_some()).expect("a task is made");
    agent.result(&third.task_id, failed("disk")).await;
    fixture.act().await;
    let codes = [fixture.code(&run, "a").await, fixture.code(&other, "a").await];
    assert!(codes.contains(&C::WaitingOnNewTask), "{codes:?}");
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.tasks WHERE kind = 'CANCELJOB'").await, 2);
}

pub(crate) async fn transitions_outside_the_diagram_are_refused(kind: Kind) {
    let fixture = GraphFixture::open(kind).await;
    let run = fixture.submit(&one("")).await;
    let job = fixture.job(&run, "a").await.job_id;
    let legal = pairs();
    let moment = if kind == Kind::Sqlite { "1" } else { "now()" };
    for &from in C::ALL {
        for &to in C::ALL {
            if from == to {
                continue;
            }
            // The row is set to the start state; the guards check only changes.
            let place = |code: C| {
                let over = if code.is_terminal() { moment } else { "NULL" };
                format!("code = '{code}', ended_at = {over}")
            };
            let id = format!("x-{from}-{to}");
            let columns = "run_id, project_id, workspace, spec, requested, labels, weight, retries, created_at, \
                 updated_at";
            let insert = format!(
                "INSERT INTO {{ops}}.jobs (job_id, position, name, code, ended_at, {columns}) \
                 SELECT '{id}', position + {}, '{id}', '{from}', {}, {columns} \
                 FROM {{ops}}.jobs WHERE job_id = '{job}'",
                1 + C::ALL.len() * (from as usize) + (to as usize),
                if from.is_terminal() { moment } else { "NULL" },
            );
            assert_eq!(fixture.base.plain.execute(&insert).await.expect("a job is made"), 1);
            let change = format!("UPDATE {{ops}}.jobs SET {} WHERE job_id = '{id}'", place(to));
            let done = fixture.base.plain.execute(&change).await;
            assert_eq!(done.is_ok(), legal.contains(&(from, to)), "{from} to {to}: {done:?}");
        }
    }
}

pub(crate) async fn plain_sql_on_jobs_is_recorded(kind: Kind) {
    let fixture = GraphFixture::open(kind).await;
    let run = fixture.submit(&one("")).await;
    let change = "UPDATE {ops}.jobs SET code = 'waiting_on_pool', message = 'by hand'";
    fixture.base.plain.execute(change).await.expect("a person may");
    assert_eq!(fixture.path(&run, "a").await, [C::Created, C::WaitingOnPool]);
    let moment = if kind == Kind::Sqlite { "1" } else { "now()" };
    let end = format!("UPDATE {{ops}}.jobs SET code = 'job_error', ended_at = {moment}");
    fixture.base.plain.execute(&end).await.expect("a person may");
    for change in ["UPDATE {ops}.jobs SET message = 'no'", "UPDATE {ops}.job_events SET message = 'no'"] {
        let refused = fixture.base.plain.execute(change).await;
        assert!(refused.is_err(), "{change}");
    }
}
