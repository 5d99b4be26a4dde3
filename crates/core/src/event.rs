//! Events: the append-only log of a run.

use crate::label::labelled;
use crate::{Json, RunId, Timestamp};

labelled! {
    /// The severity of an event.
    "level" Level {
        Debug = "debug",
        Info = "info",
        Warn = "warn",
        Error = "error",
    }
}

labelled! {
    /// The origin of an event.
    "event kind" EventKind {
        /// Written by a worker.
        Log = "log",
        /// The database recorded a change of state.
        Transition = "transition",
        /// A call was rejected and changed nothing.
        Refusal = "refusal",
        /// A caller requested a cancel or a retry.
        Request = "request",
    }
}

/// A stored event of a run.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Id, made of the run id and the sequence number.
    pub event_id: String,
    /// Run of the event.
    pub run_id: RunId,
    /// Sequence number within the run, counted from 1 without gaps.
    pub seq: i32,
    /// Origin of the event.
    pub kind: EventKind,
    pub level: Level,
    /// Message or line of output.
    pub message: String,
    pub payload: Json,
    /// Idempotency key: a second event of the run with the same key is not appended.
    pub event_key: Option<String>,
    pub created_at: Timestamp,
}

/// An event that a worker appends to its run.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub level: Level,
    pub message: String,
    pub payload: Json,
    /// Idempotency key: a second event of the run with the same key is not appended.
    pub key: Option<String>,
}

impl NewEvent {
    /// Makes an event without details and without a key.
    pub fn new(level: Level, message: impl Into<String>) -> Self {
        Self { level, message: message.into(), payload: Json::Object(serde_json::Map::new()), key: None }
    }

    /// Sets the idempotency key.
    #[must_use]
    pub fn keyed(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}
