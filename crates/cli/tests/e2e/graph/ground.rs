//! A site: a server, a controller and agents, as processes, and what their commands write to disk.

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

use crate::process::Process;
use crate::stage::{Stage, until_within};

/// How long anything of a graph may take on a busy machine; some of it waits for silence that is counted in seconds.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// How long an agent trusts the word that a task is its own; after that it asks again before it starts anything.
pub(crate) const FRESH: Duration = Duration::from_secs(5);

/// What every command does around its work: it takes a lock that nobody else may have, and writes down that it begins
/// and that it ends. The lock is let go when the last process of the command is dead, however it died.
const LEAD: &str = "exec 9>\"$LEDGER.$TIDEMILL_RUN_ID.$TIDEMILL_JOB\"; \
                    flock -n 9 || echo \"overlap $TIDEMILL_JOB\" >> \"$LEDGER\"; \
                    echo \"begin $TIDEMILL_JOB $TIDEMILL_ATTEMPT $$\" >> \"$LEDGER\"";

/// A server and a controller on a stage.
pub(crate) struct Site<'s> {
    pub(crate) stage: &'s Stage,
    pub(crate) server: Process,
    pub(crate) controller: Process,
    pub(crate) url: String,
}

impl<'s> Site<'s> {
    /// Starts a server and a controller.
    pub(crate) fn start(stage: &'s Stage) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = free.local_addr().expect("it has an address").to_string();
        drop(free);
        let server = server(stage, &address);
        let controller = controller(stage, "controller");
        Self { stage, server, controller, url: format!("http://{address}") }
    }

    /// Starts the server again, at the same address.
    pub(crate) fn restart_server(&mut self) {
        self.server = server(self.stage, self.url.trim_start_matches("http://"));
    }

    /// An agent of this name, with its directory.
    pub(crate) fn agent(&self, name: &str, options: &[&str]) -> Process {
        self.agent_at(name, &self.url, options)
    }

    /// The same that reaches the server at another address.
    pub(crate) fn agent_at(&self, name: &str, url: &str, options: &[&str]) -> Process {
        let mut command = self.agent_command(name, url);
        command.args(options);
        Process::start(self.stage, name, &mut command)
    }

    pub(crate) fn agent_command(&self, name: &str, url: &str) -> Command {
        let mut command = self.stage.command(&["--server", url, "agent", "run", "--name", name]);
        command.env_remove("TIDEMILL_DATABASE").arg("--dir").arg(self.dir(name));
        command
    }

