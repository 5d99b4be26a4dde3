//! How far a task is, derived each time from the disk and the process table.

use tidemill_core::task::Stage;
use tidemill_supervisor::{Exit, Seen};

/// What was seen of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// What came of it is written down.
    pub(crate) has_manifest: bool,
    /// The server has said that it is ours.
    pub(crate) is_taken: bool,
    /// Everything is there that the command needs.
    pub(crate) is_prepared: bool,
    /// What there is to see of the command.
    pub(crate) seen: Seen,
}

/// How far a task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reached {
    /// There is an order, and nothing else.
    Ordered,
    /// It is ours; its directory is being made.
    Preparing,
    /// The command can be started, or is about to run.
    Prepared,
    /// The command runs.
    Executing,
    /// The command is over.
    Executed(Exit),
    /// The command's supervisor is gone without a word.
    Lost,
    /// What came of it is written down.
    Finalized,
}

/// How far a task is, from what was seen. What is further along wins.
pub(crate) fn reached(facts: &Facts) -> Reached {
    if facts.has_manifest {
        return Reached::Finalized;
    }
    match &facts.seen {
        Seen::Exited(exit) => Reached::Executed(exit.clone()),
        Seen::Lost => Reached::Lost,
        Seen::Alive { started: true } => Reached::Executing,
        Seen::Alive { started: false } => Reached::Prepared,
        Seen::Nothing if facts.is_taken && facts.is_prepared => Reached::Prepared,
        Seen::Nothing if facts.is_taken => Reached::Preparing,
        Seen::Nothing => Reached::Ordered,
    }
}

impl Reached {
    /// The stage that is told to the server.
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

    /// Every combination of what can be seen, and how far the task is then.
    #[test]
    fn the_stage_follows_from_what_is_seen() {
        let seen = [
            Seen::Nothing,
            Seen::Alive { started: false },
            Seen::Alive { started: true },
            Seen::Exited(exit(0)),
            Seen::Exited(exit(1)),
            Seen::Lost,
        ];
        let mut told = Vec::new();
        for has_manifest in [false, true] {
            for (is_taken, is_prepared) in [(false, false), (false, true), (true, false), (true, true)] {
                for seen in &seen {
                    let facts = Facts { has_manifest, is_taken, is_prepared, seen: seen.clone() };
                    told.push(reached(&facts).stage().map_or("-", Stage::as_str));
                }
            }
        }
        let rest = ["prepared", "executing", "executed", "error", "error"];
        let mut expected = Vec::new();
        // A directory that was prepared for somebody else's task is not prepared.
        for first in ["-", "-", "preparing", "prepared"] {
            expected.push(first);
            expected.extend(rest);
        }
        expected.extend(["finalized"; 24]);
        assert_eq!(told, expected);
    }
}
