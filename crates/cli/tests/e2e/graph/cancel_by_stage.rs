//! Cancel in each stage of a task: the job ends as cancelled, and its slot is free only after its processes are dead.
//!
//! The next job of the full agent checks whether a process of the first one still holds its lock.

use std::fs::File;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::RunState;

use super::fixture::{CONFIRMATION_LIFETIME, GraphFixture, TIMEOUT, graph, wait_for_file};
use super::proxy::{Hold, HoldingProxy, Side};
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::process::Process;

on_both!(
    cancel_before_the_task_is_confirmed,
    cancel_while_inputs_are_fetched,
    cancel_after_preparation,
    repeated_cancel_while_the_command_runs,
    cancel_while_the_pool_is_full,
    cancel_after_the_command_ended,
    cancel_while_outputs_are_collected,
    cancel_while_the_result_is_sent,
);

/// One agent with capacity for one job, which uses a proxy to the server.
struct CancelCase<'s> {
    graphs: GraphFixture<'s>,
    proxy: HoldingProxy,
    agent: Process,
}

impl<'s> CancelCase<'s> {
    fn start(fixture: &'s Fixture) -> Self {
        Self::with_capacity(fixture, "1")
    }

    fn with_capacity(fixture: &'s Fixture, capacity: &str) -> Self {
        let graphs = GraphFixture::start(fixture);
        let proxy = HoldingProxy::new(&graphs.url);
        let agent = graphs.agent_at("ann", &proxy.url(), &["--capacity", capacity, "--grace", "1s"]);
        Self { graphs, proxy, agent }
    }

    /// Submits the job that will be cancelled.
    fn submit(&self, work: &str, more: &str) -> RunId {
        self.graphs.submit(&graph(&[self.graphs.step("stopped", &[], work, more)]))
    }

    /// File of its task.
    fn file(&self, run: &RunId, name: &str) -> PathBuf {
        self.graphs.task_dir("ann", run, "stopped").join(name)
    }

    /// Lock that every process of its command holds.
    fn lock(&self, run: &RunId) -> PathBuf {
        self.graphs.fixture.path(&format!("ledger.{run}.stopped"))
    }

    /// Returns whether a process of its command is alive.
    fn is_locked(&self, run: &RunId) -> bool {
        let lock = self.lock(run);
        lock.exists() && File::open(lock).expect("a lock opens").try_lock().is_err()
    }

    /// Submits a job that waits for the agent, and cancels the first one.
    fn cancel(&self, run: &RunId) -> RunId {
        self.cancel_before(run, "", "waiting_on_workers")
    }

    /// Submits a job with these keys that waits with this code, and cancels the first one.
    fn cancel_before(&self, run: &RunId, more: &str, code: &str) -> RunId {
        let lock = self.lock(run);
        let work = format!("flock -n {} true || echo alive >> \"$LEDGER\"", lock.display());
        let after = self.graphs.submit(&graph(&[self.graphs.step("after", &[], &work, more)]));
        self.graphs.wait_for_code(&after, "after", code);
        self.graphs.fixture.ok(&["graph", "cancel", run.as_str()]);
        self.graphs.wait_for_code(run, "stopped", "cancelled_by_user");
        after
    }

    /// Checks that the agent confirms the cancel only after the command is dead, and that the slot is busy until then.
    fn confirm(&self, run: &RunId, confirmation: &Hold) {
        confirmation.wait_until_held();
        assert!(!self.is_locked(run), "the cancel was confirmed while a process was alive");
        assert_eq!(self.graphs.ledger().count("begin after"), 0, "{:?}", self.graphs.ledger());
        assert_eq!(self.graphs.job(run, "stopped")["job"]["stopping"], json!(true));
        confirmation.release();
    }

    /// Checks the end of both jobs, and returns how often the command reached its end.
    fn check(&self, run: &RunId, after: &RunId) -> usize {
        assert_eq!(self.graphs.wait_for_end(after), RunState::Success);
        assert_eq!(self.graphs.wait_for_end(run), RunState::Cancelled);
        let ledger = self.graphs.ledger();
        assert_eq!(ledger.count("alive"), 0, "the next job started while a process was alive: {ledger:?}");
        let job = self.graphs.job(run, "stopped");
        assert_eq!(job["job"]["code"], json!("cancelled_by_user"), "{job}");
        let kinds: Vec<_> = job["tasks"].as_array().unwrap().iter().map(|task| &task["kind"]).collect();
        assert_eq!(kinds, [&json!("RUNJOB"), &json!("CANCELJOB")], "{job}");
        self.graphs.check(run);
        self.graphs.check(after);
        let tasks = self.graphs.dir("ann").join("tasks");
        wait_until_within("the agent has removed the task", TIMEOUT, || {
            std::fs::read_dir(&tasks).expect("the directory is read").next().is_none().then_some(())
        });
        ledger.count("end stopped")
    }
}

fn cancel_before_the_task_is_confirmed(fixture: &Fixture) {
    let case = CancelCase::start(fixture);
    let response = case.proxy.hold_stage(Side::Response, "preparing");
    let run = case.submit("true", "");
    response.wait_until_held();
    case.graphs.wait_for_code(&run, "stopped", "preparing");
    assert!(!case.file(&run, "taken").exists());
    let confirmation = case.proxy.hold(Side::Request, "/result", "");
    let after = case.cancel(&run);
    case.confirm(&run, &confirmation);
    case.proxy.release_all();
    assert_eq!(case.check(&run, &after), 0);
    assert_eq!(case.graphs.ledger().count("begin stopped"), 0);
}

