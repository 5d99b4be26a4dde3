//! The body of all error responses.

use serde::{Deserialize, Serialize};
use tidemill_core::graph::DefinitionError;
use tidemill_core::run::RunState;

/// The reason for which a request failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    /// Stable error code for programs.
    pub code: String,
    /// Error message for people.
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Invalid fields of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FieldError>,
    /// Current state of the run, if the caller expected another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<RunState>,
    /// Errors of a definition of a graph or a feed, with their positions in the text.
    #[serde(default, skip_serializing_if = "<[DefinitionError]>::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<DefinitionError>"))]
    pub places: Box<[DefinitionError]>,
}

/// An invalid field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FieldError {
    /// Name of the field.
    pub field: String,
    /// Problem, as the rest of a sentence that begins with the field's name.
    pub problem: String,
}

impl Problem {
    /// Makes a problem without a hint.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            hint: None,
            faults: Vec::new(),
            current: None,
            places: Box::default(),
        }
    }

    /// Sets the hint, a suggested next step.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}
