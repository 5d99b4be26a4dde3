//! A house with graphs in it: a controller, and an agent that is real or does what a test says.

use crate::furnish::{NASTY, NASTY_NAME};
use crate::house::House;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tidemill_agent::{Carried, Commands, Ending, Error, Settings};
use tidemill_client::{Client, Http, HttpOptions};
use tidemill_core::RunId;
use tidemill_core::agent::NewAgent;
use tidemill_core::graph::record::{LogLine, Order};
use tidemill_core::task::{Output, TaskResult};
use tidemill_engine::Identity;
use tidemill_engine::graph::{Controller, GraphSettings, Graphs, Speaker, SubmitGraph, TaskReport};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// The graphs of a house.
pub(crate) fn graphs(house: &House) -> Graphs {
    Graphs::new(house.engine().clone(), GraphSettings::default())
}

/// Submits a graph of the project `shop`.
pub(crate) async fn submit(house: &House, text: &str) -> RunId {
    let ask = SubmitGraph::new("shop", "staging", text, NASTY_NAME);
    graphs(house).submit(ask).await.expect("the graph is taken").run_id
}

/// A controller and an agent with real commands.
pub(crate) struct Site {
    stop: watch::Sender<bool>,
    controller: JoinHandle<()>,
    agent: JoinHandle<Result<Carried, Error>>,
    _dir: TempDir,
}

impl Site {
    /// Starts both.
    pub(crate) fn start(house: &House) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let (stop, told) = watch::channel(false);
        let (graphs, hears) = (graphs(house), told.clone());
        let controller = tokio::spawn(async move {
            let identity =
                Identity { name: "controller".to_owned(), host: "here".to_owned(), labels: Vec::new() };
            graphs.control(identity, hears).await.expect("the controller ends well");
        });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = HttpOptions { server: house.url(""), token: None, authorities: Vec::new() };
        let client = Client::new(Http::new(options).expect("a client"));
        let agent = tokio::spawn(tidemill_agent::run(settings(dir.path()), client, told));
        Self { stop, controller, agent, _dir: dir }
    }

    /// Ends both; commands are stopped.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(true);
        self.agent.await.expect("the agent does not panic").expect("it ends well");
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
        keep: tidemill_agent::Keep::default(),
        probe: None,
        ending: Ending::Never,
        commands: Commands::Stop,
        grace: Duration::from_secs(2),
        supervisor: supervisor(),
        supervisor_args: vec!["supervise".to_owned(), "lasting".to_owned()],
    }
}

/// The program that supervises commands: an example, which a plain `cargo test` builds next to the tests.
fn supervisor() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let program = profile.join("examples").join("console_supervisor");
    let advice = "run `cargo build --package tidemill-console --example console_supervisor`";
    assert!(program.exists(), "{} is missing: {advice}", program.display());
    program
}

/// An agent that does what a test says, and a controller that acts when it is told to.
pub(crate) struct Robot {
    graphs: Graphs,
    controller: Controller,
    pub(crate) who: Speaker,
    have: Vec<String>,
}

impl Robot {
    /// One with a name that wants to be more than a name.
    pub(crate) async fn register(house: &House) -> Self {
        Self::named(house, NASTY_NAME).await
    }

    /// One with a name of its own.
    pub(crate) async fn named(house: &House, name: &str) -> Self {
        let graphs = graphs(house);
        let new = NewAgent {
            agent_id: Uuid::new_v4(),
            name: name.to_owned(),
            host: name.to_owned(),
            labels: vec![name.replace(',', "")],
            capacity: 3,
            version: name.to_owned(),
            project_id: None,
            token_id: None,
            boot_id: Uuid::new_v4(),
            secret_hash: None,
        };
        let who = Speaker { agent_id: new.agent_id, boot_id: new.boot_id, token_id: None };
        graphs.register(new).await.expect("the agent is registered");
        let controller = graphs.controller("test");
        Self { graphs, controller, who, have: Vec::new() }
    }

    /// Lets the controller act until there is nothing left to do, and takes what is ordered.
    pub(crate) async fn orders(&mut self) -> Vec<Order> {
        self.act().await;
        let orders = self.graphs.poll(&self.who, &self.have, Duration::ZERO).await.expect("orders");
        self.have.extend(orders.iter().map(|order| order.task_id.clone()));
        orders
    }

    pub(crate) async fn act(&mut self) {
        while self.controller.tick().await.expect("the controller acts").more {}
    }

    pub(crate) async fn begin(&self, order: &Order) {
        for stage in ["preparing", "executing"] {
            self.graphs.report_stage(&self.who, &order.task_id, stage).await.expect("a stage");
        }
    }

    pub(crate) async fn write(&self, order: &Order, seq: i32, lines: &[(&str, &str)]) {
        let line = |(stream, text): &(&str, &str)| LogLine {
            stream: (*stream).to_owned(),
            text: (*text).to_owned(),
        };
        let lines = lines.iter().map(line).collect();
        self.graphs.report_log(&self.who, &order.task_id, seq, lines).await.expect("output");
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

    /// Says that what was to be stopped has stopped.
    pub(crate) async fn stop(&mut self, order: &Order) {
        self.report(&order.task_id, TaskReport::new(TaskResult::Stopped)).await;
    }

    async fn report(&mut self, task: &str, report: TaskReport) {
        self.graphs.report_result(&self.who, task, report).await.expect("a result");
        self.act().await;
    }
}

/// A graph with a job in every state, and texts of others that want to be more than text.
pub(crate) async fn furnish_graph(house: &House) -> (RunId, Robot) {
    let text = "version: 1\njobs:\n  good:\n    run: work\n    outputs: {file: file.txt}\n  \
                bad:\n    run: \"</td><script>alert('x')</script>\"\n  \
                runs:\n    run: work\n    pool: narrow\n  waits:\n    run: work\n    needs: [runs, good]\n  \
                skipped:\n    run: work\n    needs: bad\n  pooled:\n    run: work\n    pool: narrow\n";
    graphs(house).set_pool("narrow", 1).await.expect("a pool");
    let run = submit(house, text).await;
    let mut robot = Robot::register(house).await;
    let orders = robot.orders().await;
    assert_eq!(orders.len(), 3, "{orders:?}");
    for order in &orders {
        robot.begin(order).await;
        let name = order.work.as_ref().expect("work").spec.name.clone();
        robot.write(order, 0, &[("stdout", "first line"), ("stderr", NASTY)]).await;
        let file = Output {
            name: "file".to_owned(),
            path: "<b>file.txt".to_owned(),
            size_bytes: 1_234,
            sha256: "ab".repeat(32),
            url: Some("javascript:alert(1)".to_owned()),
        };
        match name.as_str() {
            "good" => robot.end(order, 0, None, vec![file]).await,
            "bad" => robot.end(order, 3, Some(NASTY_NAME), Vec::new()).await,
            _ => {}
        }
    }
    (run, robot)
}
