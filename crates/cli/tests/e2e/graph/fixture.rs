//! Fixture of graphs: a server, a controller and agents as processes, and the ledger of their commands.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidemill_core::RunId;
use tidemill_core::run::RunState;
use tidemill_core::task::{job_id, task_id};

use crate::fixture::{Fixture, local_token, token_dir, wait_until_within};
use crate::process::Process;

/// Time limit of every wait. It is long because some waits include timeouts of several seconds.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);

/// Time for which an agent trusts the confirmation of a task. After it, the agent asks again before the start.
pub(crate) const CONFIRMATION_LIFETIME: Duration = Duration::from_secs(5);

/// Start of every command: takes an exclusive lock, and writes a ledger line.
///
/// The system releases the lock when the last process of the command is dead.
const PROLOGUE: &str = "exec 9>\"$LEDGER.$TIDEMILL_RUN_ID.$TIDEMILL_JOB\"; \
                    flock -n 9 || echo \"overlap $TIDEMILL_JOB\" >> \"$LEDGER\"; \
                    echo \"begin $TIDEMILL_JOB $TIDEMILL_ATTEMPT $$\" >> \"$LEDGER\"";

/// A server and a controller on the database of a fixture.
pub(crate) struct GraphFixture<'s> {
    pub(crate) fixture: &'s Fixture,
    pub(crate) server: Process,
    pub(crate) controller: Process,
    pub(crate) url: String,
}

impl<'s> GraphFixture<'s> {
    /// Starts a server and a controller.
    pub(crate) fn start(fixture: &'s Fixture) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = free.local_addr().expect("it has an address").to_string();
        drop(free);
        let server = server(fixture, &address);
        let controller = controller(fixture, "controller");
        Self { fixture, server, controller, url: format!("http://{address}") }
    }

    /// Starts the server again at the same address.
    pub(crate) fn restart_server(&mut self) {
        self.server = server(self.fixture, self.url.trim_start_matches("http://"));
    }

    pub(crate) fn agent(&self, name: &str, options: &[&str]) -> Process {
        self.agent_at(name, &self.url, options)
    }

    /// Starts an agent with another address of the server.
    pub(crate) fn agent_at(&self, name: &str, url: &str, options: &[&str]) -> Process {
        let mut command = self.agent_command(name, url);
        command.args(options);
        Process::start(self.fixture, name, &mut command)
    }

    pub(crate) fn agent_command(&self, name: &str, url: &str) -> Command {
        let mut command = self.fixture.command(&["--server", url, "agent", "run", "--name", name]);
        if url != self.url {
            // A client finds the token of the server itself, but not that of a proxy's server.
            let file = self.url.trim_start_matches("http://").replace(':', "-");
            command.env("TIDEMILL_TOKEN", format!("@{}/{file}.token", token_dir().display()));
        }
        command.env_remove("TIDEMILL_DATABASE").arg("--dir").arg(self.dir(name));
        // The commands of these tests write a ledger with their process ids outside of their directories.
        command.args(["--isolation", "off"]);
        command
    }

