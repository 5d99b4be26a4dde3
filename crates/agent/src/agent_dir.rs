//! The directory of an agent: its identity, its tasks and the retained outputs of jobs.
//!
//! ```text
//! agent.json                          id and secrets of the agent, readable only by its user
//! lock                                locked by the one process that uses the directory
//! tasks/<task>/                       see `task_dir`
//! workspaces/<workspace>/<job>/…      retained outputs for jobs that need them
//! ```

use crate::order::is_id;
use crate::run::Error;
use crate::task_dir::{TaskDir, remove_all};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tidemill_core::digest::sha256_hex;
use tidemill_supervisor::write_durable;
use tracing::warn;
use uuid::Uuid;

/// File with the identity of the agent.
const IDENTITY: &str = "agent.json";
/// Time that the lock of an ended agent may still be held, and the interval of retries.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The directory of an agent, locked by this process.
#[derive(Debug)]
pub(crate) struct AgentDir {
    dir: PathBuf,
    agent_id: Uuid,
    secrets: Mutex<DirSecrets>,
    /// The kernel releases the lock when this process ends.
    lock: Mutex<File>,
}

/// The retained outputs of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetainedOutputs {
    pub(crate) job_id: String,
    pub(crate) dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Identity {
    agent_id: Uuid,
    #[serde(flatten)]
    secrets: DirSecrets,
}

/// The secrets that prove the identity of the directory to the server.
///
/// Each registration replaces the current secret by the next one. Both are on disk before they are sent: whichever of
/// them the server knows after a crash, the next process can prove it by repeating the registration.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirSecrets {
    pub(crate) secret: String,
    /// Secret of a registration without a known response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next_secret: Option<String>,
}

impl fmt::Debug for DirSecrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DirSecrets(•••)")
    }
}