    /// The directory of an agent.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        self.stage.path(&format!("{name}.agent"))
    }

    /// The directory of the first task of a job with an agent.
    pub(crate) fn task_dir(&self, agent: &str, run: &RunId, job: &str) -> PathBuf {
        self.dir(agent).join("tasks").join(task_id(&job_id(run, job), 1))
    }

    /// Submits a graph; its run.
    pub(crate) fn submit(&self, text: &str) -> RunId {
        self.submit_with(text, &[])
    }

    /// The same with more options.
    pub(crate) fn submit_with(&self, text: &str, options: &[&str]) -> RunId {
        let file = self.stage.write("submitted.graph.yaml", text);
        let file = file.display().to_string();
        let usual = ["graph", "submit", &file, "--project", "shop", "--env", "staging"];
        self.stage.ok(&[&usual, options].concat()).trim().parse().expect("the answer is a run id")
    }

    /// Waits until a graph has ended; how.
    pub(crate) fn until_ended(&self, run: &RunId) -> RunState {
        let what = format!("graph {run} ends");
        let look = || Some(self.stage.run(run).status).filter(|status| status.is_terminal());
        let begun = Instant::now();
        loop {
            if let Some(status) = look() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {:#?}", self.codes(run));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The job of that name, as it is shown.
    pub(crate) fn job(&self, run: &RunId, name: &str) -> Value {
        self.stage.json(&["job", "show", &format!("{run}/{name}")])
    }

    /// The codes of all jobs, by name.
    pub(crate) fn codes(&self, run: &RunId) -> BTreeMap<String, String> {
        let shown = self.stage.json(&["graph", "show", run.as_str()]);
        let jobs = shown["jobs"].as_array().expect("jobs").clone();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        jobs.iter().map(|job| (text(&job["name"]), text(&job["code"]))).collect()
    }

    /// The code of a job, straight from the database.
    pub(crate) fn code(&self, run: &RunId, name: &str) -> String {
        let text = format!("SELECT code FROM ops.jobs WHERE job_id = '{}'", job_id(run, name));
        self.stage.sql(&text).expect("a job is read").pop().unwrap_or_default()
    }

    /// Waits until a job has this code.
    pub(crate) fn until_code(&self, run: &RunId, name: &str, code: &str) {
        let mut last = String::new();
        let begun = Instant::now();
        while last != code {
            assert!(begun.elapsed() < PATIENCE, "job {name} is {last}, and not {code}");
            last = self.code(run, name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the commands wrote.
    pub(crate) fn ledger(&self) -> Ledger {
        let text = fs::read_to_string(self.stage.path("ledger")).unwrap_or_default();
        Ledger(text.lines().map(str::to_owned).collect())
    }

    /// Waits until the commands have written this line.
    pub(crate) fn until_written(&self, line: &str) {
        until_within(&format!("`{line}` is written"), PATIENCE, || {
            self.ledger().0.iter().any(|written| written.starts_with(line)).then_some(())
        });
    }

    /// Everything that must hold of every graph that has ended: each job ended once, nothing of it runs, and no command
    /// ever met another one of its own job.
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
            self.stage.sql(&twice).expect("events are read"),
            Vec::<String>::new(),
            "jobs that ended twice"
        );
        let open = format!("{jobs} AND (ended_at IS NULL OR code IN {live})");
        assert_eq!(
            self.stage.sql(&open).expect("jobs are read"),
            Vec::<String>::new(),
            "jobs that have not ended"
        );
        until_within("every order is over", PATIENCE, || {
            let active = format!("SELECT task_id FROM ops.tasks WHERE run_id = '{run}' AND active");
            self.stage.sql(&active).expect("tasks are read").is_empty().then_some(())
        });
    }

    /// A job: its name, what it needs, and what its command does between its two lines in the ledger.
    pub(crate) fn step(&self, name: &str, needs: &[&str], work: &str, more: &str) -> String {
        let ledger = self.stage.path("ledger");
        let mut text = format!("  {name}:\n    env: {{LEDGER: \"{}\"}}\n", ledger.display());
        if !needs.is_empty() {
            let _ = writeln!(text, "    needs: [{}]", needs.join(", "));
        }
        for line in more.lines() {
            let _ = writeln!(text, "    {line}");
        }
        let _ = writeln!(text, "    run: |\n      {LEAD}");
        for line in work.lines() {
            let _ = writeln!(text, "      {line}");
        }
        let _ = writeln!(text, "      echo \"end $TIDEMILL_JOB\" >> \"$LEDGER\"");
        text
    }
}

/// Waits until a file is there. It looks without a pause: what it waits for may not last.
pub(crate) fn until_there(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < PATIENCE, "{} does not appear", path.display());
        std::thread::yield_now();
    }
}

/// The text of a graph of these jobs.
pub(crate) fn graph(jobs: &[String]) -> String {
    format!("version: 1\nname: tested\njobs:\n{}", jobs.concat())
}

fn server(stage: &Stage, address: &str) -> Process {
    let process = Process::start(stage, "server", &mut stage.command(&["server", "--listen", address]));
    until_within("the server answers", PATIENCE, || {
        std::net::TcpStream::connect(address).is_ok().then_some(())
    });
    process
}

/// Another controller.
pub(crate) fn controller(stage: &Stage, name: &str) -> Process {
    Process::start(stage, name, &mut stage.command(&["controller"]))
}

/// What the commands wrote, line by line.
#[derive(Debug)]
pub(crate) struct Ledger(pub(crate) Vec<String>);

impl Ledger {
    /// How many lines begin so.
    pub(crate) fn count(&self, beginning: &str) -> usize {
        self.0.iter().filter(|line| line.starts_with(beginning)).count()
    }

    /// The process of the last command of a job.
    pub(crate) fn pid(&self, job: &str) -> i32 {
        let beginning = format!("begin {job} ");
        let last = self.0.iter().rfind(|line| line.starts_with(&beginning));
        let word = last.and_then(|line| line.rsplit(' ').next()).expect("the job has begun");
        word.parse().expect("a process id")
    }
}
