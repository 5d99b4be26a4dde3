//! What agents keep of what jobs left: who needs it, and when it may go.

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::{Applied, RunState};
use tidemill_engine::graph::{Speaker, TaskReport};
use tidemill_store::RefusalCode;
use tidemill_testkit::door::Kind;
use uuid::Uuid;

use crate::scene::{Robot, Scene, ask, ended, graph, output};

/// The ids of jobs.
fn ids(jobs: &[&str]) -> Vec<String> {
    jobs.iter().map(|job| (*job).to_owned()).collect()
}

/// Does the one thing that is ordered; it leaves a file on its own disk. The job.
async fn leave(robot: &mut Robot) -> String {
    let order = robot.order().await;
    assert_eq!(robot.stage(&order.task_id, "preparing").await, Applied::Applied);
    let report = TaskReport { outputs: vec![output("file", "file")], ..TaskReport::new(ended(0)) };
    let told = robot.graphs.report_result(&robot.who, &order.task_id, report).await;
    assert_eq!(told.expect("the result is heard"), Applied::Applied);
    order.job_id
}

async fn unused(robot: &Robot, job: &str) -> Option<Option<u64>> {
    let kept = robot.graphs.kept(&robot.who, &ids(&[job]), &[]).await.expect("it is answered");
    assert!(kept.gone.is_empty(), "nobody asked for that");
    kept.unused.into_iter().find(|(known, _)| known == job).map(|(_, idle)| idle)
}

async fn remove(robot: &Robot, job: &str) -> Vec<String> {
    robot.graphs.kept(&robot.who, &[], &ids(&[job])).await.expect("it is answered").gone
}

pub(crate) async fn what_a_live_run_needs_stays(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    scene.act().await;
    let order = robot.order().await;
    assert_eq!(unused(&robot, &order.job_id).await, None, "it is about to leave something");
    robot.have.clear();
    let a = leave(&mut robot).await;
    scene.act().await;
    assert_eq!(unused(&robot, &a).await, None);
    assert!(remove(&robot, &a).await.is_empty());
    let order = robot.order().await;
    assert_eq!(order.work.as_ref().expect("it is work").inputs[0].agent_id, Some(robot.who.agent_id));
    robot.succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
    scene.advance(90);
    robot.beat().await;
    assert_eq!(unused(&robot, &a).await, Some(Some(90)), "the run is over");
    // A run that reuses it needs it again.
    let mut again = ask(&graph(&[("a", &[]), ("b", &["a"])]));
    again.only = vec!["b".to_owned()];
    let reusing = scene.graphs.submit(again).await.expect("the graph is taken");
    assert_eq!(reusing.reused, 1);
    assert_eq!(unused(&robot, &a).await, None);
    assert!(remove(&robot, &a).await.is_empty());
    scene.play(std::slice::from_mut(&mut robot), 5).await;
    assert_eq!(scene.run(&reusing.run_id).await.status, RunState::Success);
    assert_eq!(unused(&robot, &a).await, Some(Some(0)), "the last run counts");
}

pub(crate) async fn what_is_removed_is_not_reused(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let text = graph(&[("a", &[]), ("b", &["a"])]);
    scene.submit(&text).await;
    scene.act().await;
    let a = leave(&mut robot).await;
    scene.play(std::slice::from_mut(&mut robot), 5).await;
    assert_eq!(remove(&robot, &a).await, std::slice::from_ref(&a));
    assert_eq!(
        remove(&robot, &a).await,
        std::slice::from_ref(&a),
        "an answer that was lost is asked for again"
    );
    assert_eq!(unused(&robot, &a).await, Some(None), "nobody has to do with it any more");
    let mut again = ask(&text);
    again.only = vec!["b".to_owned()];
    let anew = scene.graphs.submit(again).await.expect("the graph is taken");
    assert_eq!((anew.jobs, anew.reused), (2, 0));
    scene.play(std::slice::from_mut(&mut robot), 5).await;
    assert_eq!(scene.code(&anew.run_id, "b").await, C::Succeeded);
}

pub(crate) async fn what_the_server_has_removed_may_go(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    scene.submit(&graph(&[("a", &[])])).await;
    scene.act().await;
    let a = leave(&mut robot).await;
    scene.act().await;
    scene.advance(100 * 86_400);
    robot.beat().await;
    assert_eq!(unused(&robot, &a).await, Some(Some(100 * 86_400)));
    let pruned = scene.stage.store.prune(scene.now() - chrono::TimeDelta::days(90), 100).await;
    assert_eq!(pruned.expect("it is removed").runs, 1);
    assert_eq!(unused(&robot, &a).await, Some(None));
    assert_eq!(remove(&robot, &a).await, [a]);
}

pub(crate) async fn nobody_learns_or_removes_what_is_anothers(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut robot = scene.agent("one", 1).await;
    let text = graph(&[("a", &[]), ("b", &["a"])]);
    let run = scene.submit(&text).await;
    scene.act().await;
    let a = leave(&mut robot).await;
    scene.act().await;
    let other = scene.agent("other", 1).await;
    assert_eq!(unused(&other, &a).await, Some(None), "to them it is as if it had never been");
    remove(&other, &a).await;
    let order = robot.order().await;
    assert_eq!(order.work.as_ref().expect("it is work").inputs[0].agent_id, Some(robot.who.agent_id));
    robot.succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
    let stranger = Speaker { boot_id: Uuid::new_v4(), ..robot.who };
    let refused = scene.graphs.kept(&stranger, &ids(&[&a]), &[]).await.expect_err("it is an older process");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::Stale));
    let many = vec![a; tidemill_core::limits::KEPT_MAX + 1];
    let refused = scene.graphs.kept(&robot.who, &[], &many).await.expect_err("it is too much");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::TooLarge));
}
