//! What the overview says that somebody should look at: all of it, and nothing that was made good.

use crate::furnish::{claim, finish};
use crate::house::House;
use crate::syncs::failed_sync;
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::run::{FinalStatus, QueueRun, RunState};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill};

on_both! {
    an_old_failure_is_shown_however_many_newer_ones_were_tried_again,
    a_sync_that_a_newer_one_made_good_is_no_news_and_is_offered_nothing,
    a_failed_sync_of_a_slow_feed_says_why_and_is_retried_from_the_overview,
    a_sync_that_was_never_planned_is_retried_from_the_overview,
    what_waits_is_shown_the_oldest_first_and_the_times_of_a_day_beside_those_of_a_week,
    a_worker_of_pages_is_busy_with_a_partition_and_a_consolidator_with_a_sync,
}

/// Stones of a mill: enough for a sync to be caught in the middle.
const STONES: u32 = 6_000;

async fn mill_and_house(kind: Kind) -> (Mill, House) {
    let mill = Mill::open(kind, STONES).await;
    let house = House::with(mill.stage.clone(), Access::Open { name: "ann".to_owned() }).await;
    (mill, house)
}

/// What the overview says that somebody should look at.
async fn attention(house: &House) -> String {
    let page = house.reader().page("/").await;
    let (_, rest) = page.split_once("id=\"attention\"").expect("the panel is there");
    rest.split_once("</section>").expect("it ends").0.to_owned()
}

async fn an_old_failure_is_shown_however_many_newer_ones_were_tried_again(kind: Kind) {
    let house = House::open_on(kind).await;
    assert!(
        attention(&house).await.contains("No run of the last 7 days failed that nothing made good since.")
    );
    let mut failed = Vec::new();
    for _ in 0..30 {
        let run = house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
        let holder = claim(&house, &run, "worker-1").await;
        finish(&house, &run, &holder, FinalStatus::Failed, json!({})).await;
        failed.push(run);
    }
    let shown = attention(&house).await;
    assert_eq!(shown.matches("<form").count(), 8, "{shown}");
    assert!(shown.contains("There are older ones"), "{shown}");
    for run in &failed[1..] {
        house.engine().retry(run, "ann").await.expect("it is tried again");
    }
    let shown = attention(&house).await;
    assert!(shown.contains(&format!("action=\"/runs/{}/retry\"", failed[0])), "{shown}");
    assert_eq!(shown.matches("<form").count(), 1, "the others are tried again: {shown}");
    house.engine().retry(&failed[0], "ann").await.expect("it is tried again");
    assert!(
        attention(&house).await.contains("No run of the last 7 days failed that nothing made good since.")
    );
}

async fn a_sync_that_a_newer_one_made_good_is_no_news_and_is_offered_nothing(kind: Kind) {
    let (mill, house) = mill_and_house(kind).await;
    let roles = mill.roles();
    let (run, status) = failed_sync(&mill).await;
    let retry = format!("action=\"/syncs/{}/retry\"", status.sync.run_id);
    let own = |text: &str| text.contains(run.as_str());
    assert!(own(&attention(&house).await), "it needs somebody");
    let page = house.reader().page(&format!("/runs/{run}")).await;
    assert!(page.contains(&retry) && page.contains("/consolidate\""), "{page}");
    let next = mill.sync(true).await;
    roles.stop().await;
    assert!(!own(&attention(&house).await), "the newer sync made it good");
    let page = house.reader().page(&format!("/runs/{run}")).await;
    assert!(
        !page.contains(&retry) && !page.contains("/consolidate\""),
        "what is refused is not offered: {page}"
    );
    assert!(!page.contains("tidemill sync retry"), "nor is its command: {page}");
    assert!(
        page.contains(&format!("href=\"/runs/run-{}\"", next.run_id)),
        "it says what made it good: {page}"
    );
}

async fn a_failed_sync_of_a_slow_feed_says_why_and_is_retried_from_the_overview(kind: Kind) {
    let (mill, house) = mill_and_house(kind).await;
    let roles = mill.roles();
    let (run, status) = failed_sync(&mill).await;
    mill.add_feed("busy", &mill.supplier.endpoint).await;
    // More than the overview lists, all of them newer.
    for _ in 0..9 {
        let next = mill.syncs.start("busy", false, None).await.expect("a sync").run_id;
        assert_eq!(mill.settle(&next).await.status, RunState::Success);
    }
    let shown = attention(&house).await;
    assert!(shown.contains(run.as_str()) && shown.contains("answered HTML instead of JSON"), "{shown}");
    let retry = format!("/syncs/{}/retry", status.sync.run_id);
    assert!(shown.contains(&format!("action=\"{retry}\"")), "{shown}");
    let again = house.reader().post(&retry, &[]).await;
    let place = again.headers()["location"].to_str().expect("a place").to_owned();
    let next = place.trim_start_matches("/runs/").split('?').next().expect("a run").parse().expect("an id");
    assert_eq!(mill.settle(&next).await.status, RunState::Success);
    roles.stop().await;
    assert!(!attention(&house).await.contains(run.as_str()));
}

