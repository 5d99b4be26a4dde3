//! The isolation of tasks: which mechanisms this machine allows, and the isolation of each command.
//!
//! At its start the agent runs a trial command with all mechanisms, and the trial reports about itself. The namespaces
//! hold together or not at all, because none of them is a boundary without the others. The control group is
//! independent of them.

use crate::agent_dir::{AgentDir, make_dir};
use crate::run::Error;
use crate::settings::{IsolationMode, Settings};
use crate::task_dir::{TaskDir, remove_all};
use crate::task_users::{self, UserRange};
use rustix::process::geteuid;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_core::isolation::{IsolationReport, Mechanism};
use tidemill_supervisor::{
    BootInstant, CommandGroup, CommandState, CommandUser, DetachedCommand, DetachedSpec, Isolation, Limits,
    Namespaces, enable_controllers, parent_group,
};
use tracing::{info, warn};

/// Name of the directory of the trial below that of the tasks. No task has such a name.
const TRIAL: &str = ".isolation-trial";
/// Time limit of the trial.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The trial: prints its user and its parent, and whether it sees a file of the agent.
const TRIAL_SCRIPT: &str = "while read -r key value rest; do case $key in Uid:|PPid:) echo \"$key $value\";; esac; \
    done < /proc/self/status; if test -e \"$HIDDEN\"; then echo visible; fi";

/// Reason why tasks of an agent that is not root have no user ids of their own.
const SAME_USER: &str = "same user as the agent, which is not root";
/// Environment variables of the agent that name files with credentials of clouds.
const CREDENTIAL_FILES: [&str; 6] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

/// Isolation of the tasks of an agent.
#[derive(Debug)]
pub(crate) struct TaskIsolation {
    pub(crate) report: IsolationReport,
    /// Users of commands in namespaces; `None` if commands have no namespaces.
    users: Option<Users>,
    /// Control group below which each command gets its own.
    groups: Option<PathBuf>,
    /// Directory that commands see as an empty one, except for their own directories.
    covered: PathBuf,
    hidden: Vec<PathBuf>,
    /// Prefix of the names of control groups.
    group_prefix: String,
    /// User ids of the tasks that this process started.
    assigned: Mutex<HashMap<PathBuf, u32>>,
}

#[derive(Debug, Clone, Copy)]
enum Users {
    Own(UserRange),
    /// The user of the agent, in a user namespace.
    Same,
}

impl TaskIsolation {
    /// Tries the mechanisms; fails if the settings require one that does not hold.
    pub(crate) async fn establish(settings: &Settings, dir: &AgentDir) -> Result<Self, Error> {
        let users = if geteuid().is_root() { Users::Own(settings.task_users) } else { Users::Same };
        let mut isolation = Self {
            report: IsolationReport::none("isolation is off"),
            users: None,
            groups: None,
            covered: covered(dir.path(), users),
            hidden: hidden(settings),
            group_prefix: format!("tidemill-{}", &dir.agent_id().simple().to_string()[..12]),
            assigned: Mutex::default(),
        };
        match settings.isolation {
            IsolationMode::Off => {
                warn!("isolation is off: tasks can read the files of this agent and of other tasks");
                return Ok(isolation);
            }
            IsolationMode::Auto | IsolationMode::Required => {}
        }
        if let Users::Own(range) = users
            && i64::from(range.len()) < i64::from(settings.capacity)
        {
            let message =
                format!("--task-users has {} ids, fewer than the capacity of the agent", range.len());
            return Err(Error::Setting(message));
        }
        isolation.probe(settings, dir, users).await;
        let missing = isolation.report.missing_boundaries();
        if missing.is_empty() {
            info!("isolation of tasks: {}", isolation.report);
        } else if settings.isolation == IsolationMode::Required {
            let missing: Vec<String> = missing.iter().map(|(name, why)| format!("{name} ({why})")).collect();
            return Err(Error::Isolation(missing.join(", ")));
        } else {
            warn!("isolation of tasks: {}", isolation.report);
        }
        if let Some(Users::Own(_)) = isolation.users
            && let Some(shared) = Namespaces::shared_directory(&isolation.covered)
        {
            let (shared, dir) = (shared.display(), dir.path().display());
            warn!(
                "tasks share the files in {shared} with the machine, because it contains the agent directory {dir}; \
                 choose a --dir outside of {shared}"
            );
        }
        Ok(isolation)
    }

