//! The place of one task on the disk: everything that is known of it.
//!
//! ```text
//! order.json       the order as it came
//! taken            the server has said that the task is ours
//! prepared         everything is there that the command needs
//! work/  tmp/      the command's own directories
//! run.json, alive, started, control, log, exit.json, forbidden     the supervisor's
//! stop             the command is not to run, and why
//! shipped.json     how much of the log the server has
//! manifest.json    what came of it; from then on only this counts
//! ```
//!
//! Only the start and the end of a command must last through a loss of power. The rest is made again, or comes
//! again.
//!
//! The directory can be lost, or replaced by its command, at any moment. Nothing here follows a link in its place, and
//! whether a command runs is also in the process table.

use crate::executor::Executor;
use crate::home::make_dir;
use crate::stage::Facts;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tidemill_core::task::{Output, TaskResult};
use tidemill_supervisor::{Lasting, write_whole};

/// The place of one task.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    tasks: PathBuf,
    task_id: String,
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The task.
    pub(crate) task_id: String,
    /// What came of it.
    pub(crate) result: TaskResult,
    /// What it left.
    pub(crate) outputs: Vec<Output>,
    /// Fields of the order that were not understood.
    pub(crate) unknown: Vec<String>,
}

/// Why a command is not to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stop {
    /// Somebody cancelled the job.
    Cancelled,
    /// The server has no use for it any more.
    Over,
    /// The agent was told to end, and its commands with it.
    Shutdown,
}

/// How much of the log the server has, and what was on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shipped {
    /// The number of the next piece.
    pub(crate) seq: i32,
    /// Where it begins.
    pub(crate) from: u64,
    /// Where it ends, once it was sent: the same piece is sent again until it is taken.
    pub(crate) to: Option<u64>,
}

impl Shipped {
    /// What is next when this piece is there.
    pub(crate) fn after(self) -> Self {
        Self { seq: self.seq + 1, from: self.to.unwrap_or(self.from), to: None }
    }
}

impl Place {
    pub(crate) fn new(tasks: PathBuf, task_id: &str) -> Self {
        Self { tasks, task_id: task_id.to_owned() }
    }

    /// The task.
    pub(crate) fn task_id(&self) -> &str {
        &self.task_id
    }

    /// Its directory.
    pub(crate) fn dir(&self) -> PathBuf {
        self.tasks.join(&self.task_id)
    }

