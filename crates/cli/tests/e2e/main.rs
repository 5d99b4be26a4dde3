//! The binary as people and machines use it: real processes on both stores, with faults and an oracle.
//!
//! Every test has its own folder and its own database, every wait has a limit, and a stage that ends checks that no
//! process of it is left.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what does not hold ends the test, loudly")]
#![expect(clippy::print_stdout, reason = "seeds and measurements are for whoever reads along")]

mod bad_input;
mod far;
mod faults;
mod feed;
mod graph;
mod ledger;
mod poison;
mod process;
mod server;
mod settings;
mod stage;
mod sync;
mod traces;
mod walkthrough;
mod watched;
mod worker_script;
