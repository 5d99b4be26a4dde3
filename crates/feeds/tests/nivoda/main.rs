//! The Nivoda feed over real HTTP, against servers that answer as they are told.

#![expect(clippy::unwrap_used, reason = "the functions that tests share are tests too")]

mod faults;
mod login;
mod pages;
mod rate;
mod stage;
mod supplier;
