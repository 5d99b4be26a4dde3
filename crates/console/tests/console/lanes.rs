//! Runs of every lane beside each other: what failed and why, what is done to several at once, and numbers that are
//! those of the door.

use crate::furnish::{claim, dead_letter, finish};
use crate::house::{House, Reader};
use crate::site::{Robot, submit};
use crate::syncs::{failed_sync, sync_under_way};
use serde::de::DeserializeOwned;
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::RunId;
use tidemill_core::graph::record::GraphRecord;
use tidemill_core::records::{Partition, Sync, SyncStatus};
use tidemill_core::run::{FinalStatus, QueueRun, Run, RunState};
use tidemill_core::stats::Stats;
use tidemill_engine::sync::SyncSettings;
use tidemill_testkit::door::{Kind, Stage};
use tidemill_testkit::mill::{FEED, Mill, quick};
use tidemill_wire::Page;
use tidemill_wire::queues::QueueLine;

on_both! {
    the_overview_says_of_every_lane_which_run_failed_why_and_what_to_press,
    runs_of_every_lane_are_cancelled_and_retried_together,
    numbers_on_pages_are_those_of_the_door,
}

/// Stones of a mill: enough for a sync to be caught in the middle.
const STONES: u32 = 4_000;
/// A graph of which one job may fail.
const GRAPH: &str = "version: 1\nname: nightly\njobs:\n  good: {run: work}\n  bad: {run: work}\n";

/// A mill in a house that has projects for the other lanes too.
async fn mill_and_house(kind: Kind) -> (Mill, House) {
    let mut config = Mill::config();
    config.stones = STONES;
    let settings = SyncSettings { unlimited: true, ..quick() };
    let mill = Mill::on(Stage::open(kind).await, config, settings).await;
    let house = House::with(mill.stage.clone(), Access::Open { name: "ann".to_owned() }).await;
    (mill, house)
}

async fn queue(house: &House) -> RunId {
    house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id
}

/// Does everything that an agent is ordered to; the job `bad` ends with this code.
async fn carry_out(robot: &mut Robot, bad: i32) {
    loop {
        let orders = robot.orders().await;
        for order in &orders {
            match &order.work {
                None => robot.stop(order).await,
                Some(work) => {
                    let code = if work.spec.name == "bad" { bad } else { 0 };
                    robot.begin(order).await;
                    robot.end(order, code, None, Vec::new()).await;
                }
            }
        }
        if orders.is_empty() {
            return;
        }
    }
}

/// What a page says, without how it says it.
fn words(page: &str) -> String {
    let texts = page.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    texts.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// What stands between the name of something and the end of it.
fn part<'a>(page: &'a str, name: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(name).unwrap_or_else(|| panic!("no {name}: {page}"));
    rest.split_once(end).unwrap_or_else(|| panic!("no end of {name}: {page}")).0
}

async fn the_overview_says_of_every_lane_which_run_failed_why_and_what_to_press(kind: Kind) {
    let (mill, house) = mill_and_house(kind).await;
    let roles = mill.roles();
    let (sync, status) = failed_sync(&mill).await;
    let ops = queue(&house).await;
    let holder = claim(&house, &ops, "worker-1").await;
    finish(&house, &ops, &holder, FinalStatus::Failed, json!({"error": "the disk is full"})).await;
    let graph = submit(&house, GRAPH).await;
    let mut robot = Robot::register(&house).await;
    carry_out(&mut robot, 3).await;
    let reader = house.reader();
    let page = reader.page("/").await;
    let shown = part(&page, "id=\"attention\"", "</section>");
    let failures = [
        (&ops, "shop/staging", "the disk is full", format!("/runs/{ops}/retry")),
        (&graph, "nightly", "1 of 2 jobs did not succeed: bad", format!("/graphs/{graph}/retry")),
        (&sync, FEED, "answered HTML instead of JSON", format!("/syncs/{}/retry", status.sync.run_id)),
    ];
    for (run, name, why, press) in &failures {
        let row = part(shown, &format!("data-key=\"{run}\""), "</tr>");
        let said = words(row);
        for seen in [&run.as_str()[..17], *name, *why, "failed", "Retry"] {
            assert!(said.contains(seen), "{run} does not say {seen:?}: {said}");
        }
        assert!(row.contains(&format!("action=\"{press}\"")), "{row}");
    }
    for (run, _, _, press) in &failures {
        let pressed = reader.post(press, &[]).await;
        let place = pressed.headers()["location"].to_str().expect("a place").to_owned();
        assert!(place.ends_with("?done=retried"), "{press}: {place}");
        assert!(words(&reader.page(&place).await).contains("Another try was queued."), "{place}");
        let page = reader.page("/").await;
        let shown = part(&page, "id=\"attention\"", "</section>");
        assert!(!shown.contains(run.as_str()), "it is being tried again: {shown}");
    }
    roles.stop().await;
}

