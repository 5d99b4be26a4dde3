//! A real agent with real commands against a server that speaks the protocol and does what each test wants of
//! it. What commands wrote to disk says what was run, and how often.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "the functions that tests share are tests too")]

mod cancels;
mod directories;
mod disks;
mod faults;
mod jobs;
mod kept;
mod kills;
mod names;
mod panics;
mod s3;
mod server;
mod stage;
