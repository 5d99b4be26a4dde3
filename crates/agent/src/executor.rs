//! Executes commands: a trait, and its implementation with processes of this machine.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_supervisor::{
    BootInstant, CommandState, DetachedCommand, DetachedSpec, SupervisorProcess, directories_in_use,
};
use tokio::sync::watch;

/// Polling interval for a command that another process started.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Polling interval for a command of this process, which is also notified of its end.
const POLL_INTERVAL_OWN: Duration = Duration::from_secs(1);

/// Reason why a task failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TaskError {
    /// Whether a retry would fail again.
    pub fatal: bool,
    /// Whether that applies to this agent only, so that another agent may succeed.
    pub elsewhere: bool,
    pub message: String,
}

impl TaskError {
    /// An error that a retry would repeat.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self { fatal: true, elsewhere: false, message: message.into() }
    }

    /// An error that a retry on this agent would repeat; another agent may succeed.
    pub fn local(message: impl Into<String>) -> Self {
        Self { fatal: true, elsewhere: true, message: message.into() }
    }

    /// An error that a retry may avoid.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { fatal: false, elsewhere: false, message: message.into() }
    }
}

/// A command to start, with its secrets.
#[derive(Debug)]
pub struct Launch {
    pub spec: DetachedSpec,
    /// Environment variables that must not be written to disk.
    pub secrets: Vec<(String, String)>,
    /// Time before the last request to which the server confirmed the assignment of the task.
    pub contact: BootInstant,
}

/// Executes commands. A command belongs to the directory of its task and outlives the agent.
///
/// All methods are idempotent and can be called by another process after this one died. A command whose directory was
/// removed is still found, stopped and killed.
pub trait Executor: Send + Sync + 'static {
    /// Finds the commands that run for directories below `tasks`; returns these directories, which may not exist.
    ///
    /// Call it before the first start.
    fn adopt(&self, tasks: &Path) -> io::Result<BTreeSet<PathBuf>>;

    /// Prepares the resources that a command needs besides its files.
    fn prepare(&self, dir: &Path) -> io::Result<()>;

    /// Starts the command, at most once per directory.
    fn start(&self, dir: &Path, launch: Launch) -> impl Future<Output = Result<(), TaskError>> + Send;

    fn state(&self, dir: &Path) -> io::Result<CommandState>;

    /// Waits until the state may have changed.
    fn wait_for_change(&self, dir: &Path) -> impl Future<Output = ()> + Send;

    /// Confirms contact with the server at `at`.
    fn contact(&self, dir: &Path, at: BootInstant) -> io::Result<()>;

    /// Prevents a later start.
    fn forbid_start(&self, dir: &Path) -> io::Result<()>;

    /// Sends SIGTERM to the command, and SIGKILL after `grace`.
    fn stop(&self, dir: &Path, grace: Duration) -> io::Result<()>;

    /// Whether a signal has stopped its supervisor, so that time limits are not enforced.
    fn is_stopped(&self, dir: &Path) -> bool;

    /// Kills a command that did not end after [`Self::stop`].
    fn kill(&self, dir: &Path) -> io::Result<()>;

    /// Kills the remaining processes of a lost command; returns whether there were none.
    fn kill_orphans(&self, dir: &Path) -> io::Result<bool>;

    /// Forgets a directory whose task has ended.
    fn release(&self, dir: &Path);
}

/// Environment variable that identifies the processes of a task: the directory of the task.
pub(crate) const TASK_DIR_VARIABLE: &str = "TIDEMILL_TASK_DIR";

/// Executes commands as processes of this machine, each under its own supervisor.
#[derive(Debug)]
pub struct ProcessExecutor {
    supervisor: PathBuf,
    args: Vec<String>,
    /// Supervisors that this process started or found, until their tasks end.
    supervisors: Mutex<HashMap<PathBuf, Supervisor>>,
}

