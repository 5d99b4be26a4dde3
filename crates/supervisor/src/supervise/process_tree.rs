//! The processes of one command: signals and kills all of them, and no others.
//!
//! A process id is only valid until the process has been reaped. So all calls happen in one thread, only direct
//! children are signalled individually, and the main process is reaped last, because its id is also the process group
//! id. Processes whose parent died become children of this process, which is a child subreaper.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    wait, waitid, waitpid,
};

use crate::cgroup::CommandGroup;

/// First and longest pause between two checks whether killed processes are dead.
const PAUSE_MIN: Duration = Duration::from_micros(500);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The command's main process, its process group and all its descendants.
#[derive(Debug)]
pub(super) struct ProcessTree {
    /// The main process, which is not reaped while this value exists.
    leader: Pid,
    /// The control group of the command, if it has one.
    group: Option<CommandGroup>,
}

impl ProcessTree {
    /// Creates the tree of a child process that leads its own process group.
    pub(super) fn new(leader: Pid, group: Option<CommandGroup>) -> Self {
        Self { leader, group }
    }

    /// Sends a signal to the command's process group.
    pub(super) fn signal(&self, signal: Signal) {
        // Fails only if the group has no process that this process may signal.
        let _ = kill_process_group(self.leader, signal);
    }

    /// Reaps orphaned descendants that ended while the main process runs.
    pub(super) fn reap_orphans(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, options), Ok(Some(_))) {
            for orphan in children().filter(|child| !child.is_alive && child.pid != self.leader) {
                let _ = waitpid(Some(orphan.pid), WaitOptions::NOHANG);
            }
        }
    }

    /// Whether another process than the main one is alive.
    pub(super) fn has_orphans(&self) -> bool {
        children().any(|child| child.is_alive && child.pid != self.leader)
    }

    /// Kills all processes, waits until they are dead, and returns the status of the main process.
    ///
    /// Has no time limit. It also waits for a process that cannot be killed because it changed its user: reporting
    /// the end of the command while it runs would be wrong.
    pub(super) fn kill(self) -> Option<WaitStatus> {
        self.signal(Signal::KILL);
        let mut status = None;
        let mut pause = PAUSE_MIN;
        loop {
            self.kill_group();
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, ended))) if pid == self.leader => status = Some(ended),
                    Ok(Some(_)) | Err(Errno::INTR) => {}
                    Ok(None) => break,
                    Err(_) => {
                        self.remove_group();
                        return status;
                    }
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

impl ProcessTree {
    fn kill_group(&self) {
        // The other ways to find the processes do not depend on the group.
        if let Some(group) = &self.group {
            let _ = group.kill();
        }
    }

    /// Removes the control group, and first kills processes in it that are no descendants of this process.
    fn remove_group(&self) {
        self.kill_group();
        if let Some(group) = &self.group {
            // The agent removes a group that is left.
            let _ = group.remove();
        }
    }
}

/// One direct child of this process.
struct Child {
    pid: Pid,
    /// False for a child that has ended but is not reaped.
    is_alive: bool,
}

/// Lists the direct children of this process.
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

/// Parses a `/proc/<pid>/stat` line into whether the process is alive, and its parent.
fn parse_stat(stat: &[u8]) -> Option<(bool, Pid)> {
    // The program name is in parentheses and may contain any character, including parentheses.
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
    fn stat_line_gives_state_and_parent() {
        assert_eq!(parsed(b"42 (sleep) S 7 42 42 0 -1"), Some((true, 7)));
        assert_eq!(parsed(b"42 (sleep) Z 7 42 42 0 -1"), Some((false, 7)));
    }

    #[test]
    fn stat_line_with_parentheses_in_the_name_is_parsed() {
        assert_eq!(parsed(b"42 (x) Z 9 (\xFF) S 7 42 42 0 -1"), Some((true, 7)));
    }

    #[test]
    fn stat_line_without_parent_or_fields_is_ignored() {
        assert_eq!(parsed(b"1 (init) S 0 1 1 0 -1"), None);
        assert_eq!(parsed(b""), None);
    }
}
