//! The server on real sockets: limits, bad callers, its end, TLS, and what can be watched.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

#[path = "server/ending.rs"]
mod ending;
#[path = "server/ground.rs"]
mod ground;
#[path = "server/limits.rs"]
mod limits;
#[path = "server/numbers.rs"]
mod numbers;
#[path = "server/reading.rs"]
mod reading;
#[path = "server/syncing.rs"]
mod syncing;
#[path = "server/waiting.rs"]
mod waiting;

/// Runs each of these functions on both stores, as tests of their own.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(tidemill_testkit::door::Kind::Postgres).await; })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(tidemill_testkit::door::Kind::Sqlite).await; })*
        }
    };
}
pub(crate) use on_both;