/// A supervisor that this process started or found.
#[derive(Debug, Clone)]
struct Supervisor {
    process: Option<Arc<SupervisorProcess>>,
    /// Closed when the supervisor ends; `None` if another process started it.
    ended: Option<watch::Receiver<()>>,
}

impl ProcessExecutor {
    /// Creates an executor that starts `supervisor args…`, which must call
    /// [`tidemill_supervisor::supervise_detached`].
    pub fn new(supervisor: PathBuf, args: Vec<String>) -> Self {
        Self { supervisor, args, supervisors: Mutex::default() }
    }

    fn supervisors(&self) -> MutexGuard<'_, HashMap<PathBuf, Supervisor>> {
        self.supervisors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn process(&self, dir: &Path) -> Option<Arc<SupervisorProcess>> {
        self.supervisors().get(dir)?.process.clone()
    }

    fn command(&self, dir: &Path) -> DetachedCommand {
        DetachedCommand::with_process(dir, self.process(dir))
    }
}

impl Executor for ProcessExecutor {
    fn adopt(&self, tasks: &Path) -> io::Result<BTreeSet<PathBuf>> {
        // Also finds the orphans of a killed supervisor.
        let mut dirs = directories_in_use(TASK_DIR_VARIABLE, tasks)?;
        for process in SupervisorProcess::find_below(tasks)? {
            let dir = process.dir().to_owned();
            let supervisor = Supervisor { process: Some(Arc::new(process)), ended: None };
            self.supervisors().insert(dir.clone(), supervisor);
            dirs.insert(dir);
        }
        Ok(dirs)
    }

    fn prepare(&self, _place: &Path) -> io::Result<()> {
        Ok(())
    }

    async fn start(&self, dir: &Path, launch: Launch) -> Result<(), TaskError> {
        let Launch { spec, secrets, contact } = launch;
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let started = DetachedCommand::new(dir).start(&self.supervisor, &args, &spec, secrets, contact).await;
        let mut child = started.map_err(|error| {
            let cause =
                std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            TaskError::transient(format!("{error}{cause}"))
        })?;
        let (alive, ended) = watch::channel(());
        let process = child.id().and_then(|pid| SupervisorProcess::of_child(dir, pid).ok().flatten());
        let supervisor = Supervisor { process: process.map(Arc::new), ended: Some(ended) };
        self.supervisors().insert(dir.to_owned(), supervisor);
        tokio::spawn(async move {
            let _ = child.wait().await;
            drop(alive);
        });
        Ok(())
    }

    fn state(&self, dir: &Path) -> io::Result<CommandState> {
        self.command(dir).state()
    }

    async fn wait_for_change(&self, dir: &Path) {
        let ended = self.supervisors().get(dir).and_then(|supervisor| supervisor.ended.clone());
        match ended.filter(|ended| ended.has_changed().is_ok()) {
            Some(mut ended) => {
                let _ = tokio::time::timeout(POLL_INTERVAL_OWN, ended.changed()).await;
            }
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }

    fn contact(&self, dir: &Path, at: BootInstant) -> io::Result<()> {
        self.command(dir).contact(at).map(drop)
    }

    fn forbid_start(&self, dir: &Path) -> io::Result<()> {
        DetachedCommand::new(dir).forbid_start()
    }

    fn stop(&self, dir: &Path, grace: Duration) -> io::Result<()> {
        self.command(dir).stop(grace)?;
        // A stopped supervisor only reads the message after it is resumed.
        self.process(dir).map_or(Ok(()), |process| process.resume())
    }

    fn is_stopped(&self, dir: &Path) -> bool {
        self.process(dir).is_some_and(|process| process.is_stopped())
    }

    fn kill(&self, dir: &Path) -> io::Result<()> {
        self.command(dir).kill_supervisor()
    }

    fn kill_orphans(&self, dir: &Path) -> io::Result<bool> {
        let variables = [format!("{TASK_DIR_VARIABLE}={}", dir.display())];
        Ok(self.command(dir).kill_orphans(&variables)? == 0)
    }

    fn release(&self, dir: &Path) {
        self.supervisors().remove(dir);
    }
}
