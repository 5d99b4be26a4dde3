//! Panel "Needs attention" of the overview: complete, and without superseded failures.

use crate::sample_data::{claim, finish};
use crate::server::ConsoleServer;
use crate::syncs::failed_sync;
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::run::{FinalStatus, QueueRun, RunState};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture};

on_both! {
    old_failure_is_shown_after_newer_ones_are_retried,
    superseded_sync_is_not_listed_and_offers_no_actions,
    failed_sync_shows_its_reason_and_is_retried_from_overview,
    unplanned_sync_is_retried_from_overview,
    overview_lists_oldest_waiting_runs_and_daily_weekly_stats,
    worker_page_shows_partition_and_sync_of_each_worker,
}

/// Number of stones: enough to interrupt a sync in the middle.
const STONES: u32 = 6_000;

async fn start_fixture(kind: Kind) -> (SyncFixture, ConsoleServer) {
    let fixture = SyncFixture::open(kind, STONES).await;
    let server = ConsoleServer::with(fixture.base.clone(), Access::Open { name: "ann".to_owned() }).await;
    (fixture, server)
}

/// HTML of the panel "Needs attention".
async fn attention(server: &ConsoleServer) -> String {
    let page = server.reader().page("/").await;
    let (_, rest) = page.split_once("id=\"attention\"").expect("the page has the panel");
    rest.split_once("</section>").expect("the panel is closed").0.to_owned()
}

async fn old_failure_is_shown_after_newer_ones_are_retried(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    assert!(attention(&server).await.contains("No unresolved failures in the last 7 days."));
    let mut failed = Vec::new();
    for _ in 0..30 {
        let run = server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
        let holder = claim(&server, &run, "worker-1").await;
        finish(&server, &run, &holder, FinalStatus::Failed, json!({})).await;
        failed.push(run);
    }
    let shown = attention(&server).await;
    assert_eq!(shown.matches("<form").count(), 8, "{shown}");
    assert!(shown.contains("There are older failures"), "{shown}");
    for run in &failed[1..] {
        server.engine().retry(run, "ann").await.expect("the run is retried");
    }
    let shown = attention(&server).await;
    assert!(shown.contains(&format!("action=\"/runs/{}/retry\"", failed[0])), "{shown}");
    assert_eq!(shown.matches("<form").count(), 1, "the others are retried: {shown}");
    server.engine().retry(&failed[0], "ann").await.expect("the run is retried");
    assert!(attention(&server).await.contains("No unresolved failures in the last 7 days."));
}

async fn superseded_sync_is_not_listed_and_offers_no_actions(kind: Kind) {
    let (fixture, server) = start_fixture(kind).await;
    let roles = fixture.roles();
    let (run, status) = failed_sync(&fixture).await;
    let retry = format!("action=\"/syncs/{}/retry\"", status.sync.run_id);
    let own = |text: &str| text.contains(run.as_str());
    assert!(own(&attention(&server).await), "the failed sync is listed");
    let page = server.reader().page(&format!("/runs/{run}")).await;
    assert!(page.contains(&retry) && page.contains("/consolidate\""), "{page}");
    let next = fixture.sync(true).await;
    roles.stop().await;
    assert!(!own(&attention(&server).await), "the newer sync supersedes it");
    let page = server.reader().page(&format!("/runs/{run}")).await;
    assert!(
        !page.contains(&retry) && !page.contains("/consolidate\""),
        "a refused action is not offered: {page}"
    );
    assert!(!page.contains("tidemill sync retry"), "nor is the command: {page}");
    assert!(
        page.contains(&format!("href=\"/runs/run-{}\"", next.run_id)),
        "the page links to the newer sync: {page}"
    );
}

async fn failed_sync_shows_its_reason_and_is_retried_from_overview(kind: Kind) {
    let (fixture, server) = start_fixture(kind).await;
    let roles = fixture.roles();
    let (run, status) = failed_sync(&fixture).await;
    fixture.add_feed("busy", &fixture.supplier.endpoint).await;
    // More newer syncs than the overview lists.
    for _ in 0..9 {
        let next = fixture.syncs.start("busy", false, None).await.expect("a sync").run_id;
        assert_eq!(fixture.settle(&next).await.status, RunState::Success);
    }
    let shown = attention(&server).await;
    assert!(shown.contains(run.as_str()) && shown.contains("answered HTML instead of JSON"), "{shown}");
    let retry = format!("/syncs/{}/retry", status.sync.run_id);
    assert!(shown.contains(&format!("action=\"{retry}\"")), "{shown}");
    let again = server.reader().post(&retry, &[]).await;
    let location = again.headers()["location"].to_str().expect("a location header").to_owned();
    let next =
        location.trim_start_matches("/runs/").split('?').next().expect("a run").parse().expect("an id");
    assert_eq!(fixture.settle(&next).await.status, RunState::Success);
    roles.stop().await;
    assert!(!attention(&server).await.contains(run.as_str()));
}

