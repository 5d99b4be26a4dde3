//! Tests of a real agent with real commands against a fake server that each test controls.
//!
//! Commands write to files, which show what was executed and how often.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "shared test functions may panic like tests")]

mod cancellation;
mod escapes;
mod file_names;
mod fixture;
mod full_disk;
mod jobs;
mod lost_directories;
mod panics;
mod restarts;
mod retention;
mod rotation;
mod s3;
mod server;
mod server_failures;
