//! The directory of an agent: who it is, what it holds, and what its jobs left.
//!
//! ```text
//! agent.json                          who it is, for ever
//! lock                                held by the one process that uses the directory
//! tasks/<task>/                       see `place`
//! workspaces/<workspace>/<job>/…      what jobs left, for those that need it
//! ```

use crate::order::is_id;
use crate::place::Place;
use crate::run::Error;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use tidemill_supervisor::write_record;
use uuid::Uuid;

/// The directory of an agent, which this process alone uses.
#[derive(Debug)]
pub(crate) struct Home {
    dir: PathBuf,
    agent_id: Uuid,
    /// Let go when this process ends.
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct Identity {
    agent_id: Uuid,
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
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: dir.clone() }),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let agent_id = identity(&dir.join("agent.json")).map_err(failed)?;
        let home = Self { dir: dir.clone(), agent_id, _lock: lock };
        home.remove_leftovers().map_err(failed)?;
        Ok(home)
    }

    /// Who it is.
    pub(crate) fn agent_id(&self) -> Uuid {
        self.agent_id
    }

    /// The place of a task, whether or not it is there.
    pub(crate) fn place(&self, task_id: &str) -> Place {
        Place::new(self.dir.join("tasks"), task_id)
    }

    /// The tasks that are on the disk.
    pub(crate) fn tasks(&self) -> io::Result<Vec<String>> {
        let mut tasks = Vec::new();
        for entry in fs::read_dir(self.dir.join("tasks"))? {
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

    /// Removes what an earlier process was removing when it died.
    fn remove_leftovers(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.dir.join("tasks"))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with('.') {
                crate::place::remove_all(&entry.path())?;
            }
        }
        Ok(())
    }
}

fn identity(path: &Path) -> io::Result<Uuid> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice::<Identity>(&bytes)?.agent_id),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let agent_id = Uuid::new_v4();
            write_record(path, &serde_json::to_vec(&Identity { agent_id })?)?;
            Ok(agent_id)
        }
        Err(error) => Err(error),
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
        drop(home);
        assert_eq!(Home::open(dir.path()).unwrap().agent_id(), id);
    }

    #[test]
    fn any_workspace_has_a_name_of_a_directory() {
        assert_eq!(escaped("main-2.0_x"), "main-2.0_x");
        assert_eq!(escaped(".."), "%2E.");
        assert_eq!(escaped("a/ü b"), "a%2F%C3%BC%20b");
    }
}