/// The last try of a request.
async fn last_try(house: &House, run: &RunId) -> Run {
    let tries = house.stage.store.tries(run.clone()).await.expect("tries");
    tries.into_iter().max_by_key(|run| run.attempt).expect("a try")
}

async fn runs_of_every_lane_are_cancelled_and_retried_together(kind: Kind) {
    let (mill, house) = mill_and_house(kind).await;
    let roles = mill.roles();
    let sync = sync_under_way(&mill).await;
    let ops = queue(&house).await;
    let graph = submit(&house, GRAPH).await;
    let mut robot = Robot::register(&house).await;
    for order in robot.orders().await {
        robot.begin(&order).await;
    }
    let reader = house.reader();
    let act = async |act: &str| {
        let runs = [&sync, &ops, &graph].map(|run| ("run", run.as_str()));
        let form = [&runs[..], &[("act", act), ("sure", "yes"), ("back", "/runs")]].concat();
        let answer = reader.post("/runs/bulk", &form).await;
        let place = answer.headers()["location"].to_str().expect("a place").to_owned();
        words(&reader.page(&place).await)
    };
    let said = act("cancel").await;
    assert!(said.contains("3 of 3 cancelled or asked to stop."), "{said}");
    robot.act().await;
    for run in [&sync, &ops, &graph] {
        assert_eq!(mill.settle(run).await.status, RunState::Cancelled, "{run}");
    }
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let said = act("retry").await;
    assert!(said.contains("3 of 3 queued again."), "{said}");
    let again = last_try(&house, &sync).await;
    assert_eq!(mill.settle(&again.run_id).await.status, RunState::Success);
    mill.check_equal().await;
    let next = last_try(&house, &ops).await.run_id;
    let holder = claim(&house, &next, "worker-1").await;
    finish(&house, &next, &holder, FinalStatus::Success, json!({})).await;
    carry_out(&mut robot, 0).await;
    for run in [&sync, &ops, &graph] {
        let last = last_try(&house, run).await;
        assert_eq!((last.status, last.attempt), (RunState::Success, 2), "{run}");
    }
    roles.stop().await;
}

