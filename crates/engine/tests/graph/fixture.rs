//! Helpers of the graph cases: a store, a clock, a controller that acts on request, and scripted agents.

use std::fmt::Write as _;
use std::time::Duration;

use chrono::TimeDelta;
use tidemill_core::agent::NewAgent;
use tidemill_core::graph::record::{JobRecord, Order};
use tidemill_core::job::StatusCode;
use tidemill_core::project_set::ProjectSet;
use tidemill_core::run::{ChangeOutcome, Run};
use tidemill_core::task::{Output, Stage, TaskKind, TaskResult, cancel_id};
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::graph::{
    AgentIdentity, Controller, GraphSettings, Graphs, JobPage, SubmitGraph, TaskProgress, TaskReport,
};
use tidemill_engine::{Clock, Engine, RetryPolicy};
use tidemill_testkit::interface::{Fixture, Kind, at};
use uuid::Uuid;

/// A store with a controller.
pub(crate) struct GraphFixture {
    pub(crate) base: Fixture,
    pub(crate) engine: Engine,
    pub(crate) graphs: Graphs,
    pub(crate) controller: Controller,
}

impl GraphFixture {
    pub(crate) async fn open(kind: Kind) -> Self {
        Self::on(Fixture::open(kind).await, Clock::fixed(at(0)))
    }

    pub(crate) fn on(base: Fixture, clock: Clock) -> Self {
        let patience = RetryPolicy::For(Duration::from_mins(1));
        let engine = Engine::new(base.store.clone(), clock, patience);
        let graphs = Graphs::new(engine.clone(), GraphSettings::default());
        let controller = graphs.controller("first");
        Self { base, engine, graphs, controller }
    }

    pub(crate) fn advance(&self, secs: i64) {
        self.engine.clock().advance(TimeDelta::seconds(secs));
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.engine.clock().now().expect("the clock is a test's")
    }

    /// Lets the controller act until nothing changes.
    pub(crate) async fn act(&mut self) {
        settle(&mut self.controller).await;
    }

    /// Submits a graph of project `shop`.
    pub(crate) async fn submit(&self, text: &str) -> RunId {
        self.graphs.submit(ask(text)).await.expect("the graph is accepted").run_id
    }

    pub(crate) async fn agent(&self, name: &str, capacity: i32) -> ScriptedAgent {
        self.agent_with(new_agent(name, capacity)).await
    }

    pub(crate) async fn agent_with(&self, new: NewAgent) -> ScriptedAgent {
        let who = AgentIdentity { agent_id: new.agent_id, boot_id: new.boot_id, token_id: new.token_id };
        self.graphs.register(new).await.expect("the agent is registered");
        ScriptedAgent { graphs: self.graphs.clone(), who, have: Vec::new() }
    }

    pub(crate) async fn job(&self, run: &RunId, name: &str) -> JobRecord {
        let id = self.graphs.find_job(run, name).await.expect("the job exists");
        self.graphs.job_record(&id).await.expect("the job is read")
    }

    pub(crate) async fn code(&self, run: &RunId, name: &str) -> StatusCode {
        self.job(run, name).await.code
    }

    /// Returns the name and status of every job of a run.
    pub(crate) async fn codes(&self, run: &RunId) -> Vec<(String, StatusCode)> {
        let page = JobPage { limit: 1_000, ..JobPage::default() };
        let jobs = self.graphs.jobs(run, page).await.expect("the jobs are listed");
        jobs.into_iter().map(|job| (job.name, job.code)).collect()
    }

    /// Returns the sequence of statuses of a job.
    pub(crate) async fn path(&self, run: &RunId, name: &str) -> Vec<StatusCode> {
        let id = self.graphs.find_job(run, name).await.expect("the job exists");
        let detail = self.graphs.job(&id).await.expect("the job is read");
        let mut path: Vec<StatusCode> =
            detail.changes.first().map(|change| change.from_code).into_iter().collect();
        path.extend(detail.changes.iter().map(|change| change.to_code));
        path
    }

    pub(crate) async fn run(&self, run: &RunId) -> Run {
        self.engine.run(run).await.expect("the run exists")
    }

