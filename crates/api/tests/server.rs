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

pub(crate) use tidemill_testkit::on_both;
