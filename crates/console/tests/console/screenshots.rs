//! Screenshots for the documentation, with realistic runs of all lanes.

use crate::driver::{Browser, BrowserOptions};
use crate::graph_fixture::{FakeAgent, graphs};
use crate::sample_data::{claim, dead_letter_of, event, finish};
use crate::screen_sizes::save_screenshot;
use crate::server::ConsoleServer;
use crate::syncs::failed_sync;
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::event::Level;
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::graph::SubmitGraph;
use tidemill_engine::sync::SyncSettings;
use tidemill_testkit::interface::{Fixture, Kind};
use tidemill_testkit::sync_fixture::{FEED, SyncFixture, quick};
use uuid::Uuid;

/// A graph whose job `browser` is still running.
const GRAPH: &str = "\
version: 1
name: nightly
jobs:
  checkout: {run: work}
  build: {run: work, needs: checkout}
  lint: {run: work, needs: checkout}
  unit: {run: work, needs: build}
  browser: {run: work, needs: build}
  package: {run: work, needs: [unit, browser, lint]}
  deploy: {run: work, needs: package}
";

fn request(git_ref: &str) -> QueueRun {
    QueueRun {
        git_ref: Some(git_ref.to_owned()),
        git_sha: Some("4f1c0d9e7ab35c2810d6f3b7a95e42c81d07f6aa".to_owned()),
        ..QueueRun::new("shop", "staging")
    }
}

/// Queues a run and executes it up to the given end. Returns its id.
async fn execute_run(server: &ConsoleServer, git_ref: &str, end: Option<FinalStatus>) -> RunId {
    let run = server.engine().queue(request(git_ref)).await.expect("a run").run_id;
    let holder = claim(server, &run, "worker-1").await;
    let lines = [
        (Level::Info, "fetching the commit"),
        (Level::Info, "building shop"),
        (Level::Warn, "the cache was empty: this takes longer"),
    ];
    let events = lines.iter().map(|(level, line)| event(*level, line, json!({})));
    server.engine().append(&run, events.collect(), &holder).await.expect("events");
    if let Some(status) = end {
        let metadata = match status {
            FinalStatus::Success => json!({}),
            FinalStatus::Failed | FinalStatus::Cancelled => json!({"error": "no space left on the device"}),
        };
        finish(server, &run, &holder, status, metadata).await;
    }
    run
}

/// Submits a graph and completes about half of its jobs.
async fn graph(server: &ConsoleServer) -> RunId {
    let request = SubmitGraph::new("shop", "staging", GRAPH, "ann");
    let run = graphs(server).submit(request).await.expect("the graph is accepted").run_id;
    let mut robot = FakeAgent::named(server, "agent-1").await;
    loop {
        let orders = robot.orders().await;
        for order in &orders {
            robot.begin(order).await;
            let name = order.work.as_ref().map(|work| work.spec.name.as_str());
            if name != Some("browser") {
                robot.end(order, 0, None, Vec::new()).await;
            }
        }
        if orders.is_empty() {
            return run;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
#[ignore = "takes the screenshots of the documentation: `cargo xtask screenshots DIR`"]
async fn documentation_screenshots_are_taken() {
    let mut config = SyncFixture::config();
    config.stones = 12_000;
    let settings = SyncSettings { unlimited: true, partition_target: 2_500, partition_min: 1_000, ..quick() };
    let fixture = SyncFixture::on(Fixture::open(Kind::Sqlite).await, config, settings).await;
    let server = ConsoleServer::with(fixture.base.clone(), Access::Open { name: "ann".to_owned() }).await;
    let worker = NewWorker {
        worker_id: WorkerId(Uuid::new_v4()),
        name: "worker-1".to_owned(),
        host: "build-1".to_owned(),
        pid: 4_711,
        labels: Vec::new(),
        version: "0.1.0".to_owned(),
    };
    server.fixture.store.register_worker(worker, None).await.expect("a worker");
    let roles = fixture.roles();
    fixture.sync(true).await;
    let (sync, _) = failed_sync(&fixture).await;
    roles.stop().await;
    let graph = graph(&server).await;
    for _ in 0..3 {
        execute_run(&server, "main", Some(FinalStatus::Success)).await;
    }
    let failed = execute_run(&server, "release/2.4", Some(FinalStatus::Failed)).await;
    execute_run(&server, "main", None).await;
    server.engine().queue(request("main")).await.expect("a run");
    dead_letter_of(&server, "page-17", "the feed answered HTML instead of JSON").await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    take_screenshot(&browser, &server, 360, "phone", "/").await;
    let pages = [
        ("overview", "/".to_owned()),
        ("runs", "/runs".to_owned()),
        ("run", format!("/runs/{failed}")),
        ("sync", format!("/runs/{sync}")),
        ("graph", format!("/runs/{graph}")),
        ("feed", format!("/feeds/{FEED}")),
        ("queue", "/queues/work-items".to_owned()),
    ];
    for (name, path) in &pages {
        take_screenshot(&browser, &server, 1_280, name, path).await;
    }
    browser.assert_no_errors().await;
}

/// Takes a screenshot in a window that is as tall as the page.
async fn take_screenshot(browser: &Browser, server: &ConsoleServer, width: u32, name: &str, path: &str) {
    browser.resize(width, 640).await;
    browser.go(&server.url(path)).await;
    browser.wait_for_text("#live", "Live").await;
    let height = browser.run("return document.documentElement.scrollHeight").await;
    let height = height.as_u64().and_then(|height| u32::try_from(height).ok()).expect("a height");
    browser.resize(width, height).await;
    save_screenshot(browser, &format!("docs-{name}")).await;
}
