//! Where records come from: the Feed trait, and the sources behind it.
//!
//! A feed counts, pages and maps. Its retries, its rate limit, its login and the class of its errors are its
//! own affair; nothing here knows a database, a sync or a worker, and nothing there knows a feed by name.

mod account;
mod bucket;
mod circuit;
#[cfg(any(test, feature = "csv"))]
mod csv;
mod error;
mod feed;
mod nivoda;
mod number;
mod tuning;

pub use account::Secret;
pub use circuit::{Ask, Circuit, CircuitPolicy};
#[cfg(any(test, feature = "csv"))]
pub use csv::CsvFolder;
pub use error::{ErrorClass, FeedError, MapFault};
pub use feed::{Answer, Counted, Feed, open};
pub use tuning::Tuning;
