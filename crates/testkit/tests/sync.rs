//! Syncs as they should go: one list of cases, run on each store.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

#[path = "sync/flow.rs"]
mod flow;

/// Runs each case on both stores.
macro_rules! on_both {
    ($($module:ident :: $case:ident),+ $(,)?) => {
        mod postgres {
            use tidemill_testkit::door::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() { super::$module::$case(Kind::Postgres).await; })+
        }
        mod sqlite {
            use tidemill_testkit::door::Kind;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $case() { super::$module::$case(Kind::Sqlite).await; })+
        }
    };
}

on_both! {
    flow::full_then_incremental_then_deleted,
}
