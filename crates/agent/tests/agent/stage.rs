//! What the tests share: agents within the test or as processes of their own, orders, and waiting.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidemill_agent::{Carried, Commands, Ending, Error, Executor, Keep, Processes, Settings, run_with};
use tidemill_client::{Client, Http, HttpOptions};
use tidemill_core::task::{Output, TaskResult};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::server::Server;

/// How long anything may take on a machine that is busy with other things; reached only by a failure.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The program that can be an agent and a supervisor: an example, which a plain `cargo test` builds next to the
/// tests.
pub(crate) fn stand() -> PathBuf {
    let found = tidemill_testkit::stand::example("tidemill-agent", env!("CARGO_MANIFEST_DIR"), "agent_stand");
    found.unwrap_or_else(|error| panic!("{error}"))
}

/// A place for an agent and what its commands write, and a server.
pub(crate) struct Ground {
    dir: TempDir,
    pub(crate) server: Server,
}

impl Ground {
    pub(crate) async fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), server: Server::start().await }
    }

    /// The agent's directory.
    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("agent")
    }

    /// A file outside of it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What commands wrote into a file outside.
    pub(crate) fn wrote(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            dir: self.home(),
            name: "test".to_owned(),
            host: "here".to_owned(),
            labels: vec!["linux".to_owned()],
            capacity: 4,
            secrets: None,
            store: None,
            keep: Keep::default(),
            probe: None,
            ending: Ending::Never,
            commands: Commands::GoOn,
            grace: Duration::from_secs(5),
            supervisor: stand(),
            supervisor_args: vec!["supervise".to_owned(), "lasting".to_owned()],
        }
    }

    /// An agent within this process.
    pub(crate) fn agent(&self) -> Agent {
        self.agent_with(self.settings())
    }

    pub(crate) fn agent_with(&self, settings: Settings) -> Agent {
        let executor = Processes::new(settings.supervisor.clone(), settings.supervisor_args.clone());
        self.agent_on(settings, executor)
    }

    /// The same with another executor.
    pub(crate) fn agent_on(&self, settings: Settings, executor: impl Executor) -> Agent {
        let options =
            HttpOptions { server: self.server.address.clone(), token: None, authorities: Vec::new() };
        let (stop, stopped) = watch::channel(false);
        let client = Client::new(Http::new(options).unwrap());
        Agent { running: tokio::spawn(run_with(settings, client, executor, stopped)), stop }
    }

    /// An agent in a process of its own, which may be killed.
    pub(crate) fn process(&self) -> Child {
        self.process_with(&[], &[])
    }

    /// The same with a store, and in the environment of somebody who uses that.
    pub(crate) fn process_with(&self, store: &[&str], environment: &[(&str, String)]) -> Child {
        let mut command = Command::new(stand());
        command.args(["agent", self.home().to_str().unwrap(), &self.server.address]).args(store);
        command.envs(environment.iter().cloned()).env("NO_PROXY", "127.0.0.1");
        command.stderr(Stdio::inherit()).kill_on_drop(true).spawn().unwrap()
    }

    /// An agent in a process of its own whose directory is a disk of 6 MB. Only its own processes see that disk.
    pub(crate) fn process_on_small_disk(&self) -> Child {
        fs::create_dir_all(self.home()).unwrap();
        // An ordinary user may mount in a user namespace of its own.
        let flags = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
        let line =
            "mount -t tmpfs -o size=6m tidemill-test \"$1\" || exit 9; exec \"$0\" agent \"$1\" \"$2\"";
        let mut command = Command::new("unshare");
        command.args([flags, "sh", "-c", line]).arg(stand()).arg(self.home()).arg(&self.server.address);
        command.env("NO_PROXY", "127.0.0.1").stderr(Stdio::inherit()).kill_on_drop(true).spawn().unwrap()
    }

    /// An agent in a process of its own that is not root's, who could read everything.
    pub(crate) fn process_of_another_user(&self) -> Child {
        const NOBODY: u32 = 65534;
        if !rustix::process::geteuid().is_root() {
            return self.process();
        }
        let program = self.path("agent_stand");
        fs::copy(stand(), &program).unwrap();
        for path in [self.path(""), program.clone()] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut command = Command::new(program);
        command.args(["agent", self.home().to_str().unwrap(), &self.server.address]);
        command.uid(NOBODY).gid(NOBODY).env("NO_PROXY", "127.0.0.1");
        command.stderr(Stdio::inherit()).kill_on_drop(true).spawn().unwrap()
    }

    /// Waits for the result of a task.
    pub(crate) async fn result(&self, task: &str) -> TaskResult {
        until(&format!("{task} has a result"), || self.server.result(task).is_some()).await;
        self.server.result(task).unwrap().result
    }

    /// Waits until nothing is left of tasks in the agent's directory.
    pub(crate) async fn until_clean(&self) {
        let tasks = self.home().join("tasks");
        let is_empty = || fs::read_dir(&tasks).is_ok_and(|mut tasks| tasks.next().is_none());
        until("the tasks are removed", is_empty).await;
    }

    /// Waits until a command wrote a process id into a file outside.
    pub(crate) async fn pid(&self, name: &str) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(pid) = self.wrote(name).strip_suffix('\n').and_then(|text| text.parse().ok()) {
                return pid;
            }
            // What came instead: this once failed where it could not be seen why.
            assert!(begun.elapsed() < PATIENCE, "no process id is written: {}", self.server.told());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An agent within this process.
