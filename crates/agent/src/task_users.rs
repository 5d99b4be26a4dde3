//! User ids of tasks: each live task of this machine has an id of its own.
//!
//! ```text
//! /run/tidemill/task-users/lock      locked during a claim
//! /run/tidemill/task-users/<id>      directory of the task that has the id
//! <task>/user                        id of the task
//! ```
//!
//! Only root can enter the registry: a task that could open the lock could also hold it, and stop all claims.
//!
//! All agents of a machine share the registry, so their ranges may overlap. An id is free again when the directory of
//! its task is removed and no process has the id. Tasks outlive the agent, and so do their claims. A reboot clears the
//! registry; no task runs then, and a task that was not started claims its id again.

use crate::agent_dir::lock_within;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, lchown,
};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tidemill_supervisor::write_atomic;

const REGISTRY: &str = "/run/tidemill/task-users";
/// Time limit for the lock of the registry, which an agent holds for milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Name of the file in the directory of a task.
const USER: &str = "user";

/// Range of user ids for tasks. The group of a task has the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserRange {
    first: u32,
    last: u32,
}

/// The default is in the range that systemd and distributions leave unused.
impl Default for UserRange {
    fn default() -> Self {
        Self { first: 2_000_000_000, last: 2_000_009_999 }
    }
}

impl FromStr for UserRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('-').and_then(|(first, last)| {
            Some(Self { first: first.trim().parse().ok()?, last: last.trim().parse().ok()? })
        });
        let range =
            parsed.ok_or("not a range of user ids; use FIRST-LAST, for example 2000000000-2000009999")?;
        // The highest id means "no change" in system calls; lower ids belong to people and services.
        if range.first < 1000 || range.first > range.last || range.last >= u32::MAX - 1 {
            return Err("the range must begin at 1000 or higher, and must not be empty".to_owned());
        }
        Ok(range)
    }
}

impl UserRange {
    pub(crate) fn len(self) -> u32 {
        self.last - self.first + 1
    }

    /// All ids, beginning at a random one.
    fn ids(self) -> impl Iterator<Item = u32> {
        let start = fastrand::u32(self.first..=self.last);
        (start..=self.last).chain(self.first..start)
    }
}

/// Claims a user id for the task with this directory, which keeps it until the directory is removed.
///
/// Does not block the thread of the caller. The error of a lock that stays held is one that a retry may avoid.
pub(crate) async fn claim(range: UserRange, task_dir: &Path) -> io::Result<u32> {
    claim_within(PathBuf::from(REGISTRY), LOCK_TIMEOUT, range, task_dir.to_owned()).await
}

async fn claim_within(
    registry: PathBuf,
    timeout: Duration,
    range: UserRange,
    task_dir: PathBuf,
) -> io::Result<u32> {
    let claim = tokio::task::spawn_blocking(move || {
        let _lock = lock(&registry, timeout)?;
        claim_in(&registry, range, &task_dir)
    });
    claim.await.map_err(io::Error::other).flatten()
}

/// Frees the id of a task whose directory was removed. Otherwise the next claim of the id frees it.
pub(crate) fn release(user: u32, task_dir: &Path) {
    let registry = Path::new(REGISTRY);
    // Without the lock, it could remove the entry of a task that claims the id at the same time.
    let Ok(_lock) = lock(registry, Duration::ZERO) else { return };
    let entry = registry.join(user.to_string());
    if !task_dir.exists() && holder(&entry).as_deref() == Some(task_dir) && !has_processes(user) {
        let _ = fs::remove_file(entry);
    }
}

/// The id of a task, if it has claimed one.
pub(crate) fn recorded(task_dir: &Path) -> Option<u32> {
    fs::read_to_string(task_dir.join(USER)).ok()?.parse().ok()
}

/// Locks the registry; creates it if it does not exist.
fn lock(registry: &Path, timeout: Duration) -> io::Result<File> {
    if let Some(parent) = registry.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(registry) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => make_private(registry)?,
        created => created?,
    }
    let path = registry.join("lock");
    let lock = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
    if lock_within(&lock, timeout)? {
        return Ok(lock);
    }
    let shown = path.display();
    let message = format!(
        "the lock of the user ids of tasks is held for more than {} s; find the process: fuser -v {shown}",
        timeout.as_secs()
    );
    Err(io::Error::new(io::ErrorKind::TimedOut, message))
}

/// Closes a registry of an earlier version, which others could read.
fn make_private(registry: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(registry)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        let message = format!("{} is not a directory of this user; remove it", registry.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(registry, Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(registry)? {
            fs::set_permissions(entry?.path(), Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}

fn claim_in(registry: &Path, range: UserRange, task_dir: &Path) -> io::Result<u32> {
    let recorded = recorded(task_dir);
    for user in recorded.into_iter().chain(range.ids()) {
        let entry = registry.join(user.to_string());
        let is_free = match holder(&entry) {
            None => true,
            Some(dir) => dir == task_dir || (!dir.exists() && !has_processes(user)),
        };
        if is_free {
            // The claim comes first: after a crash in between, the id is taken until the directory is removed.
            write_atomic(&entry, task_dir.as_os_str().as_bytes())?;
            write_atomic(&task_dir.join(USER), user.to_string().as_bytes())?;
            return Ok(user);
        }
    }
    let message = format!(
        "all {} user ids of --task-users {}-{} are in use; choose a larger range",
        range.len(),
        range.first,
        range.last
    );
    Err(io::Error::other(message))
}

fn holder(entry: &Path) -> Option<PathBuf> {
    let bytes = fs::read(entry).ok()?;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&bytes)))
}

/// Whether a process of this machine has the user id.
fn has_processes(user: u32) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let user = user.to_string();
    entries.filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit)).any(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        ids.split_ascii_whitespace().any(|id| id == user)
    })
}