async fn a_sync_that_was_never_planned_is_retried_from_the_overview(kind: Kind) {
    let (mill, house) = mill_and_house(kind).await;
    mill.supplier.handle.behave(|behaviour| behaviour.html = true);
    let roles = mill.roles();
    let run = mill.queue(true).await;
    assert_eq!(mill.settle(&run).await.status, RunState::Failed);
    mill.syncs.status(run.as_str()).await.expect_err("it was not planned");
    mill.supplier.handle.behave(|behaviour| behaviour.html = false);
    let shown = attention(&house).await;
    let retry = format!("/runs/{run}/retry");
    assert!(shown.contains(FEED) && shown.contains(&format!("action=\"{retry}\"")), "{shown}");
    let again = house.reader().post(&retry, &[]).await;
    let place = again.headers()["location"].to_str().expect("a place").to_owned();
    let next = place.trim_start_matches("/runs/").split('?').next().expect("a run").parse().expect("an id");
    assert_eq!(mill.settle(&next).await.status, RunState::Success);
    roles.stop().await;
    assert!(!attention(&house).await.contains(run.as_str()));
}

async fn what_waits_is_shown_the_oldest_first_and_the_times_of_a_day_beside_those_of_a_week(kind: Kind) {
    let house = House::open_on(kind).await;
    let done = house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id;
    let holder = claim(&house, &done, "worker-1").await;
    finish(&house, &done, &holder, FinalStatus::Success, json!({})).await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(house.engine().queue(QueueRun::new("shop", "staging")).await.expect("a run").run_id);
    }
    // Ids sort by age; within one millisecond, by chance.
    waiting.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    let page = house.reader().page("/").await;
    let (_, shown) = page.split_once("id=\"waiting\"").expect("the panel is there");
    let (shown, _) = shown.split_once("</section>").expect("it ends");
    assert!(shown.contains("the oldest 8 of 10"), "{shown}");
    let places = waiting.iter().map(|run| shown.find(&format!("data-key=\"{run}\"")));
    let places: Vec<Option<usize>> = places.collect();
    assert!(places[..8].is_sorted() && places[..8].iter().all(Option::is_some), "{places:?}");
    assert_eq!(places[8..], [None, None], "the newest are not shown");
    // All of them, a page at a time, each once.
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let text = house.reader().page(&format!("/v1/waiting?limit=4{after}")).await;
        let slice: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let items = slice["items"].as_array().expect("items");
        assert!(items.len() <= 4, "{text}");
        listed.extend(items.iter().filter_map(|run| run["run_id"].as_str().map(str::to_owned)));
        let Some(next) = slice["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(listed, waiting.iter().map(|run| run.as_str().to_owned()).collect::<Vec<_>>());
    for tile in ["Success, 24 h", "Success, 7 d", "Mean time, 24 h", "Mean time, 7 d"] {
        let (_, tile) = page.split_once(tile).expect("the tile is there");
        let (_, number) = tile.split_once("<b>").expect("it has a number");
        assert!(!number.starts_with('–'), "{tile}");
    }
}

async fn a_worker_of_pages_is_busy_with_a_partition_and_a_consolidator_with_a_sync(kind: Kind) {
    use tidemill_core::queue::{CONSOLIDATE, NewMessage, WORK_ITEMS};
    use tidemill_store::Queue as _;
    let house = House::open_on(kind).await;
    let sync = uuid::Uuid::new_v4();
    let stage = &house.stage;
    let (pager, consolidator) = (new_worker("pager"), new_worker("consolidator"));
    let page = json!({"type": "WORK_ITEM", "runId": sync, "traceId": "t", "partitionId": "p7", "minPrice": 1,
        "maxPrice": 2, "totalRecords": 9, "offset": 0, "limit": 3, "updatedTo": "2026-02-14T10:30:00Z",
        "feed": "stones"});
    let order = json!({"type": "CONSOLIDATE", "runId": sync, "traceId": "t", "feed": "stones"});
    for (worker, queue, body) in [(&pager, WORK_ITEMS, page), (&consolidator, CONSOLIDATE, order)] {
        stage.store.register_worker(worker.clone(), None).await.expect("a worker");
        let mut message = NewMessage::new(queue, "one", "stones", body);
        message.run_id = Some(sync.to_string());
        stage.store.send_locked(message, worker.worker_id, None).await.expect("it is sent");
    }
    let reader = house.reader();
    let page = reader.page("/workers").await;
    let busy = format!("reads <a href=\"/runs/run-{sync}#partition-p7\"><bdi>partition p7</bdi></a> of");
    assert!(page.contains(&busy), "{page}");
    let busy = format!("consolidates <a href=\"/runs/run-{sync}\"><bdi>the sync</bdi></a> of");
    assert!(page.contains(&busy) && page.contains("href=\"/feeds/stones\""), "{page}");
    let page = reader.page("/").await;
    let (_, crew) = page.split_once("id=\"crew\"").expect("the panel is there");
    let (crew, _) = crew.split_once("</section>").expect("it ends");
    assert_eq!(crew.matches("1 message").count(), 2, "{crew}");
    // A lock that has ended holds nobody up.
    let later = tidemill_engine::clock::host_now() + chrono::TimeDelta::hours(1);
    assert!(stage.store.held(10, Some(later)).await.expect("a look").is_empty());
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