impl AgentDir {
    /// Opens and locks the directory; creates it if it does not exist.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Directory { path: dir.to_owned(), source };
        for part in ["tasks", "workspaces"] {
            make_dir(&dir.join(part)).map_err(failed)?;
        }
        // Task directories need absolute paths, because commands have other working directories.
        let dir = &dir.canonicalize().map_err(failed)?;
        let lock = open_lock(dir).map_err(failed)?;
        if !lock_within(&lock, LOCK_TIMEOUT).map_err(failed)? {
            return Err(Error::Busy { path: dir.clone() });
        }
        let Identity { agent_id, secrets } = identity(&dir.join(IDENTITY)).map_err(failed)?;
        let (secrets, lock) = (Mutex::new(secrets), Mutex::new(lock));
        let agent_dir = Self { dir: dir.clone(), agent_id, secrets, lock };
        agent_dir.remove_leftovers().map_err(failed)?;
        Ok(agent_dir)
    }

    /// Creates a removed directory again, with the same identity and lock, so that the next process is the same agent.
    pub(crate) fn restore(&self) -> io::Result<()> {
        if self.dir.join(IDENTITY).exists() {
            return Ok(());
        }
        for part in ["tasks", "workspaces"] {
            make_dir(&self.dir.join(part))?;
        }
        let lock = open_lock(&self.dir)?;
        if lock_within(&lock, LOCK_TIMEOUT)? {
            *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = lock;
            self.write_secrets(&self.secrets())?;
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn tasks_dir(&self) -> PathBuf {
        self.dir.join("tasks")
    }

    pub(crate) fn agent_id(&self) -> Uuid {
        self.agent_id
    }

    /// Returns the current secret, and the secret that replaces it with the next registration.
    ///
    /// If the disk is full, the secret replaces itself: the agent must register, and rotates later.
    pub(crate) fn begin_rotation(&self) -> (String, String) {
        let mut secrets = self.secrets();
        if let Some(next) = &secrets.next_secret {
            return (secrets.secret.clone(), next.clone());
        }
        let begun = DirSecrets { secret: secrets.secret.clone(), next_secret: Some(new_secret()) };
        if let Err(error) = self.write_secrets(&begun) {
            warn!("could not store a new secret of the agent; the current one stays: {error}");
            return (secrets.secret.clone(), secrets.secret.clone());
        }
        *secrets = begun;
        (secrets.secret.clone(), secrets.next_secret.clone().unwrap_or_default())
    }

    /// Makes the next secret the current one, after the server has accepted it.
    pub(crate) fn finish_rotation(&self) {
        let mut secrets = self.secrets();
        if let Some(next) = secrets.next_secret.take() {
            secrets.secret = next;
            // Otherwise the next process repeats this rotation, which the server accepts.
            if let Err(error) = self.write_secrets(&secrets) {
                warn!("could not store that the secret of the agent was replaced: {error}");
            }
        }
    }

    /// Identifies the lock of this directory: the start of the machine, and the lock file on its disk. A copy of the
    /// directory has another lock file.
    pub(crate) fn lock_id(&self) -> io::Result<String> {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).metadata()?;
        let machine_boot = tidemill_supervisor::boot_id();
        Ok(sha256_hex(format!("{machine_boot} {}:{}", lock.dev(), lock.ino()).as_bytes()))
    }

    fn secrets(&self) -> MutexGuard<'_, DirSecrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_secrets(&self, secrets: &DirSecrets) -> io::Result<()> {
        let identity = Identity { agent_id: self.agent_id, secrets: secrets.clone() };
        write_identity(&self.dir.join(IDENTITY), &identity)
    }

    /// The directory of a task, which may not exist.
    pub(crate) fn task_dir(&self, task_id: &str) -> TaskDir {
        TaskDir::new(self.tasks_dir(), task_id)
    }

    /// Ids of the tasks on disk.
    pub(crate) fn tasks(&self) -> io::Result<Vec<String>> {
        let mut tasks = Vec::new();
        let entries = match fs::read_dir(self.tasks_dir()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(tasks),
            entries => entries?,
        };
        for entry in entries {
            if let Some(name) = entry?.file_name().to_str().filter(|name| is_id(name)) {
                tasks.push(name.to_owned());
            }
        }
        tasks.sort_unstable();
        Ok(tasks)
    }

    /// The directory for the retained outputs of a job.
    pub(crate) fn retained_dir(&self, workspace: &str, job_id: &str) -> PathBuf {
        self.dir.join("workspaces").join(escaped(workspace)).join(job_id)
    }

    /// Lists all retained outputs.
    pub(crate) fn retained(&self) -> io::Result<Vec<RetainedOutputs>> {
        let mut retained = Vec::new();
        for workspace in self.workspaces()? {
            for entry in fs::read_dir(workspace)? {
                let entry = entry?;
                if let Some(job_id) = entry.file_name().to_str().filter(|name| is_id(name)) {
                    retained.push(RetainedOutputs { job_id: job_id.to_owned(), dir: entry.path() });
                }
            }
        }
        retained.sort_unstable_by(|one, other| one.job_id.cmp(&other.job_id));
        Ok(retained)
    }

    /// Removes retained outputs. They are renamed first, so that no reader finds them incomplete.
    pub(crate) fn remove_retained(&self, outputs: &RetainedOutputs) -> io::Result<()> {
        let aside = self.dir.join("workspaces").join(format!(".{}", outputs.job_id));
        remove_all(&aside)?;
        match fs::rename(&outputs.dir, &aside) {
            Ok(()) => remove_all(&aside),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lists the workspace directories. Their names never begin with a dot.
    fn workspaces(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(self.dir.join("workspaces")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with('.') && entry.file_type()?.is_dir() {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    /// Removes files of unfinished operations of an earlier process.
    fn remove_leftovers(&self) -> io::Result<()> {
        for part in ["tasks", "workspaces"] {
            for entry in fs::read_dir(self.dir.join(part))? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with('.') {
                    remove_leftover(&entry.path());
                }
            }
        }
        for workspace in self.workspaces()? {
            for entry in fs::read_dir(&workspace)? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().ends_with(".new") {
                    remove_leftover(&entry.path());
                }
            }
            // An empty workspace is created again when it is needed.
            match fs::remove_dir(&workspace) {
                Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secrets = DirSecrets { secret: new_secret(), next_secret: None };
            let identity = Identity { agent_id: Uuid::new_v4(), secrets };
            write_identity(path, &identity)?;
            Ok(identity)
        }
        Err(error) => Err(error),
    }
}

/// Makes a secret of 244 random bits.
fn new_secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

fn write_identity(path: &Path, identity: &Identity) -> io::Result<()> {
    write_durable(path, &serde_json::to_vec(identity)?)
}

/// Removes an unfinished file or directory. A failure costs disk space only.
fn remove_leftover(path: &Path) {
    if let Err(error) = remove_all(path) {
        warn!("could not remove {}, which an earlier process left incomplete: {error}", path.display());
    }
}

/// Creates a directory that only its owner can read, and its parents.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Converts any text to a directory name: special characters are percent-encoded.
pub(crate) fn escaped(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for (byte, index) in text.bytes().zip(0..) {
        let is_plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && index > 0);
        if is_plain {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

/// Opens the lock file. Another user who could read it could also lock it, and keep the agent from its start.
fn open_lock(dir: &Path) -> io::Result<File> {
    let lock = File::options().create(true).truncate(false).write(true).mode(0o600).open(dir.join("lock"))?;
    // An earlier version created it with the default mode.
    lock.set_permissions(Permissions::from_mode(0o600))?;
    Ok(lock)
}

/// Tries to lock a file until the timeout. A child process that an ended agent has just started holds the lock until
/// it executes its program.
pub(crate) fn lock_within(file: &File, timeout: Duration) -> io::Result<bool> {
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if started.elapsed() < timeout => {
                thread::sleep(LOCK_RETRY_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_has_one_identity_and_one_process() {
        let dir = tempfile::tempdir().unwrap();
        let agent_dir = AgentDir::open(dir.path()).unwrap();
        let id = agent_dir.agent_id();
        let error = AgentDir::open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        // A child process may hold the lock a little longer than the agent itself.
        drop(agent_dir);
        // An earlier version let others read it.
        fs::set_permissions(dir.path().join("lock"), Permissions::from_mode(0o644)).unwrap();
        let child = File::open(dir.path().join("lock")).unwrap();
        child.lock().unwrap();
        let held = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(child);
        });
        let again = AgentDir::open(dir.path()).unwrap();
        held.join().unwrap();
        assert_eq!(again.agent_id(), id);
        for file in [IDENTITY, "lock"] {
            let mode = fs::metadata(dir.path().join(file)).unwrap().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }

    #[test]
    fn secret_rotation_survives_a_crash_at_every_step() {
        let dir = tempfile::tempdir().unwrap();
        let open = || AgentDir::open(dir.path()).unwrap();
        let (first, second) = open().begin_rotation();
        assert_ne!(first, second);
        assert_eq!((first.len(), second.len()), (64, 64));
        // The process died before the response: the next one repeats the same registration.
        let again = open();
        assert_eq!(again.begin_rotation(), (first, second.clone()));
        again.finish_rotation();
        again.finish_rotation();
        drop(again);
        let (current, third) = open().begin_rotation();
        assert_eq!(current, second);
        assert_ne!(third, second);
    }

    #[test]
    fn lock_id_is_stable_and_differs_for_a_copy() {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let agent_dir = AgentDir::open(dir.path()).unwrap();
        let lock_id = agent_dir.lock_id().unwrap();
        fs::copy(dir.path().join(IDENTITY), copy.path().join(IDENTITY)).unwrap();
        let copied = AgentDir::open(copy.path()).unwrap();
        assert_eq!(copied.agent_id(), agent_dir.agent_id());
        assert_ne!(copied.lock_id().unwrap(), lock_id);
        drop(agent_dir);
        assert_eq!(AgentDir::open(dir.path()).unwrap().lock_id().unwrap(), lock_id);
    }

    #[test]
    fn open_removes_incomplete_outputs_and_keeps_complete_ones() {
        let dir = tempfile::tempdir().unwrap();
        let agent_dir = AgentDir::open(dir.path()).unwrap();
        let (first, second) =
            (agent_dir.retained_dir("a/b", "job-1"), agent_dir.retained_dir("other", "job-2"));
        for path in [&first, &second] {
            make_dir(path).unwrap();
            fs::write(path.join("file"), "x").unwrap();
        }
        // The process was killed while it retained a third job and removed a fourth.
        make_dir(&agent_dir.retained_dir("other", "job-3.new")).unwrap();
        make_dir(&dir.path().join("workspaces/.job-4/half")).unwrap();
        let retained = agent_dir.retained().unwrap();
        assert_eq!(
            retained.iter().map(|outputs| outputs.job_id.as_str()).collect::<Vec<_>>(),
            ["job-1", "job-2"]
        );
        agent_dir.remove_retained(&retained[0]).unwrap();
        agent_dir.remove_retained(&retained[0]).unwrap();
        assert!(!first.exists());
        drop(agent_dir);
        let agent_dir = AgentDir::open(dir.path()).unwrap();
        assert_eq!(agent_dir.retained().unwrap(), retained[1..]);
        let left: Vec<_> = fs::read_dir(dir.path().join("workspaces")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn workspace_name_is_escaped_for_a_directory() {
        assert_eq!(escaped("main-2.0_x"), "main-2.0_x");
        assert_eq!(escaped(".."), "%2E.");
        assert_eq!(escaped("a/ü b"), "a%2F%C3%BC%20b");
    }
}
