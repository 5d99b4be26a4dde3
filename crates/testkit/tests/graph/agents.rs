//! Agents that fall silent, leave, drain, are forgotten, come again, or are not who they say they are.

use tidemill_core::access::{Role, Token};
use tidemill_core::agent::NewAgent;
use tidemill_core::graph::record::TaskEnd;
use tidemill_core::job::StatusCode as C;
use tidemill_core::run::Applied;
use tidemill_engine::graph::{Forget, Speaker, TaskReport};
use tidemill_store::RefusalCode;
use tidemill_testkit::door::Kind;
use uuid::Uuid;

use crate::scene::{Scene, ask, ended, new_agent, one};

pub(crate) async fn a_silent_agent_loses_what_it_has_not_begun(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut quiet = scene.agent("quiet", 1).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let order = quiet.order().await;
    scene.advance(19);
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Initiated, "it is not silent for long enough");
    let mut other = scene.agent("other", 1).await;
    scene.advance(2);
    other.beat().await;
    scene.act().await;
    let job = scene.job(&run, "a").await;
    assert_eq!((job.code, job.errors, job.tasks), (C::Initiated, 0, 2), "no error is counted");
    assert_eq!(job.agent_id, Some(other.who.agent_id));
    assert_eq!(quiet.stage(&order.task_id, "preparing").await, Applied::Stale, "it may not begin any more");
    assert_eq!(quiet.result(&order.task_id, ended(0)).await, Applied::Stale);
    let order = other.order().await;
    other.succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Succeeded);
    let detail = scene.graphs.job(&job.job_id).await.expect("the job is read");
    assert_eq!(detail.tasks[0].end, Some(TaskEnd::Withdrawn));
    assert!(scene.path(&run, "a").await.contains(&C::WaitingOnNewTask));
}

pub(crate) async fn a_goodbye_gives_back_what_was_not_begun(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut leaving = scene.agent("leaving", 2).await;
    let begun = scene.submit(&one("")).await;
    let untouched = scene.submit(&one("")).await;
    scene.act().await;
    let orders = leaving.poll().await;
    let mine = orders.iter().find(|order| order.work.as_ref().is_some_and(|work| work.run_id == begun));
    leaving.stage(&mine.expect("it is ordered").task_id, "executing").await;
    leaving.graphs.leave(&leaving.who).await.expect("it says goodbye");
    let mut other = scene.agent("other", 2).await;
    scene.act().await;
    assert_eq!(scene.job(&untouched, "a").await.agent_id, Some(other.who.agent_id));
    assert_eq!(scene.job(&begun, "a").await.agent_id, Some(leaving.who.agent_id), "it waits for its agent");
    assert_eq!(other.poll().await.len(), 1);
    // It comes back, and goes on.
    leaving.beat().await;
    leaving.result(&mine.expect("it is ordered").task_id, ended(0)).await;
    scene.act().await;
    assert_eq!(scene.code(&begun, "a").await, C::Succeeded);
}

pub(crate) async fn a_job_that_waits_keeps_waiting_for_its_agent(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut away = scene.agent("away", 1).await;
    let run = scene.submit(&one("on-agent-lost: wait")).await;
    scene.act().await;
    let order = away.order().await;
    away.stage(&order.task_id, "executing").await;
    scene.act().await;
    let mut other = scene.agent("other", 1).await;
    scene.advance(7 * 86_400);
    other.beat().await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Executing);
    assert!(other.poll().await.is_empty());
    away.result(&order.task_id, ended(0)).await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Succeeded);
}

pub(crate) async fn a_job_that_may_be_rerun_is_lost_after_its_time(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut away = scene.agent("away", 1).await;
    let run = scene.submit(&one("on-agent-lost: rerun after 2m")).await;
    scene.act().await;
    let order = away.order().await;
    away.stage(&order.task_id, "executing").await;
    scene.act().await;
    let mut other = scene.agent("other", 1).await;
    // Its supervisor ends the command after two minutes; the controller waits for a while longer.
    scene.advance(149);
    other.beat().await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Executing);
    scene.advance(2);
    other.beat().await;
    scene.act().await;
    let job = scene.job(&run, "a").await;
    assert_eq!((job.code, job.errors), (C::WaitingOnNewTask, 1));
    assert_eq!(away.result(&order.task_id, ended(0)).await, Applied::Stale);
    scene.advance(6);
    other.beat().await;
    scene.act().await;
    let again = other.order().await;
    assert_eq!(again.work.as_ref().expect("it is work").attempt, 2);
    other.succeed(&again).await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Succeeded);
    let detail = scene.graphs.job(&job.job_id).await.expect("the job is read");
    assert_eq!(detail.tasks[0].end, Some(TaskEnd::Lost));
    let over = away.beat_in(None).await;
    assert_eq!(over, away.have, "what it holds of it may go");
}

