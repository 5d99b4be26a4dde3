//! Cancel in each stage of a task: the job ends as cancelled, and its room is free only when nothing of it runs. The
//! next job of a full agent says so itself: it looks whether any process of the first one still has its lock.

use std::fs::File;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::RunState;

use super::gate::{Gate, Hold, Side};
use super::ground::{FRESH, PATIENCE, Site, graph, until_there};
use crate::process::Process;
use crate::stage::{Stage, on_both, until_within};

on_both!(
    before_the_server_said_that_the_task_is_the_agents,
    while_its_inputs_are_brought,
    when_it_is_prepared,
    while_it_runs_and_twice,
    while_it_fills_its_pool,
    when_its_command_is_over,
    while_what_it_left_is_looked_at,
    when_its_result_is_on_its_way,
);

/// A site with one agent, which has room for one job and speaks through a gate.
struct Scene<'s> {
    site: Site<'s>,
    gate: Gate,
    agent: Process,
}

impl<'s> Scene<'s> {
    fn start(stage: &'s Stage) -> Self {
        Self::with_room(stage, "1")
    }

    fn with_room(stage: &'s Stage, capacity: &str) -> Self {
        let site = Site::start(stage);
        let gate = Gate::to(&site.url);
        let agent = site.agent_at("ann", &gate.url(), &["--capacity", capacity, "--grace", "1s"]);
        Self { site, gate, agent }
    }

    /// Submits the job that is to be cancelled.
    fn submit(&self, work: &str, more: &str) -> RunId {
        self.site.submit(&graph(&[self.site.step("stopped", &[], work, more)]))
    }

    /// A file of its task.
    fn file(&self, run: &RunId, name: &str) -> PathBuf {
        self.site.task_dir("ann", run, "stopped").join(name)
    }

    /// The lock that every process of its command has.
    fn lock(&self, run: &RunId) -> PathBuf {
        self.site.stage.path(&format!("ledger.{run}.stopped"))
    }

    /// Whether any process of its command lives.
    fn is_locked(&self, run: &RunId) -> bool {
        let lock = self.lock(run);
        lock.exists() && File::open(lock).expect("a lock opens").try_lock().is_err()
    }

    /// Submits the job that waits for the room of the agent, and cancels the first one.
    fn cancel(&self, run: &RunId) -> RunId {
        self.cancel_before(run, "", "waiting_on_workers")
    }

    /// The same where the next job has these keys, and waits so.
    fn cancel_before(&self, run: &RunId, more: &str, code: &str) -> RunId {
        let lock = self.lock(run);
        let work = format!("flock -n {} true || echo alive >> \"$LEDGER\"", lock.display());
        let after = self.site.submit(&graph(&[self.site.step("after", &[], &work, more)]));
        self.site.until_code(&after, "after", code);
        self.site.stage.ok(&["graph", "cancel", run.as_str()]);
        self.site.until_code(run, "stopped", "cancelled_by_user");
        after
    }

    /// The agent says that nothing runs: that is so, and until the server has heard it, the room is not free.
    fn confirm(&self, run: &RunId, confirmation: &Hold) {
        confirmation.until_caught();
        assert!(!self.is_locked(run), "it is confirmed while something of it runs");
        assert_eq!(self.site.ledger().count("begin after"), 0, "{:?}", self.site.ledger());
        assert_eq!(self.site.job(run, "stopped")["job"]["stopping"], json!(true));
        confirmation.let_go();
    }

    /// Everything that must hold in the end; how often the command came to its end.
    fn check(&self, run: &RunId, after: &RunId) -> usize {
        assert_eq!(self.site.until_ended(after), RunState::Success);
        assert_eq!(self.site.until_ended(run), RunState::Cancelled);
        let ledger = self.site.ledger();
        assert_eq!(ledger.count("alive"), 0, "the next job began while something of it ran: {ledger:?}");
        let job = self.site.job(run, "stopped");
        assert_eq!(job["job"]["code"], json!("cancelled_by_user"), "{job}");
        let kinds: Vec<_> = job["tasks"].as_array().unwrap().iter().map(|task| &task["kind"]).collect();
        assert_eq!(kinds, [&json!("RUNJOB"), &json!("CANCELJOB")], "{job}");
        self.site.check(run);
        self.site.check(after);
        let tasks = self.site.dir("ann").join("tasks");
        until_within("the agent keeps nothing of it", PATIENCE, || {
            std::fs::read_dir(&tasks).expect("the directory is read").next().is_none().then_some(())
        });
        ledger.count("end stopped")
    }
}

fn before_the_server_said_that_the_task_is_the_agents(stage: &Stage) {
    let scene = Scene::start(stage);
    let word = scene.gate.hold_stage(Side::Answer, "preparing");
    let run = scene.submit("true", "");
    word.until_caught();
    scene.site.until_code(&run, "stopped", "preparing");
    assert!(!scene.file(&run, "taken").exists());
    let confirmation = scene.gate.hold(Side::Question, "/result", "");
    let after = scene.cancel(&run);
    scene.confirm(&run, &confirmation);
    scene.gate.open();
    assert_eq!(scene.check(&run, &after), 0);
    assert_eq!(scene.site.ledger().count("begin stopped"), 0);
}

