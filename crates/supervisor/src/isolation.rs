//! Specification of the isolation of a command: its namespaces, its user and its control group.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Directories that all users share for temporary files.
pub(crate) const SHARED_TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";

/// Separation of a command from its supervisor and from other commands. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Isolation {
    pub namespaces: Option<Namespaces>,
    /// Directory of the control group that the supervisor creates for the command and removes after its end.
    pub cgroup: Option<PathBuf>,
}

/// PID, mount and IPC namespaces of a command.
///
/// The command has no capabilities, and set-user-id programs have no effect in it. It dies with the init process of its
/// PID namespace, which dies with the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    pub user: CommandUser,
    /// Directory that the command sees as an empty, read-only directory, except for `own`.
    pub covered: PathBuf,
    /// Directories below `covered` that the command sees and may change.
    pub own: Vec<PathBuf>,
    /// Directory that the command sees in place of the temporary directories that all users share.
    pub private_tmp: Option<PathBuf>,
    /// Files and directories that the command sees as empty. Missing ones are ignored.
    pub hidden: Vec<PathBuf>,
}

impl Namespaces {
    /// Returns the directory for temporary files that is not replaced for a command with a user of its own, because it
    /// contains `covered`.
    pub fn shared_directory(covered: &Path) -> Option<&'static Path> {
        let shared = SHARED_TEMPORARY.into_iter().chain([SHARED_MEMORY]).map(Path::new);
        // A directory that is covered itself shows nothing of the machine.
        shared.into_iter().find(|shared| covered.starts_with(shared) && covered != *shared)
    }
}

/// User of an isolated command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandUser {
    /// This user id, and the group of the same number. Only root can change the user.
    Own(u32),
    /// The user of the supervisor, in a user namespace without capabilities.
    SameInNamespace,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_directory_is_the_one_that_contains_the_covered_one() {
        let shared = |covered: &'static str| Namespaces::shared_directory(Path::new(covered));
        for (covered, expected) in
            [("/tmp/a/agent", "/tmp"), ("/var/tmp/a", "/var/tmp"), ("/dev/shm/a", "/dev/shm")]
        {
            assert_eq!(shared(covered), Some(Path::new(expected)), "{covered}");
        }
        for covered in ["/tmp", "/tmpfs/a", "/var/lib/tidemill", "/root", "/"] {
            assert_eq!(shared(covered), None, "{covered}");
        }
    }
}
