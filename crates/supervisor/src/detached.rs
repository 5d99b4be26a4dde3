//! A command that outlives the process that started it, represented by its directory.
//!
//! Any process with access to the directory can query the state, stop the command and read its result. Whether the
//! supervisor is alive is decided by a file lock that the kernel releases when it ends. If the directory or a file in
//! it was removed, a caller that holds the [`SupervisorProcess`] still gets the state from the process table.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::boot_instant::BootInstant;
use crate::cgroup::CommandGroup;
use crate::handle::Error;
use crate::isolation::{CommandUser, Isolation};
use crate::orphans;
use crate::process_table::{DIRECTORY_VARIABLE, SupervisorProcess, is_unusable, open_pipe, write_message};
use crate::protocol::ControlMessage;
use crate::record::{
    ALIVE, CONTROL, DetachedSpec, EXIT, Exit, FORBIDDEN, LOG, SPEC, STARTED, SUPERVISOR_LOG, StartInput,
    StartRecord, boot_id, private_file, read_optional, write_atomic,
};

/// Handle of a command that outlives the process that started it: its directory.
#[derive(Clone, Debug)]
pub struct DetachedCommand {
    dir: PathBuf,
    /// The supervisor, if the caller has found its process.
    process: Option<Arc<SupervisorProcess>>,
}

/// Observed state of a detached command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandState {
    /// It was never started. It may still start, unless [`DetachedCommand::forbid_start`] was called.
    NotStarted,
    /// Its supervisor is alive; the command is about to run, runs, or has just ended.
    Alive {
        /// Whether the command may already run.
        started: bool,
    },
    /// It ended, and none of its processes is alive.
    Exited(Exit),
    /// It was started, and its supervisor ended without recording how the command ended.
    Lost,
}

