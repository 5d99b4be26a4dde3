//! Room: pools, weights, capacity, and who gets it.

use std::collections::BTreeMap;

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::RunState;
use tidemill_engine::graph::{SubmitFault, SubmitGraph};
use tidemill_testkit::door::Kind;

use crate::scene::{Scene, ask, graph, one};

pub(crate) async fn a_job_wider_than_its_pool_is_refused(kind: Kind) {
    let scene = Scene::open(kind).await;
    scene.graphs.set_pool("small", 2).await.expect("the pool is set");
    let text = "version: 1\njobs:\n  a:\n    run: work\n    pool: small\n    weight: 3\n  b:\n    run: work\n    \
                pool: none\n";
    let refused = scene.graphs.submit(ask(text)).await.expect_err("it can never run");
    let SubmitFault::Store(error) = refused else { panic!("{refused:?}") };
    assert_eq!(
        error.to_string(),
        "job `a` has weight 3, and pool `small` has size 2; pool `none` of job `b` does not exist"
    );
    let _robot = scene.agent("one", 4).await;
    let refused = scene.graphs.submit(ask(&one("weight: 5"))).await.expect_err("it can never run");
    assert_eq!(refused.to_string(), "job `a` has weight 5: more than any agent carries that could take it");
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.runs").await, 0, "nothing is left of it");
}

pub(crate) async fn a_job_wider_than_every_agent_that_comes_is_given_up(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let run = scene.submit(&one("weight: 5")).await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::WaitingOnWorkers, "an agent may yet come");
    let _robot = scene.agent("one", 4).await;
    // Found with the next pass over everything, at the latest.
    scene.advance(60);
    scene.act().await;
    let job = scene.job(&run, "a").await;
    assert_eq!(job.code, C::JobError);
    assert!(job.message.is_some_and(|message| message.contains("wider than every agent")));
    assert_eq!(scene.run(&run).await.status, RunState::Failed);
}

/// A submission counts on agents that were heard within days, and so does the controller: what is accepted waits.
pub(crate) async fn a_job_waits_for_the_agent_that_its_submission_counted_on(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut wide = scene.agent("wide", 8).await;
    scene.act().await;
    scene.advance(2 * 86_400);
    let slim = scene.agent("slim", 2).await;
    let run = scene.submit(&one("weight: 5")).await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::WaitingOnWorkers, "the wide one may come back");
    wide.beat().await;
    scene.act().await;
    let order = wide.order().await;
    wide.succeed(&order).await;
    scene.act().await;
    assert_eq!(scene.code(&run, "a").await, C::Succeeded);
    // Nobody counts on it for ever.
    let late = scene.submit(&one("weight: 5")).await;
    scene.graphs.drain(wide.who.agent_id, true).await.expect("it drains");
    scene.act().await;
    assert_eq!(scene.code(&late, "a").await, C::WaitingOnWorkers);
    scene.advance(8 * 86_400);
    slim.beat().await;
    let refused = scene.graphs.submit(ask(&one("weight: 5"))).await.expect_err("it can never run");
    assert_eq!(refused.to_string(), "job `a` has weight 5: more than any agent carries that could take it");
    scene.act().await;
    assert_eq!(scene.code(&late, "a").await, C::JobError);
}

pub(crate) async fn a_pool_that_shrinks_keeps_its_jobs_waiting(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    scene.graphs.set_pool("narrow", 2).await.expect("the pool is set");
    let mut robot = scene.agent("one", 100).await;
    let first = scene.submit(&one("pool: narrow\nweight: 2")).await;
    scene.advance(1);
    let second = scene.submit(&one("pool: narrow\nweight: 2")).await;
    scene.act().await;
    assert_eq!(scene.code(&second, "a").await, C::WaitingOnPool);
    let third = scene.submit(&one("pool: narrow\nweight: 2")).await;
    scene.graphs.set_pool("narrow", 0).await.expect("the pool is set");
    let order = robot.order().await;
    robot.succeed(&order).await;
    scene.advance(60);
    robot.beat().await;
    scene.act().await;
    assert_eq!(scene.code(&first, "a").await, C::Succeeded, "what runs goes on");
    for waiting in [&second, &third] {
        let job = scene.job(waiting, "a").await;
        assert_eq!(job.code, C::WaitingOnPool);
        let why = scene.graphs.why_job(&job.job_id).await.expect("it is told").sentence();
        assert_eq!(why, "Pool narrow has size 0, which is too small for it.");
    }
    scene.graphs.set_pool("narrow", 4).await.expect("the pool is set");
    scene.play(std::slice::from_mut(&mut robot), 5).await;
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.jobs WHERE code = 'succeeded'").await, 3);
}

