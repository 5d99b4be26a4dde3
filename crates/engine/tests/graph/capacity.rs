//! Capacity: pools, weights, agents, and fair sharing.

use std::collections::BTreeMap;

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::RunState;
use tidemill_engine::graph::{SubmitError, SubmitGraph};
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ask, graph, one};

pub(crate) async fn job_heavier_than_its_pool_is_refused(kind: Kind) {
    let fixture = GraphFixture::open(kind).await;
    fixture.graphs.set_pool("small", 2).await.expect("the pool is set");
    let text = "version: 1\njobs:\n  a:\n    run: work\n    pool: small\n    weight: 3\n  b:\n    run: work\n    \
                pool: none\n";
    let refused = fixture.graphs.submit(ask(text)).await.expect_err("it can never run");
    let SubmitError::Store(error) = refused else { panic!("{refused:?}") };
    assert_eq!(
        error.to_string(),
        "job `a` has weight 3, but pool `small` has size 2; pool `none` of job `b` does not exist"
    );
    let _robot = fixture.agent("one", 4).await;
    let refused = fixture.graphs.submit(ask(&one("weight: 5"))).await.expect_err("it can never run");
    assert_eq!(
        refused.to_string(),
        "job `a` has weight 5, more than the capacity of every agent that could take it"
    );
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.runs").await, 0, "nothing is left of it");
}

pub(crate) async fn job_heavier_than_every_agent_fails(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let run = fixture.submit(&one("weight: 5")).await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::WaitingOnWorkers, "an agent may yet come");
    let _robot = fixture.agent("one", 4).await;
    // Found with the next full pass at the latest.
    fixture.advance(60);
    fixture.act().await;
    let job = fixture.job(&run, "a").await;
    assert_eq!(job.code, C::JobError);
    assert!(job.message.is_some_and(|message| message.contains("exceeds the capacity of every agent")));
    assert_eq!(fixture.run(&run).await.status, RunState::Failed);
}

/// A submission counts agents with a heartbeat within days, and so does the controller: an accepted job waits.
pub(crate) async fn job_waits_for_an_agent_known_at_submission(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut wide = fixture.agent("wide", 8).await;
    fixture.act().await;
    fixture.advance(2 * 86_400);
    let slim = fixture.agent("slim", 2).await;
    let run = fixture.submit(&one("weight: 5")).await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::WaitingOnWorkers, "the wide one may come back");
    wide.beat().await;
    fixture.act().await;
    let order = wide.order().await;
    wide.succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "a").await, C::Succeeded);
    // After that time the agent no longer counts.
    let late = fixture.submit(&one("weight: 5")).await;
    fixture.graphs.drain(wide.who.agent_id, true).await.expect("it drains");
    fixture.act().await;
    assert_eq!(fixture.code(&late, "a").await, C::WaitingOnWorkers);
    fixture.advance(8 * 86_400);
    slim.beat().await;
    let refused = fixture.graphs.submit(ask(&one("weight: 5"))).await.expect_err("it can never run");
    assert_eq!(
        refused.to_string(),
        "job `a` has weight 5, more than the capacity of every agent that could take it"
    );
    fixture.act().await;
    assert_eq!(fixture.code(&late, "a").await, C::JobError);
}

pub(crate) async fn shrunk_pool_blocks_its_heavier_jobs(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    fixture.graphs.set_pool("narrow", 2).await.expect("the pool is set");
    let mut agent = fixture.agent("one", 100).await;
    let first = fixture.submit(&one("pool: narrow\nweight: 2")).await;
    fixture.advance(1);
    let second = fixture.submit(&one("pool: narrow\nweight: 2")).await;
    fixture.act().await;
    assert_eq!(fixture.code(&second, "a").await, C::WaitingOnPool);
    let third = fixture.submit(&one("pool: narrow\nweight: 2")).await;
    fixture.graphs.set_pool("narrow", 0).await.expect("the pool is set");
    let order = agent.order().await;
    agent.succeed(&order).await;
    fixture.advance(60);
    agent.beat().await;
    fixture.act().await;
    assert_eq!(fixture.code(&first, "a").await, C::Succeeded, "what runs goes on");
    for waiting in [&second, &third] {
        let job = fixture.job(waiting, "a").await;
        assert_eq!(job.code, C::WaitingOnPool);
        let why = fixture.graphs.why_job(&job.job_id).await.expect("it is notified").sentence();
        assert_eq!(why, "Pool narrow has size 0, which is too small for it.");
    }
    fixture.graphs.set_pool("narrow", 4).await.expect("the pool is set");
    fixture.play(std::slice::from_mut(&mut agent), 5).await;
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.jobs WHERE code = 'succeeded'").await, 3);
}

