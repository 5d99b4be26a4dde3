//! Kills orphaned processes: when a supervisor is killed, its command's main process dies, but others may survive.
//!
//! This is the search for commands without a control group, and for processes outside of it. A process that changed its
//! session and its environment is not found.
//!
//! Orphans are found by the session that the supervisor created, or by their environment. Each process is checked
//! once more after its pidfd was opened, so that a process with a reused process id is never killed.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use crate::process_table::effective_user;
use crate::record::{StartRecord, boot_id};

/// Kills the orphaned processes; returns how many were found.
///
/// If the command has a user id of its own, only processes of that user are found by their environment. Another task
/// could otherwise name this one in its environment, and delay its end.
pub(crate) fn kill(
    started: Option<&StartRecord>,
    variables: &[String],
    user: Option<u32>,
) -> io::Result<usize> {
    // Process ids are invalid after a reboot. A session whose leader is alive is not ours either: the supervisor
    // is dead, so the id was reused.
    let session = started
        .filter(|record| record.machine_start == boot_id())
        .map(|record| record.session)
        .filter(|session| stat(*session).is_none_or(|(is_alive, _)| !is_alive));
    let mut found = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let belongs = || belongs(pid, session, variables, user);
        if pid != getpid().as_raw_nonzero().get() && belongs() {
            found += usize::from(kill_if(pid, belongs)?);
        }
    }
    Ok(found)
}

/// Kills the supervisor, which the caller knows to be alive.
pub(crate) fn kill_supervisor(started: &StartRecord) -> io::Result<()> {
    if started.machine_start == boot_id() {
        kill_if(started.session, || {
            stat(started.session).is_some_and(|(_, session)| session == started.session)
        })?;
    }
    Ok(())
}

/// Opens a pidfd for `pid`, then kills the process if `is_same` still holds.
fn kill_if(pid: i32, is_same: impl Fn() -> bool) -> io::Result<bool> {
    let Some(raw_pid) = Pid::from_raw(pid) else { return Ok(false) };
    let pidfd = match pidfd_open(raw_pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(Errno::SRCH | Errno::INVAL) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if !is_same() {
        return Ok(false);
    }
    match pidfd_send_signal(&pidfd, Signal::KILL) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn belongs(pid: i32, session: Option<i32>, variables: &[String], user: Option<u32>) -> bool {
    let Some((is_alive, own_session)) = stat(pid) else { return false };
    let has_user = || user.is_none() || effective_user(pid) == user;
    is_alive && (session == Some(own_session) || (has_user() && has_variable(pid, variables)))
}

fn has_variable(pid: i32, wanted: &[String]) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    let mut variables = environment.split(|byte| *byte == 0);
    !wanted.is_empty() && variables.any(|variable| wanted.iter().any(|wanted| wanted.as_bytes() == variable))
}

/// Returns whether a process is alive, and its session id; `None` if it does not exist.
fn stat(pid: i32) -> Option<(bool, i32)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X" | "x");
    // Skips the parent and the process group.
    Some((is_alive, fields.nth(2)?.parse().ok()?))
}
