//! What the supervisor tells the worker: the start, the output and the end of the command.

use std::fmt;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

/// One report, in the order in which things happened per stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The command runs.
    Started {
        /// The process id of the command's main process, which also names its process group.
        pid: i32,
    },
    /// The command wrote a line, or a part of a long one.
    Output {
        /// Where it was written.
        stream: Stream,
        /// The text without its line end; bytes that are not UTF-8, and NUL, are U+FFFD.
        text: String,
        /// Whether the text is a line of its own.
        part: Part,
    },
    /// The command is over, and no process of it is left. The last report.
    Exited(End),
}

/// Which of its two outputs a command wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
}

impl Stream {
    /// The name by which it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// How a text relates to the line it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A whole line.
    Whole,
    /// The beginning or the middle of a line: the next text of the same stream continues it.
    Piece,
    /// The last part of a line whose earlier parts were pieces.
    Last,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It exited by itself, with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It never ran.
    NotStarted {
        /// What stood in the way, for people.
        reason: String,
    },
    /// It was killed because the worker gave no sign of contact for too long.
    LostContact,
}

impl End {
    /// Whether the command did what it was asked: it exited with code 0.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Code(0))
    }

    /// The exit code, where there is one.
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

/// The usual name of a signal, where it has one.
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
    fn an_end_reads_as_a_short_sentence() {
        assert_eq!(End::Code(3).to_string(), "exit code 3");
        assert_eq!(End::Signal(9).to_string(), "killed by signal 9 (SIGKILL)");
        assert_eq!(End::Signal(34).to_string(), "killed by signal 34");
        let reason = "`frobnicate` was not found".to_owned();
        assert_eq!(End::NotStarted { reason }.to_string(), "not started: `frobnicate` was not found");
        assert_eq!(End::LostContact.to_string(), "killed because contact with the worker was lost");
    }

    #[test]
    fn only_code_zero_is_success() {
        assert!(End::Code(0).is_success());
        for end in [End::Code(1), End::Signal(15), End::LostContact] {
            assert!(!end.is_success(), "{end}");
        }
        assert_eq!(End::Code(7).code(), Some(7));
        assert_eq!(End::Signal(7).code(), None);
    }
}
