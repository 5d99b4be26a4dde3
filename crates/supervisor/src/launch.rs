//! The launch step: sets its parent-death signal, then executes the command in its own process.
//!
//! It is a separate process because a process can only set its own parent-death signal. Its standard input is a socket
//! to the supervisor. The socket carries the request, the descriptor of the command's real standard input, and the
//! reply. It closes on exec, so the supervisor knows for certain whether the command was executed.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{
    Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};

use crate::protocol::{LaunchRequest, Program};
use crate::record::Limits;

/// Reply byte that the launch step sends just before exec. An error message follows it only if exec fails.
pub(crate) const ABOUT_TO_EXECUTE: u8 = b'\n';

/// Exit code of a launch step that failed. The reply distinguishes it from a command that exits with the same code.
const NOT_EXECUTED: u8 = 127;

/// The body of the hidden launch subcommand: executes the command, or replies with the reason why it could not.
///
/// Only [`supervise`](crate::supervise) starts it. It returns only if the command could not be executed.
pub fn launch() -> ExitCode {
    // The duplicate closes on exec; the command's standard input replaces the original.
    if let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() {
        let mut socket = UnixStream::from(socket);
        let reason = match receive(&mut socket) {
            Ok((request, stdin)) => execute(&request, stdin, &mut socket),
            Err(error) => format!("the launch step could not read its request: {error}"),
        };
        // If the supervisor has ended, no process can read the reason.
        let _ = socket.write_all(reason.as_bytes());
    }
    ExitCode::from(NOT_EXECUTED)
}

/// Sends the launch step its request, together with the standard input for the command.
pub(crate) fn send(socket: &mut UnixStream, request: &LaunchRequest, stdin: &OwnedFd) -> io::Result<()> {
    let bytes = serde_json::to_vec(request)?;
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    if !attached.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no space for a file descriptor in the message"));
    }
    let sent = sendmsg(&*socket, &[IoSlice::new(&bytes)], &mut attached, SendFlags::empty())?;
    socket.write_all(&bytes[sent..])?;
    socket.shutdown(Shutdown::Write)
}

fn receive(socket: &mut UnixStream) -> io::Result<(LaunchRequest, OwnedFd)> {
    let mut bytes = vec![0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(&*socket, &mut [IoSliceMut::new(&mut bytes)], &mut attached, RecvFlags::CMSG_CLOEXEC)?;
    bytes.truncate(received.bytes);
    let mut stdin = None;
    for message in attached.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            stdin = descriptors.next();
        }
    }
    let stdin =
        stdin.ok_or_else(|| io::Error::other("the message has no file descriptor for the standard input"))?;
    socket.read_to_end(&mut bytes)?;
    Ok((serde_json::from_slice(&bytes)?, stdin))
}

/// Executes the command; returns only on failure, with the reason.
fn execute(request: &LaunchRequest, stdin: OwnedFd, socket: &mut UnixStream) -> String {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return format!("the launch step could not set the parent-death signal: {error}");
    }
    // If the supervisor died before the call above, the signal is never sent.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(request.supervisor) {
        return "the supervisor has ended".to_owned();
    }
    let Program { command, env, env_remove, dir, limits } = &request.program;
    let Some((program, args)) = command.split_first() else {
        return "no command is given".to_owned();
    };
    let names = env.iter().map(|(name, _)| name).chain(env_remove);
    if let Some(name) = names.into_iter().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return format!("`{}` is not a valid name of an environment variable", name.escape_debug());
    }
    if let Some(dir) = dir
        && let Err(error) = std::env::set_current_dir(dir)
    {
        return format!("could not enter the directory `{}`: {error}", dir.display());
    }
    if let Err(error) = socket.write_all(&[ABOUT_TO_EXECUTE]) {
        return format!("the supervisor has ended: {error}");
    }
    let mut command = Command::new(program);
    for name in env_remove {
        command.env_remove(name);
    }
    command.args(args).envs(env.iter().cloned()).stdin(Stdio::from(stdin));
    if let Err(reason) = set_limits(limits) {
        return reason;
    }
    // `exec` also restores the default action of SIGPIPE, which the Rust runtime ignores.
    let error = command.exec();
    exec_error(program, &error)
}

/// Processor time between SIGXCPU and SIGKILL.
const CPU_GRACE_SECS: u64 = 5;

/// Sets the resource limits. Called last, because they apply to this process too.
fn set_limits(limits: &Limits) -> Result<(), String> {
    let wanted = [
        (Resource::Cpu, limits.cpu_secs, CPU_GRACE_SECS),
        (Resource::Fsize, limits.file_bytes, 0),
        (Resource::As, limits.memory_bytes, 0),
        (Resource::Core, limits.core_bytes, 0),
    ];
    for (resource, limit, grace) in wanted {
        let Some(soft) = limit else { continue };
        // An unprivileged process cannot raise its hard limit.
        let hard = getrlimit(resource).maximum;
        let capped = |value: u64| hard.map_or(value, |hard| value.min(hard));
        let limit = Rlimit { current: Some(capped(soft)), maximum: Some(capped(soft.saturating_add(grace))) };
        if let Err(error) = setrlimit(resource, limit) {
            return Err(format!("could not set a resource limit: {error}"));
        }
    }
    Ok(())
}

fn exec_error(program: &str, error: &io::Error) -> String {
    let kind = error.kind();
    if kind == io::ErrorKind::PermissionDenied {
        format!("`{program}` is not executable, or permission is denied")
    } else if kind != io::ErrorKind::NotFound {
        format!("could not execute `{program}`: {error}")
    } else if program.contains('/') && Path::new(program).exists() {
        format!("the interpreter of `{program}` was not found")
    } else {
        format!("`{program}` was not found")
    }
}
