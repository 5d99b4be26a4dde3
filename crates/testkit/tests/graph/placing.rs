//! Files that one agent alone has: who needs them goes there, waits for it, or is told why nobody can help.

use tidemill_core::RunId;
use tidemill_core::graph::record::{JobRecord, Order};
use tidemill_core::job::StatusCode as C;
use tidemill_core::run::{Applied, RunState};
use tidemill_engine::graph::{Forget, TaskReport};
use tidemill_testkit::door::Kind;

use crate::scene::{Robot, Scene, ask, ended, graph, output};

/// Does what is ordered; it leaves a file, in a store or on its own disk.
async fn leave(robot: &Robot, order: &Order, url: Option<&str>) {
    assert_eq!(robot.stage(&order.task_id, "preparing").await, Applied::Applied);
    let mut file = output("file", "file");
    file.url = url.map(str::to_owned);
    let report = TaskReport { outputs: vec![file], ..TaskReport::new(ended(0)) };
    let told = robot.graphs.report_result(&robot.who, &order.task_id, report).await;
    assert_eq!(told.expect("the result is heard"), Applied::Applied);
}

async fn why(scene: &Scene, run: &RunId, name: &str) -> (String, Option<String>) {
    let job = scene.graphs.find_job(run, name).await.expect("the job exists");
    let reason = scene.graphs.why_job(&job).await.expect("it is told");
    (reason.sentence(), reason.hint())
}

/// A graph of a job that left a file on the disk of `home`, and of one that needs it. Somebody else has room.
async fn halfway(scene: &mut Scene) -> (RunId, Robot, Robot) {
    let mut home = scene.agent("home", 1).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    scene.act().await;
    let order = home.order().await;
    leave(&home, &order, None).await;
    let other = scene.agent("other", 8).await;
    (run, home, other)
}

async fn agent_of(scene: &Scene, run: &RunId, name: &str) -> JobRecord {
    scene.job(run, name).await
}

pub(crate) async fn a_job_goes_where_its_files_are(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let (run, mut home, mut other) = halfway(&mut scene).await;
    scene.act().await;
    assert!(other.poll().await.is_empty(), "it does not have the file");
    assert_eq!(agent_of(&scene, &run, "b").await.agent_id, Some(home.who.agent_id));
    let order = home.order().await;
    home.succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);

    // What is in a store is everywhere.
    let run = scene.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    scene.graphs.drain(other.who.agent_id, true).await.expect("it drains");
    scene.act().await;
    let order = home.order().await;
    leave(&home, &order, Some("s3://bucket/file")).await;
    scene.graphs.drain(other.who.agent_id, false).await.expect("it works again");
    scene.graphs.drain(home.who.agent_id, true).await.expect("it drains");
    scene.act().await;
    assert_eq!(agent_of(&scene, &run, "b").await.agent_id, Some(other.who.agent_id));
}

pub(crate) async fn a_job_waits_for_the_agent_that_has_its_files(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let (run, mut home, mut other) = halfway(&mut scene).await;
    scene.graphs.drain(home.who.agent_id, true).await.expect("it drains");
    scene.act().await;
    assert_eq!(scene.code(&run, "b").await, C::WaitingOnWorkers);
    let (sentence, hint) = why(&scene, &run, "b").await;
    assert_eq!(sentence, "It waits for room on agent home, which alone has what job a left.");
    assert_eq!(hint, None);
    scene.graphs.drain(home.who.agent_id, false).await.expect("it works again");
    home.graphs.leave(&home.who).await.expect("it says goodbye");
    scene.advance(30);
    other.beat().await;
    scene.act().await;
    assert_eq!(scene.code(&run, "b").await, C::WaitingOnWorkers);
    let (sentence, hint) = why(&scene, &run, "b").await;
    assert_eq!(
        sentence,
        "It waits for agent home, which alone has what job a left, and is away since 2026-02-14 10:30:00 UTC."
    );
    let hint = hint.expect("there is something to do");
    assert!(hint.contains("start agent home again") && hint.contains("--store"), "{hint}");
    // Another controller finds out the same, and an agent that was away for days is still waited for.
    scene.advance(3 * 86_400);
    other.beat().await;
    let mut second = scene.graphs.controller("second");
    crate::scene::settle(&mut second).await;
    assert_eq!(scene.code(&run, "b").await, C::WaitingOnWorkers);
    assert!(other.poll().await.is_empty());
    assert!(why(&scene, &run, "b").await.0.starts_with("It waits for agent home"));
    home.beat().await;
    crate::scene::settle(&mut second).await;
    let order = home.order().await;
    home.succeed(&order).await;
    crate::scene::settle(&mut second).await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
}

