//! Large graphs, many graphs, deep graphs.

use std::fmt::Write as _;

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::RunState;
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ended, one};

fn chain(length: usize) -> String {
    let mut text = String::from("version: 1\njobs:\n  j0:\n    run: work\n");
    for number in 1..length {
        let _ = write!(text, "  j{number}:\n    run: work\n    needs: [j{}]\n", number - 1);
    }
    text
}

pub(crate) async fn graph_of_ten_thousand_jobs_completes(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut text = String::from("version: 1\njobs:\n  first:\n    run: work\n");
    for number in 1..9_999 {
        let _ = write!(text, "  j{number}:\n    run: work\n    needs: [first]\n");
    }
    text.push_str("  last:\n    run: work\n    needs: [j1, j2, j9998]\n");
    let run = fixture.submit(&text).await;
    let mut agent = fixture.agent("one", 64).await;
    fixture.act().await;
    let order = agent.order().await;
    agent.succeed(&order).await;
    fixture.act().await;
    let graph = fixture.graphs.graph(&run).await.expect("the graph is read");
    assert_eq!((graph.counts.total, graph.counts.running, graph.counts.succeeded), (10_000, 64, 1));
    // One end frees capacity for one job: only that is written.
    let order = agent.poll().await.remove(0);
    agent.result(&order.task_id, ended(0)).await;
    let pass = fixture.controller.tick().await.expect("it acts");
    assert_eq!((pass.full, pass.changed), (false, 2));
    // The other jobs are cancelled at once.
    fixture.graphs.cancel(&run, &[], "ann", None).await.expect("it is cancelled");
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Cancelled);
    let left = fixture.number("SELECT count(*) FROM {ops}.jobs WHERE ended_at IS NULL").await;
    assert_eq!(left, 0);
}

pub(crate) async fn many_small_graphs_complete(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let text = chain(10);
    for _ in 0..1_000 {
        fixture.submit(&text).await;
    }
    let mut agents = [fixture.agent("one", 600).await, fixture.agent("two", 600).await];
    for _ in 0..1_000 {
        fixture.act().await;
        let mut done = 0;
        for agent in &mut agents {
            for order in agent.poll().await {
                agent.result(&order.task_id, ended(0)).await;
                done += 1;
            }
            agent.have.clear();
        }
        if done == 0 {
            break;
        }
    }
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.runs WHERE status = 'success'").await, 1_000);
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.jobs WHERE code = 'succeeded'").await, 10_000);
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.tasks WHERE active").await, 0);
    assert_eq!(fixture.number("SELECT count(*) FROM {ops}.job_changes").await, 0);
}

pub(crate) async fn chain_of_five_hundred_jobs_completes(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let run = fixture.submit(&chain(500)).await;
    let mut agent = fixture.agent("one", 4).await;
    for _ in 0..500 {
        fixture.act().await;
        let order = agent.order().await;
        agent.result(&order.task_id, ended(0)).await;
        agent.have.clear();
    }
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
}

pub(crate) async fn failure_spreads_in_one_pass(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let run = fixture.submit(&chain(300)).await;
    let mut agent = fixture.agent("one", 4).await;
    fixture.act().await;
    let order = agent.order().await;
    agent.result(&order.task_id, ended(1)).await;
    let pass = fixture.controller.tick().await.expect("it acts");
    assert_eq!(pass.changed, 300);
    assert_eq!(fixture.code(&run, "j299").await, C::DependencyFailed);
    let ended = fixture.run(&run).await;
    assert_eq!(ended.status, RunState::Failed);
    assert!(
        ended.metadata["not_succeeded"].as_array().is_some_and(|named| named.len() == 20),
        "it is bounded"
    );
    let next = fixture.submit(&one("")).await;
    fixture.act().await;
    assert_eq!(fixture.code(&next, "a").await, C::Initiated);
}
