//! Tests of the console: every page over a real socket, and the important ones in a real browser.
#![expect(clippy::expect_used, reason = "a failed expectation must fail the test")]

/// Runs each test case on both databases.
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        mod postgres {
            use tidemill_testkit::interface::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
            async fn $case() { super::$case(Kind::Postgres).await; })+
        }
        mod sqlite {
            use tidemill_testkit::interface::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
            async fn $case() { super::$case(Kind::Sqlite).await; })+
        }
    };
}

#[path = "console/access.rs"]
mod access;
#[path = "console/attention.rs"]
mod attention;
#[path = "console/bounds.rs"]
mod bounds;
#[path = "console/browser.rs"]
mod browser;
#[path = "console/content_policy.rs"]
mod content_policy;
#[path = "console/driver.rs"]
mod driver;
#[path = "console/escaping.rs"]
mod escaping;
#[path = "console/fast_sync.rs"]
mod fast_sync;
#[path = "console/forms.rs"]
mod forms;
#[path = "console/graph_fixture.rs"]
mod graph_fixture;
#[path = "console/graphs.rs"]
mod graphs;
#[path = "console/keyboard.rs"]
mod keyboard;
#[path = "console/lanes.rs"]
mod lanes;
#[path = "console/live.rs"]
mod live;
#[path = "console/pages.rs"]
mod pages;
#[path = "console/rest_feeds.rs"]
mod rest_feeds;
#[path = "console/sample_data.rs"]
mod sample_data;
#[path = "console/screen_sizes.rs"]
mod screen_sizes;
#[path = "console/screenshots.rs"]
mod screenshots;
#[path = "console/server.rs"]
mod server;
#[path = "console/syncs.rs"]
mod syncs;