/// What the door answers.
async fn answer<T: DeserializeOwned>(reader: &Reader, path: &str) -> T {
    serde_json::from_str(&reader.page(path).await).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A number with its thousands apart.
fn apart(number: i64) -> String {
    if number < 1_000 {
        return number.to_string();
    }
    format!("{},{:03}", apart(number / 1_000), number % 1_000)
}

async fn numbers_on_pages_are_those_of_the_door(kind: Kind) {
    let (mill, house) = mill_and_house(kind).await;
    let roles = mill.roles();
    let synced = mill.sync(true).await;
    roles.stop().await;
    for status in [FinalStatus::Success, FinalStatus::Success, FinalStatus::Failed] {
        let run = queue(&house).await;
        let holder = claim(&house, &run, "worker-1").await;
        finish(&house, &run, &holder, status, json!({})).await;
    }
    let running = queue(&house).await;
    claim(&house, &running, "worker-1").await;
    for _ in 0..4 {
        queue(&house).await;
    }
    let graph = submit(&house, GRAPH).await;
    let mut robot = Robot::register(&house).await;
    carry_out(&mut robot, 3).await;
    for letter in ["one", "two"] {
        dead_letter(&house, letter).await;
    }
    let reader = house.reader();
    compare_figures(&reader).await;
    compare_queues(&reader).await;
    compare_sync(&reader, &synced).await;
    compare_runs(&reader).await;
    let page = words(&reader.page(&format!("/runs/{graph}")).await);
    let counts = answer::<GraphRecord>(&reader, &format!("/v1/graphs/{graph}")).await.counts;
    let done = counts.succeeded + counts.reused + counts.failed;
    assert_eq!((done, counts.failed, counts.total), (2, 1, 2), "{counts:?}");
    assert!(page.contains(&format!("{done} of {} jobs done", counts.total)), "{page}");
}

async fn compare_figures(reader: &Reader) {
    let page = words(&reader.page("/").await);
    let stats: Stats = answer(reader, "/v1/stats").await;
    let held: i64 = stats.active.iter().map(|active| active.active_runs).sum();
    let (good, failed) = (stats.success_count, stats.failed_count);
    assert_eq!((stats.queued_count, held, good, failed), (4, 1, 3, 2), "{stats:?}");
    for seen in [
        format!("Waiting {} ", stats.queued_count),
        format!("Running {held} on {} worker", stats.active.len()),
        format!("Success, 24 h {:.1} % {good} good, {failed} failed", stats.success_rate.expect("a rate")),
    ] {
        assert!(page.contains(&seen), "{seen:?}: {page}");
    }
}

async fn compare_queues(reader: &Reader) {
    let (queues, overview) = (reader.page("/queues").await, reader.page("/").await);
    let lines: Page<QueueLine> = answer(reader, "/v1/queues").await;
    assert_eq!(lines.items.iter().map(|line| line.depth.dead).sum::<i64>(), 2, "{lines:?}");
    for QueueLine { settings, depth } in lines.items {
        let row = format!("data-key=\"{}\"", settings.queue);
        let (waiting, delayed, flying, dead) = (depth.waiting, depth.delayed, depth.in_flight, depth.dead);
        let said = words(part(&queues, &row, "</tr>"));
        let seen = format!("{} {waiting} {delayed} {flying} {dead}", settings.queue);
        assert!(said.contains(&seen), "{seen:?}: {said}");
        let said = words(part(&overview, &row, "</tr>"));
        let seen = format!("{} {waiting} {flying} {dead}", settings.queue);
        assert!(said.contains(&seen), "{seen:?}: {said}");
    }
}

async fn compare_sync(reader: &Reader, synced: &Sync) {
    let page = words(&reader.page(&format!("/runs/{}", synced.ops_run_id)).await);
    let told: SyncStatus = answer(reader, &format!("/v1/syncs/{}", synced.run_id)).await;
    let sum = |field: fn(&Partition) -> i64| told.partitions.iter().map(field).sum::<i64>();
    let inside = sum(|partition| partition.consolidated);
    assert_eq!((told.sync.predicted, inside), (i64::from(STONES), i64::from(STONES)), "{told:?}");
    let (fetched, stored) = (sum(|partition| partition.fetched), sum(|partition| partition.stored));
    for seen in [
        format!("Predicted {}", apart(told.sync.predicted)),
        format!("Fetched {} {} stored", apart(fetched), apart(stored)),
        format!("{} of {} Window", apart(inside), apart(inside)),
        format!("{} of {} partitions", told.sync.completed_workers, told.sync.expected_workers),
    ] {
        assert!(page.contains(&seen), "{seen:?}: {page}");
    }
}

async fn compare_runs(reader: &Reader) {
    let list: Page<Run> = answer(reader, "/v1/runs?limit=50").await;
    let page = reader.page("/runs").await;
    assert_eq!(page.matches("<tr data-key=\"run-").count(), list.items.len());
    for run in &list.items {
        let said = words(part(&page, &format!("data-key=\"{}\"", run.run_id), "</tr>"));
        assert!(said.contains(run.status.as_str()), "{}: {said}", run.run_id);
    }
}
