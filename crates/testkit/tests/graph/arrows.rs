//! Every arrow of the diagram of a job.

use tidemill_core::job::{StatusCode as C, pairs};
use tidemill_core::project::{Flag, FlagName, FlagSource, SITE_SCOPE};
use tidemill_core::run::RunState;
use tidemill_core::task::TaskResult;
use tidemill_testkit::door::Kind;

use crate::scene::{Scene, ended, failed, graph, one};

pub(crate) fn site(scene: &Scene, flag: FlagName) -> Flag {
    Flag {
        flag,
        scope: SITE_SCOPE.to_owned(),
        note: Some("tonight".to_owned()),
        since: scene.now(),
        until_at: None,
        set_by: Some("ann".to_owned()),
        source: FlagSource::Manual,
    }
}

pub(crate) async fn every_stage_of_a_job_is_shown(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Initiated);
    assert_eq!(scene.code(&run, "b").await, C::WaitingOnDependencies);
    let order = robot.order().await;
    let stages = ["preparing", "prepared", "executing", "error", "executed", "finalizing", "finalized"];
    for stage in stages {
        robot.stage(&order.task_id, stage).await;
        scene.act().await;
        assert_eq!(scene.code(&run, "a").await.as_str(), stage);
    }
    robot.result(&order.task_id, ended(0)).await;
    scene.act().await;
    assert_eq!(
        scene.path(&run, "a").await,
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
    assert_eq!(scene.path(&run, "b").await, [C::Created, C::WaitingOnDependencies, C::Initiated]);
    let order = robot.order().await;
    robot.succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
}

pub(crate) async fn the_failures_of_the_diagram(kind: Kind) {
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
        let mut scene = Scene::open(kind).await;
        let mut robot = scene.agent("one", 1).await;
        let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"])])).await;
        scene.act().await;
        let order = robot.order().await;
        robot.stage(&order.task_id, "preparing").await;
        robot.result(&order.task_id, result).await;
        scene.act().await;
        let job = scene.job(&run, "a").await;
        assert_eq!((job.code, job.message.as_deref()), (code, Some(words)));
        assert_eq!(scene.code(&run, "b").await, C::DependencyFailed);
        assert_eq!(scene.job(&run, "c").await.message.as_deref(), Some("job b did not succeed"));
        let run = scene.run(&run).await;
        assert_eq!(run.status, RunState::Failed);
        let told =
            format!("3 of 3 jobs did not succeed: a ({code}), b (dependency_failed), c (dependency_failed)");
        assert_eq!(run.metadata["error"], told);
        assert!(robot.poll().await.is_empty(), "nothing after a failure is begun");
    }
}

pub(crate) async fn every_wait_and_reset_of_the_diagram_is_reached(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let run = scene.submit(&one("pool: database")).await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::WaitingOnWorkers);
    scene.graphs.set_pool("database", 1).await.expect("the pool is set");
    let mut robot = scene.agent("one", 8).await;
    let other = scene.submit(&one("pool: database")).await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Initiated);
    assert_eq!(scene.code(&other, "a").await, C::WaitingOnPool);
    let order = robot.order().await;
    robot.stage(&order.task_id, "executing").await;
    // Maintenance stops what runs of the database, and holds the rest.
    scene.graphs.set_flag(site(&scene, FlagName::Maintenance)).await.expect("the flag is set");
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::WaitingDbMaintenance);
    assert_eq!(scene.code(&other, "a").await, C::WaitingDbMaintenance);
    robot.confirm(&order.task_id).await;
    scene.graphs.clear_flag(FlagName::Maintenance, SITE_SCOPE).await.expect("the flag is cleared");
    scene.act().await;
    let again = robot.poll().await.into_iter().find(|order| order.work.is_some()).expect("a task is made");
    robot.stage(&again.task_id, "executing").await;
    scene.act().await;
    let (running, waiting) =
        if scene.code(&run, "a").await == C::Executing { (&run, &other) } else { (&other, &run) };
    // A restart stops it, and the rest is paused.
    scene.graphs.prepare_for_reboot(Some("new kernel"), "ann").await.expect("it is prepared");
    scene.act().await;
    assert_eq!(scene.code(running, "a").await, C::WaitingOnReboot);
    assert_eq!(scene.code(waiting, "a").await, C::Paused);
    robot.confirm(&again.task_id).await;
    scene.graphs.clear_flag(FlagName::Reboot, SITE_SCOPE).await.expect("the flag is cleared");
    scene.act().await;
    // An agent's failure: another task, after a while.
    let third = robot.poll().await.into_iter().find(|order| order.work.is_some()).expect("a task is made");
    robot.result(&third.task_id, failed("disk")).await;
    scene.act().await;
    let codes = [scene.code(&run, "a").await, scene.code(&other, "a").await];
    assert!(codes.contains(&C::WaitingOnNewTask), "{codes:?}");
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.tasks WHERE kind = 'CANCELJOB'").await, 2);
}

pub(crate) async fn the_database_refuses_what_the_diagram_does_not_have(kind: Kind) {
    let scene = Scene::open(kind).await;
    let run = scene.submit(&one("")).await;
    let job = scene.job(&run, "a").await.job_id;
    let legal = pairs();
    let moment = if kind == Kind::Sqlite { "1" } else { "now()" };
    for &from in C::ALL {
        for &to in C::ALL {
            if from == to {
                continue;
            }
            // The row is put where it is to start from; guards look at changes only.
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
            assert_eq!(scene.stage.plain.execute(&insert).await.expect("a job is made"), 1);
            let change = format!("UPDATE {{ops}}.jobs SET {} WHERE job_id = '{id}'", place(to));
            let done = scene.stage.plain.execute(&change).await;
            assert_eq!(done.is_ok(), legal.contains(&(from, to)), "{from} to {to}: {done:?}");
        }
    }
}

pub(crate) async fn what_a_plain_statement_does_is_on_record(kind: Kind) {
    let scene = Scene::open(kind).await;
    let run = scene.submit(&one("")).await;
    let change = "UPDATE {ops}.jobs SET code = 'waiting_on_pool', message = 'by hand'";
    scene.stage.plain.execute(change).await.expect("a person may");
    assert_eq!(scene.path(&run, "a").await, [C::Created, C::WaitingOnPool]);
    let moment = if kind == Kind::Sqlite { "1" } else { "now()" };
    let end = format!("UPDATE {{ops}}.jobs SET code = 'job_error', ended_at = {moment}");
    scene.stage.plain.execute(&end).await.expect("a person may");
    for change in ["UPDATE {ops}.jobs SET message = 'no'", "UPDATE {ops}.job_events SET message = 'no'"] {
        let refused = scene.stage.plain.execute(change).await;
        assert!(refused.is_err(), "{change}");
    }
}
