//! Retries: of commands, after agent failures, and of whole graphs.

use tidemill_core::job::StatusCode as C;
use tidemill_core::run::RunState;
use tidemill_core::task::TaskResult;
use tidemill_engine::graph::TaskReport;
use tidemill_store::RefusalCode;
use tidemill_testkit::interface::Kind;

use crate::fixture::{GraphFixture, ScriptedAgent, ended, failed, graph, one, output};

pub(crate) async fn failed_command_is_retried_only_with_retries(kind: Kind) {
    for (retries, tries) in [(0, 1), (2, 3)] {
        let mut fixture = GraphFixture::open(kind).await;
        let mut agent = fixture.agent("one", 1).await;
        let run = fixture.submit(&one(&format!("retries: {retries}"))).await;
        for number in 1..=tries {
            fixture.act().await;
            let order = agent.order().await;
            assert_eq!(order.work.as_ref().expect("it is work").attempt, number);
            agent.stage(&order.task_id, "executing").await;
            agent.result(&order.task_id, ended(9)).await;
            fixture.act().await;
            for _ in 0..10 {
                fixture.advance(5);
                agent.beat().await;
            }
        }
        fixture.act().await;
        let job = fixture.job(&run, "a").await;
        assert_eq!((job.code, job.tasks, job.exit_code), (C::NonzeroExit, tries, Some(9)));
        assert_eq!(fixture.run(&run).await.status, RunState::Failed);
        assert!(agent.poll().await.is_empty());
    }
}

/// A job that one agent cannot execute goes to agents that have not tried it, also after a full pass, and waits for
/// them if they are busy. Agents get jobs in order of their capacity.
pub(crate) async fn job_that_an_agent_cannot_execute_goes_to_another(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agents =
        [fixture.agent("one", 1).await, fixture.agent("two", 2).await, fixture.agent("three", 4).await];
    let run = fixture.submit(&one("")).await;
    for turn in 0..2 {
        fixture.act().await;
        let order = agents[turn].order().await;
        agents[turn].result(&order.task_id, failed("it has no store")).await;
        fixture.act().await;
        // Longer than the back-off, and time for a full pass.
        fixture.advance(61);
        for agent in &agents {
            agent.beat().await;
        }
        if turn == 0 {
            let wide = fixture.submit(&one("weight: 4")).await;
            fixture.act().await;
            let busy = agents[2].order().await;
            assert_eq!(busy.work.as_ref().expect("it is work").run_id, wide);
            agents[2].stage(&busy.task_id, "executing").await;
        }
    }
    fixture.act().await;
    for agent in &mut agents {
        assert!(agent.poll().await.is_empty(), "two of them failed, and the third is busy");
    }
    assert_eq!(fixture.code(&run, "a").await, C::WaitingOnWorkers);
    let job = fixture.graphs.find_job(&run, "a").await.expect("the job exists");
    let why = fixture.graphs.why_job(&job).await.expect("it is notified").sentence();
    assert_eq!(why, "It needs capacity 1; the only agent that could take it has 0 free.");
    let busy = agents[2].have[0].clone();
    agents[2].result(&busy, ended(0)).await;
    fixture.act().await;
    let order = agents[2].order().await;
    agents[2].succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
}

/// A job that one agent can never execute goes to each of the others once, at once. Absent agents are waited for. If no
/// agent is left, the job names those that tried.
pub(crate) async fn job_without_its_secret_goes_to_another_agent(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agents =
        [fixture.agent("one", 1).await, fixture.agent("two", 2).await, fixture.agent("three", 4).await];
    let lacks = async |fixture: &mut GraphFixture, agent: &mut ScriptedAgent| {
        fixture.act().await;
        let order = agent.order().await;
        let message = "this agent has no secret `KEY`".to_owned();
        agent.result(&order.task_id, TaskResult::Failed { fatal: true, elsewhere: true, message }).await;
        fixture.act().await;
    };
    let found = fixture.submit(&one("secrets: [KEY]")).await;
    for agent in &mut agents[..2] {
        lacks(&mut fixture, agent).await;
    }
    let order = agents[2].order().await;
    agents[2].succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.run(&found).await.status, RunState::Success);

    let missing = fixture.submit(&one("secrets: [KEY]")).await;
    for agent in &mut agents {
        lacks(&mut fixture, agent).await;
    }
    let job = fixture.job(&missing, "a").await;
    let reply = "it was tried on agents one, two and three, and no other is left; the last one: this agent has no \
                secret `KEY`";
    assert_eq!((job.code, job.tasks, job.message.as_deref()), (C::JobError, 3, Some(reply)));
    assert_eq!(fixture.run(&missing).await.status, RunState::Failed);

    fixture.advance(30);
    agents[0].beat().await;
    let waits = fixture.submit(&one("secrets: [KEY]")).await;
    lacks(&mut fixture, &mut agents[0]).await;
    let job = fixture.job(&waits, "a").await;
    assert_eq!((job.code, job.errors), (C::WaitingOnNewTask, 1), "two may come back");
    agents[2].beat().await;
    fixture.advance(6);
    fixture.act().await;
    let order = agents[2].order().await;
    agents[2].succeed(&order).await;
    fixture.act().await;
    assert_eq!(fixture.run(&waits).await.status, RunState::Success);
}

