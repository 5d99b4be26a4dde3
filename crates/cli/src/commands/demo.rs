//! The demo: three real worker processes on a fresh SQLite file, one of them killed in the middle, and every
//! request still ends exactly once. Nothing here is played: the ledger that the commands write is compared with
//! what the database says.

use super::demo_shown::Shown;
use crate::args_sync::Demo as Order;
use crate::config::Config;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tidemill_core::run::{QueueRun, Run, RunState};
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, Patience};
use tidemill_store::{EventPage, Options, RunFilter, Store};
use tokio::process::{Child, Command};

/// Requests, workers, and the longest that the demo may take.
const REQUESTS: usize = 12;
const WORKERS: usize = 3;
const LONGEST: Duration = Duration::from_mins(1);
/// Quicker than the defaults, so that the killed worker is found dead soon. A busy machine can stall a living worker
/// for some seconds, which must not count as its death.
const HASTE: &[(&str, &str)] = &[
    ("TIDEMILL_WORKER_BEAT", "500ms"),
    ("TIDEMILL_WORKER_DEAD_AFTER", "8s"),
    ("TIDEMILL_UPKEEP_EVERY", "500ms"),
];
/// What each run does: a line in the ledger when it begins, a second of work, a line when it is done.
const TASK: &str = r#"
echo "$TIDEMILL_RUN_ID begun by $TIDEMILL_DEMO_WORKER" >> "$TIDEMILL_DEMO_LEDGER"
for step in build test ship; do echo "$step"; sleep 0.4; done
echo "$TIDEMILL_RUN_ID done by $TIDEMILL_DEMO_WORKER" >> "$TIDEMILL_DEMO_LEDGER"
"#;

