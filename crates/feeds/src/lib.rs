//! Sources of records: the `Feed` trait and its implementations.
//!
//! A feed counts records, reads pages and maps records to canonical rows. Retries, the rate limit, the login and the
//! classification of errors are internal to each feed. This crate knows nothing of databases, syncs or workers,
//! and its callers know no feed by name.

mod budgets;
mod circuit;
#[cfg(any(test, feature = "csv"))]
mod csv;
mod error;
mod feed;
mod http;
mod network;
mod nivoda;
mod number;
mod rate_limiter;
pub mod rest;
mod secret;
mod tuning;

pub use budgets::Budgets;
pub use circuit::{Admission, Circuit, CircuitPolicy};
#[cfg(any(test, feature = "csv"))]
pub use csv::CsvFolder;
pub use error::{ErrorClass, FeedError, MapError};
pub use feed::{
    Endpoint, Feed, FeedCount, FeedFuture, MappedRecord, Reading, digest, endpoints, open, variables,
};
pub use http::tls::Authorities;
pub use network::{ListedHosts, Lookup, Network};
pub use secret::Secret;
pub use tuning::Tuning;
