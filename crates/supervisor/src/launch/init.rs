//! The init process of a command's PID namespace.
//!
//! It prepares the mounts, gives up all rights, starts the command and reaps orphans. When it ends, the kernel kills
//! all processes of the namespace. It ends with the step that started it, and when the supervisor closes the control
//! socket. It reports the end of the command through that socket, because an init process cannot die of most signals.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitCode, exit};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Gid, Pid, Signal, Uid, WaitId, WaitIdOptions, WaitOptions, WaitStatus,
    kill_process_group, set_dumpable_behavior, set_parent_process_death_signal, wait, waitid,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::{Group, NOT_EXECUTED, close_standard_streams, mounts, send, start_step};
use crate::isolation::{CommandUser, Namespaces};
use crate::protocol::{LaunchRequest, Program};
use crate::record::Limits;
use crate::report::End;

/// Control byte: send SIGTERM to the process group of the command.
pub(crate) const STOP: u8 = b'T';

/// Process id of init in its own namespace.
const INIT_PID: i32 = 1;

/// Runs the init process.
pub(super) fn run(namespaces: &Namespaces, program: Program, descriptors: Vec<OwnedFd>) -> ExitCode {
    let Ok([stdin, control, reply]) = <[OwnedFd; 3]>::try_from(descriptors) else {
        return ExitCode::from(NOT_EXECUTED);
    };
    let (mut control, mut reply) = (UnixStream::from(control), UnixStream::from(reply));
    match prepare(namespaces, program.limits).and_then(|()| start(program, &stdin, &reply)) {
        Ok(command) => {
            drop((stdin, reply));
            reap(&command, &mut control)
        }
        Err(reason) => {
            // If the supervisor has ended, no process can read the reason.
            let _ = reply.write_all(reason.as_bytes());
            ExitCode::from(NOT_EXECUTED)
        }
    }
}

/// Prepares the mounts, then gives up all rights.
fn prepare(namespaces: &Namespaces, limits: Limits) -> Result<(), String> {
    mounts::prepare(namespaces, limits.shared_memory_bytes).map_err(|(action, error)| {
        format!("the launch step could not {action} in its mount namespace: {error}")
    })?;
    let dropped = (|| {
        match namespaces.user {
            CommandUser::Own(id) => {
                let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
                set_thread_groups(&[])?;
                set_thread_res_gid(group, group, group)?;
                // Also drops all capabilities.
                set_thread_res_uid(user, user, user)?;
            }
            CommandUser::SameInNamespace => clear_ambient_capability_set()?,
        }
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
        set_no_new_privs(true)?;
        // The command has the same user and must not trace this process.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        // A change of the user clears this setting, so it comes last.
        set_parent_process_death_signal(Some(Signal::KILL))
    })();
    dropped.map_err(|error: Errno| {
        format!("the launch step could not change to the user of the command: {error}")
    })
}

/// Starts the step that executes the command.
fn start(program: Program, stdin: &OwnedFd, reply: &UnixStream) -> Result<Child, String> {
    let started = start_step(Group::Own).and_then(|(child, mut socket)| {
        let request = LaunchRequest::Execute { parent: INIT_PID, cgroup: None, program };
        send(&mut socket, &request, &[stdin.as_fd(), reply.as_fd()])?;
        close_standard_streams()?;
        Ok(child)
    });
    started.map_err(|error| format!("the launch step could not start the command: {error}"))
}

/// Reaps all processes of the namespace, and reports the end of the command. Ends when no process is left.
fn reap(command: &Child, control: &mut UnixStream) -> ExitCode {
    let Some(pid) = i32::try_from(command.id()).ok().and_then(Pid::from_raw) else {
        return ExitCode::from(NOT_EXECUTED);
    };
    // The process id is valid as long as it is in here: it is removed before the process is reaped.
    let main = &*Box::leak(Box::new(Mutex::new(Some(pid))));
    let Ok(mut messages) = control.try_clone() else { return ExitCode::from(NOT_EXECUTED) };
    thread::spawn(move || follow(&mut messages, main));
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::INTR) => continue,
            Err(_) => return ExitCode::SUCCESS,
        }
        let mut running = main.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(Some((reaped, status))) = wait(WaitOptions::NOHANG) {
            if reaped == pid {
                *running = None;
                report(control, status);
            }
        }
    }
}

/// Passes on stop messages until the supervisor closes the control socket, then ends the namespace.
fn follow(messages: &mut UnixStream, main: &Mutex<Option<Pid>>) {
    let mut byte = [0];
    while let Ok(1) = messages.read(&mut byte) {
        if byte[0] == STOP
            && let Some(pid) = *main.lock().unwrap_or_else(PoisonError::into_inner)
        {
            // Fails only if the group has no process.
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }
    exit(i32::from(NOT_EXECUTED));
}

fn report(control: &mut UnixStream, status: WaitStatus) {
    let code = status.exit_status().map(End::Code);
    let Some(end) = code.or_else(|| status.terminating_signal().map(End::Signal)) else { return };
    if let Ok(mut line) = serde_json::to_vec(&end) {
        line.push(b'\n');
        // If the supervisor has ended, this namespace ends, too.
        let _ = control.write_all(&line);
    }
}
