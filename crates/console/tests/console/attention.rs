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
