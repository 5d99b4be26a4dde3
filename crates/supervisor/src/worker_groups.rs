//! The control groups of a worker's commands.
//!
//! The name of a group contains the process that created it. So another worker recognises the groups of dead workers,
//! and kills what they left.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::getpid;
use tracing::debug;

use crate::cgroup::{CommandGroup, parent_group};

const PREFIX: &str = "tidemill-work";

/// The parent of the groups and the common part of their names; `None` if this process cannot create groups.
struct Place {
    parent: PathBuf,
    owner: String,
}

/// Creates a group for a command of this process; returns `None` if the system or its configuration does not allow it.
pub(crate) fn create() -> Option<CommandGroup> {
    static PLACE: OnceLock<Option<Place>> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let place = PLACE.get_or_init(open).as_ref()?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let group = CommandGroup::new(place.parent.join(format!("{}-{number}", place.owner)));
    match group.create() {
        Ok(()) => Some(group),
        Err(error) => {
            debug!(error = %error, "commands have no control groups");
            None
        }
    }
}

/// Finds the parent group, and removes the groups of dead workers.
fn open() -> Option<Place> {
    let parent = parent_group().ok()?;
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
    let pid = getpid().as_raw_nonzero().get();
    let owner = format!("{PREFIX}-{namespace}-{pid}-{}", start_time(pid)?);
    for entry in fs::read_dir(&parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if owner_of(name, namespace).is_some_and(|(pid, started)| start_time(pid) != Some(started)) {
            let group = CommandGroup::new(entry.path());
            let removed = group.kill().and_then(|()| group.remove());
            if let Err(error) = removed {
                debug!(error = %error, "could not remove the control group of a dead worker");
            }
        }
    }
    Some(Place { parent, owner })
}

/// Process id and start time of the owner of a group, if it is in the PID namespace of this process.
fn owner_of(name: &str, namespace: u64) -> Option<(i32, u64)> {
    let rest = name.strip_prefix(PREFIX)?.strip_prefix('-')?;
    let mut parts = rest.split('-');
    let is_here = parts.next()?.parse() == Ok(namespace);
    let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    is_here.then_some(owner)
}

/// Time since boot at which a process started, in clock ticks; `None` if it does not exist.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The program name is in parentheses and may contain any character.
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_parsed_from_the_name_of_a_group() {
        assert_eq!(owner_of("tidemill-work-77-42-1234-0", 77), Some((42, 1234)));
        assert_eq!(owner_of("tidemill-work-78-42-1234-0", 77), None, "another PID namespace");
        assert_eq!(owner_of("tidemill-work-77-x-1234-0", 77), None);
        assert_eq!(owner_of("system.slice", 77), None);
    }

    #[test]
    fn start_time_identifies_this_process() {
        let pid = getpid().as_raw_nonzero().get();
        assert!(start_time(pid).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_time(pid), start_time(pid));
    }
}
