//! Finds detached supervisors in the process table, also when their directory was removed.
//!
//! The environment of a detached supervisor names the directory of its task. The command can remove that directory,
//! but not the entry in the process table. Each process is referenced by a pidfd, so that a signal never reaches
//! another process with a reused process id.
//!
//! A command can put any text into its own environment. So only processes with the user and the PID namespace of the
//! caller count: an isolated command differs in at least one of them, and supervisors in neither.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

use crate::protocol::ControlMessage;
use crate::record::CONTROL;

/// Environment variable of a detached supervisor: the directory of its task. The command does not inherit it.
pub(crate) const DIRECTORY_VARIABLE: &str = "TIDEMILL_SUPERVISED_DIR";

/// A detached supervisor, referenced by a pidfd.
#[derive(Debug)]
pub struct SupervisorProcess {
    dir: PathBuf,
    pid: i32,
    pidfd: OwnedFd,
}

impl SupervisorProcess {
    /// Finds the live supervisors of all tasks whose directories are, or were, directly below `parent`.
    pub fn find_below(parent: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for (pid, dir) in processes_with_variable(DIRECTORY_VARIABLE, parent)? {
            let Some(process) = Self::open(dir, pid)? else { continue };
            // The process id may have been reused before the pidfd was opened.
            let is_same = directory_of(pid, DIRECTORY_VARIABLE).as_ref() == Some(&process.dir);
            if is_same && is_trusted(pid) && process.is_alive() {
                found.push(process);
            }
        }
        // A launch step has the environment of its supervisor until it executes the command.
        let pids: Vec<i32> = found.iter().map(|process| process.pid).collect();
        found.retain(|process| parent_of(process.pid).is_none_or(|parent| !pids.contains(&parent)));
        Ok(found)
    }

    /// Opens a supervisor that this process started and has not reaped; returns `None` if it has ended.
    pub fn of_child(dir: &Path, pid: u32) -> io::Result<Option<Self>> {
        match i32::try_from(pid) {
            Ok(pid) => Self::open(dir.to_owned(), pid),
            Err(_) => Ok(None),
        }
    }

    fn open(dir: PathBuf, pid: i32) -> io::Result<Option<Self>> {
        let Some(raw_pid) = Pid::from_raw(pid) else { return Ok(None) };
        match pidfd_open(raw_pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Some(Self { dir, pid, pidfd })),
            Err(Errno::SRCH | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Directory of its task, which may have been removed.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its process id, which is also the session id of its command.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn is_alive(&self) -> bool {
        // A pidfd becomes readable when the process ends.
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0) | Err(_))
    }

    /// Whether a signal has stopped it. It then enforces no time limit and reads no message until it is resumed.
    pub fn is_stopped(&self) -> bool {
        state_of(self.pid) == Some('T') && self.is_alive()
    }

    /// Resumes it if a signal has stopped it.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it; the kernel kills the main process of its command with it.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a message through its open pipe, which works without the directory. Returns false if it does not read.
    pub(crate) fn send(&self, message: ControlMessage) -> io::Result<bool> {
        let Some(pipe) = self.control() else { return Ok(false) };
        write_message(pipe, message)
    }

    /// Opens the named pipe through the descriptor that the supervisor has open.
    fn control(&self) -> Option<io::Result<File>> {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?;
        descriptors.flatten().find_map(|entry| {
            // All checks apply to this descriptor, because the process can replace its own one at any time.
            let found = openat(CWD, entry.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
            let found = File::from(found);
            let own = format!("/proc/self/fd/{}", found.as_raw_fd());
            let target = fs::read_link(&own).ok()?;
            let target = target.to_string_lossy();
            let name = target.strip_suffix(" (deleted)").unwrap_or(&target);
            let is_control = name.rsplit('/').next() == Some(CONTROL)
                && found.metadata().is_ok_and(|found| found.file_type().is_fifo());
            is_control.then(|| open_pipe(Path::new(&own), OFlags::NONBLOCK))
        })
    }
}

/// Opens a named pipe for control messages without waiting for a reader.
pub(crate) fn open_pipe(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let pipe = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    if !pipe.metadata()?.file_type().is_fifo() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it is not a named pipe"));
    }
    Ok(pipe)
}

/// Writes a message into a pipe. Returns false if no process reads it.
pub(crate) fn write_message(pipe: io::Result<File>, message: ControlMessage) -> io::Result<bool> {
    let mut line = serde_json::to_vec(&message)?;
    line.push(b'\n');
    // A write of at most PIPE_BUF bytes is atomic.
    match pipe.and_then(|mut pipe| pipe.write_all(&line)) {
        Ok(()) => Ok(true),
        // The pipe is missing, has no reader, or is full because the supervisor is stuck.
        Err(error) if is_unusable(&error) => Ok(false),
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether an error means that a directory was removed, replaced by something else, or cannot be entered.
pub(crate) fn is_unusable(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory, io::ErrorKind::PermissionDenied];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Finds the directories directly below `parent` that are the value of `variable` in the environment of a process.
///
/// A process of their task is still alive.
pub fn directories_in_use(variable: &str, parent: &Path) -> io::Result<BTreeSet<PathBuf>> {
    Ok(processes_with_variable(variable, parent)?.into_iter().map(|(_, dir)| dir).collect())
}

/// Finds the trusted processes with a variable that names a directory directly below `parent`.
fn processes_with_variable(variable: &str, parent: &Path) -> io::Result<Vec<(i32, PathBuf)>> {
    let pids = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let trusted = pids.filter(|pid: &i32| is_trusted(*pid));
    let with_dir = trusted.filter_map(|pid: i32| Some((pid, directory_of(pid, variable)?)));
    Ok(with_dir.filter(|(_, dir)| dir.parent() == Some(parent)).collect())
}

/// Whether a process has the effective user and the PID namespace of this process.
fn is_trusted(pid: i32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    effective_user(pid) == Some(geteuid().as_raw()) && namespace(&pid.to_string()) == namespace("self")
}

/// The effective user id of a process.
pub(crate) fn effective_user(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    // The real user id comes first.
    ids.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn directory_of(pid: i32, name: &str) -> Option<PathBuf> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    variables.find_map(|variable| {
        let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(PathBuf::from(OsString::from_vec(value.to_vec())))
    })
}

/// The fields of `/proc/<pid>/stat` from the state on.
fn stat_of(pid: i32) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The program name is in parentheses and may contain any character.
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    String::from_utf8(stat[after_name..].to_vec()).ok()
}

fn state_of(pid: i32) -> Option<char> {
    stat_of(pid)?.trim_start().chars().next()
}

pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    stat_of(pid)?.split_ascii_whitespace().nth(1)?.parse().ok()
}
