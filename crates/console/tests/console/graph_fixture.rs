//! Fixture for graphs: a controller, and a real agent or a fake one.

use crate::sample_data::{HOSTILE_NAME, HOSTILE_TEXT};
use crate::server::ConsoleServer;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tidemill_agent::{AgentSummary, CommandsOnExit, Error, ExitPolicy, Settings};
use tidemill_client::{Client, HttpOptions, HttpTransport};
use tidemill_core::RunId;
use tidemill_core::agent::NewAgent;
use tidemill_core::graph::record::{LogLine, Order};
use tidemill_core::isolation::IsolationReport;
use tidemill_core::project_set::ProjectSet;
use tidemill_core::task::{Output, TaskResult};
use tidemill_engine::Identity;
use tidemill_engine::graph::{AgentIdentity, Controller, GraphSettings, Graphs, SubmitGraph, TaskReport};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Use cases of graphs on the server's database.
pub(crate) fn graphs(server: &ConsoleServer) -> Graphs {
    Graphs::new(server.engine().clone(), GraphSettings::default())
}

/// Submits a graph of the project `shop`.
pub(crate) async fn submit(server: &ConsoleServer, text: &str) -> RunId {
    let request = SubmitGraph::new("shop", "staging", text, HOSTILE_NAME);
    graphs(server).submit(request).await.expect("the graph is accepted").run_id
}

/// A controller and a real agent.
pub(crate) struct GraphProcesses {
    stop: watch::Sender<bool>,
    controller: JoinHandle<()>,
    agent: JoinHandle<Result<AgentSummary, Error>>,
    _dir: TempDir,
}

impl GraphProcesses {
    pub(crate) fn start(server: &ConsoleServer) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (stop, stopped) = watch::channel(false);
        let (graphs, controller_stopped) = (graphs(server), stopped.clone());
        let controller = tokio::spawn(async move {
            let identity =
                Identity { name: "controller".to_owned(), host: "here".to_owned(), labels: Vec::new() };
            graphs
                .control(identity, controller_stopped)
                .await
                .expect("the controller stops without an error");
        });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = HttpOptions { server: server.url(""), token: None, authorities: Vec::new() };
        let client = Client::new(HttpTransport::new(options).expect("a client"));
        let agent = tokio::spawn(tidemill_agent::run(settings(dir.path()), client, stopped));
        Self { stop, controller, agent, _dir: dir }
    }

    /// Stops both, including running commands.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(true);
        self.agent.await.expect("the agent does not panic").expect("the agent stops without an error");
        self.controller.await.expect("the controller does not panic");
    }
}

fn settings(dir: &Path) -> Settings {
    Settings {
        dir: dir.join("agent"),
        name: "agent-1".to_owned(),
        host: "here".to_owned(),
        labels: vec!["linux".to_owned()],
        capacity: 4,
        secrets: None,
        store: None,
        retention: tidemill_agent::RetentionPolicy::default(),
        probe: None,
        exit_policy: ExitPolicy::Never,
        commands_on_exit: CommandsOnExit::Stop,
        grace: Duration::from_secs(2),
        isolation: tidemill_agent::IsolationMode::Auto,
        task_users: tidemill_agent::UserRange::default(),
        hidden: Vec::new(),
        supervisor: supervisor(),
        supervisor_args: vec!["supervise".to_owned(), "lasting".to_owned()],
    }
}

/// Path of the supervisor program: an example, which `cargo test` builds next to the tests.
fn supervisor() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let program = profile.join("examples").join("console_supervisor");
    let hint = "run `cargo build --package tidemill-console --example console_supervisor`";
    assert!(program.exists(), "{} is missing: {hint}", program.display());
    program
}

/// Fake agent that a test controls, with a controller that only acts on request.
pub(crate) struct FakeAgent {
    graphs: Graphs,
    controller: Controller,
    pub(crate) identity: AgentIdentity,
    have: Vec<String>,
}

impl FakeAgent {
    /// Registers an agent with a hostile name.
    pub(crate) async fn register(server: &ConsoleServer) -> Self {
        Self::named(server, HOSTILE_NAME).await
    }