fn while_its_inputs_are_brought(stage: &Stage) {
    let mut scene = Scene::start(stage);
    let site = &scene.site;
    let run = site.submit(&graph(&[
        site.step("make", &[], "truncate -s 512M large", "outputs: {large: large}"),
        site.step("stopped", &["make"], "true", ""),
    ]));
    until_there(&scene.file(&run, "work/large"));
    scene.agent.signal(Signal::STOP);
    assert!(!scene.file(&run, "prepared").exists(), "it was quicker than the test");
    let confirmation = scene.gate.hold(Side::Question, "/result", "");
    let after = scene.cancel(&run);
    scene.agent.signal(Signal::CONT);
    scene.confirm(&run, &confirmation);
    assert_eq!(scene.check(&run, &after), 0);
    assert_eq!(scene.site.ledger().count("begin stopped"), 0);
    assert_eq!(scene.site.codes(&run)["make"], "succeeded");
}

fn when_it_is_prepared(stage: &Stage) {
    let scene = Scene::start(stage);
    let word = scene.gate.hold_stage(Side::Answer, "preparing");
    let ready = scene.gate.hold_stage(Side::Answer, "prepared");
    let run = scene.submit("true", "");
    word.until_caught();
    // An answer that comes so late is not trusted: the agent asks again when it is prepared.
    std::thread::sleep(FRESH);
    word.let_go();
    ready.until_caught();
    scene.site.until_code(&run, "stopped", "prepared");
    assert!(scene.file(&run, "prepared").exists() && !scene.file(&run, "started").exists());
    let confirmation = scene.gate.hold(Side::Question, "/result", "");
    let after = scene.cancel(&run);
    scene.confirm(&run, &confirmation);
    ready.let_go();
    assert_eq!(scene.check(&run, &after), 0);
    assert_eq!(scene.site.ledger().count("begin stopped"), 0);
}

/// It does not want to end, and has children that do not either, one of which left its group.
fn while_it_runs_and_twice(stage: &Stage) {
    let mut scene = Scene::start(stage);
    let work = "trap '' TERM; setsid sleep 600 & (trap '' TERM; sleep 600) & sleep 600";
    let run = scene.submit(work, "");
    scene.site.until_written("begin stopped");
    scene.site.until_code(&run, "stopped", "executing");
    assert!(scene.is_locked(&run));
    let confirmation = scene.gate.hold(Side::Question, "/result", "");
    scene.agent.signal(Signal::STOP);
    let after = scene.cancel(&run);
    // The first wish is not fulfilled yet: the second one is the same.
    let again = stage.tidemill(&["graph", "cancel", run.as_str()]);
    assert!(matches!(again.code, Some(0 | 3)), "{again:?}");
    assert!(scene.is_locked(&run), "nobody could stop it yet");
    scene.agent.signal(Signal::CONT);
    scene.confirm(&run, &confirmation);
    assert_eq!(scene.check(&run, &after), 0);
}

/// The agent has room for more; the pool has not.
fn while_it_fills_its_pool(stage: &Stage) {
    let scene = Scene::with_room(stage, "4");
    stage.ok(&["pool", "set", "narrow", "1"]);
    let run = scene.submit("trap '' TERM; (trap '' TERM; sleep 600) & sleep 600", "pool: narrow");
    scene.site.until_written("begin stopped");
    scene.site.until_code(&run, "stopped", "executing");
    let confirmation = scene.gate.hold(Side::Question, "/result", "");
    let after = scene.cancel_before(&run, "pool: narrow", "waiting_on_pool");
    scene.confirm(&run, &confirmation);
    assert_eq!(scene.check(&run, &after), 0);
}

fn when_its_command_is_over(stage: &Stage) {
    let mut scene = Scene::start(stage);
    let go = stage.path("go");
    let work = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    let run = scene.submit(&work, "");
    scene.site.until_written("begin stopped");
    scene.site.until_code(&run, "stopped", "executing");
    scene.agent.signal(Signal::STOP);
    stage.write("go", "");
    until_there(&scene.file(&run, "exit.json"));
    let confirmation = scene.gate.hold(Side::Question, "/result", "");
    let after = scene.cancel(&run);
    scene.agent.signal(Signal::CONT);
    scene.confirm(&run, &confirmation);
    assert_eq!(scene.check(&run, &after), 1);
}

fn while_what_it_left_is_looked_at(stage: &Stage) {
    let scene = Scene::start(stage);
    // Nothing of it is on the disk, and reading it takes longer than this test.
    let run = scene.submit("truncate -s 200G large", "outputs: {large: large}");
    scene.site.until_code(&run, "stopped", "finalizing");
    let confirmation = scene.gate.hold(Side::Question, "/result", "");
    let after = scene.cancel(&run);
    scene.confirm(&run, &confirmation);
    assert_eq!(scene.check(&run, &after), 1);
    assert_eq!(scene.site.job(&run, "stopped")["outputs"], json!([]));
}

/// The person was first: what the server hears later confirms that nothing runs, and does not count.
fn when_its_result_is_on_its_way(stage: &Stage) {
    let scene = Scene::start(stage);
    let result = scene.gate.hold(Side::Question, "/result", "");
    let run = scene.submit("echo made > made.txt", "outputs: {made: made.txt}");
    result.until_caught();
    assert!(scene.file(&run, "manifest.json").exists());
    let after = scene.cancel(&run);
    scene.confirm(&run, &result);
    assert_eq!(scene.check(&run, &after), 1);
    assert_eq!(scene.site.job(&run, "stopped")["outputs"], json!([]));
}
