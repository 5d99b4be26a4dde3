//! The launch step: binds its life to the supervisor's, then becomes the command.
//!
//! It is a process of its own because only the process itself can set its parent-death signal. Its standard input
//! is a socket to the supervisor, which carries the order, the command's real standard input, and the answer. The
//! socket closes when the command takes over, so the supervisor knows for certain whether it did.

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

use crate::order::{LaunchOrder, Program};
use crate::record::Limits;

/// What the launch step says just before it becomes the command; a reason follows only where that fails.
pub(crate) const ABOUT_TO_EXECUTE: u8 = b'\n';

/// The exit code of a launch step that did not become the command; nobody mistakes it, as the answer tells.
const NOT_EXECUTED: u8 = 127;

/// The body of the hidden launch subcommand: becomes the command, or says why not.
///
/// Only [`supervise`](crate::supervise) starts it. It returns only when the command could not be executed.
pub fn launch() -> ExitCode {
    // The duplicate is closed when the command takes over; the original is replaced by the command's input.
    if let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() {
        let mut socket = UnixStream::from(socket);
        let reason = match receive(&mut socket) {
            Ok((order, stdin)) => become_command(&order, stdin, &mut socket),
            Err(error) => format!("the launch step got no order: {error}"),
        };
        // Without a supervisor to hear it, the reason matters to nobody.
        let _ = socket.write_all(reason.as_bytes());
    }
    ExitCode::from(NOT_EXECUTED)
}

/// Gives the launch step its order, together with the input it shall hand on to the command.
pub(crate) fn send(socket: &mut UnixStream, order: &LaunchOrder, stdin: &OwnedFd) -> io::Result<()> {
    let bytes = serde_json::to_vec(order)?;
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    if !attached.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a file descriptor"));
    }
    let sent = sendmsg(&*socket, &[IoSlice::new(&bytes)], &mut attached, SendFlags::empty())?;
    socket.write_all(&bytes[sent..])?;
    socket.shutdown(Shutdown::Write)
}

fn receive(socket: &mut UnixStream) -> io::Result<(LaunchOrder, OwnedFd)> {
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
    let stdin = stdin.ok_or_else(|| io::Error::other("no standard input came with it"))?;
    socket.read_to_end(&mut bytes)?;
    Ok((serde_json::from_slice(&bytes)?, stdin))
}

/// Becomes the command, or returns why that was not possible.
fn become_command(order: &LaunchOrder, stdin: OwnedFd, socket: &mut UnixStream) -> String {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return format!("the parent-death signal could not be set: {error}");
    }
    // Had the supervisor died before the line above, no signal would ever come.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(order.supervisor) {
        return "the supervisor is gone".to_owned();
    }
    let Program { command, env, env_remove, dir, limits } = &order.program;
    let Some((program, args)) = command.split_first() else {
        return "no command was given".to_owned();
    };
    let names = env.iter().map(|(name, _)| name).chain(env_remove);
    if let Some(name) = names.into_iter().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return format!("`{}` cannot be the name of a variable", name.escape_debug());
    }
    if let Some(dir) = dir
        && let Err(error) = std::env::set_current_dir(dir)
    {
        return format!("the directory `{}` cannot be entered: {error}", dir.display());
    }
    if let Err(error) = socket.write_all(&[ABOUT_TO_EXECUTE]) {
        return format!("the supervisor is gone: {error}");
    }
    let mut command = Command::new(program);
    for name in env_remove {
        command.env_remove(name);
    }
    command.args(args).envs(env.iter().cloned()).stdin(Stdio::from(stdin));
    if let Err(reason) = bound(limits) {
        return reason;
    }
    // `exec` also gives SIGPIPE back its default action, which this program had changed at its start.
    let error = command.exec();
    not_executed(program, &error)
}

/// Time between the signal that says that processor time is over, and the kill.
const CPU_GRACE_SECS: u64 = 5;

/// Sets the bounds that the system keeps. Last of all: they hold for this process too.
fn bound(limits: &Limits) -> Result<(), String> {
    let wanted = [
        (Resource::Cpu, limits.cpu_secs, CPU_GRACE_SECS),
        (Resource::Fsize, limits.file_bytes, 0),
        (Resource::As, limits.memory_bytes, 0),
        (Resource::Core, limits.core_bytes, 0),
    ];
    for (resource, bound, more) in wanted {
        let Some(bound) = bound else { continue };
        // What is allowed at all can only shrink.
        let allowed = getrlimit(resource).maximum;
        let at_most = |value: u64| allowed.map_or(value, |allowed| value.min(allowed));
        let limit =
            Rlimit { current: Some(at_most(bound)), maximum: Some(at_most(bound.saturating_add(more))) };
        if let Err(error) = setrlimit(resource, limit) {
            return Err(format!("a limit could not be set: {error}"));
        }
    }
    Ok(())
}

fn not_executed(program: &str, error: &io::Error) -> String {
    let kind = error.kind();
    if kind == io::ErrorKind::PermissionDenied {
        format!("`{program}` is not executable, or not permitted")
    } else if kind != io::ErrorKind::NotFound {
        format!("`{program}` could not be executed: {error}")
    } else if program.contains('/') && Path::new(program).exists() {
        format!("the interpreter of `{program}` was not found")
    } else {
        format!("`{program}` was not found")
    }
}
