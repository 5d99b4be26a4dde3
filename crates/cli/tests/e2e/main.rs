//! End-to-end tests of the binary: real processes on both databases, with injected faults.
//!
//! Every test has its own directory and its own database, every wait has a time limit, and a fixture that is dropped
//! checks that none of its processes is left.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation must end the test")]
#![expect(clippy::print_stdout, reason = "seeds and measurements help to analyse a failure")]

mod agent_capabilities;
mod agent_isolation;
mod bad_input;
mod commands;
mod faults;
mod feed;
mod feed_apply;
mod feed_definition;
mod feed_examples;
mod feed_try;
mod feed_try_access;
mod fixture;
mod floods;
mod graph;
mod health;
mod hostile_rows;
mod hostile_texts;
mod ledger;
mod local;
mod metrics;
mod process;
mod reach;
mod remote;
mod rest_items;
mod server;
mod sync_kills;
mod sync_settings;
mod traces;
mod two_builds;
mod up_isolation;
mod worker_script;
