//! Jobs of graphs: held jobs, jobs by state, and the tail of job logs.

use crate::fixture::{ApiFixture, refused};
use http::{Method, StatusCode};
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::agent::NewAgent;
use tidemill_core::graph::record::{LogLine, Order};
use tidemill_core::job::JobState;
use tidemill_core::project_set::ProjectSet;
use tidemill_core::task::{TaskResult, job_id};
use tidemill_engine::graph::{AgentIdentity, Controller, GraphSettings, Graphs, SubmitGraph, TaskReport};
use tidemill_testkit::interface::Kind;
use tidemill_wire::graphs::{ListJobs, ReadLogs};
use uuid::Uuid;

const GRAPH: &str = "version: 1\njobs:\n  good: {run: work}\n  bad: {run: work}\n  runs: {run: work}\n  \
                     waits: {run: work, needs: runs}\n";

/// A scripted agent, and a controller that acts on request.
struct Robot {
    graphs: Graphs,
    controller: Controller,
    who: AgentIdentity,
}

impl Robot {
    async fn register(api: &ApiFixture) -> Self {
        let graphs = Graphs::new(api.syncs.engine().clone(), GraphSettings::default());
        let new = NewAgent {
            agent_id: Uuid::new_v4(),
            name: "robot".to_owned(),
            host: "here".to_owned(),
            labels: Vec::new(),
            capacity: 8,
            version: "1".to_owned(),
            projects: ProjectSet::All,
            token_id: None,
            secret_hash: "0".repeat(64),
            next_secret_hash: "0".repeat(64),
            dir_lock: None,
            isolation: None,
            boot_id: Uuid::new_v4(),
        };
        let who = AgentIdentity { agent_id: new.agent_id, boot_id: new.boot_id, token_id: None };
        graphs.register(new).await.expect("the agent is registered");
        let controller = graphs.controller("test");
        Self { graphs, controller, who }
    }

    async fn act(&mut self) {
        while self.controller.tick().await.expect("the controller acts").more {}
    }

    async fn submit(&mut self) -> (RunId, Vec<Order>) {
        let ask = SubmitGraph::new("shop", "staging", GRAPH, "ann");
        let run = self.graphs.submit(ask).await.expect("the graph is accepted").run_id;
        self.act().await;
        let orders = self.graphs.poll(&self.who, &[], Duration::ZERO).await.expect("orders");
        for order in &orders {
            for stage in ["preparing", "executing"] {
                self.graphs.report_stage(&self.who, &order.task_id, stage).await.expect("a stage");
            }
        }
        (run, orders)
    }

    async fn write(&self, order: &Order, seq: i32, text: &str) {
        let line = LogLine { stream: "stdout".to_owned(), text: text.to_owned() };
        self.graphs.report_log(&self.who, &order.task_id, seq, vec![line]).await.expect("output");
    }

    async fn end(&mut self, order: &Order, exit_code: i32) {
        let result = TaskResult::Ended { exit_code, unmatched: Vec::new(), hint: Vec::new(), message: None };
        let report = TaskReport::new(result);
        self.graphs.report_result(&self.who, &order.task_id, report).await.expect("a result");
        self.act().await;
    }
}

fn order<'a>(orders: &'a [Order], name: &str) -> &'a Order {
    let of = |order: &&Order| order.work.as_ref().is_some_and(|work| work.spec.name == name);
    orders.iter().find(of).unwrap_or_else(|| panic!("{name} was not ordered: {orders:?}"))
}

