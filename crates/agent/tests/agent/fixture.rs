//! Test fixture: agents in this process or in separate processes, orders, and waiting for a condition.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidemill_agent::{
    AgentSummary, CommandsOnExit, Error, Executor, ExitPolicy, IsolationMode, ProcessExecutor,
    RetentionPolicy, Settings, UserRange, run_with,
};
use tidemill_client::{Client, HttpOptions, HttpTransport};
use tidemill_core::task::{Output, TaskResult};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::server::Server;

/// Time limit of each wait, generous for a busy machine. Only a failing test reaches it.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// Path of the test program that can be an agent and a supervisor: an example, which a plain `cargo test` builds.
pub(crate) fn test_program() -> PathBuf {
    let found = tidemill_testkit::example_program::example_path(
        "tidemill-agent",
        env!("CARGO_MANIFEST_DIR"),
        "agent_program",
    );
    found.unwrap_or_else(|error| panic!("{error}"))
}

/// A directory for an agent and the files of its commands, and a fake server.
pub(crate) struct Fixture {
    dir: TempDir,
    pub(crate) server: Server,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), server: Server::start().await }
    }

    pub(crate) fn agent_dir(&self) -> PathBuf {
        self.dir.path().join("agent")
    }

    /// A path outside of the agent directory. In the scripts of tests, `%` stands for its parent.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Content of a file outside of the agent directory; empty if it does not exist.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            dir: self.agent_dir(),
            name: "test".to_owned(),
            host: "here".to_owned(),
            labels: vec!["linux".to_owned()],
            capacity: 4,
            secrets: None,
            store: None,
            retention: RetentionPolicy::default(),
            probe: None,
            exit_policy: ExitPolicy::Never,
            commands_on_exit: CommandsOnExit::Continue,
            grace: Duration::from_secs(5),
            isolation: IsolationMode::Off,
            task_users: UserRange::default(),
            hidden: Vec::new(),
            supervisor: test_program(),
            supervisor_args: vec!["supervise".to_owned(), "lasting".to_owned()],
        }
    }

    /// Starts an agent in this process.
    pub(crate) fn agent(&self) -> Agent {
        self.agent_with(self.settings())
    }

    pub(crate) fn agent_with(&self, settings: Settings) -> Agent {
        let executor = ProcessExecutor::new(settings.supervisor.clone(), settings.supervisor_args.clone());
        self.agent_on(settings, executor)
    }

    /// Starts an agent with another executor.
    pub(crate) fn agent_on(&self, settings: Settings, executor: impl Executor) -> Agent {
        let options =
            HttpOptions { server: self.server.address.clone(), token: None, authorities: Vec::new() };
        let (stop, stopped) = watch::channel(false);
        let client = Client::new(HttpTransport::new(options).unwrap());
        Agent { running: tokio::spawn(run_with(settings, client, executor, stopped)), stop }
    }

    /// Starts an agent in a separate process, which can be killed.
    pub(crate) fn process(&self) -> Child {
        self.process_with(&[], &[])
    }

    /// Starts an agent in a separate process, with a store and its environment variables.
    pub(crate) fn process_with(&self, store: &[&str], environment: &[(&str, String)]) -> Child {
        let mut command = Command::new(test_program());
        command.args(["agent", self.agent_dir().to_str().unwrap(), &self.server.address]).args(store);
        command.envs(environment.iter().cloned()).env("NO_PROXY", "127.0.0.1");
        command.stderr(Stdio::inherit()).kill_on_drop(true).spawn().unwrap()
    }

    /// Starts an agent in a separate process whose directory is a 6 MB disk, mounted in its own namespace.
    pub(crate) fn process_on_small_disk(&self) -> Child {
        self.process_on_small_disk_with(&[])
    }

    /// Starts an agent on a small disk with environment variables.
    pub(crate) fn process_on_small_disk_with(&self, environment: &[(&str, String)]) -> Child {
        fs::create_dir_all(self.agent_dir()).unwrap();
        // An unprivileged user can mount in its own user namespace.
        let flags = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
        let line =
            "mount -t tmpfs -o size=6m tidemill-test \"$1\" || exit 9; exec \"$0\" agent \"$1\" \"$2\"";
        let mut command = Command::new("unshare");
        command
            .args([flags, "sh", "-c", line])
            .arg(test_program())
            .arg(self.agent_dir())
            .arg(&self.server.address);
        command.env("NO_PROXY", "127.0.0.1").envs(environment.iter().cloned());
        command.stderr(Stdio::inherit()).kill_on_drop(true).spawn().unwrap()
    }

    /// Starts an agent that sees its directory below `/mnt`, through a mount in its own namespace.
    ///
    /// A directory for temporary files is not replaced for tasks if it contains the directory of the agent. The files
    /// of the fixture lie in one, and so may the whole clone.
    pub(crate) fn process_outside_of_temporary_directories(&self, environment: &[(&str, String)]) -> Child {
        let line = "mount --bind \"$1\" /mnt || exit 9; exec \"$0\" agent /mnt/agent \"$2\"";
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", line])
            .arg(test_program())
            .arg(self.path(""))
            .arg(&self.server.address);
        command.env("NO_PROXY", "127.0.0.1").envs(environment.iter().cloned());
        command.stderr(Stdio::inherit()).kill_on_drop(true).spawn().unwrap()
    }

    /// Starts an agent in a separate process as an unprivileged user, because root can read every file.
    pub(crate) fn process_of_another_user(&self) -> Child {
        self.process_of_another_user_with(&[])
    }

    /// Starts an agent as an unprivileged user with environment variables.
    pub(crate) fn process_of_another_user_with(&self, environment: &[(&str, String)]) -> Child {
        const NOBODY: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            return self.process_with(&[], environment);
        }
        let program = self.path("agent_program");
        fs::copy(test_program(), &program).unwrap();
        for path in [self.path(""), program.clone()] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut command = Command::new(program);
        command.args(["agent", self.agent_dir().to_str().unwrap(), &self.server.address]);
        command.uid(NOBODY).gid(NOBODY).env("NO_PROXY", "127.0.0.1").envs(environment.iter().cloned());
        command.stderr(Stdio::inherit()).kill_on_drop(true).spawn().unwrap()
    }

    /// Waits for the result of a task.
    pub(crate) async fn result(&self, task: &str) -> TaskResult {
        until(&format!("{task} has a result"), || self.server.result(task).is_some()).await;
        self.server.result(task).unwrap().result
    }

    /// Waits until the agent has removed all task directories.
    pub(crate) async fn until_clean(&self) {
        let tasks = self.agent_dir().join("tasks");
        let is_empty = || fs::read_dir(&tasks).is_ok_and(|mut tasks| tasks.next().is_none());
        until("the tasks are removed", is_empty).await;
    }

    /// Waits until a command has written a process id into a file outside of the agent directory.
    pub(crate) async fn pid(&self, name: &str) -> i32 {
        let started = Instant::now();
        loop {
            if let Some(pid) = self.read(name).strip_suffix('\n').and_then(|text| text.parse().ok()) {
                return pid;
            }
            // The requests that the server received show why it failed.
            assert!(started.elapsed() < TIMEOUT, "no process id was written: {}", self.server.summary());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An agent in this process.
pub(crate) struct Agent {
    running: JoinHandle<Result<AgentSummary, Error>>,
    stop: watch::Sender<bool>,
}

impl Agent {
    /// Stops it and waits for its end.
    pub(crate) async fn stop(self) -> Result<AgentSummary, Error> {
        self.stop.send(true).unwrap();
        self.ended().await
    }

    /// Waits until it exits by itself.
    pub(crate) async fn ended(self) -> Result<AgentSummary, Error> {
        tokio::time::timeout(TIMEOUT, self.running).await.expect("the agent did not exit in time").unwrap()
    }
}

/// An order to run a shell script. `%` in it stands for the directory of [`Fixture::path`].
pub(crate) fn order(fixture: &Fixture, job: &str, line: &str) -> Value {
    let line = line.replace('%', fixture.path("").to_str().unwrap());
    json!({
        "task_id": format!("{job}-001"), "kind": "RUNJOB", "job_id": job,
        "work": {
            "run_id": "run-0192f5a0-0000-7000-8000-000000000000", "project_id": "p", "workspace": "main",
            "job": job, "attempt": 1, "run": line,
        },
    })
}

/// An order to cancel a job.
pub(crate) fn cancel(job: &str) -> Value {
    let task = format!("{job}-001");
    json!({"task_id": format!("{task}-cancel"), "kind": "CANCELJOB", "job_id": job, "cancels": task})
}

/// The outputs of a job as inputs in an order.
pub(crate) fn inputs(job: &str, agent: Option<uuid::Uuid>, outputs: &[Output]) -> Value {
    let input = |output: &Output| {
        let mut input = json!({"job_id": job, "job": job, "agent_id": agent});
        let fields = serde_json::to_value(output).unwrap();
        input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        input
    };
    outputs.iter().map(input).collect()
}

/// Id of the agent.
pub(crate) fn agent_id(fixture: &Fixture) -> uuid::Uuid {
    let text = fs::read_to_string(fixture.agent_dir().join("agent.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["agent_id"].as_str().unwrap().parse().unwrap()
}

/// Result of a successful command.
pub(crate) fn success() -> TaskResult {
    TaskResult::Ended { exit_code: 0, unmatched: Vec::new(), hint: Vec::new(), message: None }
}

/// Waits until a condition holds.
pub(crate) async fn until(goal: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "not reached in time: {goal}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process is alive; a zombie is not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let state = stat.as_deref().and_then(|stat| stat.rsplit_once(") ")).map(|(_, rest)| &rest[..1]);
    state.is_some_and(|state| !matches!(state, "Z" | "X"))
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("the process id is zero"), signal)
        .expect("the process does not exist");
}

/// Kills a process and waits for its end.
pub(crate) async fn kill(mut process: Child) {
    process.start_kill().unwrap();
    process.wait().await.unwrap();
}