    /// The directory that is the command's.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir().join("work")
    }

    /// The command's directory for what it does not need for long.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.dir().join("tmp")
    }

    /// Whether there is anything.
    pub(crate) fn exists(&self) -> bool {
        fs::symlink_metadata(self.dir()).is_ok()
    }

    /// Whether the directory is still the one in which the command was started.
    pub(crate) fn is_intact(&self) -> bool {
        Lasting::new(self.dir()).has_spec()
    }

    /// Gives us back the right to use the directory, where a command took it away.
    pub(crate) fn reopen(&self) {
        let dir = self.dir();
        let is_closed = |found: &fs::Metadata| found.is_dir() && found.permissions().mode() & 0o700 != 0o700;
        if fs::symlink_metadata(&dir).is_ok_and(|found| is_closed(&found)) {
            // Where this fails, so does whatever needs the directory, and says why.
            let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
        }
    }

    /// Frees what the command used, which nobody needs once it is known what came of the task.
    pub(crate) fn free(&self) -> io::Result<()> {
        remove_all(&self.work())?;
        remove_all(&self.tmp())
    }

    /// Makes the directory.
    pub(crate) fn make(&self) -> io::Result<()> {
        make_dir(&self.dir())
    }

    /// Keeps an order, and makes the directory for it where it is not there.
    pub(crate) fn write_order(&self, raw: &Value) -> io::Result<()> {
        // Anything that is no directory stands in the way, and is nobody's.
        if fs::symlink_metadata(self.dir()).is_ok_and(|found| !found.is_dir()) {
            fs::remove_file(self.dir())?;
        }
        self.make()?;
        write_whole(&self.dir().join("order.json"), &serde_json::to_vec(raw)?)
    }

    /// The order, if it has come.
    pub(crate) fn order(&self) -> io::Result<Option<Value>> {
        self.read("order.json")
    }

    /// Notes that the server has said that the task is ours.
    pub(crate) fn note_taken(&self) -> io::Result<()> {
        self.mark("taken")
    }

    /// Notes that everything is there that the command needs.
    pub(crate) fn note_prepared(&self) -> io::Result<()> {
        self.mark("prepared")
    }

    /// Why the command is not to run, if it is not. A reason that cannot be read is one.
    pub(crate) fn stop(&self) -> io::Result<Option<Stop>> {
        match self.read("stop") {
            Err(error) if is_garbled(&error) => Ok(Some(Stop::Cancelled)),
            stop => stop,
        }
    }

    /// Notes that the command is not to run; the first reason stays.
    pub(crate) fn note_stop(&self, stop: Stop) -> io::Result<()> {
        if self.stop()?.is_none() {
            self.make()?;
            write_whole(&self.dir().join("stop"), &serde_json::to_vec(&stop)?)?;
        }
        Ok(())
    }

    /// What came of it, once that is known.
    pub(crate) fn manifest(&self) -> io::Result<Option<Manifest>> {
        self.read("manifest.json")
    }

    /// Writes down what came of it.
    pub(crate) fn write_manifest(&self, manifest: &Manifest) -> io::Result<()> {
        write_whole(&self.dir().join("manifest.json"), &serde_json::to_vec(manifest)?)
    }

    /// How much of the log the server has. Where that cannot be read all of it is sent again: the server takes a piece
    /// once.
    pub(crate) fn shipped(&self) -> io::Result<Shipped> {
        match self.read("shipped.json") {
            Err(error) if is_garbled(&error) => Ok(Shipped::default()),
            shipped => Ok(shipped?.unwrap_or_default()),
        }
    }

    /// Notes how much of the log the server has.
    pub(crate) fn write_shipped(&self, shipped: Shipped) -> io::Result<()> {
        write_whole(&self.dir().join("shipped.json"), &serde_json::to_vec(&shipped)?)
    }

    /// Everything from which the stage is derived.
    pub(crate) fn facts(&self, executor: &impl Executor) -> io::Result<Facts> {
        let dir = self.dir();
        Ok(Facts {
            has_manifest: dir.join("manifest.json").exists(),
            is_taken: dir.join("taken").exists(),
            is_prepared: dir.join("prepared").exists(),
            seen: executor.look(&dir)?,
        })
    }

    /// Removes everything. It is put aside first, so that nobody takes a half for a whole.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.reopen();
        // A link is removed, and not followed: it may lead to files of others.
        let is_dir = fs::symlink_metadata(self.dir()).is_ok_and(|found| found.is_dir());
        if is_dir {
            // A supervisor that was started and has not begun must find no command, whatever else is gone already.
            match fs::remove_file(self.dir().join("run.json")) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let aside = self.tasks.join(format!(".{}", self.task_id));
        remove_all(&aside)?;
        match fs::rename(self.dir(), &aside) {
            Ok(()) => remove_all(&aside),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn mark(&self, name: &str) -> io::Result<()> {
        fs::write(self.dir().join(name), b"")
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> io::Result<Option<T>> {
        match fs::read(self.dir().join(name)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether a file is there and does not hold what was written to it, as a loss of power may leave it.
fn is_garbled(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Removes a directory with all that is in it, also where a command took its own rights away, or a file. A link is not
/// followed.
pub(crate) fn remove_all(dir: &Path) -> io::Result<()> {
    if fs::symlink_metadata(dir).is_ok_and(|found| !found.is_dir()) {
        return fs::remove_file(dir);
    }
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(dir)?;
            fs::remove_dir_all(dir)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Gives us back the right to change the directories below. Links are not followed.
fn open_up(dir: &Path) -> io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}