/// The last task that a job may have ends as what it was, and is not taken for one that was answered.
pub(crate) async fn the_last_task_that_comes_to_nothing_is_lost_or_forgotten_too(kind: Kind) {
    for end in [TaskEnd::Lost, TaskEnd::Forgotten] {
        let mut scene = Scene::open(kind).await;
        let run = scene.submit(&one("on-agent-lost: rerun after 1m")).await;
        for number in 1..=5 {
            let mut robot = scene.agent(&format!("agent-{number}"), 1).await;
            scene.act().await;
            let order = robot.order().await;
            robot.stage(&order.task_id, "executing").await;
            scene.act().await;
            scene.advance(25);
            if end == TaskEnd::Forgotten {
                scene.graphs.forget(robot.who.agent_id, Forget::IfSilent).await.expect("it is forgotten");
            }
            scene.act().await;
            scene.advance(100);
            scene.act().await;
            // Longer than any of the waits before another task.
            scene.advance(60);
        }
        let job = scene.job(&run, "a").await;
        assert_eq!((job.code, job.tasks), (C::JobError, 5));
        let detail = scene.graphs.job(&job.job_id).await.expect("the job is read");
        assert!(detail.tasks.iter().all(|task| task.end == Some(end)), "{end:?}: {:?}", detail.tasks);
    }
}

pub(crate) async fn an_agent_that_is_forgotten_frees_everything(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut gone = scene.agent("gone", 2).await;
    let running = scene.submit(&one("")).await;
    let stopping = scene.submit(&one("")).await;
    scene.act().await;
    for order in gone.poll().await {
        gone.stage(&order.task_id, "executing").await;
    }
    scene.graphs.cancel(&stopping, &[], "ann", None).await.expect("it is cancelled");
    scene.act().await;
    assert!(scene.job(&stopping, "a").await.stopping);
    // One that was heard just now lives, and so do its commands.
    let id = gone.who.agent_id;
    let refused = scene.graphs.forget(id, Forget::IfSilent).await.expect_err("it lives");
    assert_eq!(refused.to_string(), "agent gone was heard 0 s ago, and its commands may still run");
    assert!(refused.hint().is_some_and(|hint| hint.contains("--force")));
    scene.act().await;
    assert_eq!(scene.code(&running, "a").await, C::Executing, "nothing has changed");
    assert!(scene.graphs.forget(id, Forget::Anyway).await.expect("it is forgotten"));
    let twice = scene.graphs.forget(id, Forget::IfSilent).await.expect("it is known");
    assert!(!twice, "told twice is told once");
    scene.act().await;
    assert!(!scene.job(&stopping, "a").await.stopping);
    let job = scene.job(&running, "a").await;
    assert_eq!((job.code, job.errors), (C::WaitingOnNewTask, 1));
    let refused = gone.graphs.beat(&gone.who, &[]).await.expect_err("it has to register anew");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::UnknownAgent), "a stale process would end");
    let listed = scene.graphs.agents(None).await.expect("agents are listed");
    assert!(listed.is_empty(), "{listed:?}");
    // It comes back, and learns that what it has is over.
    let again = NewAgent { agent_id: id, boot_id: gone.who.boot_id, ..new_agent("gone", 2) };
    scene.graphs.register(again).await.expect("it registers anew");
    let over = gone.beat_in(None).await;
    assert_eq!((over.len(), over), (2, gone.have.clone()));
}

