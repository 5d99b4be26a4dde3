//! What a command leaves when its supervisor was killed: its main process dies too, but others may live on.
//!
//! They are found by their session, which the supervisor began, or by their environment. Each is held by a
//! descriptor before it is looked at for the last time, so that another process which got its number is never
//! hit.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use crate::record::{Begun, machine_start};

/// Kills what is found; how many processes that were.
pub(crate) fn kill(begun: Option<&Begun>, marks: &[String]) -> io::Result<usize> {
    // Numbers of processes mean nothing after the machine was started again. Nor does the number of a session
    // whose leader lives: the supervisor is dead, so it is another's by now.
    let session = begun
        .filter(|begun| begun.machine_start == machine_start())
        .map(|begun| begun.session)
        .filter(|session| stat(*session).is_none_or(|(is_alive, _)| !is_alive));
    let mut found = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if pid != getpid().as_raw_nonzero().get() && belongs(pid, session, marks) {
            found += usize::from(kill_held(pid, || belongs(pid, session, marks))?);
        }
    }
    Ok(found)
}

/// Kills the supervisor, which is known to live.
pub(crate) fn kill_leader(begun: &Begun) -> io::Result<()> {
    if begun.machine_start == machine_start() {
        kill_held(begun.session, || {
            stat(begun.session).is_some_and(|(_, session)| session == begun.session)
        })?;
    }
    Ok(())
}

/// Kills a process that is still the one it was taken for, once it is held.
fn kill_held(pid: i32, is_still: impl Fn() -> bool) -> io::Result<bool> {
    let Some(number) = Pid::from_raw(pid) else { return Ok(false) };
    let held = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(held) => held,
        Err(Errno::SRCH | Errno::INVAL) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if !is_still() {
        return Ok(false);
    }
    match pidfd_send_signal(&held, Signal::KILL) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn belongs(pid: i32, session: Option<i32>, marks: &[String]) -> bool {
    let Some((is_alive, of)) = stat(pid) else { return false };
    is_alive && (session == Some(of) || has_mark(pid, marks))
}

fn has_mark(pid: i32, marks: &[String]) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    let mut variables = environment.split(|byte| *byte == 0);
    !marks.is_empty() && variables.any(|variable| marks.iter().any(|mark| mark.as_bytes() == variable))
}

/// Whether a process is alive, and its session; none where there is no such process.
fn stat(pid: i32) -> Option<(bool, i32)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X" | "x");
    // Then come the parent and the group.
    Some((is_alive, fields.nth(2)?.parse().ok()?))
}
