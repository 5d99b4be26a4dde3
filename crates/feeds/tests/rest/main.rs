//! Tests of REST sources over real HTTP, against servers in the same process.

#![expect(clippy::unwrap_used, reason = "the functions that tests share are tests too")]

mod auth;
mod bad_answers;
mod fixture;
mod loops;
mod paginators;
mod queries;
mod supplier;
