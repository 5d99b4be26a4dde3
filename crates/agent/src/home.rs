//! The directory of an agent: who it is, what it holds, and what its jobs left.
//!
//! ```text
//! agent.json                          who it is, for ever
//! lock                                held by the one process that uses the directory
//! tasks/<task>/                       see `place`
//! workspaces/<workspace>/<job>/…      what jobs left, for those that need it
//! ```

use crate::order::is_id;
use crate::place::{Place, remove_all};
use crate::run::Error;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tidemill_supervisor::write_record;
use tracing::warn;
use uuid::Uuid;

/// How long the lock of an agent that is gone may still be held, and how often to look.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The directory of an agent, which this process alone uses.
#[derive(Debug)]
pub(crate) struct Home {
    dir: PathBuf,
    agent_id: Uuid,
    secret: String,
    /// Let go when this process ends.
    lock: Mutex<File>,
}

/// What a job left, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The job.
    pub(crate) job_id: String,
    /// Where it is.
    pub(crate) dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Identity {
    agent_id: Uuid,
    /// What nobody else knows; directories of earlier versions have none yet.
    #[serde(default)]
    secret: Option<String>,
}

impl Home {
    /// Opens the directory, which is made where there is none, and keeps other processes out.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Directory { path: dir.to_owned(), source };
        for part in ["tasks", "workspaces"] {
            make_dir(&dir.join(part)).map_err(failed)?;
        }
        // Tasks know their places by whole paths: their commands start elsewhere.
        let dir = &dir.canonicalize().map_err(failed)?;
        let lock = File::create(dir.join("lock")).map_err(failed)?;
        if !is_locked(&lock).map_err(failed)? {
            return Err(Error::Busy { path: dir.clone() });
        }
        let (agent_id, secret) = identity(&dir.join("agent.json")).map_err(failed)?;
        let home = Self { dir: dir.clone(), agent_id, secret, lock: Mutex::new(lock) };
        home.remove_leftovers().map_err(failed)?;
        Ok(home)
    }

    /// Makes the directory again where somebody removed it, with the same identity and lock: the next process of it
    /// must be the same agent.
    pub(crate) fn restore(&self) -> io::Result<()> {
        if self.dir.join("agent.json").exists() {
            return Ok(());
        }
        for part in ["tasks", "workspaces"] {
            make_dir(&self.dir.join(part))?;
        }
        let lock = File::create(self.dir.join("lock"))?;
        if is_locked(&lock)? {
            *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = lock;
            write_identity(&self.dir.join("agent.json"), self.agent_id, &self.secret)?;
        }
        Ok(())
    }

    /// The directory of all tasks.
    pub(crate) fn tasks_dir(&self) -> PathBuf {
        self.dir.join("tasks")
    }

    /// Who it is.
    pub(crate) fn agent_id(&self) -> Uuid {
        self.agent_id
    }

    /// What only this directory knows: it proves who the agent is.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// The place of a task, whether or not it is there.
    pub(crate) fn place(&self, task_id: &str) -> Place {
        Place::new(self.tasks_dir(), task_id)
    }

    /// The tasks that are on the disk.
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

    /// Where what a job left is kept.
    pub(crate) fn kept(&self, workspace: &str, job_id: &str) -> PathBuf {
        self.dir.join("workspaces").join(escaped(workspace)).join(job_id)
    }

    /// Everything that jobs left and that is kept.
    pub(crate) fn all_kept(&self) -> io::Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for workspace in self.workspaces()? {
            for entry in fs::read_dir(workspace)? {
                let entry = entry?;
                if let Some(job_id) = entry.file_name().to_str().filter(|name| is_id(name)) {
                    kept.push(Kept { job_id: job_id.to_owned(), dir: entry.path() });
                }
            }
        }
        kept.sort_unstable_by(|one, other| one.job_id.cmp(&other.job_id));
        Ok(kept)
    }

    /// Removes what a job left. It is put aside first, so that nobody takes a half for a whole.
    pub(crate) fn remove_kept(&self, kept: &Kept) -> io::Result<()> {
        let aside = self.dir.join("workspaces").join(format!(".{}", kept.job_id));
        remove_all(&aside)?;
        match fs::rename(&kept.dir, &aside) {
            Ok(()) => remove_all(&aside),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The directories of workspaces. Their names never begin with a dot.
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

    /// Removes what an earlier process was removing, or had not finished to keep, when it died.
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
            // One that holds nothing is made again when it is needed.
            match fs::remove_dir(&workspace) {
                Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

fn identity(path: &Path) -> io::Result<(Uuid, String)> {
    let known = match fs::read(path) {
        Ok(bytes) => Some(serde_json::from_slice::<Identity>(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if let Some(Identity { agent_id, secret: Some(secret) }) = known {
        return Ok((agent_id, secret));
    }
    let agent_id = known.map_or_else(Uuid::new_v4, |known| known.agent_id);
    // Two random ids are 244 random bits.
    let secret = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    write_identity(path, agent_id, &secret)?;
    Ok((agent_id, secret))
}

fn write_identity(path: &Path, agent_id: Uuid, secret: &str) -> io::Result<()> {
    write_record(path, &serde_json::to_vec(&Identity { agent_id, secret: Some(secret.to_owned()) })?)
}

/// Removes a leftover. One that cannot be removed costs its space, and not the agent.
fn remove_leftover(path: &Path) {
    if let Err(error) = remove_all(path) {
        warn!("the leftover {} could not be removed: {error}", path.display());
    }
}

/// Makes a directory for our eyes only, with those that lead to it.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A name of a directory for any text: what could mean something there is written in hexadecimal digits.
pub(crate) fn escaped(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for (byte, place) in text.bytes().zip(0..) {
        let is_plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && place > 0);
        if is_plain {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

/// Locks a file. What an agent has just started holds all that was open in it until it has become another program:
/// for so long the lock of an agent that is gone is taken.
fn is_locked(file: &File) -> io::Result<bool> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_WAIT => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_stays_who_it_is_and_is_there_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        let id = home.agent_id();
        let error = Home::open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        // What was started last may hold the lock a little longer than the agent itself.
        drop(home);
        let child = File::open(dir.path().join("lock")).unwrap();
        child.lock().unwrap();
        let held = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(child);
        });
        let again = Home::open(dir.path()).unwrap();
        held.join().unwrap();
        let secret = again.secret().to_owned();
        assert_eq!((again.agent_id(), secret.len()), (id, 64));
        drop(again);
        assert_eq!(Home::open(dir.path()).unwrap().secret(), secret);
        // A directory of an earlier version stays who it is, and gets a secret.
        fs::write(dir.path().join("agent.json"), format!("{{\"agent_id\":\"{id}\"}}")).unwrap();
        let older = Home::open(dir.path()).unwrap();
        assert_eq!(older.agent_id(), id);
        assert_ne!(older.secret(), secret);
    }

    #[test]
    fn what_is_kept_goes_whole_and_what_was_left_half_goes_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        let (first, second) = (home.kept("a/b", "job-1"), home.kept("other", "job-2"));
        for path in [&first, &second] {
            make_dir(path).unwrap();
            fs::write(path.join("file"), "x").unwrap();
        }
        // Killed while it kept a third, and while it removed a fourth.
        make_dir(&home.kept("other", "job-3.new")).unwrap();
        make_dir(&dir.path().join("workspaces/.job-4/half")).unwrap();
        let kept = home.all_kept().unwrap();
        assert_eq!(kept.iter().map(|kept| kept.job_id.as_str()).collect::<Vec<_>>(), ["job-1", "job-2"]);
        home.remove_kept(&kept[0]).unwrap();
        home.remove_kept(&kept[0]).unwrap();
        assert!(!first.exists());
        drop(home);
        let home = Home::open(dir.path()).unwrap();
        assert_eq!(home.all_kept().unwrap(), kept[1..]);
        let left: Vec<_> = fs::read_dir(dir.path().join("workspaces")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn any_workspace_has_a_name_of_a_directory() {
        assert_eq!(escaped("main-2.0_x"), "main-2.0_x");
        assert_eq!(escaped(".."), "%2E.");
        assert_eq!(escaped("a/ü b"), "a%2F%C3%BC%20b");
    }
}
