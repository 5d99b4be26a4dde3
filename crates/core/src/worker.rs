//! A process that claims runs.

use crate::{Timestamp, WorkerId};

/// A worker process as it is kept.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Worker {
    /// Made at the start of the process.
    pub worker_id: WorkerId,
    /// A label for people; several processes may share it.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// Its process id on that machine.
    pub pid: i64,
    /// What it offers.
    pub labels: Vec<String>,
    /// The version of its binary.
    pub version: String,
    /// When it started.
    pub started_at: Timestamp,
    /// When it last said that it lives.
    pub beat_at: Timestamp,
    /// When it was found dead, or said goodbye.
    pub ended_at: Option<Timestamp>,
    /// Whether it was asked to end what it has, and to take nothing new.
    #[serde(default)]
    pub draining: bool,
}

/// What a worker process says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct NewWorker {
    /// Made at the start of the process.
    pub worker_id: WorkerId,
    /// A label for people.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// Its process id on that machine.
    pub pid: i64,
    /// What it offers.
    pub labels: Vec<String>,
    /// The version of its binary.
    pub version: String,
}

/// What a worker learns about one of its runs when it beats.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Held {
    /// Whether it may go on writing for the run.
    pub held: bool,
    /// Whether somebody asked for the run to stop.
    pub cancel_requested: bool,
    /// Until when its lease lasts now.
    pub lease_until: Option<Timestamp>,
}

/// What a worker process learns when it beats.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Beaten {
    /// One for each run, in the order in which they were named.
    pub held: Vec<Held>,
    /// Whether it was asked to drain: it gets nothing new, and may end once it has nothing in hand.
    #[serde(default)]
    pub draining: bool,
}
