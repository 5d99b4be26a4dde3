//! Starts the command by way of the launch step, and hears from it whether the command took over.

use std::env;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use super::family::Family;
use super::pipes::{Feed, Output};
use crate::launch::{self, ABOUT_TO_EXECUTE};
use crate::order::{LaunchOrder, Program};
use crate::report::Stream;

/// This very program, even after an upgrade replaced or removed its file.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A command that was started, with all that connects it to the supervisor.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: i32,
    pub(super) family: Family,
    /// Becomes readable when the main process ends.
    pub(super) leader: OwnedFd,
    pub(super) answer: Answer,
    pub(super) feed: Feed,
    pub(super) outputs: [Output; 2],
}

/// What to start.
#[derive(Debug)]
pub(super) struct Ordered {
    /// What the launch step becomes.
    pub(super) program: Program,
    /// What it finds on its standard input.
    pub(super) stdin: Vec<u8>,
    /// How long a line may be before it is split.
    pub(super) line_bytes_max: usize,
    /// How long the launch step may take to listen.
    pub(super) patience: Duration,
}

/// Starts the launch step, or says why that was not possible; nothing is left running then.
///
/// To be called in a thread that lives as long as the process: the parent-death signal comes at the end of the
/// *thread* that started the child.
pub(super) fn start(launch_args: &[&str], ordered: Ordered) -> Result<Started, String> {
    let Ordered { program, stdin, line_bytes_max, patience } = ordered;
    let (mut socket, theirs) = UnixStream::pair().map_err(cannot("no socket"))?;
    let (stdin_reader, stdin_writer) = pipe_with(PipeFlags::CLOEXEC).map_err(cannot("no pipe"))?;
    let (stdout_reader, stdout_writer) = pipe_with(PipeFlags::CLOEXEC).map_err(cannot("no pipe"))?;
    let (stderr_reader, stderr_writer) = pipe_with(PipeFlags::CLOEXEC).map_err(cannot("no pipe"))?;
    let feed = Feed::new(stdin_writer, stdin).map_err(cannot("no standard input"))?;
    let stdout = Output::new(Stream::Stdout, stdout_reader, line_bytes_max);
    let stderr = Output::new(Stream::Stderr, stderr_reader, line_bytes_max);
    let outputs = [stdout.map_err(cannot("no output"))?, stderr.map_err(cannot("no output"))?];

    let mut command = Command::new(OWN_PROGRAM);
    if let Some(name) = env::args_os().next() {
        command.arg0(name);
    }
    let child = command
        .args(launch_args)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::from(stdout_writer))
        .stderr(Stdio::from(stderr_writer))
        .process_group(0)
        .spawn()
        .map_err(cannot("no launch step"))?;
    // Our copies of the command's ends must be closed, or its pipes would never end.
    drop(command);
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or("the launch step has no process id")?;
    // From here on the child is ours to collect, which the standard library must not do behind our back.
    drop(child);
    let family = Family::new(id);

    let order = LaunchOrder { supervisor: getpid().as_raw_nonzero().get(), program };
    let connected = pidfd_open(id, PidfdFlags::empty()).map_err(io::Error::from).and_then(|leader| {
        // A launch step that does not listen must not hold us up longer than a sign of contact lasts.
        socket.set_write_timeout(Some(patience.max(Duration::from_millis(1))))?;
        launch::send(&mut socket, &order, &stdin_reader)?;
        socket.set_nonblocking(true)?;
        Ok(leader)
    });
    match connected {
        Ok(leader) => {
            let answer = Answer { socket: Some(socket), bytes: Vec::new() };
            Ok(Started { pid: id.as_raw_nonzero().get(), family, leader, answer, feed, outputs })
        }
        Err(error) => {
            family.kill();
            Err(cannot("no way to reach the launch step")(error))
        }
    }
}

fn cannot<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("the supervisor has {what} for it: {error}")
}

/// What the launch step has said so far.
#[derive(Debug)]
pub(super) struct Answer {
    /// Closed when the command takes over, or the launch step ends.
    socket: Option<UnixStream>,
    bytes: Vec<u8>,
}

/// What became of the launch step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Launched {
    /// It became the command.
    Executed,
    /// It could not, for this reason.
    Refused(String),
    /// It ended before it could say anything.
    Silent,
}

impl Answer {
    /// What became of the launch step, once, when it is certain.
    pub(super) fn read(&mut self) -> Option<Launched> {
        let socket = self.socket.as_mut()?;
        match socket.read_to_end(&mut self.bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Ok(_) | Err(_) => {}
        }
        self.socket = None;
        Some(judge(&self.bytes))
    }

    /// Whether nothing more is to be heard.
    pub(super) fn is_heard(&self) -> bool {
        self.socket.is_none()
    }

    /// What to wait for, if anything.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.socket.as_ref().map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
    }
}

fn judge(answer: &[u8]) -> Launched {
    match answer {
        [] => Launched::Silent,
        [ABOUT_TO_EXECUTE] => Launched::Executed,
        [ABOUT_TO_EXECUTE, reason @ ..] | reason => {
            Launched::Refused(String::from_utf8_lossy(reason).into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_the_launch_step_is_understood() {
        assert_eq!(judge(b""), Launched::Silent);
        assert_eq!(judge(b"\n"), Launched::Executed);
        assert_eq!(judge(b"\n`x` was not found"), Launched::Refused("`x` was not found".to_owned()));
        assert_eq!(judge(b"no command was given"), Launched::Refused("no command was given".to_owned()));
    }
}
