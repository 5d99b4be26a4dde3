//! What is said to the supervisor and to the launch step: JSON, one line each, never on a command line.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::moment::Moment;
use crate::record::Limits;
use crate::spec::Spec;

/// The first line to the supervisor; `stdin_bytes` bytes follow it as they are.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    /// What the launch step becomes.
    pub(crate) program: Program,
    /// How many bytes for the command's standard input follow this line.
    pub(crate) stdin_bytes: usize,
    /// The first sign of contact.
    pub(crate) contact: Moment,
    /// How long a sign of contact lasts.
    pub(crate) contact_max: Duration,
    /// How long a line may be before it is split.
    pub(crate) line_bytes_max: usize,
}

impl From<&Spec> for Header {
    fn from(spec: &Spec) -> Self {
        Self {
            program: Program {
                command: spec.command.clone(),
                env: spec.env.clone(),
                env_remove: spec.env_remove.clone(),
                dir: spec.dir.clone(),
                limits: Limits::default(),
            },
            stdin_bytes: spec.stdin.len(),
            contact: spec.contact,
            contact_max: spec.contact_max,
            line_bytes_max: spec.line_bytes_max,
        }
    }
}

/// The part of the header that the launch step needs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// Variables to add.
    pub(crate) env: Vec<(String, String)>,
    /// Variables to take away.
    pub(crate) env_remove: Vec<String>,
    /// Where to run.
    pub(crate) dir: Option<PathBuf>,
    /// What the system shall bound.
    pub(crate) limits: Limits,
}

/// Every further line to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The lease was held at this moment.
    Contact {
        /// Taken before the heartbeat was sent.
        at: Moment,
    },
    /// Ask the command to end, and kill it when it does not.
    Stop {
        /// How long it may take.
        grace: Duration,
    },
    /// Kill the command now.
    Kill,
}

/// What the supervisor tells the launch step, together with the command's standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchOrder {
    /// The process id of the supervisor: a launch step with another parent is an orphan, and ends.
    pub(crate) supervisor: i32,
    /// What to become.
    pub(crate) program: Program,
}
