//! Starts the command through the launch step, and reads the reply whether the command was executed.

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

use super::init_connection::InitConnection;
use super::pipes::{Output, StdinWriter};
use super::process_tree::ProcessTree;
use crate::cgroup::CommandGroup;
use crate::isolation::Isolation;
use crate::launch::{self, ABOUT_TO_EXECUTE};
use crate::protocol::{LaunchRequest, Program};
use crate::report::Stream;

/// The running program, even after an upgrade replaced or removed its file.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A started command with its connections to the supervisor.
#[derive(Debug)]
pub(super) struct RunningCommand {
    pub(super) pid: i32,
    pub(super) processes: ProcessTree,
    /// Pidfd of the main process, which becomes readable when it ends.
    pub(super) pidfd: OwnedFd,
    pub(super) reply: LaunchReply,
    pub(super) stdin: StdinWriter,
    pub(super) outputs: [Output; 2],
    /// Connection to the init process, if the command has a PID namespace.
    pub(super) init: Option<InitConnection>,
}

/// The command to start, and how.
#[derive(Debug)]
pub(super) struct StartOptions {
    pub(super) program: Program,
    pub(super) stdin: Vec<u8>,
    pub(super) line_bytes_max: usize,
    /// Time limit for the launch step to read its request.
    pub(super) launch_timeout: Duration,
    pub(super) isolation: Isolation,
}

/// Starts the launch step. On error no process is left running, and the error text is for the user.
///
/// Call it in a thread that lives as long as the process: the kernel sends the parent-death signal when the *thread*
/// that started the child ends.
pub(super) fn start(launch_args: &[&str], options: StartOptions) -> Result<RunningCommand, String> {
    let StartOptions { mut program, stdin, line_bytes_max, launch_timeout, isolation } = options;
    let group = isolation.cgroup.as_ref().map(CommandGroup::new);
    if let Some(group) = &group {
        let limited = group.create().and_then(|()| group.set_limits(program.limits));
        program.limits = limited.map_err(could_not("create a control group"))?;
    }
    if isolation.namespaces.is_none() {
        // The limit applies to all processes of a user, and the command has the user of the supervisor.
        program.limits.processes = None;
    }
    let (mut socket, theirs) = UnixStream::pair().map_err(could_not("create a socket"))?;
    let (stdin_reader, stdin_writer) = pipe_with(PipeFlags::CLOEXEC).map_err(could_not("create a pipe"))?;
    let (stdout_reader, stdout_writer) = pipe_with(PipeFlags::CLOEXEC).map_err(could_not("create a pipe"))?;
    let (stderr_reader, stderr_writer) = pipe_with(PipeFlags::CLOEXEC).map_err(could_not("create a pipe"))?;
    let stdin = StdinWriter::new(stdin_writer, stdin).map_err(could_not("set up the standard input"))?;
    let stdout = Output::new(Stream::Stdout, stdout_reader, line_bytes_max);
    let stderr = Output::new(Stream::Stderr, stderr_reader, line_bytes_max);
    let outputs =
        [stdout.map_err(could_not("set up the output"))?, stderr.map_err(could_not("set up the output"))?];

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
        .map_err(could_not("start the launch step"))?;
    // Closes this process's copies of the command's pipe ends; otherwise the pipes would never reach end-of-file.
    drop(command);
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or("the launch step has no process id")?;
    // From here on only the process tree may reap the child, not the standard library.
    drop(child);
    let processes = ProcessTree::new(id, group);

    let connected = pidfd_open(id, PidfdFlags::empty()).map_err(io::Error::from).and_then(|pidfd| {
        // A stuck launch step must not block the supervisor for longer than a confirmed contact is valid.
        socket.set_write_timeout(Some(launch_timeout.max(Duration::from_millis(1))))?;
        let init = send_request(&mut socket, isolation, program, &stdin_reader)?;
        socket.set_nonblocking(true)?;
        Ok((pidfd, init))
    });
    match connected {
        Ok((pidfd, init)) => {
            let reply = LaunchReply { socket: Some(socket), bytes: Vec::new() };
            let pid = id.as_raw_nonzero().get();
            Ok(RunningCommand { pid, processes, pidfd, reply, stdin, outputs, init })
        }
        Err(error) => {
            processes.kill();
            Err(could_not("send the request to the launch step")(error))
        }
    }
}

/// Sends the first launch step its request; returns the connection to init if the command has namespaces.
fn send_request(
    socket: &mut UnixStream,
    isolation: Isolation,
    program: Program,
    stdin: &OwnedFd,
) -> io::Result<Option<InitConnection>> {
    let parent = getpid().as_raw_nonzero().get();
    let Isolation { namespaces, cgroup } = isolation;
    let Some(namespaces) = namespaces else {
        let request = LaunchRequest::Execute { parent, cgroup, program };
        launch::send(socket, &request, &[stdin.as_fd()])?;
        return Ok(None);
    };
    let (control, theirs) = UnixStream::pair()?;
    let request = LaunchRequest::Enter { parent, cgroup, namespaces, program };
    launch::send(socket, &request, &[stdin.as_fd(), theirs.as_fd()])?;
    InitConnection::new(control).map(Some)
}

fn could_not<E: std::fmt::Display>(action: &'static str) -> impl Fn(E) -> String {
    move |error| format!("the supervisor could not {action}: {error}")
}

/// Reply of the launch step, read so far.
#[derive(Debug)]
pub(super) struct LaunchReply {
    /// `None` after end-of-file: the command was executed or the launch step ended.
    socket: Option<UnixStream>,
    bytes: Vec<u8>,
}

/// Outcome of the launch step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LaunchOutcome {
    Executed,
    /// The command could not be executed, for this reason.
    Refused(String),
    /// The launch step ended without a reply.
    Silent,
}

impl LaunchReply {
    /// Returns the outcome once, as soon as it is certain.
    pub(super) fn read(&mut self) -> Option<LaunchOutcome> {
        let socket = self.socket.as_mut()?;
        match socket.read_to_end(&mut self.bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Ok(_) | Err(_) => {}
        }
        self.socket = None;
        Some(parse_reply(&self.bytes))
    }

    /// Whether the reply was read completely.
    pub(super) fn is_complete(&self) -> bool {
        self.socket.is_none()
    }

    /// Descriptor to poll, unless the reply is complete.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.socket.as_ref().map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
    }
}

fn parse_reply(reply: &[u8]) -> LaunchOutcome {
    match reply {
        [] => LaunchOutcome::Silent,
        [ABOUT_TO_EXECUTE] => LaunchOutcome::Executed,
        [ABOUT_TO_EXECUTE, reason @ ..] | reason => {
            LaunchOutcome::Refused(String::from_utf8_lossy(reason).into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_reply_is_parsed() {
        assert_eq!(parse_reply(b""), LaunchOutcome::Silent);
        assert_eq!(parse_reply(b"\n"), LaunchOutcome::Executed);
        assert_eq!(
            parse_reply(b"\n`x` was not found"),
            LaunchOutcome::Refused("`x` was not found".to_owned())
        );
        assert_eq!(
            parse_reply(b"no command is given"),
            LaunchOutcome::Refused("no command is given".to_owned())
        );
    }
}
