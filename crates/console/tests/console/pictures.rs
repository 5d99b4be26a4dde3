//! The pictures of the documentation: a house as somebody's may look, with runs of every lane.

use crate::driver::{Browser, Wish};
use crate::furnish::{claim, dead_letter_of, event, finish};
use crate::house::House;
use crate::site::{Robot, graphs};
use crate::sizes::photograph;
use crate::syncs::failed_sync;
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::event::Level;
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::graph::SubmitGraph;
use tidemill_engine::sync::SyncSettings;
use tidemill_testkit::door::{Kind, Stage};
use tidemill_testkit::mill::{FEED, Mill, quick};
use uuid::Uuid;

/// A graph whose job `browser` is not done yet.
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

/// Queues a run and has it carried out as far as it goes; its id.
async fn carry_out(house: &House, git_ref: &str, end: Option<FinalStatus>) -> RunId {
    let run = house.engine().queue(request(git_ref)).await.expect("a run").run_id;
    let holder = claim(house, &run, "worker-1").await;
    let lines = [
        (Level::Info, "fetching the commit"),
        (Level::Info, "building shop"),
        (Level::Warn, "the cache was empty: this takes longer"),
    ];
    let events = lines.iter().map(|(level, line)| event(*level, line, json!({})));
    house.engine().append(&run, events.collect(), &holder).await.expect("events");
    if let Some(status) = end {
        let told = match status {
            FinalStatus::Success => json!({}),
            FinalStatus::Failed | FinalStatus::Cancelled => json!({"error": "no space left on the device"}),
        };
        finish(house, &run, &holder, status, told).await;
    }
    run
}

/// A graph that is half done.
async fn graph(house: &House) -> RunId {
    let ask = SubmitGraph::new("shop", "staging", GRAPH, "ann");
    let run = graphs(house).submit(ask).await.expect("the graph is taken").run_id;
    let mut robot = Robot::named(house, "agent-1").await;
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
#[ignore = "takes the pictures of the documentation: `cargo xtask screenshots DIR`"]
async fn the_documentation_has_a_picture_of_every_kind_of_page() {
    let mut config = Mill::config();
    config.stones = 12_000;
    let settings = SyncSettings { unlimited: true, partition_target: 2_500, partition_min: 1_000, ..quick() };
    let mill = Mill::on(Stage::open(Kind::Sqlite).await, config, settings).await;
    let house = House::with(mill.stage.clone(), Access::Open { name: "ann".to_owned() }).await;
    let worker = NewWorker {
        worker_id: WorkerId(Uuid::new_v4()),
        name: "worker-1".to_owned(),
        host: "build-1".to_owned(),
        pid: 4_711,
        labels: Vec::new(),
        version: "0.1.0".to_owned(),
    };
    house.stage.store.register_worker(worker, None).await.expect("a worker");
    let roles = mill.roles();
    mill.sync(true).await;
    let (sync, _) = failed_sync(&mill).await;
    roles.stop().await;
    let graph = graph(&house).await;
    for _ in 0..3 {
        carry_out(&house, "main", Some(FinalStatus::Success)).await;
    }
    let failed = carry_out(&house, "release/2.4", Some(FinalStatus::Failed)).await;
    carry_out(&house, "main", None).await;
    house.engine().queue(request("main")).await.expect("a run");
    dead_letter_of(&house, "page-17", "the feed answered HTML instead of JSON").await;
    let browser = Browser::open(&Wish::default()).await;
    take(&browser, &house, 360, "phone", "/").await;
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
        take(&browser, &house, 1_280, name, path).await;
    }
    browser.is_content().await;
}

/// A picture of a page in a window that is as tall as the page.
async fn take(browser: &Browser, house: &House, width: u32, name: &str, path: &str) {
    browser.resize(width, 640).await;
    browser.go(&house.url(path)).await;
    browser.sees("#live", "Live").await;
    let height = browser.run("return document.documentElement.scrollHeight").await;
    let height = height.as_u64().and_then(|height| u32::try_from(height).ok()).expect("a height");
    browser.resize(width, height).await;
    photograph(browser, &format!("docs-{name}")).await;
}
