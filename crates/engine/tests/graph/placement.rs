//! Files that exist only on one agent: jobs that need them are placed there, wait for it, or explain why they cannot
//! run.

use tidemill_core::RunId;
use tidemill_core::graph::record::{JobRecord, Order};
use tidemill_core::job::StatusCode as C;
use tidemill_core::run::{ChangeOutcome, RunState};
use tidemill_engine::graph::{ForgetMode, TaskReport};
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ScriptedAgent, ask, ended, graph, output};

/// Executes an order that leaves a file, in an object store or on the agent's disk.
async fn finish_with_file(agent: &ScriptedAgent, order: &Order, url: Option<&str>) {
    assert_eq!(agent.stage(&order.task_id, "preparing").await, ChangeOutcome::Applied);
    let mut file = output("file", "file");
    file.url = url.map(str::to_owned);
    let report = TaskReport { outputs: vec![file], ..TaskReport::new(ended(0)) };
    let reply = agent.graphs.report_result(&agent.who, &order.task_id, report).await;
    assert_eq!(reply.expect("the result is received"), ChangeOutcome::Applied);
}

async fn why(fixture: &GraphFixture, run: &RunId, name: &str) -> (String, Option<String>) {
    let job = fixture.graphs.find_job(run, name).await.expect("the job exists");
    let reason = fixture.graphs.why_job(&job).await.expect("it is notified");
    (reason.sentence(), reason.hint())
}

/// A graph with a job that left a file on the disk of `home`, and a job that needs it. Another agent has free capacity.
async fn first_job_done(fixture: &mut GraphFixture) -> (RunId, ScriptedAgent, ScriptedAgent) {
    let mut home = fixture.agent("home", 1).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    fixture.act().await;
    let order = home.order().await;
    finish_with_file(&home, &order, None).await;
    let other = fixture.agent("other", 8).await;
    (run, home, other)
}

async fn agent_of(fixture: &GraphFixture, run: &RunId, name: &str) -> JobRecord {
    fixture.job(run, name).await
}

pub(crate) async fn job_is_placed_on_the_agent_with_its_files(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let (run, mut home, mut other) = first_job_done(&mut fixture).await;
    fixture.act().await;
    assert!(other.poll().await.is_empty(), "it does not have the file");
    assert_eq!(agent_of(&fixture, &run, "b").await.agent_id, Some(home.who.agent_id));
    let order = home.order().await;
    home.succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);

    // Files in an object store are available everywhere.
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"])])).await;
    fixture.graphs.drain(other.who.agent_id, true).await.expect("it drains");
    fixture.act().await;
    let order = home.order().await;
    finish_with_file(&home, &order, Some("s3://bucket/file")).await;
    fixture.graphs.drain(other.who.agent_id, false).await.expect("it works again");
    fixture.graphs.drain(home.who.agent_id, true).await.expect("it drains");
    fixture.act().await;
    assert_eq!(agent_of(&fixture, &run, "b").await.agent_id, Some(other.who.agent_id));
}

pub(crate) async fn job_waits_for_the_agent_with_its_files(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let (run, mut home, mut other) = first_job_done(&mut fixture).await;
    fixture.graphs.drain(home.who.agent_id, true).await.expect("it drains");
    fixture.act().await;
    assert_eq!(fixture.code(&run, "b").await, C::WaitingOnWorkers);
    let (sentence, hint) = why(&fixture, &run, "b").await;
    assert_eq!(sentence, "It waits for capacity on agent home, the only one with the outputs of job a.");
    assert_eq!(hint, None);
    fixture.graphs.drain(home.who.agent_id, false).await.expect("it works again");
    home.graphs.leave(&home.who).await.expect("it shuts down");
    fixture.advance(30);
    other.beat().await;
    fixture.act().await;
    assert_eq!(fixture.code(&run, "b").await, C::WaitingOnWorkers);
    let (sentence, hint) = why(&fixture, &run, "b").await;
    assert_eq!(
        sentence,
        "It waits for agent home, the only one with the outputs of job a, which is away since 2026-02-14 10:30:00 UTC; \
         start it again, or start agents with --store to share outputs."
    );
    let hint = hint.expect("there is something to do");
    assert_eq!(hint, "tidemill agent list");
    // Another controller decides the same, and an agent that was away for days is still waited for.
    fixture.advance(3 * 86_400);
    other.beat().await;
    let mut second = fixture.graphs.controller("second");
    crate::fixture::settle(&mut second).await;
    assert_eq!(fixture.code(&run, "b").await, C::WaitingOnWorkers);
    assert!(other.poll().await.is_empty());
    assert!(why(&fixture, &run, "b").await.0.starts_with("It waits for agent home"));
    home.beat().await;
    crate::fixture::settle(&mut second).await;
    let order = home.order().await;
    home.succeed(&order).await;
    crate::fixture::settle(&mut second).await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
}

