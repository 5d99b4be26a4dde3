//! `tidemill demo --runs`: three worker processes on a new SQLite file, of which one is killed during a run.
//!
//! Every request still ends exactly once. The commands write a ledger, which is compared with the database.

use super::DemoArgs;
use super::console::DemoConsole;
use crate::config::Config;
use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tidemill_core::run::{QueueRun, Run, RunState};
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_store::{EventPage, Options, RunFilter, Store};
use tokio::process::{Child, Command};

const REQUESTS: usize = 12;
const WORKERS: usize = 3;
const TIME_LIMIT: Duration = Duration::from_mins(1);
/// Shorter intervals than the defaults, so that the death of the worker is detected soon. A busy machine can stall a
/// live worker for some seconds, which must not count as its death.
const FAST_SETTINGS: &[(&str, &str)] = &[
    ("TIDEMILL_WORKER_BEAT", "500ms"),
    ("TIDEMILL_WORKER_DEAD_AFTER", "8s"),
    ("TIDEMILL_UPKEEP_EVERY", "500ms"),
];
/// Command of each run: a ledger line at the start, a second of work, and a ledger line at the end.
const TASK: &str = r#"
echo "$TIDEMILL_RUN_ID begun by $TIDEMILL_DEMO_WORKER" >> "$TIDEMILL_DEMO_LEDGER"
for step in build test ship; do echo "$step"; sleep 0.4; done
echo "$TIDEMILL_RUN_ID done by $TIDEMILL_DEMO_WORKER" >> "$TIDEMILL_DEMO_LEDGER"
"#;

pub(super) async fn demo(args: DemoArgs, config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let keep = args.keep.clone();
    let directory = super::create_directory()?;
    let database = keep.clone().unwrap_or_else(|| directory.join("demo.db"));
    if database.exists() {
        return Err(super::file_exists(&database));
    }
    let demo = Demo::prepare(&directory, &database, out).await?;
    let result = if args.serve {
        let syncs = Syncs::new(demo.engine.clone(), config.sync());
        let console = DemoConsole::open(&syncs, config, &args, out).await?;
        console.run_beside(Box::pin(demo.run()), out).await
    } else {
        demo.run().await
    };
    match keep {
        Some(path) => out.inform(format!("hint: tidemill --database {} run list", path.display())),
        None => {
            let _ = std::fs::remove_dir_all(&directory);
        }
    }
    result
}

struct Demo {
    engine: Engine,
    ledger: PathBuf,
    database: PathBuf,
    requests: Vec<RunId>,
    workers: Vec<(String, Child)>,
    started: Instant,
    started_at: Timestamp,
    out: Out,
}

impl Demo {
    async fn prepare(directory: &Path, database: &Path, out: Out) -> Result<Self, Failure> {
        let options = Options::new(database.display().to_string(), host_now);
        let store = Store::open(&options).await?;
        store.migrate(None).await?;
        store.create_project("demo", vec!["staging".to_owned()], None).await?;
        let engine = Engine::new(store, Clock::Database, RetryPolicy::For(Duration::from_secs(10)));
        let mut requests = Vec::new();
        for number in 1..=REQUESTS {
            let mut request = QueueRun::new("demo", "staging");
            request.git_ref = Some("main".to_owned());
            request.idempotency_key = Some(format!("request-{number}"));
            requests.push(engine.queue(request.clone()).await?.run_id);
            // The same key again, as a webhook that is delivered twice: it is still one run.
            engine.queue(request).await?;
        }
        let now = Instant::now();
        Ok(Self {
            engine,
            ledger: directory.join("ledger"),
            database: database.to_owned(),
            requests,
            workers: Vec::new(),
            started: now,
            started_at: host_now(),
            out,
        })
    }

    async fn run(mut self) -> Result<ExitCode, Failure> {
        self.log(
            &format!("queued {REQUESTS} requests on a new SQLite file, each of them twice"),
            Style::Bold,
        );
        for number in 1..=WORKERS {
            self.start_worker(format!("worker-{number}"))?;
        }
        self.log(&format!("started {WORKERS} worker processes"), Style::Bold);
        let mut printed: BTreeMap<RunId, i32> = BTreeMap::new();
        let mut is_killed = false;
        loop {
            let runs = self.engine.store().runs(RunFilter { limit: 1_000, ..RunFilter::default() }).await?;
            self.print_changes(&runs, &mut printed).await?;
            if !is_killed && runs.iter().filter(|run| run.status == RunState::Success).count() >= 2 {
                is_killed = self.kill_worker(&runs).await;
            }
            if runs.iter().all(|run| run.status.is_terminal()) {
                break;
            }
            if self.started.elapsed() > TIME_LIMIT {
                return Err(Failure::outage(
                    "the demo did not end within its time limit; this is a bug, please report it",
                ));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.stop_workers().await;
        self.verify().await
    }

    fn start_worker(&mut self, name: String) -> Result<(), Failure> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("--database")
            .arg(&self.database)
            .args(["work", "--worker", &name, "--grace", "2s", "--"]);
        command.args(["sh", "-c", TASK]);
        command.envs(FAST_SETTINGS.iter().copied());
        command.env("TIDEMILL_DEMO_LEDGER", &self.ledger).env("TIDEMILL_DEMO_WORKER", &name);
        command.env("TIDEMILL_LOG", "off");
        command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::null()).kill_on_drop(true);
        let child = command
            .spawn()
            .map_err(|error| Failure::outage(format!("could not start a worker process: {error}")))?;
        self.workers.push((name, child));
        Ok(())
    }

