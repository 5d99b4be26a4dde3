//! Panics in the agent: they fail the task in which they happen, and do not affect other tasks.

use crate::fixture::{Fixture, is_alive, order, success, until};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tidemill_agent::{Executor, Launch, ProcessExecutor, Settings, TaskError};
use tidemill_core::task::TaskResult;
use tidemill_supervisor::{BootInstant, CommandState};

/// Method of the executor that panics. Only tasks of the job `bad` are affected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PanicPoint {
    Prepare,
    Start,
    Wait,
    Contact,
}

/// A process executor that panics for the tasks of one job.
struct PanickingExecutor {
    inner: ProcessExecutor,
    at: PanicPoint,
    hits: &'static AtomicU32,
    /// File that the command writes before [`PanicPoint::Wait`] panics.
    pid_file: PathBuf,
}

impl PanickingExecutor {
    fn new(fixture: &Fixture, settings: &Settings, at: PanicPoint, hits: &'static AtomicU32) -> Self {
        let inner = ProcessExecutor::new(settings.supervisor.clone(), settings.supervisor_args.clone());
        Self { inner, at, hits, pid_file: fixture.path("pid") }
    }

    fn panic_at(&self, at: PanicPoint, dir: &Path) {
        let is_bad = dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("bad-"));
        if is_bad && at == self.at {
            self.hits.fetch_add(1, Ordering::Relaxed);
            panic!("a test panic");
        }
    }
}

impl Executor for PanickingExecutor {
    fn adopt(&self, tasks: &Path) -> io::Result<BTreeSet<PathBuf>> {
        self.inner.adopt(tasks)
    }

    fn prepare(&self, dir: &Path) -> io::Result<()> {
        self.panic_at(PanicPoint::Prepare, dir);
        self.inner.prepare(dir)
    }

    async fn start(&self, dir: &Path, launch: Launch) -> Result<(), TaskError> {
        self.panic_at(PanicPoint::Start, dir);
        self.inner.start(dir, launch).await
    }

    fn state(&self, dir: &Path) -> io::Result<CommandState> {
        self.inner.state(dir)
    }

    async fn wait_for_change(&self, dir: &Path) {
        // Panics once, after the start, because the command must be stopped too. Stopping it also waits for a change.
        if self.at == PanicPoint::Wait
            && self.hits.load(Ordering::Relaxed) == 0
            && matches!(self.state(dir), Ok(CommandState::Alive { started: true }))
        {
            let has_pid = || std::fs::read_to_string(&self.pid_file).is_ok_and(|text| text.ends_with('\n'));
            until("the command runs", has_pid).await;
            self.panic_at(PanicPoint::Wait, dir);
        }
        self.inner.wait_for_change(dir).await;
    }

    fn contact(&self, dir: &Path, at: BootInstant) -> io::Result<()> {
        self.panic_at(PanicPoint::Contact, dir);
        self.inner.contact(dir, at)
    }

    fn forbid_start(&self, dir: &Path) -> io::Result<()> {
        self.inner.forbid_start(dir)
    }

    fn stop(&self, dir: &Path, grace: Duration) -> io::Result<()> {
        self.inner.stop(dir, grace)
    }

    fn is_stopped(&self, dir: &Path) -> bool {
        self.inner.is_stopped(dir)
    }

    fn kill(&self, dir: &Path) -> io::Result<()> {
        self.inner.kill(dir)
    }

    fn kill_orphans(&self, dir: &Path) -> io::Result<bool> {
        self.inner.kill_orphans(dir)
    }

    fn release(&self, dir: &Path) {
        self.inner.release(dir);
    }
}

fn panicked() -> TaskResult {
    let why = "the agent could not continue the task: internal error of the agent (panic): a test panic";
    TaskResult::Failed { fatal: false, elsewhere: false, message: why.to_owned() }
}

/// The failure is retryable, and the agent continues with other tasks.
#[tokio::test]
async fn panic_fails_its_task_but_not_the_agent() {
    static PREPARE: AtomicU32 = AtomicU32::new(0);
    static START: AtomicU32 = AtomicU32::new(0);
    for (at, hits) in [(PanicPoint::Prepare, &PREPARE), (PanicPoint::Start, &START)] {
        let fixture = Fixture::new().await;
        let settings = fixture.settings();
        let executor = PanickingExecutor::new(&fixture, &settings, at, hits);
        let agent = fixture.agent_on(settings, executor);
        fixture.server.order(order(&fixture, "bad", "touch %ran"));
        assert_eq!(fixture.result("bad-001").await, panicked());
        fixture.server.order(order(&fixture, "good", "true"));
        assert_eq!(fixture.result("good-001").await, success());
        fixture.until_clean().await;
        assert!(!fixture.path("ran").exists());
        let summary = agent.stop().await.unwrap();
        assert_eq!((summary.taken, summary.ended, summary.held), (2, 2, 0));
        assert_eq!(hits.load(Ordering::Relaxed), 1, "a panicked step must not be repeated");
    }
}

#[tokio::test]
async fn panic_stops_the_command_before_it_is_reported() {
    static HITS: AtomicU32 = AtomicU32::new(0);
    let fixture = Fixture::new().await;
    let settings = fixture.settings();
    let executor = PanickingExecutor::new(&fixture, &settings, PanicPoint::Wait, &HITS);
    let _agent = fixture.agent_on(settings, executor);
    fixture.server.state().blocked_route = Some("result");
    fixture.server.order(order(&fixture, "bad", "echo $$ > %pid; exec sleep 1000"));
    let pid = fixture.pid("pid").await;
    let manifest = fixture.agent_dir().join("tasks/bad-001/manifest.json");
    until("the result is stored", || manifest.exists()).await;
    assert!(!is_alive(pid));
    fixture.server.state().blocked_route = None;
    assert_eq!(fixture.result("bad-001").await, panicked());
    fixture.until_clean().await;
}

#[tokio::test]
async fn panic_does_not_stop_the_heartbeat() {
    static HITS: AtomicU32 = AtomicU32::new(0);
    let fixture = Fixture::new().await;
    let settings = fixture.settings();
    let executor = PanickingExecutor::new(&fixture, &settings, PanicPoint::Contact, &HITS);
    let _agent = fixture.agent_on(settings, executor);
    fixture.server.order(order(&fixture, "bad", "touch %running; while ! test -e %go; do sleep 0.02; done"));
    until("it runs", || fixture.path("running").exists()).await;
    until("the contact panicked", || HITS.load(Ordering::Relaxed) > 0).await;
    let before = fixture.server.state().heartbeats.len();
    until("heartbeats continue", || fixture.server.state().heartbeats.len() > before + 1).await;
    std::fs::write(fixture.path("go"), "").unwrap();
    assert_eq!(fixture.result("bad-001").await, success());
}
