//! One line of a run's append-only record.

use crate::label::labelled;
use crate::{Json, RunId, Timestamp};

labelled! {
    /// How much an event matters.
    "level" Level {
        /// For whoever looks for a fault.
        Debug = "debug",
        /// Something went as planned.
        Info = "info",
        /// Something is odd, and went on.
        Warn = "warn",
        /// Something failed.
        Error = "error",
    }
}

labelled! {
    /// Who wrote an event.
    "event kind" EventKind {
        /// A worker said something.
        Log = "log",
        /// The database recorded a change of state.
        Transition = "transition",
        /// A call was refused, and changed nothing.
        Refusal = "refusal",
        /// Somebody asked for something: a cancel, a retry.
        Request = "request",
    }
}

/// An event as it is kept.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Its id, made of the run's id and the sequence number.
    pub event_id: String,
    /// The run that it belongs to.
    pub run_id: RunId,
    /// Its place in the run's record, from 1 and without gaps.
    pub seq: i32,
    /// Who wrote it.
    pub kind: EventKind,
    /// How much it matters.
    pub level: Level,
    /// A sentence, or a line of output.
    pub message: String,
    /// Details.
    pub payload: Json,
    /// The key that makes appending it twice the same as once.
    pub event_key: Option<String>,
    /// When it was written.
    pub created_at: Timestamp,
}

/// An event that somebody wants to append.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// How much it matters.
    pub level: Level,
    /// A sentence, or a line of output.
    pub message: String,
    /// Details.
    pub payload: Json,
    /// The key that makes appending it twice the same as once.
    pub key: Option<String>,
}

impl NewEvent {
    /// An event without details and without a key.
    pub fn new(level: Level, message: impl Into<String>) -> Self {
        Self { level, message: message.into(), payload: Json::Object(serde_json::Map::new()), key: None }
    }

    /// The same event with a key.
    #[must_use]
    pub fn keyed(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}