    /// Sends SIGKILL to a worker that executes a run.
    async fn kill_worker(&mut self, runs: &[Run]) -> bool {
        // A run that has just started, so that it cannot end before the signal arrives.
        let recent = host_now() - chrono::Duration::milliseconds(600);
        let run = runs.iter().find(|run| run.status == RunState::Running && run.started_at > Some(recent));
        let Some(victim) = run.and_then(|run| run.claimed_by.clone()) else { return false };
        let Some(index) = self.workers.iter().position(|(name, _)| *name == victim) else { return false };
        let (name, mut child) = self.workers.swap_remove(index);
        let pid = child.id().unwrap_or_default();
        let _ = child.start_kill();
        let _ = child.wait().await;
        self.log(&format!("kill -9 {pid}: {name} dies during a run"), Style::Error);
        true
    }

    /// Prints the state changes since the last call.
    async fn print_changes(&self, runs: &[Run], printed: &mut BTreeMap<RunId, i32>) -> Result<(), Failure> {
        for run in runs.iter().rev() {
            let after = printed.get(&run.run_id).copied().unwrap_or(0);
            let page = EventPage { after, limit: 100 };
            for event in self.engine.store().events(run.run_id.clone(), page).await? {
                printed.insert(run.run_id.clone(), event.seq);
                let Some(state) = event.payload.get("to").and_then(|to| to.as_str()) else { continue };
                let Ok(state) = state.parse::<RunState>() else { continue };
                if state == RunState::Queued && run.retry_of.is_none() {
                    continue;
                }
                let worker = event.payload.get("worker_id").and_then(|id| id.as_str()).unwrap_or("a worker");
                let change = match state {
                    RunState::Queued => format!("queued again as attempt {}", run.attempt),
                    RunState::Claimed => format!("claimed by {worker}"),
                    RunState::Running => "running".to_owned(),
                    RunState::Success => "succeeded".to_owned(),
                    RunState::Failed | RunState::Cancelled => {
                        let cause =
                            event.payload.get("cause").and_then(|cause| cause.as_str()).unwrap_or("?");
                        format!("{state}: {cause}")
                    }
                };
                self.log(&format!("{}  {change}", self.request_name(run, runs)), Style::of_state(state));
            }
        }
        Ok(())
    }

    /// Name of a run: the number of its request.
    fn request_name(&self, run: &Run, runs: &[Run]) -> String {
        let mut first = run;
        while let Some(before) =
            first.retry_of.as_ref().and_then(|id| runs.iter().find(|run| run.run_id == *id))
        {
            first = before;
        }
        let number = self.requests.iter().position(|id| *id == first.run_id).map_or(0, |index| index + 1);
        format!("request {number:>2}")
    }

    async fn stop_workers(&mut self) {
        for (_, child) in &mut self.workers {
            if let Some(pid) =
                child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
        for (_, child) in &mut self.workers {
            let _ = tokio::time::timeout(Duration::from_secs(10), child.wait()).await;
        }
    }

    /// Compares the ledger with the database, request by request.
    async fn verify(&self) -> Result<ExitCode, Failure> {
        let ledger = std::fs::read_to_string(&self.ledger).unwrap_or_default();
        let mut rows = Vec::new();
        let mut is_exact = true;
        let mut lost = None;
        for (number, request) in self.requests.iter().enumerate() {
            let tries = self.engine.store().tries(request.clone()).await?;
            let ended = tries.iter().filter(|run| run.status == RunState::Success).count();
            let count = |what: &str| {
                tries
                    .iter()
                    .map(|run| ledger.matches(&format!("{} {what}", run.run_id)).count())
                    .sum::<usize>()
            };
            let (begun, done) = (count("begun"), count("done"));
            is_exact &= ended == 1 && done == 1;
            if tries.len() > 1 {
                lost = tries.first().map(|run| run.run_id.clone());
            }
            let took = tries
                .last()
                .and_then(|run| run.finished_at)
                .map(|end| times::format_rough(end - self.started_at));
            rows.push(vec![
                format!("{}", number + 1).into(),
                tries.iter().filter_map(|run| run.claimed_by.clone()).collect::<Vec<_>>().join(" → ").into(),
                format!("{begun} begun, {done} done").into(),
                Cell::new(format!("{ended} success"), if ended == 1 { Style::Success } else { Style::Error }),
                took.unwrap_or_default().into(),
            ]);
        }
        if self.out.is_json() {
            self.out.print_json(&serde_json::json!({"requests": REQUESTS, "exactly_once": is_exact,
                "seconds": self.started.elapsed().as_secs_f64()}));
        } else {
            self.out.print("");
            self.out.print_table(&["REQUEST", "WORKERS", "LEDGER", "RESULT", "AFTER"], &rows);
            self.out.print("");
            if let Some(run) = lost {
                let sentence = self.engine.why(&run).await?.sentence();
                self.out.print(format!("tidemill run why {run}"));
                self.out.print(format!("  {sentence}"));
                self.out.print("");
            }
        }
        if !is_exact {
            return Err(Failure::outage(
                "a request did not end exactly once; this is a bug, please report it",
            ));
        }
        let result =
            format!("{REQUESTS} requests, {REQUESTS} successes, each exactly once, despite the kill");
        if !self.out.is_json() {
            self.out.print(self.out.paint(&result, Style::Success));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn log(&self, text: &str, style: Style) {
        if !self.out.is_json() {
            let clock = format!("{:>6.1} s", self.started.elapsed().as_secs_f64());
            self.out.print(self.out.paint(&clock, Style::Dim).and("  ").and(self.out.paint(text, style)));
        }
    }
}