impl DetachedCommand {
    /// Creates the handle for `dir`, which must exist. Other users should not be able to read it.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), process: None }
    }

    /// Like [`Self::new`], with the supervisor's process as a second source if the directory was removed.
    pub fn with_process(dir: impl Into<PathBuf>, process: Option<Arc<SupervisorProcess>>) -> Self {
        Self { dir: dir.into(), process }
    }

    /// Path of the log file with the output of the command.
    ///
    /// Each line holds a letter, a space and a text. `o` and `e` mark lines of the standard output and the standard
    /// error. `O` and `E` mark pieces of a long line. The next line with the same letter continues it. Secrets are
    /// masked.
    pub fn log_path(&self) -> PathBuf {
        self.dir.join(LOG)
    }

    /// Starts `supervisor args…`, which must call [`supervise_detached`](crate::supervise_detached), on this
    /// command.
    ///
    /// Secrets are added to the environment of the command and are sent through a pipe only. `contact` is the time of
    /// the last confirmed contact, taken before the confirming request was sent. The returned child is the supervisor.
    /// The caller may wait for its end; dropping it, or the death of this process, does not end the command.
    /// [`DetachedCommand::state`] returns the outcome.
    pub async fn start(
        &self,
        supervisor: &Path,
        args: &[&str],
        spec: &DetachedSpec,
        secrets: Vec<(String, String)>,
        contact: BootInstant,
    ) -> Result<Child, Error> {
        let start_error = |source| Error::Start { path: supervisor.to_owned(), source };
        // The supervisor would inherit an ignored SIGCHLD and could not read the exit code.
        drop(signal(SignalKind::child()).map_err(start_error)?);
        let bytes = serde_json::to_vec(spec).map_err(|error| start_error(error.into()))?;
        write_atomic(&self.dir.join(SPEC), &bytes).map_err(start_error)?;
        let supervisor_log = private_file().create(true).append(true).open(self.dir.join(SUPERVISOR_LOG));
        let mut child = Command::new(supervisor)
            .args(args)
            .env_clear()
            .env(DIRECTORY_VARIABLE, &self.dir)
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(supervisor_log.map_err(start_error)?)
            .spawn()
            .map_err(start_error)?;
        let Some(mut stdin) = child.stdin.take() else {
            return Err(start_error(io::Error::other("the pipe of the child process is missing")));
        };
        let mut bytes = serde_json::to_vec(&StartInput { secrets, contact })
            .map_err(|error| Error::Send(error.into()))?;
        bytes.push(b'\n');
        stdin.write_all(&bytes).await.map_err(Error::Send)?;
        stdin.shutdown().await.map_err(Error::Send)?;
        Ok(child)
    }

    /// Forbids a later start of the command. A running command continues.
    ///
    /// If [`DetachedCommand::state`] returns [`CommandState::NotStarted`] after this call, the command will never run.
    /// A removed directory is a success: a supervisor must lock a file in it before it starts the command.
    pub fn forbid_start(&self) -> io::Result<()> {
        match private_file().create(true).truncate(false).open(self.dir.join(FORBIDDEN)) {
            Err(error) if is_unusable(&error) => Ok(()),
            created => created.map(drop),
        }
    }

    /// Returns the current state.
    ///
    /// A command whose records were removed is alive while its supervisor is in the process table, and lost afterwards.
    pub fn state(&self) -> io::Result<CommandState> {
        let recorded = match self.state_from_records() {
            Err(error) if is_unusable(&error) => None,
            recorded => Some(recorded?),
        };
        match (recorded, &self.process) {
            (Some(CommandState::Exited(exit)), _) => Ok(CommandState::Exited(exit)),
            (Some(CommandState::Alive { started }), _) => Ok(CommandState::Alive { started }),
            (recorded, Some(process)) if process.is_alive() => {
                let started =
                    recorded != Some(CommandState::NotStarted) || self.is_started() || !self.has_spec();
                Ok(CommandState::Alive { started })
            }
            // It may have ended between the two checks.
            (Some(_), Some(_)) => match self.state_from_records()? {
                CommandState::NotStarted if !self.has_spec() => Ok(CommandState::Lost),
                state @ (CommandState::NotStarted
                | CommandState::Alive { .. }
                | CommandState::Exited(_)
                | CommandState::Lost) => Ok(state),
            },
            (Some(state), None) => Ok(state),
            (None, _) => Ok(CommandState::Lost),
        }
    }

    fn is_started(&self) -> bool {
        self.dir.join(STARTED).exists()
    }

    /// Whether the directory still holds the specification, which is written before a supervisor starts.
    pub fn has_spec(&self) -> bool {
        fs::symlink_metadata(&self.dir).is_ok_and(|found| found.is_dir()) && self.dir.join(SPEC).exists()
    }

    fn state_from_records(&self) -> io::Result<CommandState> {
        if let Some(exit) = self.exit()? {
            return Ok(CommandState::Exited(exit));
        }
        if self.is_alive()? {
            return Ok(CommandState::Alive { started: self.is_started() });
        }
        // It may have ended between the two checks.
        if let Some(exit) = self.exit()? {
            return Ok(CommandState::Exited(exit));
        }
        Ok(if self.is_started() { CommandState::Lost } else { CommandState::NotStarted })
    }

    /// Confirms contact at `at`, a time taken before the confirming request was sent.
    ///
    /// Returns false if no supervisor reads the message.
    pub fn contact(&self, at: BootInstant) -> io::Result<bool> {
        self.send(ControlMessage::Contact { at })
    }

    /// Sends SIGTERM to the command, and SIGKILL after `grace`. Returns false if no supervisor reads the message.
    pub fn stop(&self, grace: Duration) -> io::Result<bool> {
        self.send(ControlMessage::Stop { grace })
    }

    /// Kills the command and its descendants. Returns false if no supervisor reads the message.
    pub fn kill(&self) -> io::Result<bool> {
        self.send(ControlMessage::Kill)
    }

    /// Kills the remaining processes of a command whose supervisor has ended; returns how many were found.
    ///
    /// These are the processes of its control group and of its session, and all processes with one of `variables`
    /// (`NAME=value`) in their environment. If the command has its own user id, the variables of other users do not
    /// count. Repeat the call until it returns 0, because a killed process needs time to end. Then the control group is
    /// removed.
    pub fn kill_orphans(&self, variables: &[String]) -> io::Result<usize> {
        let Isolation { namespaces, cgroup } = self.isolation();
        let user = match namespaces.map(|namespaces| namespaces.user) {
            Some(CommandUser::Own(user)) => Some(user),
            Some(CommandUser::SameInNamespace) | None => None,
        };
        let found = orphans::kill(self.start_record()?.as_ref(), variables, user)?;
        let Some(group) = cgroup.map(CommandGroup::new) else { return Ok(found) };
        if group.is_populated()? {
            group.kill()?;
            return Ok(found.max(1));
        }
        if found == 0 {
            group.remove()?;
        }
        Ok(found)
    }

    /// The isolation of the command, or none if its specification cannot be read.
    fn isolation(&self) -> Isolation {
        let spec = fs::read(self.dir.join(SPEC)).ok();
        let spec = spec.and_then(|bytes| serde_json::from_slice::<DetachedSpec>(&bytes).ok());
        spec.map(|spec| spec.isolation).unwrap_or_default()
    }

    /// The start record, from the process table or from its file.
    fn start_record(&self) -> io::Result<Option<StartRecord>> {
        if let Some(process) = &self.process {
            return Ok(Some(StartRecord { session: process.pid(), machine_start: boot_id() }));
        }
        let record = match read_optional(&self.dir.join(STARTED)) {
            Err(error) if is_unusable(&error) => None,
            record => record?,
        };
        // A power loss can truncate the record; its process ids are then of an earlier boot.
        Ok(record.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Kills a supervisor that does not react; the kernel kills the main process of its command with it.
    ///
    /// Call [`DetachedCommand::kill_orphans`] afterwards.
    pub fn kill_supervisor(&self) -> io::Result<()> {
        if let Some(process) = &self.process {
            return process.kill();
        }
        match self.start_record()? {
            // It holds the lock, so it is alive and its process id was not reused.
            Some(record) if self.is_alive()? => orphans::kill_supervisor(&record),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the error output of the supervisor itself, truncated to `bytes_max` bytes.
    pub fn supervisor_log(&self, bytes_max: usize) -> String {
        let bytes = fs::read(self.dir.join(SUPERVISOR_LOG)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text[..text.floor_char_boundary(bytes_max)].trim().to_owned()
    }

    fn exit(&self) -> io::Result<Option<Exit>> {
        let Some(bytes) = read_optional(&self.dir.join(EXIT))? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    fn is_alive(&self) -> io::Result<bool> {
        let file = match File::open(self.dir.join(ALIVE)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn send(&self, message: ControlMessage) -> io::Result<bool> {
        let pipe = open_pipe(&self.dir.join(CONTROL), OFlags::NONBLOCK | OFlags::NOFOLLOW);
        match (write_message(pipe, message)?, &self.process) {
            (false, Some(process)) => process.send(message),
            (is_sent, _) => Ok(is_sent),
        }
    }
}