    async fn probe(&mut self, settings: &Settings, dir: &AgentDir, users: Users) {
        let mut limits: BTreeMap<&str, String> = BTreeMap::new();
        let groups = match parent_group() {
            Ok(parent) => {
                limits.extend(enable_controllers(&parent));
                let group = CommandGroup::new(parent.join(format!("{}-trial", self.group_prefix)));
                let tried = try_group(&group).await;
                let _ = group.remove();
                tried.map(|()| parent)
            }
            Err(reason) => Err(reason),
        };
        self.report.cgroup_kill = mechanism(&groups);
        if let Err(reason) = &groups {
            limits.extend(["memory", "pids", "cpu"].map(|name| (name, reason.clone())));
        }
        self.groups = groups.ok();
        self.users = Some(users);
        let tried = self.try_namespaces(settings, dir).await;
        let _ = remove_all(&dir.tasks_dir().join(TRIAL));
        self.release(&TaskDir::new(dir.tasks_dir(), TRIAL));
        if tried.is_err() {
            self.users = None;
        }
        self.report.pid_namespace = mechanism(&tried);
        self.report.mount_namespace = mechanism(&tried);
        self.report.user_ids = match users {
            Users::Own(_) => mechanism(&tried),
            Users::Same => Mechanism::missing(SAME_USER),
        };
        let limit = |name: &str| limits.get(name).cloned().map_or(Ok(()), Err);
        self.report.memory = mechanism(
            &limit("memory")
                .map_err(|reason| format!("only the memory of each process is limited: {reason}")),
        );
        // The number of processes of a user is limited without a control group, too.
        self.report.processes = mechanism(&limit("pids").or(tried));
        self.report.cpu = mechanism(&limit("cpu"));
    }

    /// Runs the trial command in namespaces, and checks its report.
    async fn try_namespaces(&self, settings: &Settings, dir: &AgentDir) -> Result<(), String> {
        let trial = TaskDir::new(dir.tasks_dir(), TRIAL);
        let prepared = async {
            remove_all(&trial.path())?;
            make_dir(&trial.work())?;
            make_dir(&trial.tmp())?;
            self.assign(&trial).await
        };
        let isolation =
            prepared.await.map_err(|error| format!("could not prepare a trial command: {error}"))?;
        let user = match isolation.namespaces.as_ref().map(|namespaces| namespaces.user) {
            Some(CommandUser::Own(user)) => user,
            Some(CommandUser::SameInNamespace) | None => geteuid().as_raw(),
        };
        let spec = trial_spec(&trial, dir, isolation);
        let args: Vec<&str> = settings.supervisor_args.iter().map(String::as_str).collect();
        let command = DetachedCommand::new(trial.path());
        let started = command.start(&settings.supervisor, &args, &spec, Vec::new(), BootInstant::now()).await;
        let mut supervisor = started.map_err(|error| format!("could not start a trial command: {error}"))?;
        if tokio::time::timeout(TRIAL_TIMEOUT, supervisor.wait()).await.is_err() {
            let _ = supervisor.kill().await;
            return Err("a trial command did not end in time".to_owned());
        }
        match command.state() {
            Ok(CommandState::Exited(exit)) if exit.end.is_success() => {}
            Ok(CommandState::Exited(exit)) => return Err(format!("a trial command was {}", exit.end)),
            Ok(CommandState::NotStarted | CommandState::Alive { .. } | CommandState::Lost) | Err(_) => {
                return Err(format!("a trial command failed: {}", command.supervisor_log(200)));
            }
        }
        let seen = fs::read_to_string(command.log_path()).unwrap_or_default();
        let seen: Vec<&str> = seen.lines().filter_map(|line| line.strip_prefix("o ")).collect();
        let user = format!("Uid: {user}");
        for (expected, failure) in [
            (user.as_str(), "a trial command has another user than expected"),
            ("PPid: 1", "a trial command is not in a PID namespace of its own"),
        ] {
            if !seen.contains(&expected) {
                return Err(failure.to_owned());
            }
        }
        if seen.contains(&"visible") {
            return Err("a trial command sees the files of the agent".to_owned());
        }
        Ok(())
    }

