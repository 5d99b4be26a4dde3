//! A sync that fails before ones eyes, is tried again, and succeeds; and one that goes on without what failed.

use crate::driver::{Browser, Wish};
use crate::house::House;
use crate::sizes;
use reqwest::StatusCode;
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::RunId;
use tidemill_core::records::SyncStatus;
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill};

on_both! { going_on_without_what_failed_names_it_and_must_be_meant }

/// A sync whose partitions are partly read, from a supplier that takes its time.
pub(crate) async fn sync_under_way(mill: &Mill) -> RunId {
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 15);
    let run = mill.queue(true).await;
    loop {
        if let Ok(status) = mill.syncs.status(run.as_str()).await
            && status.partitions.iter().map(|partition| partition.stored).sum::<i64>() > 300
        {
            return run;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// A sync whose partitions were partly read when the supplier began to answer nonsense.
pub(crate) async fn failed_sync(mill: &Mill) -> (RunId, SyncStatus) {
    let run = sync_under_way(mill).await;
    mill.supplier.handle.behave(|behaviour| (behaviour.html, behaviour.latency_ms) = (true, 0));
    mill.settle(&run).await;
    mill.supplier.handle.behave(|behaviour| behaviour.html = false);
    let status = mill.syncs.status(run.as_str()).await.expect("a sync");
    assert!(status.sync.failed_workers > 0, "{status:?}");
    (run, status)
}

/// Opens a page, and sees that it is live and fits every screen.
async fn fits(browser: &Browser, house: &House, path: &str, name: &str) {
    browser.go(&house.url(path)).await;
    browser.sees("#live", "Live").await;
    sizes::fits(browser, name).await;
}

async fn mill_and_house(kind: Kind) -> (Mill, House) {
    let mill = Mill::open(kind, 12_000).await;
    let house = House::with(mill.stage.clone(), Access::Open { name: "ann".to_owned() }).await;
    (mill, house)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_failing_sync_is_seen_its_partition_is_retried_and_it_succeeds() {
    let (mill, house) = mill_and_house(Kind::Sqlite).await;
    let browser = Browser::open(&Wish::default()).await;
    browser.go(&house.url(&format!("/feeds/{FEED}"))).await;
    browser.sees("#syncs", "Nothing of it was ever brought in").await;
    let roles = mill.roles();
    let (run, status) = failed_sync(&mill).await;
    browser.sees("#syncs", "failed").await;
    browser.click("#syncs tbody a").await;
    browser.sees("#head .state", "failed").await;
    assert!(browser.url().await.ends_with(run.as_str()));
    let failed =
        status.partitions.iter().find(|partition| partition.error.is_some()).expect("a partition failed");
    let card = format!("article[data-key='{}']", failed.partition_id);
    browser.sees(&card, "failed").await;
    browser.sees("#head .acts", "Go on without them…").await;
    fits(&browser, &house, &format!("/runs/{run}"), "sync-failed").await;
    fits(&browser, &house, "/", "overview-failed").await;
    // From the overview alone: which one failed, why, and what to press.
    browser.go(&house.url("/")).await;
    browser.sees("#attention", FEED).await;
    browser.sees("#attention", "answered HTML instead of JSON").await;
    browser.sees("#attention form button", "Retry").await;
    browser.go(&house.url(&format!("/runs/{run}"))).await;
    browser.click(&format!("{card} button")).await;
    browser.sees(".flash", "Another try was queued. This is it.").await;
    browser.sees("#head .state", "success").await;
    browser.sees("#sync", "completed").await;
    browser.sees(&card, "completed").await;
    mill.check_equal().await;
    let here = browser.url().await.replace(&house.url(""), "");
    fits(&browser, &house, &here, "sync-completed").await;
    fits(&browser, &house, &format!("/feeds/{FEED}?price=1250&carats=1.25"), "feed-synced").await;
    let cut = "return [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth) \
               .map((one) => one.textContent)";
    assert_eq!(browser.run(cut).await, json!([]), "on a desk every column of the feed is seen");
    fits(&browser, &house, "/", "overview-synced").await;
    browser.is_content().await;
    roles.stop().await;
}

async fn going_on_without_what_failed_names_it_and_must_be_meant(kind: Kind) {
    let (mill, house) = mill_and_house(kind).await;
    let roles = mill.roles();
    let (run, status) = failed_sync(&mill).await;
    let reader = house.reader();
    let page = reader.page(&format!("/runs/{run}")).await;
    let (_, form) = page.split_once("/consolidate\"").expect("the form is there");
    let (form, _) = form.split_once("</form>").expect("it ends");
    for partition in status.partitions.iter().filter(|partition| partition.error.is_some()) {
        assert!(form.contains(&format!("<b>{}</b>", partition.partition_id)), "{form}");
    }
    let path = format!("/syncs/{}/consolidate", status.sync.run_id);
    let unmeant = reader.post(&path, &[("force", "yes"), ("advance", "yes")]).await;
    assert_eq!(unmeant.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let meant = reader.post(&path, &[("force", "yes"), ("advance", "yes"), ("sure", "yes")]).await;
    assert_eq!(meant.status(), StatusCode::SEE_OTHER);
    let place = meant.headers()["location"].to_str().expect("a place").to_owned();
    assert!(place.ends_with("?done=consolidating"), "{place}");
    let next = place.trim_start_matches("/runs/").split('?').next().expect("a run").parse().expect("an id");
    mill.settle(&next).await;
    let page = reader.page(&place).await;
    assert!(page.contains("id=\"gaps\""), "the gaps are shown: {page}");
    assert!(reader.page(&format!("/feeds/{FEED}")).await.contains("id=\"gaps\""));
    roles.stop().await;
}
