//! What carries commands out: processes of this machine, behind a trait for what may come.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemill_supervisor::{Lasting, LastingSpec, Moment, Seen};
use tokio::sync::watch;

/// How often to look at a command that this process did not start.
const LOOK: Duration = Duration::from_millis(100);
/// How often to look at one that it did: the news of its end come by themselves.
const LOOK_OWN: Duration = Duration::from_secs(5);

/// Why something could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Whether trying again would fail again.
    pub fatal: bool,
    /// Whether that is so here alone, and another agent may do better.
    pub elsewhere: bool,
    /// Why, for people.
    pub message: String,
}

impl Fault {
    /// Trying again would fail again.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self { fatal: true, elsewhere: false, message: message.into() }
    }

    /// Trying again here would fail again, and another agent may do better.
    pub fn here(message: impl Into<String>) -> Self {
        Self { fatal: true, elsewhere: true, message: message.into() }
    }

    /// Another try may succeed.
    pub fn passing(message: impl Into<String>) -> Self {
        Self { fatal: false, elsewhere: false, message: message.into() }
    }
}

/// What is to be started.
#[derive(Debug)]
pub struct Launch {
    /// The command and its limits.
    pub spec: LastingSpec,
    /// What is added to its environment and must be written nowhere.
    pub secrets: Vec<(String, String)>,
    /// When the server last said that the task is ours, taken before it was asked.
    pub contact: Moment,
}

/// Carries commands out. A command belongs to the directory of its task and outlives the agent.
///
/// Everything may be called again at any time, also by another process after this one died.
pub trait Executor: Send + Sync + 'static {
    /// Makes ready what commands need besides their files.
    fn prepare(&self, place: &Path) -> io::Result<()>;

    /// Starts the command, at most once in a place.
    fn start(&self, place: &Path, launch: Launch) -> impl Future<Output = Result<(), Fault>> + Send;

    /// What there is to see of it.
    fn look(&self, place: &Path) -> io::Result<Seen>;

    /// Comes back when there may be something new to see.
    fn news(&self, place: &Path) -> impl Future<Output = ()> + Send;

    /// Says that the server still counts on it.
    fn contact(&self, place: &Path, at: Moment) -> io::Result<()>;

    /// Makes sure that it is not started any more.
    fn forbid(&self, place: &Path) -> io::Result<()>;

    /// Asks it to end, and has it killed after a while.
    fn stop(&self, place: &Path, grace: Duration) -> io::Result<()>;

    /// Does away with one that did not end when it was asked to.
    fn kill(&self, place: &Path) -> io::Result<()>;

    /// Does away with what is left of a lost one; whether nothing is left.
    fn clean(&self, place: &Path) -> io::Result<bool>;
}

/// The variable by which processes of a task are found: the directory of the task, which no other task has.
pub(crate) const PLACE_VARIABLE: &str = "TIDEMILL_TASK_DIR";

/// Commands as processes of this machine, each under a supervisor of its own.
#[derive(Debug)]
pub struct Processes {
    supervisor: PathBuf,
    args: Vec<String>,
    /// Supervisors that this process started and has not seen to end.
    own: Mutex<HashMap<PathBuf, watch::Receiver<()>>>,
}

impl Processes {
    /// Commands under `supervisor args…`, which calls [`tidemill_supervisor::supervise_detached`].
    pub fn new(supervisor: PathBuf, args: Vec<String>) -> Self {
        Self { supervisor, args, own: Mutex::default() }
    }

    fn own(&self, place: &Path) -> Option<watch::Receiver<()>> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = own.get(place)?.has_changed().is_err();
        if ended { own.remove(place) } else { own.get(place).cloned() }
    }
}

impl Executor for Processes {
    fn prepare(&self, _place: &Path) -> io::Result<()> {
        Ok(())
    }

    async fn start(&self, place: &Path, launch: Launch) -> Result<(), Fault> {
        let Launch { spec, secrets, contact } = launch;
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let started = Lasting::new(place).start(&self.supervisor, &args, &spec, secrets, contact).await;
        let mut child = started.map_err(|error| {
            let cause =
                std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            Fault::passing(format!("{error}{cause}"))
        })?;
        let (alive, ended) = watch::channel(());
        self.own.lock().unwrap_or_else(PoisonError::into_inner).insert(place.to_owned(), ended);
        tokio::spawn(async move {
            let _ = child.wait().await;
            drop(alive);
        });
        Ok(())
    }

    fn look(&self, place: &Path) -> io::Result<Seen> {
        Lasting::new(place).look()
    }

    async fn news(&self, place: &Path) {
        match self.own(place) {
            Some(mut ended) => {
                let _ = tokio::time::timeout(LOOK_OWN, ended.changed()).await;
            }
            None => tokio::time::sleep(LOOK).await,
        }
    }

    fn contact(&self, place: &Path, at: Moment) -> io::Result<()> {
        Lasting::new(place).contact(at).map(drop)
    }

    fn forbid(&self, place: &Path) -> io::Result<()> {
        Lasting::new(place).forbid()
    }

    fn stop(&self, place: &Path, grace: Duration) -> io::Result<()> {
        Lasting::new(place).stop(grace).map(drop)
    }

    fn kill(&self, place: &Path) -> io::Result<()> {
        Lasting::new(place).kill_supervisor()
    }

    fn clean(&self, place: &Path) -> io::Result<bool> {
        let marks = [format!("{PLACE_VARIABLE}={}", place.display())];
        Ok(Lasting::new(place).kill_remains(&marks)? == 0)
    }
}