    pub(crate) async fn number(&self, text: &str) -> i64 {
        self.base.plain.number(text).await.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Runs a graph to its end: agents execute all orders successfully.
    pub(crate) async fn play(&mut self, agents: &mut [ScriptedAgent], rounds: usize) {
        for _ in 0..rounds {
            self.act().await;
            let mut busy = false;
            for agent in agents.iter_mut() {
                for order in agent.poll().await {
                    agent.succeed(&order).await;
                    busy = true;
                }
            }
            if !busy {
                return;
            }
        }
        self.act().await;
    }
}

/// Lets a controller act until nothing changes.
pub(crate) async fn settle(controller: &mut Controller) {
    for _ in 0..10_000 {
        if !controller.tick().await.expect("the controller acts").more {
            return;
        }
    }
    panic!("the controller does not settle");
}

pub(crate) fn ask(text: &str) -> SubmitGraph {
    SubmitGraph::new("shop", "staging", text, "ann")
}

pub(crate) fn new_agent(name: &str, capacity: i32) -> NewAgent {
    NewAgent {
        agent_id: Uuid::new_v4(),
        name: name.to_owned(),
        host: "here".to_owned(),
        labels: Vec::new(),
        capacity,
        version: "0.1.0".to_owned(),
        projects: ProjectSet::All,
        token_id: None,
        boot_id: Uuid::new_v4(),
        secret_hash: "0".repeat(64),
        next_secret_hash: "0".repeat(64),
        dir_lock: None,
        isolation: None,
    }
}

/// Returns a graph of one job, with additional keys.
pub(crate) fn one(more: &str) -> String {
    let mut text = String::from("version: 1\njobs:\n  a:\n    run: work\n");
    for line in more.lines() {
        let _ = writeln!(text, "    {}", line.trim());
    }
    text
}

/// Returns a graph of jobs with their dependencies.
pub(crate) fn graph(jobs: &[(&str, &[&str])]) -> String {
    let mut text = String::from("version: 1\njobs:\n");
    for (name, needs) in jobs {
        let _ = writeln!(text, "  {name}:\n    run: work\n    needs: [{}]", needs.join(", "));
    }
    text
}

pub(crate) fn ended(exit_code: i32) -> TaskResult {
    TaskResult::Ended { exit_code, unmatched: Vec::new(), hint: Vec::new(), message: None }
}

pub(crate) fn failed(message: &str) -> TaskResult {
    TaskResult::Failed { fatal: false, elsewhere: false, message: message.to_owned() }
}

pub(crate) fn output(name: &str, path: &str) -> Output {
    let sha256 = "0".repeat(64);
    Output { name: name.to_owned(), path: path.to_owned(), size_bytes: 3, sha256, url: None }
}

/// An agent that follows the test's script.
#[derive(Clone)]
pub(crate) struct ScriptedAgent {
    pub(crate) graphs: Graphs,
    pub(crate) who: AgentIdentity,
    pub(crate) have: Vec<String>,
}

impl ScriptedAgent {
    /// Polls for orders without waiting, and remembers them.
    pub(crate) async fn poll(&mut self) -> Vec<Order> {
        let orders = self.graphs.poll(&self.who, &self.have, Duration::ZERO).await.expect("orders are read");
        self.have.extend(orders.iter().map(|order| order.task_id.clone()));
        orders
    }

    /// Polls for the only order.
    pub(crate) async fn order(&mut self) -> Order {
        let mut orders = self.poll().await;
        assert_eq!(orders.len(), 1, "{orders:?}");
        orders.remove(0)
    }

    pub(crate) async fn beat(&self) {
        self.heartbeat_with_stage(None).await;
    }

    /// Sends a heartbeat with this stage for every task.
    pub(crate) async fn heartbeat_with_stage(&self, stage: Option<Stage>) -> Vec<String> {
        let holding = |task: &String| TaskProgress { task_id: task.clone(), stage };
        let holding: Vec<TaskProgress> = self.have.iter().map(holding).collect();
        self.graphs.heartbeat(&self.who, &holding).await.expect("the heartbeat is received").over
    }

    pub(crate) async fn stage(&self, task: &str, stage: &str) -> ChangeOutcome {
        self.graphs.report_stage(&self.who, task, stage).await.expect("the stage is received")
    }

    pub(crate) async fn result(&self, task: &str, result: TaskResult) -> ChangeOutcome {
        self.graphs
            .report_result(&self.who, task, TaskReport::new(result))
            .await
            .expect("the result is received")
    }

    /// Executes an order successfully.
    pub(crate) async fn succeed(&self, order: &Order) {
        match order.kind {
            TaskKind::RunJob => {
                assert_eq!(self.stage(&order.task_id, "preparing").await, ChangeOutcome::Applied);
                assert_eq!(self.stage(&order.task_id, "executing").await, ChangeOutcome::Applied);
                assert_eq!(self.result(&order.task_id, ended(0)).await, ChangeOutcome::Applied);
            }
            TaskKind::CancelJob => {
                assert_eq!(self.result(&order.task_id, TaskResult::Stopped).await, ChangeOutcome::Applied);
            }
        }
    }

    /// Confirms that a task is stopped.
    pub(crate) async fn confirm(&self, task: &str) -> ChangeOutcome {
        self.result(&cancel_id(task), TaskResult::Stopped).await
    }
}