/// Gives a directory and its content to a user. No command may have run in it yet.
pub(crate) fn give(dir: &Path, user: u32) -> io::Result<()> {
    lchown(dir, Some(user), Some(user))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give(&entry.path(), user)?;
        } else {
            lchown(entry.path(), Some(user), Some(user))?;
        }
    }
    Ok(())
}

/// Takes an output of a task over, so that a later task with the same user id does not own it.
pub(crate) fn take_over(file: &File) -> io::Result<()> {
    if geteuid().is_root() {
        std::os::unix::fs::fchown(file, Some(0), Some(0))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far from the default range, so that no process has one of them.
    const RANGE: UserRange = UserRange { first: 2_100_000_000, last: 2_100_000_001 };

    const TIMEOUT: Duration = Duration::from_mins(1);

    fn claim_in(registry: &Path, range: UserRange, task_dir: &Path) -> io::Result<u32> {
        let _lock = lock(registry, TIMEOUT)?;
        super::claim_in(registry, range, task_dir)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn live_tasks_have_different_ids_until_their_directories_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let registry = root.path().join("registry");
        let dirs = ["one", "two", "three"].map(|name| root.path().join(name));
        for dir in &dirs {
            fs::create_dir(dir).unwrap();
        }
        let first = claim_in(&registry, RANGE, &dirs[0]).unwrap();
        let second = claim_in(&registry, RANGE, &dirs[1]).unwrap();
        assert_ne!(first, second);
        // The same task, after a restart of the agent.
        assert_eq!(claim_in(&registry, RANGE, &dirs[0]).unwrap(), first);
        assert_eq!(recorded(&dirs[0]), Some(first));
        let error = claim_in(&registry, RANGE, &dirs[2]).unwrap_err().to_string();
        assert!(error.starts_with("all 2 user ids of --task-users 2100000000-2100000001"), "{error}");
        fs::remove_dir_all(&dirs[0]).unwrap();
        assert_eq!(claim_in(&registry, RANGE, &dirs[2]).unwrap(), first);
        let files = ["lock".to_owned(), first.to_string(), second.to_string()];
        assert_eq!(mode(&registry), 0o700);
        assert_eq!(files.map(|file| mode(&registry.join(file))), [0o600; 3]);
    }

    #[test]
    fn registry_of_an_earlier_version_becomes_private() {
        let root = tempfile::tempdir().unwrap();
        let (registry, dir) = (root.path().join("registry"), root.path().join("task"));
        fs::create_dir(&dir).unwrap();
        fs::create_dir(&registry).unwrap();
        let files = ["lock", "2100000000"].map(|name| registry.join(name));
        for file in &files {
            fs::write(file, dir.as_os_str().as_bytes()).unwrap();
            fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
        }
        fs::set_permissions(&registry, Permissions::from_mode(0o755)).unwrap();
        drop(lock(&registry, TIMEOUT).unwrap());
        assert_eq!((mode(&registry), files.map(|file| mode(&file))), (0o700, [0o600; 2]));
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&registry, &link).unwrap();
        let error = claim_in(&link, RANGE, &dir).unwrap_err().to_string();
        assert!(error.ends_with("is not a directory of this user; remove it"), "{error}");
    }

    /// The runtime has one thread: a claim that blocked it would also stop the heartbeats of the agent.
    #[tokio::test]
    async fn held_lock_delays_a_claim_and_blocks_no_other_task() {
        let root = tempfile::tempdir().unwrap();
        let (registry, dir) = (root.path().join("registry"), root.path().join("task"));
        fs::create_dir(&dir).unwrap();
        let held = lock(&registry, TIMEOUT).unwrap();
        let claim = |timeout| claim_within(registry.clone(), timeout, RANGE, dir.clone());
        let error = claim(Duration::ZERO).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("fuser -v "), "{error}");
        let claiming = tokio::spawn(claim(TIMEOUT));
        // Runs only while the claim does not occupy the thread.
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            drop(held);
        });
        let user = claiming.await.unwrap().unwrap();
        assert_eq!(recorded(&dir), Some(user));
    }

    #[test]
    fn id_of_a_live_process_is_not_free() {
        assert!(has_processes(geteuid().as_raw()));
        let root = tempfile::tempdir().unwrap();
        let (registry, dir) = (root.path().join("registry"), root.path().join("task"));
        fs::create_dir(&dir).unwrap();
        let own = geteuid().as_raw();
        drop(lock(&registry, TIMEOUT).unwrap());
        fs::write(registry.join(own.to_string()), "/removed").unwrap();
        assert!(claim_in(&registry, UserRange { first: own, last: own }, &dir).is_err());
    }

    #[test]
    fn range_is_parsed_and_checked() {
        assert_eq!("5000-5001".parse(), Ok(UserRange { first: 5000, last: 5001 }));
        for bad in ["", "5000", "0-10", "5001-5000", "5000-4294967295", "a-b", "-5-10"] {
            assert!(bad.parse::<UserRange>().is_err(), "{bad}");
        }
    }
}
