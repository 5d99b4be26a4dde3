//! What carries commands out: processes of this machine, behind a trait for what may come.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_supervisor::{Lasting, LastingSpec, Moment, Seen, SupervisorProcess, directories_in_use};
use tokio::sync::watch;

/// How often to look at a command that this process did not start.
const LOOK: Duration = Duration::from_millis(100);
/// How often to look at one that it did: the news of its end come by themselves.
const LOOK_OWN: Duration = Duration::from_secs(1);

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
/// Everything may be called again at any time, also by another process after this one died. A command whose directory
/// is gone is still found, stopped and killed.
pub trait Executor: Send + Sync + 'static {
    /// Finds the commands that run in directories below `tasks`, which may be gone; those directories.
    ///
    /// To be called before anything is started.
    fn adopt(&self, tasks: &Path) -> io::Result<BTreeSet<PathBuf>>;

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

    /// Whether a signal keeps it from being supervised: nobody keeps its time limits then.
    fn is_stopped(&self, place: &Path) -> bool;

    /// Does away with one that did not end when it was asked to.
    fn kill(&self, place: &Path) -> io::Result<()>;

    /// Does away with what is left of a lost one; whether nothing is left.
    fn clean(&self, place: &Path) -> io::Result<bool>;

    /// Forgets a place whose task is over.
    fn release(&self, place: &Path);
}

/// The variable by which processes of a task are found: the directory of the task, which no other task has.
pub(crate) const PLACE_VARIABLE: &str = "TIDEMILL_TASK_DIR";

/// Commands as processes of this machine, each under a supervisor of its own.
#[derive(Debug)]
pub struct Processes {
    supervisor: PathBuf,
    args: Vec<String>,
    /// Supervisors that this process started or found, until their tasks are over.
    own: Mutex<HashMap<PathBuf, Supervisor>>,
}

/// A supervisor that this process knows.
#[derive(Debug, Clone)]
struct Supervisor {
    process: Option<Arc<SupervisorProcess>>,
    /// Closed when a supervisor that this process started ends.
    ended: Option<watch::Receiver<()>>,
}

impl Processes {
    /// Commands under `supervisor args…`, which calls [`tidemill_supervisor::supervise_detached`].
    pub fn new(supervisor: PathBuf, args: Vec<String>) -> Self {
        Self { supervisor, args, own: Mutex::default() }
    }

    fn own(&self) -> MutexGuard<'_, HashMap<PathBuf, Supervisor>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn process(&self, place: &Path) -> Option<Arc<SupervisorProcess>> {
        self.own().get(place)?.process.clone()
    }

    fn lasting(&self, place: &Path) -> Lasting {
        Lasting::with_process(place, self.process(place))
    }
}

impl Executor for Processes {
    fn adopt(&self, tasks: &Path) -> io::Result<BTreeSet<PathBuf>> {
        // What a killed supervisor left behind runs as well.
        let mut places = directories_in_use(PLACE_VARIABLE, tasks)?;
        for process in SupervisorProcess::find_below(tasks)? {
            let place = process.dir().to_owned();
            let supervisor = Supervisor { process: Some(Arc::new(process)), ended: None };
            self.own().insert(place.clone(), supervisor);
            places.insert(place);
        }
        Ok(places)
    }

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
        let process = child.id().and_then(|pid| SupervisorProcess::of_child(place, pid).ok().flatten());
        let supervisor = Supervisor { process: process.map(Arc::new), ended: Some(ended) };
        self.own().insert(place.to_owned(), supervisor);
        tokio::spawn(async move {
            let _ = child.wait().await;
            drop(alive);
        });
        Ok(())
    }

    fn look(&self, place: &Path) -> io::Result<Seen> {
        self.lasting(place).look()
    }

    async fn news(&self, place: &Path) {
        let ended = self.own().get(place).and_then(|supervisor| supervisor.ended.clone());
        match ended.filter(|ended| ended.has_changed().is_ok()) {
            Some(mut ended) => {
                let _ = tokio::time::timeout(LOOK_OWN, ended.changed()).await;
            }
            None => tokio::time::sleep(LOOK).await,
        }
    }

    fn contact(&self, place: &Path, at: Moment) -> io::Result<()> {
        self.lasting(place).contact(at).map(drop)
    }

    fn forbid(&self, place: &Path) -> io::Result<()> {
        Lasting::new(place).forbid()
    }

    fn stop(&self, place: &Path, grace: Duration) -> io::Result<()> {
        self.lasting(place).stop(grace)?;
        // One that a signal stopped obeys when it goes on.
        self.process(place).map_or(Ok(()), |process| process.resume())
    }

    fn is_stopped(&self, place: &Path) -> bool {
        self.process(place).is_some_and(|process| process.is_stopped())
    }

    fn kill(&self, place: &Path) -> io::Result<()> {
        self.lasting(place).kill_supervisor()
    }

    fn clean(&self, place: &Path) -> io::Result<bool> {
        let marks = [format!("{PLACE_VARIABLE}={}", place.display())];
        Ok(self.lasting(place).kill_remains(&marks)? == 0)
    }

    fn release(&self, place: &Path) {
        self.own().remove(place);
    }
}
