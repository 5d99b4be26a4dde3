//! Failed syncs on their pages: retry, and consolidation without the failed partitions.

use crate::driver::{Browser, BrowserOptions};
use crate::screen_sizes;
use crate::server::ConsoleServer;
use reqwest::StatusCode;
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::RunId;
use tidemill_core::records::SyncStatus;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture};

on_both! { forced_consolidation_lists_gaps_and_needs_confirmation }

/// Starts a sync from a slow supplier, and returns when its partitions are partly read.
pub(crate) async fn sync_under_way(fixture: &SyncFixture) -> RunId {
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 15);
    let run = fixture.queue(true).await;
    loop {
        if let Ok(status) = fixture.syncs.status(run.as_str()).await
            && status.partitions.iter().map(|partition| partition.stored).sum::<i64>() > 300
        {
            return run;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Starts a sync that fails in the middle because the supplier sends HTML.
pub(crate) async fn failed_sync(fixture: &SyncFixture) -> (RunId, SyncStatus) {
    let run = sync_under_way(fixture).await;
    fixture.supplier.handle.behave(|behaviour| (behaviour.html, behaviour.latency_ms) = (true, 0));
    fixture.settle(&run).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.html = false);
    let status = fixture.syncs.status(run.as_str()).await.expect("a sync");
    assert!(status.sync.failed_workers > 0, "{status:?}");
    (run, status)
}

/// Opens a page, and checks that it is live and fits all screens.
async fn fits(browser: &Browser, server: &ConsoleServer, path: &str, name: &str) {
    browser.go(&server.url(path)).await;
    browser.wait_for_text("#live", "Live").await;
    screen_sizes::fits(browser, name).await;
}

async fn start_fixture(kind: Kind) -> (SyncFixture, ConsoleServer) {
    let fixture = SyncFixture::open(kind, 12_000).await;
    let server = ConsoleServer::with(fixture.base.clone(), Access::Open { name: "ann".to_owned() }).await;
    (fixture, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn failed_sync_is_retried_by_partition_and_succeeds() {
    let (fixture, server) = start_fixture(Kind::Sqlite).await;
    let browser = Browser::open(&BrowserOptions::default()).await;
    browser.go(&server.url(&format!("/feeds/{FEED}"))).await;
    browser.wait_for_text("#syncs", "This feed has no syncs yet").await;
    let roles = fixture.roles();
    let (run, status) = failed_sync(&fixture).await;
    browser.wait_for_text("#syncs", "failed").await;
    browser.click("#syncs tbody a").await;
    browser.wait_for_text("#head .state", "failed").await;
    assert!(browser.url().await.ends_with(run.as_str()));
    let failed =
        status.partitions.iter().find(|partition| partition.error.is_some()).expect("a partition failed");
    let card = format!("article[data-key='{}']", failed.partition_id);
    browser.wait_for_text(&card, "failed").await;
    browser.wait_for_text("#head .acts", "Consolidate without them…").await;
    fits(&browser, &server, &format!("/runs/{run}"), "sync-failed").await;
    fits(&browser, &server, "/", "overview-failed").await;
    // The overview exclusive shows the failed sync, the reason and the action.
    browser.go(&server.url("/")).await;
    browser.wait_for_text("#attention", FEED).await;
    browser.wait_for_text("#attention", "answered HTML instead of JSON").await;
    browser.wait_for_text("#attention form button", "Retry").await;
    browser.go(&server.url(&format!("/runs/{run}"))).await;
    browser.click(&format!("{card} button")).await;
    browser.wait_for_text(".flash", "A retry was queued. This is its page.").await;
    browser.wait_for_text("#head .state", "success").await;
    browser.wait_for_text("#sync", "completed").await;
    browser.wait_for_text(&card, "completed").await;
    fixture.check_equal().await;
    let here = browser.url().await.replace(&server.url(""), "");
    fits(&browser, &server, &here, "sync-completed").await;
    fits(&browser, &server, &format!("/feeds/{FEED}?price=1250&carats=1.25"), "feed-synced").await;
    let cut = "return [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth) \
               .map((one) => one.textContent)";
    assert_eq!(browser.run(cut).await, json!([]), "on a desktop no table of the feed is cut off");
    fits(&browser, &server, "/", "overview-synced").await;
    browser.assert_no_errors().await;
    roles.stop().await;
}

async fn forced_consolidation_lists_gaps_and_needs_confirmation(kind: Kind) {
    let (fixture, server) = start_fixture(kind).await;
    let roles = fixture.roles();
    let (run, status) = failed_sync(&fixture).await;
    let reader = server.reader();
    let page = reader.page(&format!("/runs/{run}")).await;
    let (_, form) = page.split_once("/consolidate\"").expect("the page has the form");
    let (form, _) = form.split_once("</form>").expect("the form is closed");
    for partition in status.partitions.iter().filter(|partition| partition.error.is_some()) {
        assert!(form.contains(&format!("<b>{}</b>", partition.partition_id)), "{form}");
    }
    let path = format!("/syncs/{}/consolidate", status.sync.run_id);
    let unconfirmed = reader.post(&path, &[("force", "yes"), ("advance", "yes")]).await;
    assert_eq!(unconfirmed.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let confirmed = reader.post(&path, &[("force", "yes"), ("advance", "yes"), ("sure", "yes")]).await;
    assert_eq!(confirmed.status(), StatusCode::SEE_OTHER);
    let location = confirmed.headers()["location"].to_str().expect("a location header").to_owned();
    assert!(location.ends_with("?done=consolidating"), "{location}");
    let next =
        location.trim_start_matches("/runs/").split('?').next().expect("a run").parse().expect("an id");
    fixture.settle(&next).await;
    let page = reader.page(&location).await;
    assert!(page.contains("id=\"gaps\""), "the gaps are shown: {page}");
    assert!(reader.page(&format!("/feeds/{FEED}")).await.contains("id=\"gaps\""));
    roles.stop().await;
}
