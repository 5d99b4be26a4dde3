//! Trying again: commands, agents' failures, whole graphs.

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::RunState;
use tidemill_core::task::TaskResult;
use tidemill_engine::graph::TaskReport;
use tidemill_store::RefusalCode;
use tidemill_testkit::door::Kind;

use crate::scene::{Robot, Scene, ended, failed, graph, one, output};

pub(crate) async fn a_command_that_fails_is_tried_again_only_where_asked(kind: Kind) {
    for (retries, tries) in [(0, 1), (2, 3)] {
        let mut scene = Scene::open(kind).await;
        let mut robot = scene.agent("one", 1).await;
        let run = scene.submit(&one(&format!("retries: {retries}"))).await;
        for number in 1..=tries {
            scene.act().await;
            let order = robot.order().await;
            assert_eq!(order.work.as_ref().expect("it is work").attempt, number);
            robot.stage(&order.task_id, "executing").await;
            robot.result(&order.task_id, ended(9)).await;
            scene.act().await;
            for _ in 0..10 {
                scene.advance(5);
                robot.beat().await;
            }
        }
        scene.act().await;
        let job = scene.job(&run, "a").await;
        assert_eq!((job.code, job.tasks, job.exit_code), (C::NonzeroExit, tries, Some(9)));
        assert_eq!(scene.run(&run).await.status, RunState::Failed);
        assert!(robot.poll().await.is_empty());
    }
}

/// Shows that what one agent cannot do goes to those that have not tried it, also after everything was read anew, and
/// waits for them where they are busy. Agents get jobs in the order of their size.
pub(crate) async fn a_job_that_an_agent_cannot_carry_out_goes_to_another(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robots =
        [scene.agent("one", 1).await, scene.agent("two", 2).await, scene.agent("three", 4).await];
    let run = scene.submit(&one("")).await;
    for turn in 0..2 {
        scene.act().await;
        let order = robots[turn].order().await;
        robots[turn].result(&order.task_id, failed("it has no store")).await;
        scene.act().await;
        // Longer than the back-off, and time for a pass over everything.
        scene.advance(61);
        for robot in &robots {
            robot.beat().await;
        }
        if turn == 0 {
            let wide = scene.submit(&one("weight: 4")).await;
            scene.act().await;
            let busy = robots[2].order().await;
            assert_eq!(busy.work.as_ref().expect("it is work").run_id, wide);
            robots[2].stage(&busy.task_id, "executing").await;
        }
    }
    scene.act().await;
    for robot in &mut robots {
        assert!(robot.poll().await.is_empty(), "two of them failed, and the third is busy");
    }
    assert_eq!(scene.code(&run, "a").await, C::WaitingOnWorkers);
    let job = scene.graphs.find_job(&run, "a").await.expect("the job exists");
    let why = scene.graphs.why_job(&job).await.expect("it is told").sentence();
    assert_eq!(why, "It needs room for 1, and the one agent that could take it has room for 0.");
    let busy = robots[2].have[0].clone();
    robots[2].result(&busy, ended(0)).await;
    scene.act().await;
    let order = robots[2].order().await;
    robots[2].succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
}

/// Shows that what one agent will never do goes to the others at once, once to each; that one which is away is waited
/// for; and that a job for which nobody is left says who tried it.
pub(crate) async fn a_job_whose_secret_an_agent_lacks_goes_to_another(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robots =
        [scene.agent("one", 1).await, scene.agent("two", 2).await, scene.agent("three", 4).await];
    let lacks = async |scene: &mut Scene, robot: &mut Robot| {
        scene.act().await;
        let order = robot.order().await;
        let message = "this agent has no secret `KEY`".to_owned();
        robot.result(&order.task_id, TaskResult::Failed { fatal: true, elsewhere: true, message }).await;
        scene.act().await;
    };
    let found = scene.submit(&one("secrets: [KEY]")).await;
    for robot in &mut robots[..2] {
        lacks(&mut scene, robot).await;
    }
    let order = robots[2].order().await;
    robots[2].succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.run(&found).await.status, RunState::Success);

    let missing = scene.submit(&one("secrets: [KEY]")).await;
    for robot in &mut robots {
        lacks(&mut scene, robot).await;
    }
    let job = scene.job(&missing, "a").await;
    let told = "it was tried on agents one, two and three, and no other is left; the last one: this agent has no \
                secret `KEY`";
    assert_eq!((job.code, job.tasks, job.message.as_deref()), (C::JobError, 3, Some(told)));
    assert_eq!(scene.run(&missing).await.status, RunState::Failed);

    scene.advance(30);
    robots[0].beat().await;
    let waits = scene.submit(&one("secrets: [KEY]")).await;
    lacks(&mut scene, &mut robots[0]).await;
    let job = scene.job(&waits, "a").await;
    assert_eq!((job.code, job.errors), (C::WaitingOnNewTask, 1), "two may come back");
    robots[2].beat().await;
    scene.advance(6);
    scene.act().await;
    let order = robots[2].order().await;
    robots[2].succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.run(&waits).await.status, RunState::Success);
}