pub(crate) async fn files_of_an_agent_that_is_forgotten_are_gone(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let (run, home, mut other) = halfway(&mut scene).await;
    home.graphs.leave(&home.who).await.expect("it says goodbye");
    scene.act().await;
    assert_eq!(scene.code(&run, "b").await, C::WaitingOnWorkers);
    scene.graphs.forget(home.who.agent_id, Forget::IfSilent).await.expect("it is forgotten");
    scene.act().await;
    let job = scene.job(&run, "b").await;
    assert_eq!(job.code, C::JobError, "at once, and not with the next pass over everything");
    let message = job.message.expect("a reason");
    assert!(
        message.starts_with("what job a left is gone") && message.contains("try the graph again"),
        "{message}"
    );
    assert_eq!(scene.run(&run).await.status, RunState::Failed);
    // Tried again, what is gone is made again.
    let retried = scene.graphs.retry(&run, &[], "ann").await.expect("it is tried again").run_id;
    scene.act().await;
    let order = other.order().await;
    assert_eq!(order.work.as_ref().expect("it is work").spec.name, "a");
    leave(&other, &order, None).await;
    scene.act().await;
    let order = other.order().await;
    other.succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.run(&retried).await.status, RunState::Success);
}

pub(crate) async fn files_on_two_disks_are_brought_together_by_another_try(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let (mut one, mut two) = (scene.agent("one", 1).await, scene.agent("two", 1).await);
    let run = scene.submit(&graph(&[("a", &[]), ("b", &[]), ("c", &["a", "b"])])).await;
    scene.act().await;
    let (first, second) = (one.order().await, two.order().await);
    leave(&one, &first, None).await;
    leave(&two, &second, None).await;
    scene.act().await;
    let job = scene.job(&run, "c").await;
    assert_eq!(job.code, C::JobError);
    let message = job.message.expect("a reason");
    assert!(message.contains("on the disks of two agents") && message.contains("--store"), "{message}");
    // One of the two runs again, where the other's file is: also when that agent is busy at first.
    let retried = scene.graphs.retry(&run, &[], "ann").await.expect("it is tried again").run_id;
    let counts = scene.graphs.graph(&retried).await.expect("the graph is read").counts;
    assert_eq!((counts.total, counts.reused), (3, 1));
    scene.act().await;
    let mut agents = Vec::new();
    for _ in 0..2 {
        for robot in [&mut one, &mut two] {
            for order in robot.poll().await {
                agents.push(robot.who.agent_id);
                leave(robot, &order, None).await;
            }
        }
        scene.act().await;
    }
    assert_eq!(agents.len(), 2, "one job again, and the one that needs both");
    assert_eq!(agents[0], agents[1]);
    assert_eq!(scene.run(&retried).await.status, RunState::Success);
}

pub(crate) async fn a_job_joins_the_files_that_will_be_needed_with_its_own(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut home = scene.agent("home", 1).await;
    let run = scene.submit(&graph(&[("a", &[]), ("b", &[]), ("c", &["a", "b"])])).await;
    scene.act().await;
    let order = home.order().await;
    assert_eq!(scene.code(&run, "b").await, C::WaitingOnWorkers);
    leave(&home, &order, None).await;
    // Somebody with room comes; but what b leaves will be needed together with what a left.
    let mut other = scene.agent("other", 8).await;
    scene.act().await;
    assert!(other.poll().await.is_empty());
    let order = home.order().await;
    leave(&home, &order, None).await;
    scene.act().await;
    let order = home.order().await;
    home.succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
}

pub(crate) async fn only_files_that_are_there_are_reused(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let text = graph(&[("a", &[]), ("b", &["a"])]);
    let (run, mut home, mut other) = halfway(&mut scene).await;
    scene.act().await;
    let order = home.order().await;
    home.succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
    let mut again = ask(&text);
    again.only = vec!["b".to_owned()];
    // What an earlier run left binds as well.
    let reusing = scene.graphs.submit(again.clone()).await.expect("the graph is taken");
    assert_eq!(reusing.reused, 1);
    scene.act().await;
    assert!(other.poll().await.is_empty());
    assert_eq!(agent_of(&scene, &reusing.run_id, "b").await.agent_id, Some(home.who.agent_id));
    let order = home.order().await;
    home.succeed(&order).await;
    scene.act().await;
    // What is gone runs again.
    scene.graphs.forget(home.who.agent_id, Forget::Anyway).await.expect("it is forgotten");
    let anew = scene.graphs.submit(again).await.expect("the graph is taken");
    assert_eq!((anew.jobs, anew.reused), (2, 0));
    scene.play(std::slice::from_mut(&mut other), 5).await;
    assert_eq!(scene.run(&anew.run_id).await.status, RunState::Success);
}
