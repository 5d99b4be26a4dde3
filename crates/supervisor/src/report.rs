//! Reports from the supervisor to the worker: start, output and end of the command.

use std::fmt;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

/// One report. Reports of one stream are in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Started {
        /// Process id of the command's main process, which is also its process group id.
        pid: i32,
    },
    /// The command wrote a line, or a part of a long line.
    Output {
        stream: Stream,
        /// The text without its line end. Invalid UTF-8 and NUL are replaced by U+FFFD.
        text: String,
        part: Part,
    },
    /// The command ended and none of its processes is alive. This is the last report.
    Exited(End),
}

/// Output stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Name under which it is stored and displayed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Position of a text within its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Whole,
    /// The beginning or the middle of a line: the next text of the same stream continues it.
    Piece,
    /// The last part of a line whose earlier parts were pieces.
    Last,
}

/// Outcome of a command that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It exited with this code.
    Code(i32),
    /// This signal terminated it.
    Signal(i32),
    NotStarted {
        /// Message for the user.
        reason: String,
    },
    /// It was killed because the worker did not confirm contact in time.
    LostContact,
}

impl End {
    /// Whether the command exited with code 0.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Code(0))
    }

    /// Exit code, if it exited by itself.
    pub const fn code(&self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(*code),
            Self::Signal(_) | Self::NotStarted { .. } | Self::LostContact => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(number) => match signal_name(*number) {
                Some(name) => write!(formatter, "killed by signal {number} ({name})"),
                None => write!(formatter, "killed by signal {number}"),
            },
            Self::NotStarted { reason } => write!(formatter, "not started: {reason}"),
            Self::LostContact => formatter.write_str("killed because contact with the worker was lost"),
        }
    }
}

/// Conventional name of a signal.
fn signal_name(number: i32) -> Option<&'static str> {
    const NAMES: [(Signal, &str); 31] = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::STKFLT, "SIGSTKFLT"),
        (Signal::CHILD, "SIGCHLD"),
        (Signal::CONT, "SIGCONT"),
        (Signal::STOP, "SIGSTOP"),
        (Signal::TSTP, "SIGTSTP"),
        (Signal::TTIN, "SIGTTIN"),
        (Signal::TTOU, "SIGTTOU"),
        (Signal::URG, "SIGURG"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::VTALARM, "SIGVTALRM"),
        (Signal::PROF, "SIGPROF"),
        (Signal::WINCH, "SIGWINCH"),
        (Signal::IO, "SIGIO"),
        (Signal::POWER, "SIGPWR"),
        (Signal::SYS, "SIGSYS"),
    ];
    NAMES.iter().find(|(signal, _)| signal.as_raw() == number).map(|&(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_display_names_code_signal_and_reason() {
        assert_eq!(End::Code(3).to_string(), "exit code 3");
        assert_eq!(End::Signal(9).to_string(), "killed by signal 9 (SIGKILL)");
        assert_eq!(End::Signal(34).to_string(), "killed by signal 34");
        let reason = "`frobnicate` was not found".to_owned();
        assert_eq!(End::NotStarted { reason }.to_string(), "not started: `frobnicate` was not found");
        assert_eq!(End::LostContact.to_string(), "killed because contact with the worker was lost");
    }

    #[test]
    fn only_exit_code_zero_is_success() {
        assert!(End::Code(0).is_success());
        for end in [End::Code(1), End::Signal(15), End::LostContact] {
            assert!(!end.is_success(), "{end}");
        }
        assert_eq!(End::Code(7).code(), Some(7));
        assert_eq!(End::Signal(7).code(), None);
    }
}