async fn unplanned_sync_is_retried_from_overview(kind: Kind) {
    let (fixture, server) = start_fixture(kind).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.html = true);
    let roles = fixture.roles();
    let run = fixture.queue(true).await;
    assert_eq!(fixture.settle(&run).await.status, RunState::Failed);
    fixture.syncs.status(run.as_str()).await.expect_err("the sync was not planned");
    fixture.supplier.handle.behave(|behaviour| behaviour.html = false);
    let shown = attention(&server).await;
    let retry = format!("/runs/{run}/retry");
    assert!(shown.contains(FEED) && shown.contains(&format!("action=\"{retry}\"")), "{shown}");
    let again = server.reader().post(&retry, &[]).await;
    let location = again.headers()["location"].to_str().expect("a location header").to_owned();
    let next =
        location.trim_start_matches("/runs/").split('?').next().expect("a run").parse().expect("an id");
    assert_eq!(fixture.settle(&next).await.status, RunState::Success);
    roles.stop().await;
    assert!(!attention(&server).await.contains(run.as_str()));
}

async fn overview_lists_oldest_waiting_runs_and_daily_weekly_stats(kind: Kind) {
    let server = ConsoleServer::without_tokens_on(kind).await;
    let done = server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let holder = claim(&server, &done, "worker-1").await;
    finish(&server, &done, &holder, FinalStatus::Success, json!({})).await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(server.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id);
    }
    let page = server.reader().page("/").await;
    let (_, shown) = page.split_once("id=\"waiting\"").expect("the page has the panel");
    let (shown, _) = shown.split_once("</section>").expect("the panel is closed");
    assert!(shown.contains("the oldest 8 of 10"), "{shown}");
    let offsets = waiting.iter().map(|run| shown.find(&format!("data-key=\"{run}\"")));
    let offsets: Vec<Option<usize>> = offsets.collect();
    assert!(offsets[..8].is_sorted() && offsets[..8].iter().all(Option::is_some), "{offsets:?}");
    assert_eq!(offsets[8..], [None, None], "the newest runs are not shown");
    // The API lists all of them in pages, each once.
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let text = server.reader().page(&format!("/v1/waiting?limit=4{after}")).await;
        let slice: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let items = slice["items"].as_array().expect("items");
        assert!(items.len() <= 4, "{text}");
        listed.extend(items.iter().filter_map(|run| run["run_id"].as_str().map(str::to_owned)));
        let Some(next) = slice["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(listed, waiting.iter().map(|run| run.as_str().to_owned()).collect::<Vec<_>>());
    for tile in ["Success, 24 h", "Success, 7 d", "Mean duration, 24 h", "Mean duration, 7 d"] {
        let (_, tile) = page.split_once(tile).expect("the page has the tile");
        let (_, number) = tile.split_once("<b>").expect("the tile has a number");
        assert!(!number.starts_with('–'), "{tile}");
    }
}

async fn worker_page_shows_partition_and_sync_of_each_worker(kind: Kind) {
    use tidemill_core::queue::{CONSOLIDATE, NewMessage, WORK_ITEMS};
    use tidemill_store::Queue as _;
    let server = ConsoleServer::without_tokens_on(kind).await;
    let sync = uuid::Uuid::new_v4();
    let fixture = &server.fixture;
    let (pager, consolidator) = (new_worker("pager"), new_worker("consolidator"));
    let page = json!({"type": "WORK_ITEM", "runId": sync, "traceId": "t", "partitionId": "p7", "minPrice": 1,
        "maxPrice": 2, "totalRecords": 9, "offset": 0, "limit": 3, "updatedTo": "2026-02-14T10:30:00Z",
        "feed": "stones"});
    let order = json!({"type": "CONSOLIDATE", "runId": sync, "traceId": "t", "feed": "stones"});
    for (worker, queue, body) in [(&pager, WORK_ITEMS, page), (&consolidator, CONSOLIDATE, order)] {
        fixture.store.register_worker(worker.clone(), None).await.expect("a worker");
        let mut message = NewMessage::new(queue, "one", "stones", body);
        message.run_id = Some(sync.to_string());
        fixture.store.send_locked(message, worker.worker_id, None).await.expect("the message is sent");
    }
    let reader = server.reader();
    let page = reader.page("/workers").await;
    let busy = format!("reads <a href=\"/runs/run-{sync}#partition-p7\"><bdi>partition p7</bdi></a> of");
    assert!(page.contains(&busy), "{page}");
    let busy = format!("consolidates <a href=\"/runs/run-{sync}\"><bdi>the sync</bdi></a> of");
    assert!(page.contains(&busy) && page.contains("href=\"/feeds/stones\""), "{page}");
    let page = reader.page("/").await;
    let (_, crew) = page.split_once("id=\"crew\"").expect("the page has the panel");
    let (crew, _) = crew.split_once("</section>").expect("the panel is closed");
    assert_eq!(crew.matches("1 message").count(), 2, "{crew}");
    // A message with an expired lock does not count as held.
    let later = tidemill_engine::clock::host_now() + chrono::TimeDelta::hours(1);
    assert!(fixture.store.held(10, Some(later)).await.expect("held messages").is_empty());
}

fn new_worker(name: &str) -> tidemill_core::worker::NewWorker {
    tidemill_core::worker::NewWorker {
        worker_id: tidemill_core::WorkerId(uuid::Uuid::new_v4()),
        name: name.to_owned(),
        host: "here".to_owned(),
        pid: 1,
        labels: vec![],
        version: "0.1.0".to_owned(),
    }
}
