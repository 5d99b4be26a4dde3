//! The server on real sockets: limits, faulty clients, shutdown, TLS, and metrics.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

#[path = "server/fixture.rs"]
mod fixture;
#[path = "server/floods.rs"]
mod floods;
#[path = "server/limits.rs"]
mod limits;
#[path = "server/local.rs"]
mod local;
#[path = "server/metrics.rs"]
mod metrics;
#[path = "server/shutdown.rs"]
mod shutdown;
#[path = "server/slow_readers.rs"]
mod slow_readers;
#[path = "server/sync_metrics.rs"]
mod sync_metrics;
#[path = "server/waiting_claims.rs"]
mod waiting_claims;

/// Runs each of these functions as a test on both stores.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(tidemill_testkit::interface::Kind::Postgres).await; })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(tidemill_testkit::interface::Kind::Sqlite).await; })*
        }
    };
}
pub(crate) use on_both;