pub(crate) struct Agent {
    running: JoinHandle<Result<Carried, Error>>,
    stop: watch::Sender<bool>,
}

impl Agent {
    /// Tells it to end, and waits until it has.
    pub(crate) async fn stop(self) -> Result<Carried, Error> {
        self.stop.send(true).unwrap();
        self.ended().await
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> Result<Carried, Error> {
        tokio::time::timeout(PATIENCE, self.running).await.expect("the agent ends").unwrap()
    }
}

/// An order to run a line of the shell. `%` in it stands for the ground outside of the agent's directory.
pub(crate) fn order(ground: &Ground, job: &str, line: &str) -> Value {
    let line = line.replace('%', ground.path("").to_str().unwrap());
    json!({
        "task_id": format!("{job}-001"), "kind": "RUNJOB", "job_id": job,
        "work": {
            "run_id": "run-0192f5a0-0000-7000-8000-000000000000", "project_id": "p", "workspace": "main",
            "job": job, "attempt": 1, "run": line,
        },
    })
}

/// An order to stop a task.
pub(crate) fn cancel(job: &str) -> Value {
    let task = format!("{job}-001");
    json!({"task_id": format!("{task}-cancel"), "kind": "CANCELJOB", "job_id": job, "cancels": task})
}

/// What a job left, as it is told to one that needs it.
pub(crate) fn inputs(job: &str, agent: Option<uuid::Uuid>, outputs: &[Output]) -> Value {
    let input = |output: &Output| {
        let mut input = json!({"job_id": job, "job": job, "agent_id": agent});
        let fields = serde_json::to_value(output).unwrap();
        input.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        input
    };
    outputs.iter().map(input).collect()
}

/// Who the agent of a ground is.
pub(crate) fn agent_id(ground: &Ground) -> uuid::Uuid {
    let text = fs::read_to_string(ground.home().join("agent.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["agent_id"].as_str().unwrap().parse().unwrap()
}

/// A result of a command that did well.
pub(crate) fn well() -> TaskResult {
    TaskResult::Ended { exit_code: 0, unmatched: Vec::new(), hint: Vec::new(), message: None }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process runs; one that nobody has collected yet does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let state = stat.as_deref().and_then(|stat| stat.rsplit_once(") ")).map(|(_, rest)| &rest[..1]);
    state.is_some_and(|state| !matches!(state, "Z" | "X"))
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process id is not zero"), signal).expect("the process exists");
}

/// Kills a process and waits until it is gone.
pub(crate) async fn kill(mut process: Child) {
    process.start_kill().unwrap();
    process.wait().await.unwrap();
}