    /// Prepares the directories of a task for its user; returns the isolation of its command.
    ///
    /// No command may have run in the directories yet.
    pub(crate) async fn assign(&self, task_dir: &TaskDir) -> io::Result<Isolation> {
        let own = [task_dir.work(), task_dir.tmp()];
        let (user, private_tmp) = match self.users {
            None => (None, None),
            Some(Users::Same) => (Some(CommandUser::SameInNamespace), None),
            Some(Users::Own(range)) => {
                let user = task_users::claim(range, &task_dir.path()).await?;
                self.assigned().insert(task_dir.path(), user);
                own.iter().try_for_each(|dir| task_users::give(dir, user))?;
                (Some(CommandUser::Own(user)), Some(task_dir.tmp()))
            }
        };
        let namespaces = user.map(|user| Namespaces {
            user,
            covered: self.covered.clone(),
            own: own.to_vec(),
            private_tmp,
            hidden: self.hidden.clone(),
        });
        let name = format!("{}-{}", self.group_prefix, task_dir.task_id().trim_start_matches('.'));
        Ok(Isolation { namespaces, cgroup: self.groups.as_ref().map(|parent| parent.join(name)) })
    }

    /// Frees the user id of a task that was removed. An id that this process does not know is freed by the next claim.
    pub(crate) fn release(&self, task_dir: &TaskDir) {
        let user = self.assigned().remove(&task_dir.path());
        if let Some(user) = user {
            task_users::release(user, &task_dir.path());
        }
    }

    fn assigned(&self) -> MutexGuard<'_, HashMap<PathBuf, u32>> {
        self.assigned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn trial_spec(trial: &TaskDir, dir: &AgentDir, isolation: Isolation) -> DetachedSpec {
    let hidden = dir.path().join("agent.json").display().to_string();
    let path = std::env::var("PATH").unwrap_or_else(|_| crate::launch::PATH.to_owned());
    DetachedSpec {
        command: ["sh", "-c", TRIAL_SCRIPT].map(str::to_owned).into(),
        env: vec![("PATH".to_owned(), path), ("HIDDEN".to_owned(), hidden)],
        dir: trial.work(),
        limits: Limits::default(),
        timeout: Some(TRIAL_TIMEOUT / 2),
        grace: Duration::from_secs(1),
        contact_max: None,
        line_bytes_max: 1_000,
        log_bytes_max: 10_000,
        isolation,
    }
}

/// Puts a process into a control group and kills it there.
async fn try_group(group: &CommandGroup) -> Result<(), String> {
    let failed =
        |error: io::Error| format!("could not use a control group at {}: {error}", group.dir().display());
    group.create().map_err(failed)?;
    let mut command = tokio::process::Command::new("sleep");
    command.arg("60").stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    group.add(child.id().unwrap_or_default()).and_then(|()| group.kill_existing()).map_err(failed)?;
    match tokio::time::timeout(TRIAL_TIMEOUT, child.wait()).await {
        Ok(Ok(status)) if status.signal() == Some(9) => Ok(()),
        Ok(Ok(_) | Err(_)) | Err(_) => Err("cgroup.kill did not kill a process".to_owned()),
    }
}

fn mechanism<T>(result: &Result<T, String>) -> Mechanism {
    match result {
        Ok(_) => Mechanism::Holds,
        Err(reason) => Mechanism::missing(reason),
    }
}

/// The directory that commands see as an empty one: for another user, the first one that other users cannot enter.
///
/// Its content was out of reach for that user anyway, and the path to the task's own directory becomes usable.
fn covered(dir: &Path, users: Users) -> PathBuf {
    let mut ancestors: Vec<&Path> = dir.ancestors().collect();
    ancestors.reverse();
    let is_closed =
        |path: &&Path| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o001 == 0);
    match users {
        Users::Same => dir.to_owned(),
        Users::Own(_) => ancestors.into_iter().find(is_closed).unwrap_or(dir).to_owned(),
    }
}

/// The files that commands must not see, besides the directory of the agent.
fn hidden(settings: &Settings) -> Vec<PathBuf> {
    let store = settings.store.as_deref().and_then(|url| url.strip_prefix("file://"));
    let store = store.map(|path| PathBuf::from(path.strip_prefix("localhost").unwrap_or(path)));
    let paths = settings.secrets.iter().cloned().chain(store).chain(settings.hidden.iter().cloned());
    let credentials = CREDENTIAL_FILES.iter().filter_map(std::env::var_os).filter(|path| !path.is_empty());
    let paths = paths.chain(credentials.map(PathBuf::from));
    // Commands have another working directory.
    paths.map(|path| std::path::absolute(&path).unwrap_or(path)).collect()
}
