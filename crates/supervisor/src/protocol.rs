//! Messages to the supervisor and to the launch step.
//!
//! Each is one line of JSON. They are never command line arguments, which other users could read.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::boot_instant::BootInstant;
use crate::isolation::Namespaces;
use crate::record::Limits;
use crate::spec::Spec;

/// First line to the supervisor. `stdin_bytes` raw bytes for the command's standard input follow it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) program: Program,
    pub(crate) stdin_bytes: usize,
    /// Time of the first confirmed contact.
    pub(crate) contact: BootInstant,
    pub(crate) contact_max: Duration,
    pub(crate) line_bytes_max: usize,
    /// Control group of the command, which the worker has created.
    pub(crate) cgroup: Option<PathBuf>,
}

impl Header {
    pub(crate) fn new(spec: &Spec, cgroup: Option<PathBuf>) -> Self {
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
            cgroup,
        }
    }
}

/// The command, with everything that the launch step needs to execute it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) env_remove: Vec<String>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) limits: Limits,
}

/// Every further line to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlMessage {
    /// The lease was held at `at`, a time taken before the heartbeat was sent.
    Contact {
        at: BootInstant,
    },
    /// Send SIGTERM, and SIGKILL after `grace`.
    Stop {
        grace: Duration,
    },
    Kill,
}

/// The message to a launch step. File descriptors travel with it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LaunchRequest {
    /// Execute the command. Descriptors: its standard input, and the socket for the reply unless it is this one.
    Execute {
        /// Process id of the parent. A launch step with another parent is orphaned, and exits.
        parent: i32,
        /// Control group to join first.
        cgroup: Option<PathBuf>,
        program: Program,
    },
    /// Enter new namespaces and start their init process. Descriptors: the standard input, and the control socket.
    Enter {
        /// Process id of the supervisor. A launch step with another parent is orphaned, and exits.
        parent: i32,
        cgroup: Option<PathBuf>,
        namespaces: Namespaces,
        program: Program,
    },
    /// Be the init process. Descriptors: the standard input, the control socket, and the socket for the reply.
    Init { namespaces: Namespaces, program: Program },
}