pub(crate) async fn projects_that_name_their_workspaces_alike_share_fairly(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let names: Vec<String> = (0..60).map(|number| format!("j{number}")).collect();
    let jobs = graph(&names.iter().map(|name| (name.as_str(), &[][..])).collect::<Vec<_>>());
    let mut robot = scene.agent("one", 8).await;
    scene.graphs.submit(ask(&jobs)).await.expect("the graph is taken");
    scene.act().await;
    let of_shop = robot.poll().await;
    assert_eq!(of_shop.len(), 8);
    let of_bank = SubmitGraph::new("bank", "staging", &jobs, "ann");
    scene.graphs.submit(of_bank).await.expect("the graph is taken");
    // Each of the two has named no workspace, and they share none: the one that has nothing is first.
    for order in of_shop.iter().take(4) {
        robot.succeed(order).await;
    }
    scene.act().await;
    let projects: Vec<String> =
        robot.poll().await.into_iter().map(|order| order.work.expect("it is work").project_id).collect();
    assert_eq!(projects, ["bank"; 4]);
}

pub(crate) async fn a_pool_bounds_its_jobs_by_weight(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    scene.graphs.set_pool("narrow", 5).await.expect("the pool is set");
    let mut robot = scene.agent("one", 100).await;
    for _ in 0..4 {
        scene.submit(&one("pool: narrow\nweight: 2")).await;
    }
    let beside = scene.submit(&one("")).await;
    scene.act().await;
    let orders = robot.poll().await;
    assert_eq!(orders.len(), 3, "two of the pool, and the one beside it");
    assert_eq!(scene.code(&beside, "a").await, C::Initiated);
    let pools = scene.graphs.pools().await.expect("pools are listed");
    let narrow = pools.iter().find(|pool| pool.name == "narrow").expect("it is there");
    assert_eq!((narrow.size, narrow.used), (5, 4));
    assert!(scene.graphs.remove_pool("narrow").await.is_err(), "live jobs name it");
    robot.succeed(&orders[0]).await;
    robot.succeed(&orders[1]).await;
    robot.succeed(&orders[2]).await;
    scene.act().await;
    scene.play(std::slice::from_mut(&mut robot), 5).await;
    scene.graphs.remove_pool("narrow").await.expect("nobody names it");
    let refused = scene.graphs.remove_pool("narrow").await.expect_err("it is gone");
    assert_eq!(refused.to_string(), "pool `narrow` does not exist");
}

pub(crate) async fn an_agent_carries_no_more_than_it_can(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let mut wide = scene.agent("wide", 5).await;
    let mut slim = scene.agent("slim", 1).await;
    for _ in 0..4 {
        scene.submit(&one("weight: 2")).await;
        scene.submit(&one("weight: 1")).await;
    }
    for _ in 0..4 {
        scene.act().await;
        for (robot, capacity) in [(&mut wide, 5), (&mut slim, 1)] {
            let orders = robot.poll().await;
            let weight: i32 =
                orders.iter().map(|order| order.work.as_ref().map_or(0, |work| work.spec.weight)).sum();
            assert!(weight <= capacity, "{weight}");
            for order in orders {
                robot.succeed(&order).await;
            }
        }
    }
    scene.act().await;
    assert_eq!(scene.number("SELECT count(*) FROM {ops}.jobs WHERE code = 'succeeded'").await, 8);
}

pub(crate) async fn a_workspace_that_floods_leaves_room_for_another(kind: Kind) {
    let mut scene = Scene::open(kind).await;
    let names: Vec<String> = (0..60).map(|number| format!("j{number}")).collect();
    let jobs = |count: usize| {
        graph(&names.iter().take(count).map(|name| (name.as_str(), &[][..])).collect::<Vec<_>>())
    };
    let of = |workspace: &str, text: &str| SubmitGraph { workspace: Some(workspace.to_owned()), ..ask(text) };
    scene.graphs.submit(of("flood", &jobs(60))).await.expect("the graph is taken");
    let calm = scene.graphs.submit(of("calm", &jobs(6))).await.expect("the graph is taken").run_id;
    let mut robot = scene.agent("one", 8).await;
    scene.act().await;
    let mut by_workspace: BTreeMap<String, usize> = BTreeMap::new();
    let orders = robot.poll().await;
    for order in &orders {
        let workspace = order.work.as_ref().expect("it is work").workspace.clone();
        *by_workspace.entry(workspace).or_default() += 1;
    }
    assert_eq!(by_workspace, BTreeMap::from([("calm".to_owned(), 4), ("flood".to_owned(), 4)]));
    for order in orders {
        robot.succeed(&order).await;
    }
    scene.act().await;
    for order in robot.poll().await {
        robot.succeed(&order).await;
    }
    scene.act().await;
    assert_eq!(scene.run(&calm).await.status, RunState::Success, "sixty others were before it");
}