pub(crate) async fn equal_workspace_names_of_two_projects_share_fairly(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let names: Vec<String> = (0..60).map(|number| format!("j{number}")).collect();
    let jobs = graph(&names.iter().map(|name| (name.as_str(), &[][..])).collect::<Vec<_>>());
    let mut agent = fixture.agent("one", 8).await;
    fixture.graphs.submit(ask(&jobs)).await.expect("the graph is accepted");
    fixture.act().await;
    let of_shop = agent.poll().await;
    assert_eq!(of_shop.len(), 8);
    let of_bank = SubmitGraph::new("bank", "staging", &jobs, "ann");
    fixture.graphs.submit(of_bank).await.expect("the graph is accepted");
    // Both use the default workspace but share nothing, so the one without running jobs is first.
    for order in of_shop.iter().take(4) {
        agent.succeed(order).await;
    }
    fixture.act().await;
    let projects: Vec<String> =
        agent.poll().await.into_iter().map(|order| order.work.expect("it is work").project_id).collect();
    assert_eq!(projects, ["bank"; 4]);
}

pub(crate) async fn pool_limits_the_total_weight_of_its_jobs(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    fixture.graphs.set_pool("narrow", 5).await.expect("the pool is set");
    let mut agent = fixture.agent("one", 100).await;
    for _ in 0..4 {
        fixture.submit(&one("pool: narrow\nweight: 2")).await;
    }
    let beside = fixture.submit(&one("")).await;
    fixture.act().await;
    let orders = agent.poll().await;
    assert_eq!(orders.len(), 3, "two of the pool, and the one beside it");
    assert_eq!(fixture.code(&beside, "a").await, C::Initiated);
    let pools = fixture.graphs.pools().await.expect("pools are listed");
    let narrow = pools.iter().find(|pool| pool.name == "narrow").expect("it is there");
    assert_eq!((narrow.size, narrow.used), (5, 4));
    assert!(fixture.graphs.remove_pool("narrow").await.is_err(), "live jobs name it");
    agent.succeed(&orders[0]).await;
    agent.succeed(&orders[1]).await;
    agent.succeed(&orders[2]).await;
    fixture.act().await;
    fixture.play(std::slice::from_mut(&mut agent), 5).await;
    fixture.graphs.remove_pool("narrow").await.expect("nobody names it");
    let refused = fixture.graphs.remove_pool("narrow").await.expect_err("it is gone");
    assert_eq!(refused.to_string(), "pool `narrow` does not exist");
}

pub(crate) async fn agent_runs_jobs_up_to_its_capacity(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut wide = fixture.agent("wide", 5).await;
    let mut slim = fixture.agent("slim", 1).await;
    for _ in 0..4 {
        fixture.submit(&one("weight: 2")).await;
        fixture.submit(&one("weight: 1")).await;
    }
    for _ in 0..4 {
        fixture.act().await;
        for (agent, capacity) in [(&mut wide, 5), (&mut slim, 1)] {
            let orders = agent.poll().await;
            let weight: i32 =
                orders.iter().map(|order| order.work.as_ref().map_or(0, |work| work.spec.weight)).sum();
            assert!(weight <= capacity, "{weight}");
            for order in orders {
                agent.succeed(&order).await;
            }
        }
    }
    fixture.act().await;
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.jobs WHERE code = 'succeeded'").await, 8);
}

pub(crate) async fn flooding_workspace_leaves_capacity_for_another(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let names: Vec<String> = (0..60).map(|number| format!("j{number}")).collect();
    let jobs = |count: usize| {
        graph(&names.iter().take(count).map(|name| (name.as_str(), &[][..])).collect::<Vec<_>>())
    };
    let of = |workspace: &str, text: &str| SubmitGraph { workspace: Some(workspace.to_owned()), ..ask(text) };
    fixture.graphs.submit(of("flood", &jobs(60))).await.expect("the graph is accepted");
    let calm = fixture.graphs.submit(of("calm", &jobs(6))).await.expect("the graph is accepted").run_id;
    let mut agent = fixture.agent("one", 8).await;
    fixture.act().await;
    let mut by_workspace: BTreeMap<String, usize> = BTreeMap::new();
    let orders = agent.poll().await;
    for order in &orders {
        let workspace = order.work.as_ref().expect("it is work").workspace.clone();
        *by_workspace.entry(workspace).or_default() += 1;
    }
    assert_eq!(by_workspace, BTreeMap::from([("calm".to_owned(), 4), ("flood".to_owned(), 4)]));
    for order in orders {
        agent.succeed(&order).await;
    }
    fixture.act().await;
    for order in agent.poll().await {
        agent.succeed(&order).await;
    }
    fixture.act().await;
    assert_eq!(fixture.run(&calm).await.status, RunState::Success, "sixty others were before it");
}
