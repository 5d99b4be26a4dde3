//! Large graphs, many graphs, deep graphs.

use std::fmt::Write as _;

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::RunState;
use tidemill_testkit::door::Kind;

use crate::scene::{Scene, ended, one};

fn chain(length: usize) -> String {
    let mut text = String::from("version: 1\njobs:\n  j0:\n    run: work\n");
    for number in 1..length {
        let _ = write!(text, "  j{number}:\n    run: work\n    needs: [j{}]\n", number - 1);
    }
    text
}

pub(crate) async fn ten_thousand_jobs(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut text = String::from("version: 1\njobs:\n  first:\n    run: work\n");
    for number in 1..9_999 {
        let _ = write!(text, "  j{number}:\n    run: work\n    needs: [first]\n");
    }
    text.push_str("  last:\n    run: work\n    needs: [j1, j2, j9998]\n");
    let run = scene.submit(&text).await;
    let mut robot = scene.agent("one", 64).await;
    scene.act().await;
    let order = robot.order().await;
    robot.succeed(&order).await;
    scene.act().await;
    let graph = scene.graphs.graph(&run).await.expect("the graph is read");
    assert_eq!((graph.counts.total, graph.counts.running, graph.counts.succeeded), (10_000, 64, 1));
    // One that ends makes room for one: that is all that is written.
    let order = robot.poll().await.remove(0);
    robot.result(&order.task_id, ended(0)).await;
    let pass = scene.controller.tick().await.expect("it acts");
    assert_eq!((pass.full, pass.changed), (false, 2));
    // The rest is cancelled at once.
    scene.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Cancelled);
    let left = scene.number("SELECT count(*) FROM {ops}.jobs WHERE ended_at IS NULL").await;
    assert_eq!(left, 0);
}

pub(crate) async fn many_small_graphs(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let text = chain(10);
    for _ in 0..1_000 {
        scene.submit(&text).await;
    }
    let mut robots = [scene.agent("one", 600).await, scene.agent("two", 600).await];
    for _ in 0..1_000 {
        scene.act().await;
        let mut done = 0;
        for robot in &mut robots {
            for order in robot.poll().await {
                robot.result(&order.task_id, ended(0)).await;
                done += 1;
            }
            robot.have.clear();
        }
        if done == 0 {
            break;
        }
    }
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.runs WHERE status = 'success'").await, 1_000);
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.jobs WHERE code = 'succeeded'").await, 10_000);
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.tasks WHERE active").await, 0);
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.job_changes").await, 0);
}

pub(crate) async fn a_chain_of_five_hundred(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let run = scene.submit(&chain(500)).await;
    let mut robot = scene.agent("one", 4).await;
    for _ in 0..500 {
        scene.act().await;
        let order = robot.order().await;
        robot.result(&order.task_id, ended(0)).await;
        robot.have.clear();
    }
    scene.act().await;
    assert_eq!(scene.run(&run).await.status, RunState::Success);
}

pub(crate) async fn failure_spreads_in_one_step(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let run = scene.submit(&chain(300)).await;
    let mut robot = scene.agent("one", 4).await;
    scene.act().await;
    let order = robot.order().await;
    robot.result(&order.task_id, ended(1)).await;
    let pass = scene.controller.tick().await.expect("it acts");
    assert_eq!(pass.changed, 300);
    assert_eq!(scene.code(&run, "j299").await, C::DependencyFailed);
    let ended = scene.run(&run).await;
    assert_eq!(ended.status, RunState::Failed);
    assert!(
        ended.metadata["not_succeeded"].as_array().is_some_and(|named| named.len() == 20),
        "it is bounded"
    );
    let next = scene.submit(&one("")).await;
    scene.act().await;
    assert_eq!(scene.code(&next, "a").await, C::Initiated);
}
