//! The console, as it is served: every page over a real socket, and the important ones in a real browser.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

/// Makes a test of each case on each store.
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        mod postgres {
            use tidemill_testkit::door::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
            async fn $case() { super::$case(Kind::Postgres).await; })+
        }
        mod sqlite {
            use tidemill_testkit::door::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
            async fn $case() { super::$case(Kind::Sqlite).await; })+
        }
    };
}

#[path = "console/attention.rs"]
mod attention;
#[path = "console/bounds.rs"]
mod bounds;
#[path = "console/browser.rs"]
mod browser;
#[path = "console/driver.rs"]
mod driver;
#[path = "console/escaping.rs"]
mod escaping;
#[path = "console/fast.rs"]
mod fast;
#[path = "console/forms.rs"]
mod forms;
#[path = "console/furnish.rs"]
mod furnish;
#[path = "console/graphs.rs"]
mod graphs;
#[path = "console/house.rs"]
mod house;
#[path = "console/keyboard.rs"]
mod keyboard;
#[path = "console/lanes.rs"]
mod lanes;
#[path = "console/live.rs"]
mod live;
#[path = "console/pages.rs"]
mod pages;
#[path = "console/pictures.rs"]
mod pictures;
#[path = "console/policy.rs"]
mod policy;
#[path = "console/site.rs"]
mod site;
#[path = "console/sizes.rs"]
mod sizes;
#[path = "console/syncs.rs"]
mod syncs;
