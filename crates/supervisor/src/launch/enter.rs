//! The launch step that creates the namespaces and starts their init process.
//!
//! A process that creates a PID namespace does not become part of it, only its children do. So this step stays outside
//! and waits for init.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;

use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};

use super::{Group, close_standard_streams, die_with_parent, send, start_step};
use crate::cgroup::CommandGroup;
use crate::isolation::{CommandUser, Namespaces};
use crate::protocol::{LaunchRequest, Program};

/// Enters the namespaces and starts init; returns it, or the reason why that failed.
///
/// `reply` is the socket for the reply to the supervisor, which init gets.
pub(super) fn enter(
    parent: i32,
    cgroup: Option<PathBuf>,
    namespaces: Namespaces,
    program: Program,
    reply: &UnixStream,
    descriptors: &[OwnedFd],
) -> Result<Child, String> {
    die_with_parent(parent)?;
    // Before the user namespace, which has no rights in the hierarchy.
    if let Some(cgroup) = cgroup {
        let group = CommandGroup::new(&cgroup);
        group.join().map_err(|error| {
            format!("the launch step could not join the control group `{}`: {error}", cgroup.display())
        })?;
    }
    if namespaces.user == CommandUser::SameInNamespace {
        enter_user_namespace()?;
    }
    unshare(UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWIPC)
        .map_err(|error| format!("the launch step could not enter a PID and mount namespace: {error}"))?;
    let failed = |error: io::Error| format!("the launch step could not start the init process: {error}");
    let (mut init, mut socket) = start_step(Group::Parent).map_err(failed)?;
    let mut attached: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
    attached.push(reply.as_fd());
    let sent = send(&mut socket, &LaunchRequest::Init { namespaces, program }, &attached);
    if let Err(error) = sent.and_then(|()| close_standard_streams()) {
        let _ = init.kill();
        let _ = init.wait();
        return Err(failed(error));
    }
    Ok(init)
}

/// Enters a user namespace in which the user keeps its id, with the capability to mount for init.
fn enter_user_namespace() -> Result<(), String> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER).map_err(|error| {
        format!(
            "the launch step could not enter a user namespace: {error}; the system may forbid it to users"
        )
    })?;
    let mapped = fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{user} {user} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{group} {group} 1")));
    mapped.map_err(|error| format!("the launch step could not map its user: {error}"))?;
    // Executing a program as another user than root drops all capabilities that are not ambient.
    let passed = capabilities(None).and_then(|sets| {
        set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::SYS_ADMIN, ..sets })?;
        configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)
    });
    passed.map_err(|error| format!("the launch step could not pass on its capability to mount: {error}"))
}

fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    #[expect(
        deprecated,
        reason = "the replacement is unsafe because of CLONE_FILES, which is not used; this process has one thread"
    )]
    rustix::thread::unshare(flags)
}