    /// Directory of an agent.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        self.fixture.path(&format!("{name}.agent"))
    }

    /// Directory of the first task of a job on an agent.
    pub(crate) fn task_dir(&self, agent: &str, run: &RunId, job: &str) -> PathBuf {
        self.dir(agent).join("tasks").join(task_id(&job_id(run, job), 1))
    }

    /// Submits a graph, and returns its run.
    pub(crate) fn submit(&self, text: &str) -> RunId {
        self.submit_with(text, &[])
    }

    /// Submits a graph with options.
    pub(crate) fn submit_with(&self, text: &str, options: &[&str]) -> RunId {
        let file = self.fixture.write("submitted.graph.yaml", text);
        let file = file.display().to_string();
        let usual = ["graph", "submit", &file, "--project", "shop", "--env", "staging"];
        self.fixture.ok(&[&usual, options].concat()).trim().parse().expect("the output is a run id")
    }

    /// Waits until a graph has ended, and returns its state.
    pub(crate) fn wait_for_end(&self, run: &RunId) -> RunState {
        let what = format!("graph {run} ends");
        let read = || Some(self.fixture.run(run).status).filter(|status| status.is_terminal());
        let started = Instant::now();
        loop {
            if let Some(status) = read() {
                return status;
            }
            assert!(started.elapsed() < TIMEOUT, "{what}: {:#?}", self.codes(run));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn job(&self, run: &RunId, name: &str) -> Value {
        self.fixture.json(&["job", "show", &format!("{run}/{name}")])
    }

    /// Status codes of all jobs by name.
    pub(crate) fn codes(&self, run: &RunId) -> BTreeMap<String, String> {
        let shown = self.fixture.json(&["graph", "show", run.as_str()]);
        let jobs = shown["jobs"].as_array().expect("jobs").clone();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        jobs.iter().map(|job| (text(&job["name"]), text(&job["code"]))).collect()
    }

    /// Status code of a job, read from the database.
    pub(crate) fn code(&self, run: &RunId, name: &str) -> String {
        let text = format!("SELECT code FROM ops.jobs WHERE job_id = '{}'", job_id(run, name));
        self.fixture.sql(&text).expect("a job is read").pop().unwrap_or_default()
    }

    /// Waits until a job has this code.
    pub(crate) fn wait_for_code(&self, run: &RunId, name: &str, code: &str) {
        let mut last = String::new();
        let started = Instant::now();
        while last != code {
            assert!(started.elapsed() < TIMEOUT, "job {name} is {last} instead of {code}");
            last = self.code(run, name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn ledger(&self) -> Ledger {
        let text = fs::read_to_string(self.fixture.path("ledger")).unwrap_or_default();
        Ledger(text.lines().map(str::to_owned).collect())
    }

    /// Waits until the ledger has a line that starts with this text.
    pub(crate) fn wait_for_line(&self, line: &str) {
        wait_until_within(&format!("`{line}` is written"), TIMEOUT, || {
            self.ledger().0.iter().any(|written| written.starts_with(line)).then_some(())
        });
    }

    /// Checks an ended graph: each job ended once, no task is active, and no two commands of a job overlapped.
    #[track_caller]
    pub(crate) fn check(&self, run: &RunId) {
        assert_eq!(self.ledger().count("overlap"), 0, "{:?}", self.ledger());
        let live = "('created', 'paused', 'waiting_on_dependencies', 'waiting_on_workers', 'waiting_on_pool', \
                    'waiting_db_maintenance', 'waiting_on_reboot', 'waiting_on_new_task', 'initiated', 'preparing', \
                    'prepared', 'executing', 'error', 'executed', 'finalizing', 'finalized')";
        let jobs = format!("SELECT job_id FROM ops.jobs WHERE run_id = '{run}' AND reused_from IS NULL");
        let twice = format!(
            "SELECT e.job_id FROM ops.job_events e WHERE e.job_id IN ({jobs}) AND e.to_code NOT IN {live} \
             GROUP BY e.job_id HAVING count(*) <> 1"
        );
        assert_eq!(
            self.fixture.sql(&twice).expect("events are read"),
            Vec::<String>::new(),
            "jobs that ended twice"
        );
        let open = format!("{jobs} AND (ended_at IS NULL OR code IN {live})");
        assert_eq!(
            self.fixture.sql(&open).expect("jobs are read"),
            Vec::<String>::new(),
            "jobs that have not ended"
        );
        wait_until_within("no task is active", TIMEOUT, || {
            let active = format!("SELECT task_id FROM ops.tasks WHERE run_id = '{run}' AND active");
            self.fixture.sql(&active).expect("tasks are read").is_empty().then_some(())
        });
    }

    /// Text of a job: its name, its dependencies, the work between its two ledger lines, and further keys.
    pub(crate) fn step(&self, name: &str, needs: &[&str], work: &str, more: &str) -> String {
        let ledger = self.fixture.path("ledger");
        let mut text = format!("  {name}:\n    env: {{LEDGER: \"{}\"}}\n", ledger.display());
        if !needs.is_empty() {
            let _ = writeln!(text, "    needs: [{}]", needs.join(", "));
        }
        for line in more.lines() {
            let _ = writeln!(text, "    {line}");
        }
        let _ = writeln!(text, "    run: |\n      {PROLOGUE}");
        for line in work.lines() {
            let _ = writeln!(text, "      {line}");
        }
        let _ = writeln!(text, "      echo \"end $TIDEMILL_JOB\" >> \"$LEDGER\"");
        text
    }
}

/// Waits until a file exists. It polls without a pause, because the file may exist only briefly.
pub(crate) fn wait_for_file(path: &Path) {
    let started = Instant::now();
    while !path.exists() {
        assert!(started.elapsed() < TIMEOUT, "{} does not exist", path.display());
        std::thread::yield_now();
    }
}

/// Text of a graph with these jobs.
pub(crate) fn graph(jobs: &[String]) -> String {
    format!("version: 1\nname: tested\njobs:\n{}", jobs.concat())
}

fn server(fixture: &Fixture, address: &str) -> Process {
    let process = Process::start(fixture, "server", &mut fixture.command(&["server", "--listen", address]));
    wait_until_within("the server answers", TIMEOUT, || {
        // The server writes its token after it has bound its address.
        let token = local_token(address.parse().expect("an address"))?;
        std::net::TcpStream::connect(address).is_ok().then_some(token)
    });
    process
}

pub(crate) fn controller(fixture: &Fixture, name: &str) -> Process {
    Process::start(fixture, name, &mut fixture.command(&["controller"]))
}

/// Lines that the commands wrote.
#[derive(Debug)]
pub(crate) struct Ledger(pub(crate) Vec<String>);

impl Ledger {
    /// Number of lines that start with this text.
    pub(crate) fn count(&self, prefix: &str) -> usize {
        self.0.iter().filter(|line| line.starts_with(prefix)).count()
    }

    /// Process id of the last command of a job.
    pub(crate) fn pid(&self, job: &str) -> i32 {
        let prefix = format!("begin {job} ");
        let last = self.0.iter().rfind(|line| line.starts_with(&prefix));
        let word = last.and_then(|line| line.rsplit(' ').next()).expect("the job has started");
        word.parse().expect("a process id")
    }
}
