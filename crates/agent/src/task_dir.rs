//! The directory of one task.
//!
//! ```text
//! order.json       the order as received
//! taken            exists if the server has confirmed the assignment
//! prepared         exists if all inputs of the command are in task_dir
//! work/  tmp/      directories of the command; it sees no other file of the agent
//! user             user id of the command, if it has its own
//! run.json, alive, started, control, log, exit.json, forbidden     files of the supervisor
//! stop             reason to stop the command
//! shipped.json     position in the log up to which the server has it
//! manifest.json    result; if it exists, it only has to be submitted
//! ```
//!
//! Only the start and the end of a command must survive a power loss. All other files are created or received again.
//!
//! The command can remove or replace the directory at any time. So symbolic links are not followed, and a running
//! command is also found in the process table.

use crate::agent_dir::make_dir;
use crate::executor::Executor;
use crate::progress::TaskFacts;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tidemill_core::task::{Output, TaskResult};
use tidemill_supervisor::{DetachedCommand, write_atomic};

/// Handle of a task directory.
#[derive(Debug, Clone)]
pub(crate) struct TaskDir {
    tasks: PathBuf,
    task_id: String,
}

/// Result of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) task_id: String,
    pub(crate) result: TaskResult,
    pub(crate) outputs: Vec<Output>,
    /// Names of unknown fields of the order.
    pub(crate) unknown: Vec<String>,
}

/// Reason to stop a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StopReason {
    Cancelled,
    /// The server has ended the task or assigned it to another agent.
    Over,
    /// The agent shuts down and stops its commands.
    Shutdown,
}

/// Position in the log up to which the server has it, and the chunk that was sent last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogPosition {
    /// Number of the next chunk.
    pub(crate) seq: i32,
    /// Start offset of the chunk.
    pub(crate) from: u64,
    /// End offset, once it was sent: the same chunk is repeated until the server confirms it.
    pub(crate) to: Option<u64>,
}

impl LogPosition {
    /// Position after the server has confirmed this chunk.
    pub(crate) fn after(self) -> Self {
        Self { seq: self.seq + 1, from: self.to.unwrap_or(self.from), to: None }
    }
}

impl TaskDir {
    pub(crate) fn new(tasks: PathBuf, task_id: &str) -> Self {
        Self { tasks, task_id: task_id.to_owned() }
    }

    pub(crate) fn task_id(&self) -> &str {
        &self.task_id
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.tasks.join(&self.task_id)
    }