pub(crate) async fn an_agents_failures_are_bounded_and_backed_off(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&one("")).await;
    let mut wait = 5;
    for number in 1..=5 {
        scene.act().await;
        let order = robot.order().await;
        robot.result(&order.task_id, failed("the disk is full")).await;
        scene.act().await;
        let job = scene.job(&run, "a").await;
        if number == 5 {
            let words = "5 tasks came to nothing; the last one: the disk is full";
            assert_eq!((job.code, job.message.as_deref()), (C::JobError, Some(words)));
            break;
        }
        assert_eq!((job.code, job.errors), (C::WaitingOnNewTask, number));
        assert_eq!(job.not_before, Some(scene.now() + chrono::TimeDelta::seconds(wait)));
        scene.advance(wait - 1);
        robot.beat().await;
        scene.act().await;
        assert!(robot.poll().await.is_empty(), "not before its time");
        scene.advance(1);
        wait *= 2;
    }
    assert_eq!(scene.run(&run).await.status, RunState::Failed);
}

pub(crate) async fn a_graph_is_tried_again_and_what_succeeded_is_reused(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 4).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &[])])).await;
    scene.act().await;
    let refused = scene.graphs.retry(&run, &[], "ann").await.expect_err("it has not ended");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::NotRetryable));
    for order in robot.poll().await {
        let mut report = TaskReport::new(ended(0));
        report.outputs = vec![output("o", "o.csv")];
        robot.graphs.report_result(&robot.who, &order.task_id, report).await.expect("it is heard");
    }
    scene.act().await;
    let order = robot.order().await;
    robot.result(&order.task_id, ended(1)).await;
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Failed);
    let retried = scene.graphs.retry(&run, &[], "ann").await.expect("it is tried again");
    assert!(retried.created);
    let again = scene.graphs.retry(&run, &[], "ann").await.expect("it is known");
    assert_eq!((again.run_id.clone(), again.created), (retried.run_id.clone(), false));
    let next = retried.run_id;
    let codes = scene.codes(&next).await;
    let of = |name: &str| codes.iter().find(|(job, _)| job == name).expect("the job is there").1;
    assert_eq!([of("a"), of("b"), of("c"), of("d")], [C::Succeeded, C::Created, C::Created, C::Succeeded]);
    assert_eq!(scene.job(&next, "a").await.reused_from, Some(scene.job(&run, "a").await.job_id));
    scene.act().await;
    let order = robot.order().await;
    let work = order.work.clone().expect("it is work");
    assert_eq!((work.spec.name.as_str(), work.inputs.len()), ("b", 1), "it gets what a left then");
    assert_eq!(work.inputs[0].job_id, scene.job(&run, "a").await.job_id);
    robot.succeed(&order).await;
    scene.play(std::slice::from_mut(&mut robot), 10).await;
    let ended = scene.run(&next).await;
    assert_eq!((ended.status, ended.retry_of), (RunState::Success, Some(run)));
}

pub(crate) async fn named_jobs_and_everything_after_them_run_again(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 4).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &[])])).await;
    scene.play(std::slice::from_mut(&mut robot), 10).await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
    let refused = scene.graphs.retry(&run, &[], "ann").await.expect_err("there is nothing to try again");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::NotRetryable));
    let next = scene.graphs.retry(&run, &["b".to_owned()], "ann").await.expect("it is tried again").run_id;
    let codes = scene.codes(&next).await;
    let of = |name: &str| codes.iter().find(|(job, _)| job == name).expect("the job is there").1;
    assert_eq!([of("a"), of("b"), of("c"), of("d")], [C::Succeeded, C::Created, C::Created, C::Succeeded]);
    scene.play(std::slice::from_mut(&mut robot), 10).await;
    let ended = scene.run(&next).await;
    assert_eq!((ended.status, ended.retry_of, ended.attempt), (RunState::Success, Some(run), 2));
}
