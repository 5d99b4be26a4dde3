//! Domain types of Tidemill: ids, labels, records, lifecycles and decisions.
//!
//! Every function here is pure: no I/O, no async, no clock. Callers pass the time in. The database enforces the
//! lifecycles as well, with SQL that [`diagram`] generates.

pub mod absence;
pub mod access;
pub mod agent;
pub mod alert;
pub mod artifact;
pub mod audit;
pub mod batch_size;
pub mod coverage;
pub mod definition;
pub mod diagram;
pub mod diamond;
pub mod digest;
pub mod event;
pub mod feed;
pub mod feed_definition;
pub mod glob;
pub mod graph;
pub mod heatmap;
pub mod hook;
pub mod ids;
pub mod isolation;
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
pub mod pricing;
pub mod project;
pub mod project_set;
pub mod queue;
pub mod reach;
pub mod records;
pub mod request;
pub mod retry;
pub mod run;
pub mod schedule;
pub mod shell;
pub mod signature;
pub mod stats;
pub mod sync;
pub mod sync_ledger;
pub mod table_claim;
pub mod task;
pub mod text;
pub mod time;
pub mod why;
pub mod worker;

pub use ids::{EnvId, RunId, WorkerId};
pub use label::UnknownLabelError;

/// A time in UTC. The databases store microseconds, so finer precision is lost.
pub type Timestamp = chrono::DateTime<chrono::Utc>;

/// A JSON document of any shape.
pub type Json = serde_json::Value;
