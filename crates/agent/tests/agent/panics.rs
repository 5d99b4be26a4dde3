//! An agent with a fault of its own: what panics ends the task that it happened in, and nothing else.

use crate::stage::{Ground, is_alive, order, until, well};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tidemill_agent::{Executor, Fault, Launch, Processes, Settings};
use tidemill_core::task::TaskResult;
use tidemill_supervisor::{Moment, Seen};

/// Where an executor is broken. Tasks of jobs whose names begin otherwise are carried out as ever.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Prepare,
    Start,
    News,
    Contact,
}

/// Processes, but for a fault in the tasks of one job.
struct Faulty {
    inner: Processes,
    at: At,
    hits: &'static AtomicU32,
    /// What the command writes a line into before the fault of the news happens.
    said: PathBuf,
}

impl Faulty {
    fn new(ground: &Ground, settings: &Settings, at: At, hits: &'static AtomicU32) -> Self {
        let inner = Processes::new(settings.supervisor.clone(), settings.supervisor_args.clone());
        Self { inner, at, hits, said: ground.path("pid") }
    }

    fn meet(&self, at: At, place: &Path) {
        let is_bad = place.file_name().is_some_and(|name| name.to_string_lossy().starts_with("bad-"));
        if is_bad && at == self.at {
            self.hits.fetch_add(1, Ordering::Relaxed);
            panic!("the floor is gone");
        }
    }
}

impl Executor for Faulty {
    fn adopt(&self, tasks: &Path) -> io::Result<BTreeSet<PathBuf>> {
        self.inner.adopt(tasks)
    }

    fn prepare(&self, place: &Path) -> io::Result<()> {
        self.meet(At::Prepare, place);
        self.inner.prepare(place)
    }

    async fn start(&self, place: &Path, launch: Launch) -> Result<(), Fault> {
        self.meet(At::Start, place);
        self.inner.start(place, launch).await
    }

    fn look(&self, place: &Path) -> io::Result<Seen> {
        self.inner.look(place)
    }

    async fn news(&self, place: &Path) {
        // Only once it runs: the command itself must be ended too. What ends it waits for news as well.
        if self.at == At::News
            && self.hits.load(Ordering::Relaxed) == 0
            && matches!(self.look(place), Ok(Seen::Alive { started: true }))
        {
            let has_said = || std::fs::read_to_string(&self.said).is_ok_and(|text| text.ends_with('\n'));
            until("the command runs", has_said).await;
            self.meet(At::News, place);
        }
        self.inner.news(place).await;
    }

    fn contact(&self, place: &Path, at: Moment) -> io::Result<()> {
        self.meet(At::Contact, place);
        self.inner.contact(place, at)
    }

    fn forbid(&self, place: &Path) -> io::Result<()> {
        self.inner.forbid(place)
    }

    fn stop(&self, place: &Path, grace: Duration) -> io::Result<()> {
        self.inner.stop(place, grace)
    }

    fn is_stopped(&self, place: &Path) -> bool {
        self.inner.is_stopped(place)
    }

    fn kill(&self, place: &Path) -> io::Result<()> {
        self.inner.kill(place)
    }

    fn clean(&self, place: &Path) -> io::Result<bool> {
        self.inner.clean(place)
    }

    fn release(&self, place: &Path) {
        self.inner.release(place);
    }
}

fn panicked() -> TaskResult {
    let why = "the agent could not go on with it: a fault in the agent itself: the floor is gone";
    TaskResult::Failed { fatal: false, elsewhere: false, message: why.to_owned() }
}

/// Shows that a task in which the agent panics is over for the server at once and can be tried elsewhere, and that the
/// agent goes on with others.
#[tokio::test]
async fn a_panic_ends_its_task_and_not_the_agent() {
    static PREPARE: AtomicU32 = AtomicU32::new(0);
    static START: AtomicU32 = AtomicU32::new(0);
    for (at, hits) in [(At::Prepare, &PREPARE), (At::Start, &START)] {
        let ground = Ground::new().await;
        let settings = ground.settings();
        let executor = Faulty::new(&ground, &settings, at, hits);
        let agent = ground.agent_on(settings, executor);
        ground.server.order(order(&ground, "bad", "touch %ran"));
        assert_eq!(ground.result("bad-001").await, panicked());
        ground.server.order(order(&ground, "good", "true"));
        assert_eq!(ground.result("good-001").await, well());
        ground.until_clean().await;
        assert!(!ground.path("ran").exists());
        let carried = agent.stop().await.unwrap();
        assert_eq!((carried.taken, carried.ended, carried.held), (2, 2, 0));
        assert_eq!(hits.load(Ordering::Relaxed), 1, "what broke off is not tried again here");
    }
}

/// Shows that nothing of a command runs any more when it is said that its task broke off.
#[tokio::test]
async fn a_panic_ends_the_command_before_it_is_told() {
    static HITS: AtomicU32 = AtomicU32::new(0);
    let ground = Ground::new().await;
    let settings = ground.settings();
    let executor = Faulty::new(&ground, &settings, At::News, &HITS);
    let _agent = ground.agent_on(settings, executor);
    ground.server.known().held = Some("result");
    ground.server.order(order(&ground, "bad", "echo $$ > %pid; exec sleep 1000"));
    let pid = ground.pid("pid").await;
    let manifest = ground.home().join("tasks/bad-001/manifest.json");
    until("what came of it is written down", || manifest.exists()).await;
    assert!(!is_alive(pid));
    ground.server.known().held = None;
    assert_eq!(ground.result("bad-001").await, panicked());
    ground.until_clean().await;
}

/// Shows that an agent which panics over one task still says that it lives, and so keeps the others.
#[tokio::test]
async fn a_panic_does_not_stop_the_heart() {
    static HITS: AtomicU32 = AtomicU32::new(0);
    let ground = Ground::new().await;
    let settings = ground.settings();
    let executor = Faulty::new(&ground, &settings, At::Contact, &HITS);
    let _agent = ground.agent_on(settings, executor);
    ground.server.order(order(&ground, "bad", "touch %running; while ! test -e %go; do sleep 0.02; done"));
    until("it runs", || ground.path("running").exists()).await;
    until("contact broke off", || HITS.load(Ordering::Relaxed) > 0).await;
    let before = ground.server.known().beats.len();
    until("the heart beats on", || ground.server.known().beats.len() > before + 1).await;
    std::fs::write(ground.path("go"), "").unwrap();
    assert_eq!(ground.result("bad-001").await, well());
}
