//! A command that outlives whoever started it, seen from outside: its directory.
//!
//! Any process that has the directory can look, stop and collect. It takes the supervisor's own word for
//! nothing but its records: whether it lives is told by a lock that ends with it. Where the directory or a file in it
//! is gone, the process table tells, for those who hold the [`SupervisorProcess`].

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

use crate::handle::Error;
use crate::moment::Moment;
use crate::order::Order;
use crate::process_table::{DIRECTORY_VARIABLE, SupervisorProcess, is_unusable, open_pipe, write_order};
use crate::record::{
    ALIVE, Begun, COMPLAINTS, CONTROL, EXIT, Exit, FORBIDDEN, Handover, LOG, LastingSpec, SPEC, STARTED,
    create, machine_start, read_if_there, write_whole,
};
use crate::remains;

/// The directory of a command that outlives whoever started it.
#[derive(Clone, Debug)]
pub struct Lasting {
    dir: PathBuf,
    /// The supervisor, where its process is known.
    process: Option<Arc<SupervisorProcess>>,
}

/// What there is to see of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was never started. It may be about to be, unless that was forbidden before.
    Nothing,
    /// Its supervisor lives; the command runs, is about to, or has just ended.
    Alive {
        /// Whether the command may already run.
        started: bool,
    },
    /// It is over, and no process of it is left.
    Exited(Exit),
    /// It was started, and its supervisor is gone without a word on its end.
    Lost,
}

