//! Runs of all lanes together: failures on the overview, bulk actions, and counts that match the API.

use crate::graph_fixture::{FakeAgent, submit};
use crate::sample_data::{claim, dead_letter, finish};
use crate::server::{ConsoleServer, WebClient};
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
use tidemill_testkit::interface::{Fixture, Kind};
use tidemill_testkit::sync_fixture::{FEED, SyncFixture, quick};
use tidemill_wire::Page;
use tidemill_wire::queues::QueueSummary;

on_both! {
    overview_shows_failures_of_every_lane_with_retry,
    runs_of_all_lanes_are_cancelled_and_retried_together,
    counts_on_pages_match_the_api,
}

/// Number of stones: enough to interrupt a sync in the middle.
const STONES: u32 = 4_000;
/// A graph with one job that may fail.
const GRAPH: &str = "version: 1\nname: nightly\njobs:\n  good: {run: work}\n  bad: {run: work}\n";

/// A sync fixture with a console server that also has projects for the other lanes.
async fn start_fixture(kind: Kind) -> (SyncFixture, ConsoleServer) {
    let mut config = SyncFixture::config();
    config.stones = STONES;
    let settings = SyncSettings { unlimited: true, ..quick() };
    let fixture = SyncFixture::on(Fixture::open(kind).await, config, settings).await;
    let server = ConsoleServer::with(fixture.base.clone(), Access::Open { name: "ann".to_owned() }).await;
    (fixture, server)
}

async fn queue(server: &ConsoleServer) -> RunId {
    server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id
}

