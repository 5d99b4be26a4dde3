//! Retention of outputs on agents: which are needed, and when they may be removed.

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::{ChangeOutcome, RunState};
use tidemill_engine::graph::{AgentIdentity, TaskReport};
use tidemill_store::RefusalCode;
use tidemill_testkit::interface::Kind;
use uuid::Uuid;

use crate::fixture::{GraphFixture, ScriptedAgent, ask, ended, graph, output};

/// Returns the ids of jobs.
fn ids(jobs: &[&str]) -> Vec<String> {
    jobs.iter().map(|job| (*job).to_owned()).collect()
}

/// Executes the only order, which leaves a file on the agent's disk; returns the job.
async fn finish_with_file(agent: &mut ScriptedAgent) -> String {
    let order = agent.order().await;
    assert_eq!(agent.stage(&order.task_id, "preparing").await, ChangeOutcome::Applied);
    let report = TaskReport { outputs: vec![output("file", "file")], ..TaskReport::new(ended(0)) };
    let reply = agent.graphs.report_result(&agent.who, &order.task_id, report).await;
    assert_eq!(reply.expect("the result is received"), ChangeOutcome::Applied);
    order.job_id
}

async fn unused(agent: &ScriptedAgent, job: &str) -> Option<Option<u64>> {
    let stored = agent.graphs.check_retention(&agent.who, &ids(&[job]), &[]).await.expect("it is answered");
    assert!(stored.deletable.is_empty(), "no caller requested that");
    stored.unused.into_iter().find(|(known, _)| known == job).map(|(_, idle)| idle)
}

async fn remove(agent: &ScriptedAgent, job: &str) -> Vec<String> {
    agent.graphs.check_retention(&agent.who, &[], &ids(&[job])).await.expect("it is answered").deletable
}

pub(crate) async fn outputs_needed_by_a_live_run_stay(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    fixture.act().await;
    let order = agent.order().await;
    assert_eq!(unused(&agent, &order.job_id).await, None, "it is about to leave something");
    agent.have.clear();
    let a = finish_with_file(&mut agent).await;
    fixture.act().await;
    assert_eq!(unused(&agent, &a).await, None);
    assert!(remove(&agent, &a).await.is_empty());
    let order = agent.order().await;
    assert_eq!(order.work.as_ref().expect("it is work").inputs[0].agent_id, Some(agent.who.agent_id));
    agent.succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
    fixture.advance(90);
    agent.beat().await;
    assert_eq!(unused(&agent, &a).await, Some(Some(90)), "the run has ended");
    // A run that reuses the output needs it again.
    let mut again = ask(&graph(&[("a", &[]), ("b", &["a"])]));
    again.only = vec!["b".to_owned()];
    let reusing = fixture.graphs.submit(again).await.expect("the graph is accepted");
    assert_eq!(reusing.reused, 1);
    assert_eq!(unused(&agent, &a).await, None);
    assert!(remove(&agent, &a).await.is_empty());
    fixture.play(std::slice::from_mut(&mut agent), 5).await;
    assert_eq!(fixture.run(&reusing.run_id).await.status, RunState::Success);
    assert_eq!(unused(&agent, &a).await, Some(Some(0)), "the last run counts");
}

pub(crate) async fn removed_outputs_are_not_reused(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let text = graph(&[("a", &[]), ("b", &["a"])]);
    fixture.submit(&text).await;
    fixture.act().await;
    let a = finish_with_file(&mut agent).await;
    fixture.play(std::slice::from_mut(&mut agent), 5).await;
    assert_eq!(remove(&agent, &a).await, std::slice::from_ref(&a));
    assert_eq!(remove(&agent, &a).await, std::slice::from_ref(&a), "a repeated request after a lost answer");
    assert_eq!(unused(&agent, &a).await, Some(None), "no run needs it any more");
    let mut again = ask(&text);
    again.only = vec!["b".to_owned()];
    let anew = fixture.graphs.submit(again).await.expect("the graph is accepted");
    assert_eq!((anew.jobs, anew.reused), (2, 0));
    fixture.play(std::slice::from_mut(&mut agent), 5).await;
    assert_eq!(fixture.code(&anew.run_id, "b").await, C::Succeeded);
}

pub(crate) async fn outputs_unknown_to_the_server_may_be_removed(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    fixture.submit(&graph(&[("a", &[])])).await;
    fixture.act().await;
    let a = finish_with_file(&mut agent).await;
    fixture.act().await;
    fixture.advance(100 * 86_400);
    agent.beat().await;
    assert_eq!(unused(&agent, &a).await, Some(Some(100 * 86_400)));
    let pruned = fixture.base.store.prune(fixture.now() - chrono::TimeDelta::days(90), 100).await;
    assert_eq!(pruned.expect("it is removed").runs, 1);
    assert_eq!(unused(&agent, &a).await, Some(None));
    assert_eq!(remove(&agent, &a).await, [a]);
}

pub(crate) async fn agent_cannot_list_or_remove_outputs_of_another(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let text = graph(&[("a", &[]), ("b", &["a"])]);
    let run = fixture.submit(&text).await;
    fixture.act().await;
    let a = finish_with_file(&mut agent).await;
    fixture.act().await;
    let other = fixture.agent("other", 1).await;
    assert_eq!(unused(&other, &a).await, Some(None), "to them it is as if it had never been");
    remove(&other, &a).await;
    let order = agent.order().await;
    assert_eq!(order.work.as_ref().expect("it is work").inputs[0].agent_id, Some(agent.who.agent_id));
    agent.succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
    let stranger = AgentIdentity { boot_id: Uuid::new_v4(), ..agent.who };
    let refused = fixture
        .graphs
        .check_retention(&stranger, &ids(&[&a]), &[])
        .await
        .expect_err("it is an older process");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::Stale));
    let many = vec![a; tidemill_core::limits::RETENTION_JOBS_MAX + 1];
    let refused = fixture.graphs.check_retention(&agent.who, &[], &many).await.expect_err("it is too much");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::TooLarge));
}