pub(crate) async fn files_of_a_forgotten_agent_are_lost(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let (run, home, mut other) = first_job_done(&mut fixture).await;
    home.graphs.leave(&home.who).await.expect("it shuts down");
    fixture.act().await;
    assert_eq!(fixture.code(&run, "b").await, C::WaitingOnWorkers);
    fixture.graphs.forget(home.who.agent_id, ForgetMode::IfSilent).await.expect("it is forgotten");
    fixture.act().await;
    let job = fixture.job(&run, "b").await;
    assert_eq!(job.code, C::JobError, "at once, and not with the next pass over everything");
    let message = job.message.expect("a reason");
    assert!(
        message.starts_with("the outputs of job a are gone") && message.contains("retry the graph"),
        "{message}"
    );
    assert_eq!(fixture.run(&run).await.status, RunState::Failed);
    // A retry makes lost files again.
    let retried = fixture.graphs.retry(&run, &[], "ann").await.expect("it is tried again").run_id;
    fixture.act().await;
    let order = other.order().await;
    assert_eq!(order.work.as_ref().expect("it is work").spec.name, "a");
    finish_with_file(&other, &order, None).await;
    fixture.act().await;
    let order = other.order().await;
    other.succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.run(&retried).await.status, RunState::Success);
}

pub(crate) async fn files_on_two_agents_are_joined_by_a_rerun(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let (mut one, mut two) = (fixture.agent("one", 1).await, fixture.agent("two", 1).await);
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &[]), ("c", &["a", "b"])])).await;
    fixture.act().await;
    let (first, second) = (one.order().await, two.order().await);
    finish_with_file(&one, &first, None).await;
    finish_with_file(&two, &second, None).await;
    fixture.act().await;
    let job = fixture.job(&run, "c").await;
    assert_eq!(job.code, C::JobError);
    let message = job.message.expect("a reason");
    assert!(message.contains("on the disks of two agents") && message.contains("--store"), "{message}");
    // One of the two runs again where the other's file is, also if that agent is busy at first.
    let retried = fixture.graphs.retry(&run, &[], "ann").await.expect("it is tried again").run_id;
    let counts = fixture.graphs.graph(&retried).await.expect("the graph is read").counts;
    assert_eq!((counts.total, counts.reused), (3, 1));
    fixture.act().await;
    let mut agents = Vec::new();
    for _ in 0..2 {
        for agent in [&mut one, &mut two] {
            for order in agent.poll().await {
                agents.push(agent.who.agent_id);
                finish_with_file(agent, &order, None).await;
            }
        }
        fixture.act().await;
    }
    assert_eq!(agents.len(), 2, "one job again, and the one that needs both");
    assert_eq!(agents[0], agents[1]);
    assert_eq!(fixture.run(&retried).await.status, RunState::Success);
}

pub(crate) async fn job_is_placed_where_later_jobs_need_its_files(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut home = fixture.agent("home", 1).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &[]), ("c", &["a", "b"])])).await;
    fixture.act().await;
    let order = home.order().await;
    assert_eq!(fixture.code(&run, "b").await, C::WaitingOnWorkers);
    finish_with_file(&home, &order, None).await;
    // Another agent has free capacity, but the output of b will be needed together with that of a.
    let mut other = fixture.agent("other", 8).await;
    fixture.act().await;
    assert!(other.poll().await.is_empty());
    let order = home.order().await;
    finish_with_file(&home, &order, None).await;
    fixture.act().await;
    let order = home.order().await;
    home.succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
}

pub(crate) async fn only_existing_files_are_reused(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let text = graph(&[("a", &[]), ("b", &["a"])]);
    let (run, mut home, mut other) = first_job_done(&mut fixture).await;
    fixture.act().await;
    let order = home.order().await;
    home.succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
    let mut again = ask(&text);
    again.only = vec!["b".to_owned()];
    // Outputs of an earlier run also determine the placement.
    let reusing = fixture.graphs.submit(again.clone()).await.expect("the graph is accepted");
    assert_eq!(reusing.reused, 1);
    fixture.act().await;
    assert!(other.poll().await.is_empty());
    assert_eq!(agent_of(&fixture, &reusing.run_id, "b").await.agent_id, Some(home.who.agent_id));
    let order = home.order().await;
    home.succeed(&order).await;
    fixture.act().await;
    // Lost outputs are made again.
    fixture.graphs.forget(home.who.agent_id, ForgetMode::Always).await.expect("it is forgotten");
    let anew = fixture.graphs.submit(again).await.expect("the graph is accepted");
    assert_eq!((anew.jobs, anew.reused), (2, 0));
    fixture.play(std::slice::from_mut(&mut other), 5).await;
    assert_eq!(fixture.run(&anew.run_id).await.status, RunState::Success);
}
