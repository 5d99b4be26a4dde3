//! Tests with real commands under a real supervisor: lifetime, output and exit.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "shared test functions may panic like tests")]

mod contact;
mod detached;
mod environment;
mod exit;
mod fixture;
mod isolation;
mod output;
mod stopping;
mod worker_groups;
