//! The launch steps: short processes between the supervisor and its command.
//!
//! They are separate processes because a process can only set its own parent-death signal, limits, namespaces and user.
//! The standard input of each is a socket to its parent. The socket carries the request and file descriptors. The
//! reply goes to the supervisor. Its socket closes on exec, so the supervisor knows for certain whether the command was
//! executed.
//!
//! Without namespaces there is one step, which executes the command. With namespaces there are three:
//!
//! ```text
//! supervisor ─► enter: joins the control group, creates the namespaces, and waits
//!                 └─► init: process 1 of the PID namespace; mounts, gives up its rights, reaps orphans
//!                       └─► execute: sets the limits, and becomes the command
//! ```
//!
//! A PID namespace has its own process ids. Its processes die with init, init dies with the step `enter`, and that step
//! dies with the supervisor.

mod enter;
mod execute;
mod init;
mod mounts;

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::process_table::DIRECTORY_VARIABLE;
use crate::protocol::LaunchRequest;

pub(crate) use init::STOP;

/// Reply byte that the launch step sends just before exec. An error message follows it only if exec fails.
pub(crate) const ABOUT_TO_EXECUTE: u8 = b'\n';

/// Exit code of a launch step that failed. The reply distinguishes it from a command that exits with the same code.
const NOT_EXECUTED: u8 = 127;
/// Largest number of file descriptors in a request.
const DESCRIPTORS_MAX: usize = 3;
/// The running program, even after an upgrade replaced or removed its file.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The body of the hidden launch subcommand: one of the launch steps.
///
/// Only [`supervise`](crate::supervise) and launch steps start it.
pub fn launch() -> ExitCode {
    // The duplicate closes on exec; the command's standard input replaces the original.
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::from(NOT_EXECUTED) };
    let mut socket = UnixStream::from(socket);
    let (mut reply, reason) = match receive(&mut socket) {
        Ok((LaunchRequest::Execute { parent, cgroup, program }, mut descriptors)) => {
            let Some(stdin) = take_first(&mut descriptors) else { return ExitCode::from(NOT_EXECUTED) };
            let mut reply = take_first(&mut descriptors).map_or(socket, UnixStream::from);
            let reason = execute::execute(parent, cgroup, &program, stdin, &mut reply);
            (reply, reason)
        }
        Ok((LaunchRequest::Enter { parent, cgroup, namespaces, program }, descriptors)) => {
            match enter::enter(parent, cgroup, namespaces, program, &socket, &descriptors) {
                Ok(mut init) => {
                    // Otherwise the supervisor would not notice that init or the command closed them.
                    drop((socket, descriptors));
                    // Its end means that no process of the namespace is alive.
                    let _ = init.wait();
                    return ExitCode::SUCCESS;
                }
                Err(reason) => (socket, reason),
            }
        }
        Ok((LaunchRequest::Init { namespaces, program }, descriptors)) => {
            return init::run(&namespaces, program, descriptors);
        }
        Err(error) => (socket, format!("the launch step could not read its request: {error}")),
    };
    // If the supervisor has ended, no process can read the reason.
    let _ = reply.write_all(reason.as_bytes());
    ExitCode::from(NOT_EXECUTED)
}

/// Sends a launch step its request.
pub(crate) fn send(
    socket: &mut UnixStream,
    request: &LaunchRequest,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(request)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    if !attached.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("no space for the file descriptors in the message"));
    }
    let sent = sendmsg(&*socket, &[IoSlice::new(&bytes)], &mut attached, SendFlags::empty())?;
    socket.write_all(&bytes[sent..])?;
    socket.shutdown(Shutdown::Write)
}

fn receive(socket: &mut UnixStream) -> io::Result<(LaunchRequest, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(&*socket, &mut [IoSliceMut::new(&mut bytes)], &mut attached, RecvFlags::CMSG_CLOEXEC)?;
    bytes.truncate(received.bytes);
    let mut found = Vec::new();
    for message in attached.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            found.extend(descriptors);
        }
    }
    socket.read_to_end(&mut bytes)?;
    Ok((serde_json::from_slice(&bytes)?, found))
}

fn take_first(descriptors: &mut Vec<OwnedFd>) -> Option<OwnedFd> {
    (!descriptors.is_empty()).then(|| descriptors.remove(0))
}

/// Starts the next launch step, with the arguments of this one.
fn start_step(group: Group) -> io::Result<(Child, UnixStream)> {
    let (socket, theirs) = UnixStream::pair()?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(OWN_PROGRAM);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env_remove(DIRECTORY_VARIABLE).stdin(OwnedFd::from(theirs));
    if group == Group::Own {
        command.process_group(0);
    }
    Ok((command.spawn()?, socket))
}

/// Process group of a launch step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    /// That of its parent.
    Parent,
    Own,
}

/// Replaces the standard streams of this process, so that it does not hold the pipes of the command open.
fn close_standard_streams() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Requests that the kernel kills this process when its parent dies.
fn die_with_parent(parent: i32) -> Result<(), String> {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Err(format!("the launch step could not set the parent-death signal: {error}"));
    }
    // If the parent died before the call above, the signal is never sent.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        return Err("the supervisor has ended".to_owned());
    }
    Ok(())
}
