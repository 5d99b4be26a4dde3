//! The process that holds the write lock of a SQLite file, for messages.
//!
//! A process that is stopped or hangs in a transaction blocks all writers of its file, and SQLite reports only that the
//! database is locked. Linux lists all locks with their processes in `/proc/locks`. The locked file is not opened:
//! closing it would release the locks that SQLite holds in this process. If the system does not name the process, no
//! holder is found.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Position of the write lock in the index of the write-ahead log (SQLite, "WAL-mode File Format", section 2.3.1).
const WRITE_LOCK: u64 = 120;

/// A process that holds the write lock of a SQLite file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    pid: u32,
    name: String,
    is_stopped: bool,
    file: PathBuf,
}

impl LockHolder {
    /// Finds the process that holds the write lock of a file, if the system names it.
    pub(crate) fn of(file: &Path) -> Option<Self> {
        let mut index = file.as_os_str().to_owned();
        index.push("-shm");
        let found = fs::metadata(index).ok()?;
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let pid = holder_of(&locks, &lock_file_name(found.dev(), found.ino()))?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, is_stopped) = name_and_state(&stat)?;
        Some(Self { pid, name: name.to_owned(), is_stopped, file: file.to_owned() })
    }

    /// Returns whether the process was stopped by a signal, so that it keeps the lock until it is continued.
    pub(crate) const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns the command that continues the process, or shows what it does.
    pub fn hint(&self) -> String {
        if self.is_stopped {
            format!("kill -CONT {}", self.pid)
        } else {
            format!("ps -o pid,stat,etime,args -p {}", self.pid)
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, name, is_stopped, file } = self;
        let stopped = if *is_stopped { "is stopped and " } else { "" };
        write!(formatter, "process {pid} ({name}) {stopped}holds the write lock of `{}`", file.display())
    }
}

/// Name of a file in `/proc/locks`.
fn lock_file_name(device: u64, inode: u64) -> String {
    // The encoding of `dev_t` by the C library.
    let major = ((device >> 32) & 0xffff_f000) | ((device >> 8) & 0xfff);
    let minor = ((device >> 12) & 0xffff_ff00) | (device & 0xff);
    format!("{major:02x}:{minor:02x}:{inode}")
}

/// The process that holds the write lock, from the text of `/proc/locks`.
///
/// A line has the fields number, kind, mode, access, process, file, first byte and last byte. A waiting process has an
/// arrow in place of the kind. Adjacent locks of a process are merged.
fn holder_of(locks: &str, file_name: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX", _, "WRITE", pid, file, first, last] = fields[..] else { return None };
        let last = if last == "EOF" { u64::MAX } else { last.parse().ok()? };
        let is_held = (first.parse().ok()?..=last).contains(&WRITE_LOCK);
        (file == file_name && is_held).then(|| pid.parse().ok()).flatten()
    })
}

/// Name of a process and whether it is stopped, from the text of its `stat` file.
fn name_and_state(stat: &str) -> Option<(&str, bool)> {
    let (before, after) = stat.rsplit_once(") ")?;
    let (_, name) = before.split_once('(')?;
    Some((name, after.starts_with(['T', 't'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "1: FLOCK  ADVISORY  WRITE 11 fe:00:7 0 EOF\n\
                         2: POSIX  ADVISORY  READ  12 fe:00:7 123 123\n\
                         3: POSIX  ADVISORY  WRITE 13 fe:00:8 120 120\n\
                         4: POSIX  ADVISORY  WRITE 14 fe:00:7 120 121\n\
                         4: -> POSIX  ADVISORY  WRITE 15 fe:00:7 120 120\n\
                         5: POSIX  ADVISORY  WRITE 16 fe:00:9 121 121\n\
                         6: POSIX  ADVISORY  WRITE 17 fe:00:10 0 EOF\n";

    #[test]
    fn holder_is_the_process_with_a_lock_of_the_write_byte() {
        let holders = [7, 8, 9, 10, 11].map(|inode| holder_of(LOCKS, &lock_file_name(0xfe00, inode)));
        assert_eq!(holders, [Some(14), Some(13), None, Some(17), None]);
        assert_eq!(holder_of("", "fe:00:7"), None);
        assert_eq!(holder_of("no lock at all", "fe:00:7"), None);
    }

    #[test]
    fn device_number_is_written_as_the_kernel_does() {
        assert_eq!(lock_file_name(0xfe00, 9), "fe:00:9");
        assert_eq!(lock_file_name(0x0010_3402, 9), "34:102:9", "a minor number above 255");
    }

    #[test]
    fn process_name_may_contain_brackets() {
        assert_eq!(name_and_state("1 (a) b) (c)) T 1 2"), Some(("a) b) (c)", true)));
        assert_eq!(name_and_state("1 (sh) S 1 2"), Some(("sh", false)));
        assert_eq!(name_and_state("nothing"), None);
    }
}
