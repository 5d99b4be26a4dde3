//! Progress of a task, derived from the disk and the process table before each step.

use tidemill_core::task::Stage;
use tidemill_supervisor::{CommandState, Exit};

/// Observed facts of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskFacts {
    pub(crate) has_manifest: bool,
    /// Whether the server has confirmed the assignment.
    pub(crate) is_taken: bool,
    /// Whether all inputs of the command are in task_dir.
    pub(crate) is_prepared: bool,
    pub(crate) command: CommandState,
}

/// Progress of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Only the order is stored.
    Ordered,
    /// The assignment is confirmed; the inputs are being copied.
    Preparing,
    /// The command can be started, or its supervisor is starting.
    Prepared,
    Executing,
    Executed(Exit),
    /// The supervisor ended without recording the end of the command.
    Lost,
    Finalized,
}

/// Derives the progress from the facts. The most advanced fact decides.
pub(crate) fn progress(facts: &TaskFacts) -> Progress {
    if facts.has_manifest {
        return Progress::Finalized;
    }
    match &facts.command {
        CommandState::Exited(exit) => Progress::Executed(exit.clone()),
        CommandState::Lost => Progress::Lost,
        CommandState::Alive { started: true } => Progress::Executing,
        CommandState::Alive { started: false } => Progress::Prepared,
        CommandState::NotStarted if facts.is_taken && facts.is_prepared => Progress::Prepared,
        CommandState::NotStarted if facts.is_taken => Progress::Preparing,
        CommandState::NotStarted => Progress::Ordered,
    }
}

impl Progress {
    /// The stage that is reported to the server.
    pub(crate) fn stage(&self) -> Option<Stage> {
        match self {
            Self::Ordered => None,
            Self::Preparing => Some(Stage::Preparing),
            Self::Prepared => Some(Stage::Prepared),
            Self::Executing => Some(Stage::Executing),
            Self::Executed(exit) if exit.end.is_success() => Some(Stage::Executed),
            Self::Executed(_) | Self::Lost => Some(Stage::Error),
            Self::Finalized => Some(Stage::Finalized),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_supervisor::End;

    fn exit(code: i32) -> Exit {
        Exit { end: End::Code(code), timed_out: false, stopped: false }
    }

    /// Tries every combination of facts.
    #[test]
    fn stage_is_derived_from_the_facts() {
        let commands = [
            CommandState::NotStarted,
            CommandState::Alive { started: false },
            CommandState::Alive { started: true },
            CommandState::Exited(exit(0)),
            CommandState::Exited(exit(1)),
            CommandState::Lost,
        ];
        let mut stages = Vec::new();
        for has_manifest in [false, true] {
            for (is_taken, is_prepared) in [(false, false), (false, true), (true, false), (true, true)] {
                for command in &commands {
                    let facts = TaskFacts { has_manifest, is_taken, is_prepared, command: command.clone() };
                    stages.push(progress(&facts).stage().map_or("-", Stage::as_str));
                }
            }
        }
        let rest = ["prepared", "executing", "executed", "error", "error"];
        let mut expected = Vec::new();
        // Without a confirmed assignment, a prepared directory does not count.
        for first in ["-", "-", "preparing", "prepared"] {
            expected.push(first);
            expected.extend(rest);
        }
        expected.extend(["finalized"; 24]);
        assert_eq!(stages, expected);
    }
}