impl Lasting {
    /// The command of this directory, which must exist; nobody else should be able to read it.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), process: None }
    }

    /// The same with the supervisor's process, which counts where the directory does not tell.
    pub fn with_process(dir: impl Into<PathBuf>, process: Option<Arc<SupervisorProcess>>) -> Self {
        Self { dir: dir.into(), process }
    }

    /// The file that holds what the command wrote.
    ///
    /// Each line has a mark, a space and a text. `o` and `e` are lines of the standard output and error; `O`
    /// and `E` are pieces of a long one, which the next line with the same letter continues. Secrets are
    /// masked.
    pub fn log_path(&self) -> PathBuf {
        self.dir.join(LOG)
    }

    /// Starts `supervisor args…`, which must call [`supervise_detached`](crate::supervise_detached), on this
    /// command.
    ///
    /// Secrets are added to the environment, and travel through a pipe alone. `contact` is the last sign of
    /// contact, taken before whatever proves it was sent. The answer is the supervisor, whose end may be waited
    /// for; that it is dropped, or that this process dies, ends nothing. What came of it is in
    /// [`Lasting::look`].
    pub async fn start(
        &self,
        supervisor: &Path,
        args: &[&str],
        spec: &LastingSpec,
        secrets: Vec<(String, String)>,
        contact: Moment,
    ) -> Result<Child, Error> {
        let start_error = |source| Error::Start { path: supervisor.to_owned(), source };
        // An ignored SIGCHLD would be inherited, and the exit code never be known.
        drop(signal(SignalKind::child()).map_err(start_error)?);
        let bytes = serde_json::to_vec(spec).map_err(|error| start_error(error.into()))?;
        write_whole(&self.dir.join(SPEC), &bytes).map_err(start_error)?;
        let complaints = create().create(true).append(true).open(self.dir.join(COMPLAINTS));
        let mut child = Command::new(supervisor)
            .args(args)
            .env_clear()
            .env(DIRECTORY_VARIABLE, &self.dir)
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(complaints.map_err(start_error)?)
            .spawn()
            .map_err(start_error)?;
        let Some(mut stdin) = child.stdin.take() else {
            return Err(start_error(io::Error::other("the pipe is missing")));
        };
        let mut bytes = serde_json::to_vec(&Handover { secrets, contact })
            .map_err(|error| Error::Handover(error.into()))?;
        bytes.push(b'\n');
        stdin.write_all(&bytes).await.map_err(Error::Handover)?;
        stdin.shutdown().await.map_err(Error::Handover)?;
        Ok(child)
    }

    /// Makes sure that no command is started here any more. One that runs goes on.
    ///
    /// Where [`Lasting::look`] sees nothing after this, nothing runs and nothing ever will. In a directory that is gone
    /// nothing starts either: a supervisor begins with a lock in it.
    pub fn forbid(&self) -> io::Result<()> {
        match create().create(true).truncate(false).open(self.dir.join(FORBIDDEN)) {
            Err(error) if is_unusable(&error) => Ok(()),
            made => made.map(drop),
        }
    }

    /// What there is to see now.
    ///
    /// A command whose records are gone is alive as long as its supervisor is in the process table, and lost after.
    pub fn look(&self) -> io::Result<Seen> {
        let recorded = match self.look_at_records() {
            Err(error) if is_unusable(&error) => None,
            recorded => Some(recorded?),
        };
        match (recorded, &self.process) {
            (Some(Seen::Exited(exit)), _) => Ok(Seen::Exited(exit)),
            (Some(Seen::Alive { started }), _) => Ok(Seen::Alive { started }),
            (recorded, Some(process)) if process.is_alive() => {
                let started = recorded != Some(Seen::Nothing) || self.is_started() || !self.has_spec();
                Ok(Seen::Alive { started })
            }
            // It may have ended between the two looks.
            (Some(_), Some(_)) => match self.look_at_records()? {
                Seen::Nothing if !self.has_spec() => Ok(Seen::Lost),
                seen @ (Seen::Nothing | Seen::Alive { .. } | Seen::Exited(_) | Seen::Lost) => Ok(seen),
            },
            (Some(seen), None) => Ok(seen),
            (None, _) => Ok(Seen::Lost),
        }
    }

    fn is_started(&self) -> bool {
        self.dir.join(STARTED).exists()
    }

    /// Whether the directory still holds the command that was to be run: it is there before a supervisor is started.
    pub fn has_spec(&self) -> bool {
        fs::symlink_metadata(&self.dir).is_ok_and(|found| found.is_dir()) && self.dir.join(SPEC).exists()
    }

    fn look_at_records(&self) -> io::Result<Seen> {
        if let Some(exit) = self.exit()? {
            return Ok(Seen::Exited(exit));
        }
        if self.is_alive()? {
            return Ok(Seen::Alive { started: self.is_started() });
        }
        // It may have ended between the two looks.
        if let Some(exit) = self.exit()? {
            return Ok(Seen::Exited(exit));
        }
        Ok(if self.is_started() { Seen::Lost } else { Seen::Nothing })
    }

    /// Gives a sign of contact, taken before whatever proves it was sent. False where nobody listens.
    pub fn contact(&self, at: Moment) -> io::Result<bool> {
        self.give(Order::Contact { at })
    }

    /// Asks the command to end, and has it killed after `grace`. False where nobody listens.
    pub fn stop(&self, grace: Duration) -> io::Result<bool> {
        self.give(Order::Stop { grace })
    }

    /// Kills the command and everything it started. False where nobody listens.
    pub fn kill(&self) -> io::Result<bool> {
        self.give(Order::Kill)
    }

    /// Kills what is left of a command whose supervisor is gone; how many processes were found.
    ///
    /// Found are the processes of its session, and all that have one of `marks` (`NAME=value`) in their
    /// environment. Zero means that nothing of it runs. To be repeated until then: killing takes its time.
    pub fn kill_remains(&self, marks: &[String]) -> io::Result<usize> {
        remains::kill(self.begun()?.as_ref(), marks)
    }

    /// The supervisor that began, from the process table or from its record.
    fn begun(&self) -> io::Result<Option<Begun>> {
        if let Some(process) = &self.process {
            return Ok(Some(Begun { session: process.pid(), machine_start: machine_start() }));
        }
        let record = match read_if_there(&self.dir.join(STARTED)) {
            Err(error) if is_unusable(&error) => None,
            record => record?,
        };
        // A record that was cut off by a loss of power belongs to an earlier start of the machine.
        Ok(record.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Kills a supervisor that does not obey, and with it the main process of its command.
    ///
    /// What it leaves is for [`Lasting::kill_remains`].
    pub fn kill_supervisor(&self) -> io::Result<()> {
        if let Some(process) = &self.process {
            return process.kill();
        }
        match self.begun()? {
            // The lock says that it lives, so its number is still its own.
            Some(begun) if self.is_alive()? => remains::kill_leader(&begun),
            Some(_) | None => Ok(()),
        }
    }

    /// What the supervisor itself complained about, at most so many bytes of it.
    pub fn complaints(&self, bytes_max: usize) -> String {
        let bytes = fs::read(self.dir.join(COMPLAINTS)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text[..text.floor_char_boundary(bytes_max)].trim().to_owned()
    }

    fn exit(&self) -> io::Result<Option<Exit>> {
        let Some(bytes) = read_if_there(&self.dir.join(EXIT))? else { return Ok(None) };
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

    fn give(&self, order: Order) -> io::Result<bool> {
        let pipe = open_pipe(&self.dir.join(CONTROL), OFlags::NONBLOCK | OFlags::NOFOLLOW);
        match (write_order(pipe, order)?, &self.process) {
            (false, Some(process)) => process.give(order),
            (is_given, _) => Ok(is_given),
        }
    }
}