pub(crate) async fn agent_failures_are_limited_and_back_off(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 1).await;
    let run = fixture.submit(&one("")).await;
    let mut wait = 5;
    for number in 1..=5 {
        fixture.act().await;
        let order = agent.order().await;
        agent.result(&order.task_id, failed("the disk is full")).await;
        fixture.act().await;
        let job = fixture.job(&run, "a").await;
        if number == 5 {
            let words = "5 tasks failed; the last error: the disk is full";
            assert_eq!((job.code, job.message.as_deref()), (C::JobError, Some(words)));
            break;
        }
        assert_eq!((job.code, job.errors), (C::WaitingOnNewTask, number));
        assert_eq!(job.not_before, Some(fixture.now() + chrono::TimeDelta::seconds(wait)));
        fixture.advance(wait - 1);
        agent.beat().await;
        fixture.act().await;
        assert!(agent.poll().await.is_empty(), "not before its time");
        fixture.advance(1);
        wait *= 2;
    }
    assert_eq!(fixture.run(&run).await.status, RunState::Failed);
}

pub(crate) async fn graph_retry_reuses_succeeded_jobs(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 4).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &[])])).await;
    fixture.act().await;
    let refused = fixture.graphs.retry(&run, &[], "ann").await.expect_err("it has not ended");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::NotRetryable));
    for order in agent.poll().await {
        let mut report = TaskReport::new(ended(0));
        report.outputs = vec![output("o", "o.csv")];
        agent.graphs.report_result(&agent.who, &order.task_id, report).await.expect("it is received");
    }
    fixture.act().await;
    let order = agent.order().await;
    agent.result(&order.task_id, ended(1)).await;
    fixture.act().await;
    assert_eq!(fixture.run(&run).await.status, RunState::Failed);
    let retried = fixture.graphs.retry(&run, &[], "ann").await.expect("it is tried again");
    assert!(retried.created);
    let again = fixture.graphs.retry(&run, &[], "ann").await.expect("it exists");
    assert_eq!((again.run_id.clone(), again.created), (retried.run_id.clone(), false));
    let next = retried.run_id;
    let codes = fixture.codes(&next).await;
    let of = |name: &str| codes.iter().find(|(job, _)| job == name).expect("the job is there").1;
    assert_eq!([of("a"), of("b"), of("c"), of("d")], [C::Succeeded, C::Created, C::Created, C::Succeeded]);
    assert_eq!(fixture.job(&next, "a").await.reused_from, Some(fixture.job(&run, "a").await.job_id));
    fixture.act().await;
    let order = agent.order().await;
    let work = order.work.clone().expect("it is work");
    assert_eq!((work.spec.name.as_str(), work.inputs.len()), ("b", 1), "it gets what a left then");
    assert_eq!(work.inputs[0].job_id, fixture.job(&run, "a").await.job_id);
    agent.succeed(&order).await;
    fixture.play(std::slice::from_mut(&mut agent), 10).await;
    let ended = fixture.run(&next).await;
    assert_eq!((ended.status, ended.retry_of), (RunState::Success, Some(run)));
}

pub(crate) async fn named_jobs_and_their_dependents_run_again(kind: Kind) {
    let mut fixture = GraphFixture::open(kind).await;
    let mut agent = fixture.agent("one", 4).await;
    let run = fixture.submit(&graph(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &[])])).await;
    fixture.play(std::slice::from_mut(&mut agent), 10).await;
    assert_eq!(fixture.run(&run).await.status, RunState::Success);
    let refused = fixture.graphs.retry(&run, &[], "ann").await.expect_err("there is nothing to try again");
    assert_eq!(refused.refusal_code(), Some(RefusalCode::NotRetryable));
    let next = fixture.graphs.retry(&run, &["b".to_owned()], "ann").await.expect("it is tried again").run_id;
    let codes = fixture.codes(&next).await;
    let of = |name: &str| codes.iter().find(|(job, _)| job == name).expect("the job is there").1;
    assert_eq!([of("a"), of("b"), of("c"), of("d")], [C::Succeeded, C::Created, C::Created, C::Succeeded]);
    fixture.play(std::slice::from_mut(&mut agent), 10).await;
    let ended = fixture.run(&next).await;
    assert_eq!((ended.status, ended.retry_of, ended.attempt), (RunState::Success, Some(run), 2));
}