pub(crate) async fn held_jobs_are_listed_to_permitted_callers_only(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let mut robot = Robot::register(&api).await;
    assert!(api.admin.held_jobs().await.expect("a list").items.is_empty());
    let (run, orders) = robot.submit().await;
    let names = async |api: &ApiFixture| {
        let held = api.admin.held_jobs().await.expect("a list").items;
        assert!(held.iter().all(|job| job.run_id == run && job.agent_id == Some(robot.who.agent_id)));
        let mut names: Vec<String> = held.into_iter().map(|job| job.name).collect();
        names.sort();
        names
    };
    assert_eq!(names(&api).await, ["bad", "good", "runs"]);
    assert_eq!(names(&api.of_project("shop")).await, ["bad", "good", "runs"]);
    assert!(names(&api.of_project("bank")).await.is_empty());
    robot.end(order(&orders, "good"), 0).await;
    robot.end(order(&orders, "bad"), 3).await;
    let held = api.admin.held_jobs().await.expect("a list").items;
    assert_eq!(held.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["runs"]);
}

pub(crate) async fn jobs_are_listed_by_state_in_pages(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let mut robot = Robot::register(&api).await;
    let (run, orders) = robot.submit().await;
    robot.end(order(&orders, "good"), 0).await;
    robot.end(order(&orders, "bad"), 3).await;
    let listed = async |state: Option<JobState>| {
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let request = ListJobs { state, after, limit: Some(1), ..ListJobs::default() };
            let page = api.admin.jobs(&run, &request).await.expect("a page");
            assert!(page.items.len() <= 1, "{page:?}");
            names.extend(page.items.into_iter().map(|job| job.name));
            let Some(next) = page.next else { break };
            after = Some(next.parse().expect("a cursor"));
        }
        names.sort();
        names
    };
    assert_eq!(listed(Some(JobState::Succeeded)).await, ["good"]);
    assert_eq!(listed(Some(JobState::Failed)).await, ["bad"]);
    assert_eq!(listed(Some(JobState::Running)).await, ["runs"]);
    assert_eq!(listed(Some(JobState::Pending)).await, ["waits"]);
    assert_eq!(listed(None).await, ["bad", "good", "runs", "waits"]);
    let path = format!("/v1/graphs/{run}/jobs?state=wrong");
    assert_eq!(api.raw(Method::GET, &path, "").await.0, StatusCode::UNPROCESSABLE_ENTITY);
}

pub(crate) async fn job_log_tail_is_read_without_the_rest(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let mut robot = Robot::register(&api).await;
    let (run, orders) = robot.submit().await;
    let order = order(&orders, "runs");
    for seq in 0..5 {
        robot.write(order, seq, &format!("line {seq}")).await;
    }
    let job = job_id(&run, "runs");
    let read = async |request: ReadLogs| {
        let said = api.admin.job_logs(&job, &request).await.expect("what it wrote");
        let lines = said.pieces.iter().flat_map(|piece| piece.lines.iter().map(|line| line.text.clone()));
        (lines.collect::<Vec<_>>(), said.is_last)
    };
    let last = |last| ReadLogs { last: Some(last), ..ReadLogs::default() };
    assert_eq!(read(last(2)).await, (vec!["line 3".to_owned(), "line 4".to_owned()], false));
    assert_eq!(read(last(100)).await.0.len(), 5);
    let after = ReadLogs { after: Some(3), last: Some(1), ..ReadLogs::default() };
    assert_eq!(read(after).await.0, ["line 4"], "what comes after a piece is said first");
    let early = ReadLogs { after: Some(0), last: Some(1), ..ReadLogs::default() };
    assert_eq!(read(early).await.0.len(), 4, "and is not cut short");
    robot.end(order, 0).await;
    assert_eq!(read(last(1)).await, (vec!["line 4".to_owned()], true));
    let waits = api.admin.job_logs(&job_id(&run, "waits"), &last(3)).await.expect("nothing yet");
    assert!(waits.pieces.is_empty() && !waits.is_over, "{waits:?}");
    assert_eq!(refused(api.admin.job_logs(&job, &last(0)).await).0, 422);
    let foreign = api.of_project("bank").admin.job_logs(&job, &last(1)).await;
    assert_eq!(refused(foreign), (404, "unknown_job".to_owned()));
}