/// Executes all tasks of an agent. The job `bad` ends with this exit code.
async fn execute_tasks(robot: &mut FakeAgent, bad: i32) {
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

/// Text of a page without markup.
fn text_of(page: &str) -> String {
    let texts = page.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    texts.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Part of a page from a marker to an end.
fn part<'a>(page: &'a str, name: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(name).unwrap_or_else(|| panic!("no {name}: {page}"));
    rest.split_once(end).unwrap_or_else(|| panic!("{name} has no {end}: {page}")).0
}

async fn overview_shows_failures_of_every_lane_with_retry(kind: Kind) {
    let (fixture, server) = start_fixture(kind).await;
    let roles = fixture.roles();
    let (sync, status) = failed_sync(&fixture).await;
    let ops = queue(&server).await;
    let holder = claim(&server, &ops, "worker-1").await;
    finish(&server, &ops, &holder, FinalStatus::Failed, json!({"error": "the disk is full"})).await;
    let graph = submit(&server, GRAPH).await;
    let mut robot = FakeAgent::register(&server).await;
    execute_tasks(&mut robot, 3).await;
    let reader = server.reader();
    let page = reader.page("/").await;
    let shown = part(&page, "id=\"attention\"", "</section>");
    let failures = [
        (&ops, "shop/staging", "the disk is full", format!("/runs/{ops}/retry")),
        (&graph, "nightly", "1 of 2 jobs did not succeed: bad", format!("/graphs/{graph}/retry")),
        (&sync, FEED, "answered HTML instead of JSON", format!("/syncs/{}/retry", status.sync.run_id)),
    ];
    for (run, name, why, press) in &failures {
        let row = part(shown, &format!("data-key=\"{run}\""), "</tr>");
        let text = text_of(row);
        for expected in [&run.as_str()[..17], *name, *why, "failed", "Retry"] {
            assert!(text.contains(expected), "the row of {run} does not contain {expected:?}: {text}");
        }
        assert!(row.contains(&format!("action=\"{press}\"")), "{row}");
    }
    for (run, _, _, press) in &failures {
        let pressed = reader.post(press, &[]).await;
        let location = pressed.headers()["location"].to_str().expect("a location header").to_owned();
        assert!(location.ends_with("?done=retried"), "{press}: {location}");
        assert!(text_of(&reader.page(&location).await).contains("A retry was queued."), "{location}");
        let page = reader.page("/").await;
        let shown = part(&page, "id=\"attention\"", "</section>");
        assert!(!shown.contains(run.as_str()), "a retried run is not listed: {shown}");
    }
    roles.stop().await;
}

/// The last try of a request.
async fn last_try(server: &ConsoleServer, run: &RunId) -> Run {
    let tries = server.fixture.store.tries(run.clone()).await.expect("tries");
    tries.into_iter().max_by_key(|run| run.attempt).expect("a try")
}

async fn runs_of_all_lanes_are_cancelled_and_retried_together(kind: Kind) {
    let (fixture, server) = start_fixture(kind).await;
    let roles = fixture.roles();
    let sync = sync_under_way(&fixture).await;
    let ops = queue(&server).await;
    let graph = submit(&server, GRAPH).await;
    let mut robot = FakeAgent::register(&server).await;
    for order in robot.orders().await {
        robot.begin(&order).await;
    }
    let reader = server.reader();
    let act = async |act: &str| {
        let runs = [&sync, &ops, &graph].map(|run| ("run", run.as_str()));
        let form = [&runs[..], &[("act", act), ("sure", "yes"), ("back", "/runs")]].concat();
        let answer = reader.post("/runs/bulk", &form).await;
        let location = answer.headers()["location"].to_str().expect("a location header").to_owned();
        text_of(&reader.page(&location).await)
    };
    let text = act("cancel").await;
    assert!(text.contains("3 of 3 cancelled or asked to stop."), "{text}");
    robot.act().await;
    for run in [&sync, &ops, &graph] {
        assert_eq!(fixture.settle(run).await.status, RunState::Cancelled, "{run}");
    }
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let text = act("retry").await;
    assert!(text.contains("3 of 3 retried."), "{text}");
    let again = last_try(&server, &sync).await;
    assert_eq!(fixture.settle(&again.run_id).await.status, RunState::Success);
    fixture.check_equal().await;
    let next = last_try(&server, &ops).await.run_id;
    let holder = claim(&server, &next, "worker-1").await;
    finish(&server, &next, &holder, FinalStatus::Success, json!({})).await;
    execute_tasks(&mut robot, 0).await;
    for run in [&sync, &ops, &graph] {
        let last = last_try(&server, run).await;
        assert_eq!((last.status, last.attempt), (RunState::Success, 2), "{run}");
    }
    roles.stop().await;
}

/// Response of the API.
async fn api_response<T: DeserializeOwned>(reader: &WebClient, path: &str) -> T {
    serde_json::from_str(&reader.page(path).await).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Formats a number with thousands separators.
fn with_separators(number: i64) -> String {
    if number < 1_000 {
        return number.to_string();
    }
    format!("{},{:03}", with_separators(number / 1_000), number % 1_000)
}

async fn counts_on_pages_match_the_api(kind: Kind) {
    let (fixture, server) = start_fixture(kind).await;
    let roles = fixture.roles();
    let synced = fixture.sync(true).await;
    roles.stop().await;
    for status in [FinalStatus::Success, FinalStatus::Success, FinalStatus::Failed] {
        let run = queue(&server).await;
        let holder = claim(&server, &run, "worker-1").await;
        finish(&server, &run, &holder, status, json!({})).await;
    }
    let running = queue(&server).await;
    claim(&server, &running, "worker-1").await;
    for _ in 0..4 {
        queue(&server).await;
    }
    let graph = submit(&server, GRAPH).await;
    let mut robot = FakeAgent::register(&server).await;
    execute_tasks(&mut robot, 3).await;
    for letter in ["one", "two"] {
        dead_letter(&server, letter).await;
    }
    let reader = server.reader();
    compare_stats(&reader).await;
    compare_queues(&reader).await;
    compare_sync(&reader, &synced).await;
    compare_runs(&reader).await;
    let page = text_of(&reader.page(&format!("/runs/{graph}")).await);
    let counts = api_response::<GraphRecord>(&reader, &format!("/v1/graphs/{graph}")).await.counts;
    let done = counts.succeeded + counts.reused + counts.failed;
    assert_eq!((done, counts.failed, counts.total), (2, 1, 2), "{counts:?}");
    assert!(page.contains(&format!("{done} of {} jobs done", counts.total)), "{page}");
}

async fn compare_stats(reader: &WebClient) {
    let page = text_of(&reader.page("/").await);
    let stats: Stats = api_response(reader, "/v1/stats").await;
    let held: i64 = stats.active.iter().map(|active| active.active_runs).sum();
    let (good, failed) = (stats.success_count, stats.failed_count);
    assert_eq!((stats.queued_count, held, good, failed), (4, 1, 3, 2), "{stats:?}");
    for expected in [
        format!("Waiting {} ", stats.queued_count),
        format!("Running {held} on {} worker", stats.active.len()),
        format!(
            "Success, 24 h {:.1} % {good} successful, {failed} failed",
            stats.success_rate.expect("a rate")
        ),
    ] {
        assert!(page.contains(&expected), "{expected:?}: {page}");
    }
}

async fn compare_queues(reader: &WebClient) {
    let (queues, overview) = (reader.page("/queues").await, reader.page("/").await);
    let lines: Page<QueueSummary> = api_response(reader, "/v1/queues").await;
    assert_eq!(lines.items.iter().map(|line| line.depth.dead).sum::<i64>(), 2, "{lines:?}");
    for QueueSummary { settings, depth } in lines.items {
        let row = format!("data-key=\"{}\"", settings.queue);
        let (waiting, delayed, flying, dead) = (depth.waiting, depth.delayed, depth.in_flight, depth.dead);
        let text = text_of(part(&queues, &row, "</tr>"));
        let expected = format!("{} {waiting} {delayed} {flying} {dead}", settings.queue);
        assert!(text.contains(&expected), "{expected:?}: {text}");
        let text = text_of(part(&overview, &row, "</tr>"));
        let expected = format!("{} {waiting} {flying} {dead}", settings.queue);
        assert!(text.contains(&expected), "{expected:?}: {text}");
    }
}

async fn compare_sync(reader: &WebClient, synced: &Sync) {
    let page = text_of(&reader.page(&format!("/runs/{}", synced.ops_run_id)).await);
    let status: SyncStatus = api_response(reader, &format!("/v1/syncs/{}", synced.run_id)).await;
    let sum = |field: fn(&Partition) -> i64| status.partitions.iter().map(field).sum::<i64>();
    let inside = sum(|partition| partition.consolidated);
    assert_eq!((status.sync.predicted, inside), (i64::from(STONES), i64::from(STONES)), "{status:?}");
    let (fetched, stored) = (sum(|partition| partition.fetched), sum(|partition| partition.stored));
    for expected in [
        format!("Predicted {}", with_separators(status.sync.predicted)),
        format!("Fetched {} {} stored", with_separators(fetched), with_separators(stored)),
        format!("{} of {} Window", with_separators(inside), with_separators(inside)),
        format!("{} of {} partitions", status.sync.completed_workers, status.sync.expected_workers),
    ] {
        assert!(page.contains(&expected), "{expected:?}: {page}");
    }
}

async fn compare_runs(reader: &WebClient) {
    let list: Page<Run> = api_response(reader, "/v1/runs?limit=50").await;
    let page = reader.page("/runs").await;
    assert_eq!(page.matches("<tr data-key=\"run-").count(), list.items.len());
    for run in &list.items {
        let text = text_of(part(&page, &format!("data-key=\"{}\"", run.run_id), "</tr>"));
        assert!(text.contains(run.status.as_str()), "{}: {text}", run.run_id);
    }
}