    pub(crate) async fn named(server: &ConsoleServer, name: &str) -> Self {
        let graphs = graphs(server);
        let new = NewAgent {
            agent_id: Uuid::new_v4(),
            name: name.to_owned(),
            host: name.to_owned(),
            labels: vec![name.replace(',', "")],
            capacity: 3,
            version: name.to_owned(),
            projects: ProjectSet::All,
            token_id: None,
            boot_id: Uuid::new_v4(),
            secret_hash: "0".repeat(64),
            next_secret_hash: "0".repeat(64),
            dir_lock: None,
            isolation: Some(IsolationReport::none(HOSTILE_TEXT)),
        };
        let identity = AgentIdentity { agent_id: new.agent_id, boot_id: new.boot_id, token_id: None };
        graphs.register(new).await.expect("the agent is registered");
        let controller = graphs.controller("test");
        Self { graphs, controller, identity, have: Vec::new() }
    }

    /// Lets the controller act until it is idle, then polls for tasks.
    pub(crate) async fn orders(&mut self) -> Vec<Order> {
        self.act().await;
        let orders = self.graphs.poll(&self.identity, &self.have, Duration::ZERO).await.expect("orders");
        self.have.extend(orders.iter().map(|order| order.task_id.clone()));
        orders
    }

    pub(crate) async fn act(&mut self) {
        while self.controller.tick().await.expect("the controller acts").more {}
    }

    pub(crate) async fn begin(&self, order: &Order) {
        for stage in ["preparing", "executing"] {
            self.graphs.report_stage(&self.identity, &order.task_id, stage).await.expect("a stage");
        }
    }

    pub(crate) async fn write(&self, order: &Order, seq: i32, lines: &[(&str, &str)]) {
        let line = |(stream, text): &(&str, &str)| LogLine {
            stream: (*stream).to_owned(),
            text: (*text).to_owned(),
        };
        let lines = lines.iter().map(line).collect();
        self.graphs.report_log(&self.identity, &order.task_id, seq, lines).await.expect("output");
    }

    pub(crate) async fn end(
        &mut self,
        order: &Order,
        exit_code: i32,
        message: Option<&str>,
        outputs: Vec<Output>,
    ) {
        let message = message.map(str::to_owned);
        let result = TaskResult::Ended { exit_code, unmatched: Vec::new(), hint: Vec::new(), message };
        self.report(&order.task_id, TaskReport { outputs, ..TaskReport::new(result) }).await;
    }

    /// Confirms that a command was stopped.
    pub(crate) async fn stop(&mut self, order: &Order) {
        self.report(&order.task_id, TaskReport::new(TaskResult::Stopped)).await;
    }

    async fn report(&mut self, task: &str, report: TaskReport) {
        self.graphs.report_result(&self.identity, task, report).await.expect("a result");
        self.act().await;
    }
}

/// Creates a graph with a job in every state and hostile texts.
pub(crate) async fn populate_graph(server: &ConsoleServer) -> (RunId, FakeAgent) {
    let text = "version: 1\njobs:\n  good:\n    run: work\n    outputs: {file: file.txt}\n    \
                limits: {memory: 1GiB, processes: 9}\n  \
                bad:\n    run: \"</td><script>alert('x')</script>\"\n  \
                runs:\n    run: work\n    pool: narrow\n  waits:\n    run: work\n    needs: [runs, good]\n  \
                skipped:\n    run: work\n    needs: bad\n  pooled:\n    run: work\n    pool: narrow\n";
    graphs(server).set_pool("narrow", 1).await.expect("a pool");
    let run = submit(server, text).await;
    let mut robot = FakeAgent::register(server).await;
    let orders = robot.orders().await;
    assert_eq!(orders.len(), 3, "{orders:?}");
    for order in &orders {
        robot.begin(order).await;
        let name = order.work.as_ref().expect("work").spec.name.clone();
        robot.write(order, 0, &[("stdout", "first line"), ("stderr", HOSTILE_TEXT)]).await;
        let file = Output {
            name: "file".to_owned(),
            path: "<b>file.txt".to_owned(),
            size_bytes: 1_234,
            sha256: "ab".repeat(32),
            url: Some("javascript:alert(1)".to_owned()),
        };
        match name.as_str() {
            "good" => robot.end(order, 0, None, vec![file]).await,
            "bad" => robot.end(order, 3, Some(HOSTILE_NAME), Vec::new()).await,
            _ => {}
        }
    }
    (run, robot)
}