    /// Working directory of the command.
    pub(crate) fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// Temporary directory of the command.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.path().join("tmp")
    }

    pub(crate) fn exists(&self) -> bool {
        fs::symlink_metadata(self.path()).is_ok()
    }

    /// Whether the directory was not removed or replaced since the start of the command.
    pub(crate) fn is_intact(&self) -> bool {
        DetachedCommand::new(self.path()).has_spec()
    }

    /// Restores the permissions of the directory if the command removed them.
    pub(crate) fn restore_access(&self) {
        let dir = self.path();
        let is_closed = |found: &fs::Metadata| found.is_dir() && found.permissions().mode() & 0o700 != 0o700;
        if fs::symlink_metadata(&dir).is_ok_and(|found| is_closed(&found)) {
            // If this fails, the next access fails too, with an error message.
            let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
        }
    }

    /// Removes the files of the command, which are not needed once the result is known.
    pub(crate) fn remove_work(&self) -> io::Result<()> {
        remove_all(&self.work())?;
        remove_all(&self.tmp())
    }

    pub(crate) fn create(&self) -> io::Result<()> {
        make_dir(&self.path())
    }

    /// Stores an order; creates the directory if needed.
    pub(crate) fn write_order(&self, raw: &Value) -> io::Result<()> {
        // A file or link in its task_dir belongs to no task.
        if fs::symlink_metadata(self.path()).is_ok_and(|found| !found.is_dir()) {
            fs::remove_file(self.path())?;
        }
        self.create()?;
        write_atomic(&self.path().join("order.json"), &serde_json::to_vec(raw)?)
    }

    pub(crate) fn order(&self) -> io::Result<Option<Value>> {
        self.read("order.json")
    }

    /// Records that the server has confirmed the assignment.
    pub(crate) fn mark_taken(&self) -> io::Result<()> {
        self.mark("taken")
    }

    /// Records that all inputs of the command are in task_dir.
    pub(crate) fn mark_prepared(&self) -> io::Result<()> {
        self.mark("prepared")
    }

    /// Reason to stop the command, if there is one. A corrupt file counts as a cancellation.
    pub(crate) fn stop(&self) -> io::Result<Option<StopReason>> {
        match self.read("stop") {
            Err(error) if is_corrupt(&error) => Ok(Some(StopReason::Cancelled)),
            stop => stop,
        }
    }

    /// Stores a reason to stop; an earlier reason is not replaced.
    pub(crate) fn write_stop(&self, stop: StopReason) -> io::Result<()> {
        if self.stop()?.is_none() {
            self.create()?;
            write_atomic(&self.path().join("stop"), &serde_json::to_vec(&stop)?)?;
        }
        Ok(())
    }

    /// The result, if it is known.
    pub(crate) fn manifest(&self) -> io::Result<Option<Manifest>> {
        self.read("manifest.json")
    }

    pub(crate) fn write_manifest(&self, manifest: &Manifest) -> io::Result<()> {
        write_atomic(&self.path().join("manifest.json"), &serde_json::to_vec(manifest)?)
    }

    /// The stored log position. If it is corrupt, the whole log is sent again: the server ignores repeated chunks.
    pub(crate) fn log_position(&self) -> io::Result<LogPosition> {
        match self.read("shipped.json") {
            Err(error) if is_corrupt(&error) => Ok(LogPosition::default()),
            position => Ok(position?.unwrap_or_default()),
        }
    }

    pub(crate) fn write_log_position(&self, position: LogPosition) -> io::Result<()> {
        write_atomic(&self.path().join("shipped.json"), &serde_json::to_vec(&position)?)
    }

    /// Collects the facts from which the progress is derived.
    pub(crate) fn facts(&self, executor: &impl Executor) -> io::Result<TaskFacts> {
        let dir = self.path();
        Ok(TaskFacts {
            has_manifest: dir.join("manifest.json").exists(),
            is_taken: dir.join("taken").exists(),
            is_prepared: dir.join("prepared").exists(),
            command: executor.state(&dir)?,
        })
    }

    /// Removes the directory. It is renamed first, so that no process finds it incomplete.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.restore_access();
        // A symbolic link is removed and not followed: it may lead to files of other tasks.
        let is_dir = fs::symlink_metadata(self.path()).is_ok_and(|found| found.is_dir());
        if is_dir {
            // A supervisor that is still starting must not find the specification of the command.
            match fs::remove_file(self.path().join("run.json")) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let aside = self.tasks.join(format!(".{}", self.task_id));
        remove_all(&aside)?;
        match fs::rename(self.path(), &aside) {
            Ok(()) => remove_all(&aside),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn mark(&self, name: &str) -> io::Result<()> {
        fs::write(self.path().join(name), b"")
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> io::Result<Option<T>> {
        match fs::read(self.path().join(name)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether an error means that a file has invalid content, for example after a power loss.
fn is_corrupt(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Removes a file, or a directory with its content even if a command removed its permissions.
///
/// Symbolic links are not followed.
pub(crate) fn remove_all(dir: &Path) -> io::Result<()> {
    if fs::symlink_metadata(dir).is_ok_and(|found| !found.is_dir()) {
        return fs::remove_file(dir);
    }
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            restore_access_below(dir)?;
            fs::remove_dir_all(dir)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Restores the permissions of a directory and its subdirectories. Symbolic links are not followed.
fn restore_access_below(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            restore_access_below(&entry.path())?;
        }
    }
    Ok(())
}