pub(super) async fn demo(order: Order, config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let keep = order.keep.clone();
    let folder = std::env::temp_dir().join(format!("tidemill-demo-{}", std::process::id()));
    // Not one that somebody else has prepared under this name.
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .map_err(|error| Failure::outage(format!("could not make a folder for the demo: {error}")))?;
    let database = keep.clone().unwrap_or_else(|| folder.join("demo.db"));
    if database.exists() {
        return Err(Failure::refused(format!(
            "`{}` exists; the demo wants a fresh file",
            database.display()
        )));
    }
    let demo = Demo::prepare(&folder, &database, out).await?;
    let result = if order.serve {
        let syncs = Syncs::new(demo.engine.clone(), config.sync());
        let shown = Shown::open(&syncs, config, &order, out).await?;
        shown.beside(Box::pin(demo.play()), out).await
    } else {
        demo.play().await
    };
    match keep {
        Some(path) => out.say(format!("look around: tidemill --database {} run list", path.display())),
        None => {
            let _ = std::fs::remove_dir_all(&folder);
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
    began: Instant,
    began_at: Timestamp,
    out: Out,
}

impl Demo {
    async fn prepare(folder: &Path, database: &Path, out: Out) -> Result<Self, Failure> {
        let options = Options::new(database.display().to_string(), host_now);
        let store = Store::open(&options).await?;
        store.migrate(None).await?;
        store.create_project("demo", vec!["staging".to_owned()], None).await?;
        let engine = Engine::new(store, Clock::Database, Patience::For(Duration::from_secs(10)));
        let mut requests = Vec::new();
        for number in 1..=REQUESTS {
            let mut request = QueueRun::new("demo", "staging");
            request.git_ref = Some("main".to_owned());
            request.idempotency_key = Some(format!("request-{number}"));
            requests.push(engine.queue(request.clone()).await?.run_id);
            // Asked twice, as an impatient webhook would: it is still one run.
            engine.queue(request).await?;
        }
        let now = Instant::now();
        Ok(Self {
            engine,
            ledger: folder.join("ledger"),
            database: database.to_owned(),
            requests,
            workers: Vec::new(),
            began: now,
            began_at: host_now(),
            out,
        })
    }

    async fn play(mut self) -> Result<ExitCode, Failure> {
        self.tell(
            &format!("queued {REQUESTS} requests on a fresh SQLite file, each of them twice"),
            Style::Bold,
        );
        for number in 1..=WORKERS {
            self.start_worker(format!("worker-{number}"))?;
        }
        self.tell(&format!("started {WORKERS} worker processes"), Style::Bold);
        let mut seen: BTreeMap<RunId, i32> = BTreeMap::new();
        let mut killed = false;
        loop {
            let runs = self.engine.store().runs(RunFilter { limit: 1_000, ..RunFilter::default() }).await?;
            self.narrate(&runs, &mut seen).await?;
            if !killed && runs.iter().filter(|run| run.status == RunState::Success).count() >= 2 {
                killed = self.kill_one(&runs).await;
            }
            if runs.iter().all(|run| run.status.is_terminal()) {
                break;
            }
            if self.began.elapsed() > LONGEST {
                return Err(Failure::outage("the demo did not end in time; please report this"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.stop_workers().await;
        self.verdict().await
    }

    fn start_worker(&mut self, name: String) -> Result<(), Failure> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("--database")
            .arg(&self.database)
            .args(["work", "--worker", &name, "--grace", "2s", "--"]);
        command.args(["sh", "-c", TASK]);
        command.envs(HASTE.iter().copied());
        command.env("TIDEMILL_DEMO_LEDGER", &self.ledger).env("TIDEMILL_DEMO_WORKER", &name);
        command.env("TIDEMILL_LOG", "off");
        command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::null()).kill_on_drop(true);
        let child = command
            .spawn()
            .map_err(|error| Failure::outage(format!("could not start a worker process: {error}")))?;
        self.workers.push((name, child));
        Ok(())
    }

    /// Sends SIGKILL to a worker that is in the middle of a run.
    async fn kill_one(&mut self, runs: &[Run]) -> bool {
        // One that has just begun, so that it cannot end before the signal arrives.
        let fresh = host_now() - chrono::Duration::milliseconds(600);
        let busy = runs.iter().find(|run| run.status == RunState::Running && run.started_at > Some(fresh));
        let Some(victim) = busy.and_then(|run| run.claimed_by.clone()) else { return false };
        let Some(place) = self.workers.iter().position(|(name, _)| *name == victim) else { return false };
        let (name, mut child) = self.workers.swap_remove(place);
        let pid = child.id().unwrap_or_default();
        let _ = child.start_kill();
        let _ = child.wait().await;
        self.tell(&format!("kill -9 {pid}: {name} dies in the middle of a run"), Style::Bad);
        true
    }

    /// Prints what happened since the last look.
    async fn narrate(&self, runs: &[Run], seen: &mut BTreeMap<RunId, i32>) -> Result<(), Failure> {
        for run in runs.iter().rev() {
            let after = seen.get(&run.run_id).copied().unwrap_or(0);
            let page = EventPage { after, limit: 100 };
            for event in self.engine.store().events(run.run_id.clone(), page).await? {
                seen.insert(run.run_id.clone(), event.seq);
                let Some(state) = event.payload.get("to").and_then(|to| to.as_str()) else { continue };
                let Ok(state) = state.parse::<RunState>() else { continue };
                if state == RunState::Queued && run.retry_of.is_none() {
                    continue;
                }
                let who = event.payload.get("worker_id").and_then(|who| who.as_str()).unwrap_or("somebody");
                let what = match state {
                    RunState::Queued => format!("queued again as try {}", run.attempt),
                    RunState::Claimed => format!("claimed by {who}"),
                    RunState::Running => "running".to_owned(),
                    RunState::Success => "succeeded".to_owned(),
                    RunState::Failed | RunState::Cancelled => {
                        let cause =
                            event.payload.get("cause").and_then(|cause| cause.as_str()).unwrap_or("?");
                        format!("{state}: {cause}")
                    }
                };
                self.tell(&format!("{}  {what}", self.name(run, runs)), Style::of_state(state));
            }
        }
        Ok(())
    }

    /// A run as a person follows it: the number of its request.
    fn name(&self, run: &Run, runs: &[Run]) -> String {
        let mut first = run;
        while let Some(before) =
            first.retry_of.as_ref().and_then(|id| runs.iter().find(|run| run.run_id == *id))
        {
            first = before;
        }
        let number = self.requests.iter().position(|id| *id == first.run_id).map_or(0, |place| place + 1);
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

    /// Compares the ledger with the database, request by request, and says what is certain.
    async fn verdict(&self) -> Result<ExitCode, Failure> {
        let ledger = std::fs::read_to_string(&self.ledger).unwrap_or_default();
        let mut rows = Vec::new();
        let mut sound = true;
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
            sound &= ended == 1 && done == 1;
            if tries.len() > 1 {
                lost = tries.first().map(|run| run.run_id.clone());
            }
            let took =
                tries.last().and_then(|run| run.finished_at).map(|end| times::rough(end - self.began_at));
            rows.push(vec![
                format!("{}", number + 1).into(),
                tries.iter().filter_map(|run| run.claimed_by.clone()).collect::<Vec<_>>().join(" → ").into(),
                format!("{begun} begun, {done} done").into(),
                Cell(format!("{ended} success"), if ended == 1 { Style::Good } else { Style::Bad }),
                took.unwrap_or_default().into(),
            ]);
        }
        if self.out.is_json() {
            self.out.json(&serde_json::json!({"requests": REQUESTS, "exactly_once": sound,
                "seconds": self.began.elapsed().as_secs_f64()}));
        } else {
            self.out.line("");
            self.out.table(&["REQUEST", "WORKERS", "LEDGER", "RESULT", "AFTER"], &rows);
            self.out.line("");
            if let Some(run) = lost {
                let sentence = self.engine.why(&run).await?.sentence();
                self.out.line(format!("tidemill run why {run}\n  {sentence}\n"));
            }
        }
        if !sound {
            return Err(Failure::outage("a request did not end exactly once; please report this"));
        }
        let verdict =
            format!("{REQUESTS} requests, {REQUESTS} successes, each exactly once, in spite of the kill.");
        if !self.out.is_json() {
            self.out.line(self.out.paint(&verdict, Style::Good));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn tell(&self, what: &str, style: Style) {
        if !self.out.is_json() {
            let clock = format!("{:>6.1} s", self.began.elapsed().as_secs_f64());
            self.out.line(format!("{}  {}", self.out.paint(&clock, Style::Dim), self.out.paint(what, style)));
        }
    }
}
