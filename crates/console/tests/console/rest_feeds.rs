//! Pages of a feed that a definition describes: heatmap, partitions, gaps, rejected records and reasons in its words.

use crate::server::{ConsoleServer, WebClient};
use crate::syncs::{failed_sync, sync_under_way};
use reqwest::StatusCode;
use serde_json::Value;
use tidemill_api::access::Access;
use tidemill_core::RunId;
use tidemill_core::feed::PartitionField;
use tidemill_core::partition::PartitionState;
use tidemill_core::records::Partition;
use tidemill_engine::sync::SyncSettings;
use tidemill_supplier::{Change, ChangeKind, Config};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::{RestKind, many};
use tidemill_testkit::sync_fixture::SyncFixture;

on_both! { pages_of_a_rest_feed_use_its_words }

const ITEMS: u32 = 4_000;
/// Items whose brand is missing, which the table requires.
const BAD_ITEMS: u32 = 3;
/// Words of another feed.
const FOREIGN_WORDS: [&str; 4] = ["stone", "diamond", "carat", "dollar"];

/// Returns the content of a page, without the navigation.
async fn content(reader: &WebClient, path: &str) -> String {
    let page = reader.page(path).await;
    let (_, content) = page.split_once("<main").unwrap_or_else(|| panic!("{path} has no content: {page}"));
    let lower = content.to_lowercase();
    for word in FOREIGN_WORDS {
        assert!(!lower.contains(word), "{path} speaks of `{word}`: {content}");
    }
    content.to_owned()
}

/// Checks that a page names the range of each partition.
#[track_caller]
fn check_ranges<'a>(page: &str, field: &PartitionField, partitions: impl Iterator<Item = &'a Partition>) {
    let mut count = 0;
    for partition in partitions {
        let range = field.label(partition.range);
        assert!(range.contains("price") && page.contains(&range), "`{range}` is missing: {page}");
        count += 1;
    }
    assert!(count > 0, "there are no partitions");
}

/// Checks that the reason why a sync is not done names a range, on its page too.
async fn check_reason(reader: &WebClient, run: &RunId) {
    let reason: Value =
        serde_json::from_str(&reader.page(&format!("/v1/runs/{run}/why")).await).expect("a reason");
    let sentence = reason["sentence"].as_str().unwrap_or_else(|| panic!("no sentence: {reason}"));
    assert!(sentence.contains("price"), "{sentence}");
    content(reader, &format!("/runs/{run}")).await;
}

async fn pages_of_a_rest_feed_use_its_words(kind: Kind) {
    let config = Config { stones: ITEMS, ..SyncFixture::config() };
    let settings = SyncSettings { partition_target: 500, partition_min: 200, ..many() };
    let fixture = SyncFixture::rest(kind, RestKind::Offset, config, settings).await;
    let server = ConsoleServer::with(fixture.base.clone(), Access::Open { name: "ann".to_owned() }).await;
    let reader = server.reader();
    let field = fixture.base.store.feed(fixture.feed.clone()).await.expect("the feed").feed.partition_field();
    let roles = fixture.roles();
    let bad = Change::random(ChangeKind::NoCertificate, BAD_ITEMS, 1);
    fixture.supplier.handle.change(&bad).expect("items change");

    let sync = fixture.sync(true).await;
    assert_eq!(sync.consolidation_errors, i64::from(BAD_ITEMS));
    let partitions = fixture.base.store.partitions(sync.run_id).await.expect("partitions");
    assert!(partitions.len() > 2, "{partitions:?}");
    let page = content(&reader, &format!("/runs/{}", sync.ops_run_id)).await;
    check_ranges(&page, &field, partitions.iter());
    let stored = ITEMS - BAD_ITEMS;
    let figures = format!("{ITEMS} records listed: {stored} stored, {BAD_ITEMS} rejected (map {BAD_ITEMS})");
    assert!(page.contains(&figures), "`{figures}` is missing: {page}");
    assert!(page.contains("Records by price, as counted by the scan"), "{page}");
    let feed_path = format!("/feeds/{}", fixture.feed);
    let page = content(&reader, &feed_path).await;
    for words in ["public.items", "ranges of price", "brand"] {
        assert!(page.contains(words), "`{words}` is missing: {page}");
    }

    let run = sync_under_way(&fixture).await;
    check_reason(&reader, &run).await;
    fixture.settle(&run).await;

    let (run, status) = failed_sync(&fixture).await;
    let is_failed = |partition: &&Partition| partition.state == PartitionState::Failed;
    let page = content(&reader, &format!("/runs/{run}")).await;
    check_ranges(&page, &field, status.partitions.iter().filter(is_failed));
    let path = format!("/syncs/{}/consolidate", status.sync.run_id);
    let forced = reader.post(&path, &[("force", "yes"), ("advance", "yes"), ("sure", "yes")]).await;
    assert_eq!(forced.status(), StatusCode::SEE_OTHER);
    let location = forced.headers()["location"].to_str().expect("a location").to_owned();
    let next = location.trim_start_matches("/runs/").split('?').next().expect("a run");
    fixture.settle(&next.parse().expect("an id")).await;
    for path in [location.as_str(), feed_path.as_str()] {
        let page = content(&reader, path).await;
        let (_, gaps) =
            page.split_once("id=\"gaps\"").unwrap_or_else(|| panic!("{path} has no gaps: {page}"));
        check_ranges(gaps, &field, status.partitions.iter().filter(is_failed));
    }
    roles.stop().await;
}
