//! The processes of one command, and how they are killed: all of them, and no others.
//!
//! A process id names a process for certain only while we have not collected its end. So everything here happens
//! in one thread, only direct children are signalled one by one, and the main process is collected last: its id
//! also names the process group. Processes whose parent died become our children, as we are a child subreaper.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    wait, waitid, waitpid,
};

/// How long to wait at first, and at most, between two looks at processes that were killed and are not yet dead.
const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The command's main process, its group, and all that descends from it.
#[derive(Debug)]
pub(super) struct Family {
    /// The main process, not yet collected as long as this value exists.
    leader: Pid,
}

impl Family {
    /// The family of a child that leads its own process group.
    pub(super) fn new(leader: Pid) -> Self {
        Self { leader }
    }

    /// Sends a signal to the command's process group.
    pub(super) fn signal(&self, signal: Signal) {
        // Fails only if the group has no process left that we may signal.
        let _ = kill_process_group(self.leader, signal);
    }

    /// Collects descendants that lost their parent and ended, while the main process runs.
    pub(super) fn collect_orphans(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, options), Ok(Some(_))) {
            for orphan in children().filter(|child| !child.is_alive && child.pid != self.leader) {
                let _ = waitpid(Some(orphan.pid), WaitOptions::NOHANG);
            }
        }
    }

    /// Whether a process is left after the main one ended.
    pub(super) fn has_orphans(&self) -> bool {
        children().any(|child| child.is_alive && child.pid != self.leader)
    }

    /// Kills whatever is left, waits until it is dead, and tells how the main process ended.
    ///
    /// Takes as long as the system needs. A process that we may not kill (it changed its user) is waited for:
    /// to say that the command is over while it runs would be a lie.
    pub(super) fn kill(self) -> Option<WaitStatus> {
        self.signal(Signal::KILL);
        let mut status = None;
        let mut pause = PAUSE_MIN;
        loop {
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, ended))) if pid == self.leader => status = Some(ended),
                    Ok(Some(_)) | Err(Errno::INTR) => {}
                    Ok(None) => break,
                    Err(_) => return status,
                }
            }
            for child in children().filter(|child| child.is_alive) {
                let _ = kill_process(child.pid, Signal::KILL);
            }
            thread::sleep(pause);
            pause = PAUSE_MAX.min(pause * 2);
        }
    }
}

/// One direct child of this process.
struct Child {
    pid: Pid,
    /// Whether it has not ended; an ended child remains until it is collected.
    is_alive: bool,
}

/// The direct children of this process.
fn children() -> impl Iterator<Item = Child> {
    let own = getpid();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let stat = fs::read(entry.path().join("stat")).ok()?;
        let (is_alive, parent) = parse_stat(&stat)?;
        (parent == own).then_some(Child { pid, is_alive })
    })
}

/// Whether the process of this `stat` line is alive, and its parent.
fn parse_stat(stat: &[u8]) -> Option<(bool, Pid)> {
    // The name of the program stands in parentheses and may contain anything, parentheses included.
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let is_alive = !matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok().and_then(Pid::from_raw)?;
    Some((is_alive, parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(stat: &[u8]) -> Option<(bool, i32)> {
        parse_stat(stat).map(|(is_alive, parent)| (is_alive, parent.as_raw_nonzero().get()))
    }

    #[test]
    fn a_stat_line_gives_life_and_parent() {
        assert_eq!(parsed(b"42 (sleep) S 7 42 42 0 -1"), Some((true, 7)));
        assert_eq!(parsed(b"42 (sleep) Z 7 42 42 0 -1"), Some((false, 7)));
    }

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        assert_eq!(parsed(b"42 (x) Z 9 (\xFF) S 7 42 42 0 -1"), Some((true, 7)));
    }

    #[test]
    fn a_process_without_parent_or_sense_is_none_of_ours() {
        assert_eq!(parsed(b"1 (init) S 0 1 1 0 -1"), None);
        assert_eq!(parsed(b""), None);
    }
}
