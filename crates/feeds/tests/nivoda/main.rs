//! Tests of the Nivoda feed over real HTTP, against scripted servers.

#![expect(clippy::unwrap_used, reason = "the functions that tests share are tests too")]

mod errors;
mod fixture;
mod login;
mod network;
mod pages;
mod rate;
mod supplier;