fn cancel_while_inputs_are_fetched(fixture: &Fixture) {
    let mut case = CancelCase::start(fixture);
    let graphs = &case.graphs;
    let run = graphs.submit(&graph(&[
        graphs.step("make", &[], "truncate -s 512M large", "outputs: {large: large}"),
        graphs.step("stopped", &["make"], "true", ""),
    ]));
    wait_for_file(&case.file(&run, "work/large"));
    case.agent.signal(Signal::STOP);
    assert!(!case.file(&run, "prepared").exists(), "the preparation ended too soon");
    let confirmation = case.proxy.hold(Side::Request, "/result", "");
    let after = case.cancel(&run);
    case.agent.signal(Signal::CONT);
    case.confirm(&run, &confirmation);
    assert_eq!(case.check(&run, &after), 0);
    assert_eq!(case.graphs.ledger().count("begin stopped"), 0);
    assert_eq!(case.graphs.codes(&run)["make"], "succeeded");
}

fn cancel_after_preparation(fixture: &Fixture) {
    let case = CancelCase::start(fixture);
    let response = case.proxy.hold_stage(Side::Response, "preparing");
    let ready = case.proxy.hold_stage(Side::Response, "prepared");
    let run = case.submit("true", "");
    response.wait_until_held();
    // The agent does not trust such a late confirmation, and asks again after the preparation.
    std::thread::sleep(CONFIRMATION_LIFETIME);
    response.release();
    ready.wait_until_held();
    case.graphs.wait_for_code(&run, "stopped", "prepared");
    assert!(case.file(&run, "prepared").exists() && !case.file(&run, "started").exists());
    let confirmation = case.proxy.hold(Side::Request, "/result", "");
    let after = case.cancel(&run);
    case.confirm(&run, &confirmation);
    ready.release();
    assert_eq!(case.check(&run, &after), 0);
    assert_eq!(case.graphs.ledger().count("begin stopped"), 0);
}

/// The command and its children ignore SIGTERM, and one child left the process group.
fn repeated_cancel_while_the_command_runs(fixture: &Fixture) {
    let mut case = CancelCase::start(fixture);
    let work = "trap '' TERM; setsid sleep 600 & (trap '' TERM; sleep 600) & sleep 600";
    let run = case.submit(work, "");
    case.graphs.wait_for_line("begin stopped");
    case.graphs.wait_for_code(&run, "stopped", "executing");
    assert!(case.is_locked(&run));
    let confirmation = case.proxy.hold(Side::Request, "/result", "");
    case.agent.signal(Signal::STOP);
    let after = case.cancel(&run);
    // The first cancel is not executed yet, so the second one has no effect.
    let again = fixture.tidemill(&["graph", "cancel", run.as_str()]);
    assert!(matches!(again.code, Some(0 | 3)), "{again:?}");
    assert!(case.is_locked(&run), "the agent is frozen");
    case.agent.signal(Signal::CONT);
    case.confirm(&run, &confirmation);
    assert_eq!(case.check(&run, &after), 0);
}

/// The agent has capacity for more jobs, but the pool is full.
fn cancel_while_the_pool_is_full(fixture: &Fixture) {
    let case = CancelCase::with_capacity(fixture, "4");
    fixture.ok(&["pool", "set", "narrow", "1"]);
    let run = case.submit("trap '' TERM; (trap '' TERM; sleep 600) & sleep 600", "pool: narrow");
    case.graphs.wait_for_line("begin stopped");
    case.graphs.wait_for_code(&run, "stopped", "executing");
    let confirmation = case.proxy.hold(Side::Request, "/result", "");
    let after = case.cancel_before(&run, "pool: narrow", "waiting_on_pool");
    case.confirm(&run, &confirmation);
    assert_eq!(case.check(&run, &after), 0);
}

fn cancel_after_the_command_ended(fixture: &Fixture) {
    let mut case = CancelCase::start(fixture);
    let go = fixture.path("go");
    let work = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    let run = case.submit(&work, "");
    case.graphs.wait_for_line("begin stopped");
    case.graphs.wait_for_code(&run, "stopped", "executing");
    case.agent.signal(Signal::STOP);
    fixture.write("go", "");
    wait_for_file(&case.file(&run, "exit.json"));
    let confirmation = case.proxy.hold(Side::Request, "/result", "");
    let after = case.cancel(&run);
    case.agent.signal(Signal::CONT);
    case.confirm(&run, &confirmation);
    assert_eq!(case.check(&run, &after), 1);
}

fn cancel_while_outputs_are_collected(fixture: &Fixture) {
    let case = CancelCase::start(fixture);
    // A sparse file, which takes longer to read than this test.
    let run = case.submit("truncate -s 200G large", "outputs: {large: large}");
    case.graphs.wait_for_code(&run, "stopped", "finalizing");
    let confirmation = case.proxy.hold(Side::Request, "/result", "");
    let after = case.cancel(&run);
    case.confirm(&run, &confirmation);
    assert_eq!(case.check(&run, &after), 1);
    assert_eq!(case.graphs.job(&run, "stopped")["outputs"], json!([]));
}

/// The cancel was first: the later result only confirms that the command has ended.
fn cancel_while_the_result_is_sent(fixture: &Fixture) {
    let case = CancelCase::start(fixture);
    let result = case.proxy.hold(Side::Request, "/result", "");
    let run = case.submit("echo made > made.txt", "outputs: {made: made.txt}");
    result.wait_until_held();
    assert!(case.file(&run, "manifest.json").exists());
    let after = case.cancel(&run);
    case.confirm(&run, &result);
    assert_eq!(case.check(&run, &after), 1);
    assert_eq!(case.graphs.job(&run, "stopped")["outputs"], json!([]));
}
