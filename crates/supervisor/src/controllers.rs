//! Controllers of control groups: enabled for the groups of commands, below the group of the agent.
//!
//! Version 2 allows controllers below a group only if the group itself has no processes.

use std::fs;
use std::path::Path;

use crate::cgroup::{CommandGroup, is_delegated};
use crate::process_table::parent_of;

/// Controllers that limit a group.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// Group of the agent itself below a group that was delegated to it, as with DelegateSubgroup= of the shipped unit.
const OWN_LEAF: &str = "agent";

/// Enables the controllers for the groups below `parent`; returns the reason for each one that is not available.
///
/// A group cannot have both processes and controllers for the groups below it: `memory` would be refused, and `pids`
/// and `cpu` would make the group a threaded one, below which no command can start. So this process moves into a group
/// of its own first, if the group was delegated to it.
pub fn enable_controllers(parent: &Path) -> Vec<(&'static str, String)> {
    let controllers = |file: &str| fs::read_to_string(parent.join(file)).unwrap_or_default();
    let (available, enabled) = (controllers("cgroup.controllers"), controllers("cgroup.subtree_control"));
    let has = |list: &str, name: &str| list.split_ascii_whitespace().any(|found| found == name);
    let (mut missing, mut wanted) = (Vec::new(), Vec::new());
    for name in CONTROLLERS.into_iter().filter(|name| !has(&enabled, name)) {
        if has(&available, name) {
            wanted.push(name);
        } else {
            let group = parent.display();
            missing.push((name, format!("the cgroup v2 controller `{name}` is not available in {group}")));
        }
    }
    if wanted.is_empty() {
        return missing;
    }
    let delegation = match (is_delegated(parent), is_started_by_manager()) {
        (false, _) => Delegation::NotDelegated,
        (true, true) => Delegation::ToService,
        (true, false) => Delegation::ToProcess,
    };
    let prepared = match preparation(parent, delegation, is_own_process) {
        Preparation::NotNeeded => Ok(()),
        Preparation::MoveToLeaf(pids) => move_to_leaf(parent, &pids),
        Preparation::Impossible(reason) => Err(reason),
    };
    for name in wanted {
        let enabled = prepared.clone().and_then(|()| {
            fs::write(parent.join("cgroup.subtree_control"), format!("+{name}"))
                .map_err(|error| error.to_string())
        });
        if let Err(reason) = enabled {
            missing.push((name, format!("the cgroup controller `{name}` is not enabled: {reason}")));
        }
    }
    missing
}

/// Holder of the right to manage a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delegation {
    NotDelegated,
    /// The service manager starts this process in the group, also the next time.
    ToService,
    ToProcess,
}

/// Step before controllers can be enabled for the groups below a group.
#[derive(Debug, PartialEq, Eq)]
enum Preparation {
    NotNeeded,
    /// These processes, which are all of the group, must move to a group below it.
    MoveToLeaf(Vec<u32>),
    /// The reason, as a sentence part for people.
    Impossible(String),
}

/// Decides how the group can be prepared, from the files in its directory.
fn preparation(dir: &Path, delegation: Delegation, is_own: impl Fn(u32) -> bool) -> Preparation {
    let processes = match fs::read_to_string(dir.join("cgroup.procs")) {
        Ok(processes) => processes,
        Err(error) => return Preparation::Impossible(error.to_string()),
    };
    // The root of the hierarchy has no type, and may have processes. A process of another namespace has the id 0.
    let pids: Vec<u32> = processes.lines().map(|line| line.trim().parse().unwrap_or(0)).collect();
    if pids.is_empty() || !dir.join("cgroup.type").exists() {
        return Preparation::NotNeeded;
    }
    let group = dir.display();
    match delegation {
        Delegation::ToProcess if pids.iter().all(|pid| is_own(*pid)) => Preparation::MoveToLeaf(pids),
        Delegation::ToProcess => {
            Preparation::Impossible(format!("other processes are in the group {group} of the agent"))
        }
        // With controllers, the group would refuse the process at its next start while commands still run.
        Delegation::ToService => Preparation::Impossible(format!(
            "the service manager starts the agent in its delegated group {group}; \
             add DelegateSubgroup=agent to its unit (systemd 254)"
        )),
        Delegation::NotDelegated => Preparation::Impossible(format!(
            "the group {group} is not delegated to the agent; \
             run it as a systemd service with Delegate=yes and DelegateSubgroup=agent"
        )),
    }
}

fn move_to_leaf(parent: &Path, pids: &[u32]) -> Result<(), String> {
    let leaf = CommandGroup::new(parent.join(OWN_LEAF));
    let moved = leaf.create().and_then(|()| pids.iter().try_for_each(|pid| leaf.add(*pid)));
    moved.map_err(|error| format!("could not move the agent to {}: {error}", leaf.dir().display()))
}