pub(crate) async fn an_agent_that_drains_gets_nothing_new(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 4).await;
    let first = scene.submit(&one("")).await;
    scene.act().await;
    scene.graphs.drain(robot.who.agent_id, true).await.expect("it drains");
    let second = scene.submit(&one("")).await;
    scene.act().await;
    let order = robot.order().await;
    robot.succeed(&order).await;
    assert!(robot.graphs.beat(&robot.who, &[]).await.expect("the beat is heard").draining);
    scene.act().await;
    assert_eq!(scene.code(&first, "a").await, C::Succeeded);
    assert_eq!(scene.code(&second, "a").await, C::WaitingOnWorkers);
    scene.graphs.drain(robot.who.agent_id, false).await.expect("it works again");
    scene.act().await;
    assert_eq!(scene.code(&second, "a").await, C::Initiated);
}

pub(crate) async fn an_older_process_of_an_agent_is_refused(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let new = new_agent("one", 1);
    let mut old = scene.agent_with(new.clone()).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let order = old.order().await;
    old.stage(&order.task_id, "executing").await;
    let mut young = scene.agent_with(NewAgent { boot_id: Uuid::new_v4(), ..new }).await;
    let words = "another process speaks for agent one";
    let refused = [
        old.graphs.beat(&old.who, &[]).await.map(|_| ()),
        old.graphs.poll(&old.who, &[], std::time::Duration::ZERO).await.map(|_| ()),
        old.graphs.report_stage(&old.who, &order.task_id, "executed").await.map(|_| ()),
        old.graphs.report_result(&old.who, &order.task_id, TaskReport::new(ended(0))).await.map(|_| ()),
        old.graphs.report_log(&old.who, &order.task_id, 0, Vec::new()).await.map(|_| ()),
        old.graphs.report_probe(&old.who, true, None).await.map(|_| ()),
        old.graphs.leave(&old.who).await,
    ];
    for (place, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err("it is refused");
        // A log without lines is refused before anybody looks who speaks.
        if place != 4 {
            assert_eq!((error.refusal_code(), error.to_string().as_str()), (Some(RefusalCode::Stale), words));
        }
    }
    // The next process of the same agent goes on where the old one was.
    young.have.clone_from(&old.have);
    assert!(young.poll().await.is_empty());
    assert_eq!(young.stage(&order.task_id, "executing").await, Applied::Duplicate);
    assert_eq!(young.result(&order.task_id, ended(0)).await, Applied::Applied);
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Succeeded);
}

pub(crate) async fn an_agent_of_a_token_is_nobody_elses(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let token = Uuid::new_v4();
    let new = NewAgent { token_id: Some(token), ..new_agent("one", 1) };
    let mut robot = scene.agent_with(new.clone()).await;
    scene.submit(&one("")).await;
    scene.act().await;
    let order = robot.order().await;
    for stranger in [None, Some(Uuid::new_v4())] {
        let who = Speaker { token_id: stranger, ..robot.who };
        let refused = scene.graphs.beat(&who, &[]).await.expect_err("it is not theirs");
        assert_eq!(refused.refusal_code(), Some(RefusalCode::UnknownAgent));
        let again = scene.graphs.register(NewAgent { token_id: stranger, ..new.clone() }).await;
        assert_eq!(again.expect_err("it is taken").refusal_code(), Some(RefusalCode::UnknownAgent));
    }
    // Another agent sees nothing of its task.
    let other = scene.agent("other", 1).await;
    for task in [order.task_id.as_str(), "no-such-task-001"] {
        let stage = other.graphs.report_stage(&other.who, task, "preparing").await;
        let refused = stage.expect_err("it is not theirs");
        assert_eq!(refused.to_string(), format!("task `{task}` does not exist"));
    }
}

/// A token that is kept, so that it has a standing.
async fn token(scene: &Scene, project: Option<&str>) -> Uuid {
    let token = Token {
        token_id: Uuid::new_v4(),
        name: "site".to_owned(),
        role: Role::Agent,
        project_id: project.map(str::to_owned),
        created_at: scene.now(),
        created_by: "ann".to_owned(),
        expires_at: Some(scene.now() + chrono::TimeDelta::hours(1)),
        revoked_at: None,
        revoked_by: None,
        last_used_at: None,
    };
    let id = token.token_id;
    scene
        .stage
        .store
        .add_token(token, id.simple().to_string().repeat(2), None)
        .await
        .expect("the token is kept");
    id
}

