//! What is true in Tidemill: ids, labels, records, lifecycles and decisions.
//!
//! Everything here is a pure function of its arguments. There is no I/O, no async and no clock: callers
//! pass the time in. The store guards the same rules again, from text generated here.

pub mod access;
pub mod agent;
pub mod alert;
pub mod artifact;
pub mod broken;
pub mod diagram;
pub mod diamond;
pub mod digest;
pub mod event;
pub mod feed;
pub mod graph;
pub mod heatmap;
pub mod hook;
pub mod ids;
pub mod job;
pub mod json;
mod label;
mod lifecycle;
pub mod limits;
pub mod live;
pub mod message;
pub mod pace;
pub mod page;
pub mod partition;
pub mod portion;
pub mod pricing;
pub mod project;
pub mod queue;
pub mod records;
pub mod request;
pub mod retry;
pub mod run;
pub mod schedule;
pub mod shell;
pub mod signature;
pub mod stats;
pub mod sync;
pub mod task;
pub mod time;
pub mod why;
pub mod worker;

pub use ids::{EnvId, RunId, WorkerId};
pub use label::UnknownLabel;

/// A moment in UTC. The database keeps microseconds, so nothing finer is meaningful.
pub type Timestamp = chrono::DateTime<chrono::Utc>;

/// A JSON document.
pub type Json = serde_json::Value;