/// Whether a process is this one or its descendant.
fn is_own_process(pid: u32) -> bool {
    let own = std::process::id();
    let parent = |pid: &u32| u32::try_from(parent_of(i32::try_from(*pid).ok()?)?).ok();
    std::iter::successors(Some(pid), parent).any(|ancestor| ancestor == own)
}

/// Whether a service manager has started this process, and not a process that it inherits its environment from.
fn is_started_by_manager() -> bool {
    let variable = |name| std::env::var(name).ok();
    match variable("SYSTEMD_EXEC_PID") {
        Some(pid) => pid == std::process::id().to_string(),
        // systemd before version 248.
        None => variable("INVOCATION_ID").is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The directory of a group with these controllers.
    fn group(controllers: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
        fs::write(dir.path().join("cgroup.subtree_control"), "").unwrap();
        dir
    }

    /// Adds the file with the processes of a group. Every group but the root of the hierarchy has a type.
    fn add_processes(dir: &Path, processes: &str) {
        fs::write(dir.join("cgroup.procs"), processes).unwrap();
        fs::write(dir.join("cgroup.type"), "domain\n").unwrap();
    }

    #[test]
    fn agent_leaves_a_delegated_group_that_it_has_to_itself() {
        use Delegation::{NotDelegated, ToProcess, ToService};
        let dir = group("memory pids cpu");
        let is_own = |pid| pid < 100;
        let decide = |delegation| preparation(dir.path(), delegation, is_own);
        let refusal = |delegation| match decide(delegation) {
            Preparation::Impossible(reason) => reason,
            decided @ (Preparation::NotNeeded | Preparation::MoveToLeaf(_)) => panic!("{decided:?}"),
        };
        assert!(refusal(ToProcess).contains("No such file"));
        add_processes(dir.path(), "");
        for delegation in [NotDelegated, ToService, ToProcess] {
            assert_eq!(decide(delegation), Preparation::NotNeeded, "{delegation:?}");
        }
        add_processes(dir.path(), "12\n13\n");
        assert_eq!(decide(ToProcess), Preparation::MoveToLeaf(vec![12, 13]));
        assert!(refusal(ToService).contains("DelegateSubgroup=agent"));
        assert!(refusal(NotDelegated).contains("is not delegated to the agent"));
        for foreign in ["12\n113\n", "0\n", "12\n0\n"] {
            add_processes(dir.path(), foreign);
            let is_own = |pid| pid != 0 && pid < 100;
            let decided = preparation(dir.path(), ToProcess, is_own);
            assert!(matches!(decided, Preparation::Impossible(_)), "{foreign}: {decided:?}");
        }
        fs::remove_file(dir.path().join("cgroup.type")).unwrap();
        assert_eq!(
            decide(NotDelegated),
            Preparation::NotNeeded,
            "the root of the hierarchy may have processes"
        );
    }

    #[test]
    fn controllers_are_enabled_only_in_a_group_without_processes() {
        let dir = group("memory cpu");
        let control = dir.path().join("cgroup.subtree_control");
        add_processes(dir.path(), &format!("{}\n", std::process::id()));
        let names = || enable_controllers(dir.path()).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(), ["pids", "memory", "cpu"]);
        assert_eq!(fs::read_to_string(&control).unwrap(), "", "half of the controllers make it threaded");
        fs::write(&control, "memory cpu").unwrap();
        assert_eq!(names(), ["pids"]);
        assert_eq!(fs::read_to_string(&control).unwrap(), "memory cpu");
        fs::write(&control, "").unwrap();
        add_processes(dir.path(), "");
        assert_eq!(names(), ["pids"]);
        // The kernel would append to the file.
        assert_eq!(fs::read_to_string(&control).unwrap(), "+cpu");
    }

    #[test]
    fn own_processes_are_this_one_and_its_descendants() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_own_process(std::process::id()) && is_own_process(child.id()));
        assert!(!is_own_process(std::os::unix::process::parent_id()) && !is_own_process(0));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn processes_move_to_a_group_below() {
        let dir = group("memory");
        let leaf = dir.path().join("agent");
        assert!(move_to_leaf(dir.path(), &[1]).unwrap_err().starts_with("could not move the agent to "));
        fs::write(leaf.join("cgroup.procs"), "").unwrap();
        move_to_leaf(dir.path(), &[123]).unwrap();
        assert_eq!(fs::read_to_string(leaf.join("cgroup.procs")).unwrap(), "123");
    }
}
