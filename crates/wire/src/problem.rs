//! What went wrong, in the one form that every answer other than a success has.

use serde::{Deserialize, Serialize};
use tidemill_core::graph::GraphFault;
use tidemill_core::run::RunState;

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    /// What programs read; it does not change.
    pub code: String,
    /// What people read.
    pub message: String,
    /// What to do, where there is one thing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Everything that is wrong with the request, where that is why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Where the run is now, where the caller believed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<RunState>,
    /// Everything that is wrong with a graph, with its places in the text, where that is why.
    #[serde(default, skip_serializing_if = "<[GraphFault]>::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<GraphFault>"))]
    pub places: Box<[GraphFault]>,
}

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// The part of the request.
    pub field: String,
    /// What is wrong with it, as the rest of a sentence.
    pub problem: String,
}

impl Problem {
    /// A problem without a hint.
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

    /// The same with a hint.
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