pub(crate) async fn an_agent_comes_with_another_token_when_its_own_is_over(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let (first, second) = (token(&scene, None).await, token(&scene, None).await);
    let secret_hash = Some("7".repeat(64));
    let new = NewAgent { token_id: Some(first), secret_hash, ..new_agent("one", 1) };
    let mut robot = scene.agent_with(new.clone()).await;
    let run = scene.submit(&one("")).await;
    scene.act().await;
    let order = robot.order().await;
    robot.stage(&order.task_id, "executing").await;
    let next = NewAgent { token_id: Some(second), boot_id: Uuid::new_v4(), ..new.clone() };
    let still = scene.graphs.register(next.clone()).await.expect_err("the first token is good");
    assert_eq!(still.refusal_code(), Some(RefusalCode::Frozen));
    assert!(still.to_string().contains("belongs to token `site`, which is still good"), "{still}");
    robot.beat().await;

    scene
        .stage
        .store
        .revoke_token(first, None, "ann".to_owned(), scene.engine.clock().now())
        .await
        .expect("revoked");
    // Neither a stranger with a good token, nor one whose project is another, nor one who knows but the agent's id.
    let bank = token(&scene, Some("bank")).await;
    let strangers = [
        NewAgent { secret_hash: None, ..next.clone() },
        NewAgent { secret_hash: Some("8".repeat(64)), ..next.clone() },
        NewAgent { token_id: Some(bank), project_id: Some("bank".to_owned()), ..next.clone() },
    ];
    for stranger in strangers {
        let refused = scene.graphs.register(stranger).await.expect_err("it is not theirs");
        assert_eq!(refused.refusal_code(), Some(RefusalCode::UnknownAgent));
    }
    robot.beat().await;
    let moved = scene.agent_with(next.clone()).await;
    assert_eq!(
        scene.graphs.beat(&robot.who, &[]).await.expect_err("it was").refusal_code(),
        Some(RefusalCode::UnknownAgent)
    );
    assert_eq!(moved.result(&order.task_id, ended(0)).await, Applied::Applied, "its task is still its own");
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Succeeded);
    // The same when a token expires, and when it was removed long ago.
    scene.advance(3_601);
    let third = token(&scene, None).await;
    scene.agent_with(NewAgent { token_id: Some(third), ..next.clone() }).await;
    scene.stage.plain.execute("DELETE FROM {ops}.tokens").await.expect("a person may");
    scene.agent_with(NewAgent { token_id: Some(token(&scene, None).await), ..next }).await;
}

pub(crate) async fn an_agent_that_never_said_its_secret_is_bound_to_its_token(kind: Kind) {
    let scene = Scene::open(kind).await;
    let (first, second) = (token(&scene, None).await, token(&scene, None).await);
    let old = NewAgent { token_id: Some(first), ..new_agent("old", 1) };
    scene.agent_with(old.clone()).await;
    scene
        .stage
        .store
        .revoke_token(first, None, "ann".to_owned(), scene.engine.clock().now())
        .await
        .expect("revoked");
    // Whoever comes first with a secret and another token has proven nothing.
    let taker = NewAgent { token_id: Some(second), secret_hash: Some("7".repeat(64)), ..old.clone() };
    let refused = scene.graphs.register(taker.clone()).await.expect_err("it is not theirs");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::UnknownAgent));
    // Its next version says it with its own token, and may move then.
    scene.agent_with(NewAgent { secret_hash: Some("7".repeat(64)), ..old }).await;
    scene.agent_with(taker).await;
}

pub(crate) async fn an_agent_of_one_project_gets_only_its_jobs(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let bound = NewAgent { project_id: Some("bank".to_owned()), ..new_agent("bank", 8) };
    let mut robot = scene.agent_with(bound).await;
    let shop = scene.submit(&one("")).await;
    let mut bank = ask(&one(""));
    "bank".clone_into(&mut bank.project);
    let bank = scene.graphs.submit(bank).await.expect("the graph is taken").run_id;
    scene.act().await;
    let order = robot.order().await;
    assert_eq!(order.work.expect("it is work").run_id, bank);
    assert_eq!(scene.code(&shop, "a").await, C::WaitingOnWorkers);
}
