//! Connections that fail between COMMIT and its response: callers get the real outcome, and nothing is executed twice.

use rustix::process::Signal;
use tidemill_core::event::EventKind;
use tidemill_core::run::{EndCause, RunState};
use tidemill_testkit::proxy::{Armed, Fault, Proxy};

use crate::fixture::{DEAD_AFTER, Fixture, Kind, TIMEOUT, wait_until};
use crate::ledger::{self, TASK};
use crate::process::{Output, Process, run};

/// A fixture with a proxy to its database that drops responses.
struct CutFixture {
    fixture: Fixture,
    proxy: Proxy,
    url: String,
}

impl CutFixture {
    fn new() -> Self {
        let fixture = Fixture::new(Kind::Postgres);
        let proxy = fixture.block(Proxy::in_front_of(&fixture.url)).expect("a proxy starts");
        let url = proxy.url(fixture.url.rsplit('/').next().unwrap_or_default());
        Self { fixture, proxy, url }
    }

    fn arm(&self, fault: Fault) -> Armed {
        self.proxy.arm(fault)
    }

    /// Runs a command through the proxy.
    fn tidemill(&self, args: &[&str]) -> Output {
        run(self.fixture.command(args).env("TIDEMILL_DATABASE", &self.url))
    }
}

#[test]
fn command_whose_response_was_lost_reports_the_real_outcome() {
    let cut = CutFixture::new();
    let queue = ["--json", "run", "queue", "--project", "shop", "--env", "staging"];
    let armed = cut.arm(Fault::cut_after_commit_of("queue_run").times(2));
    let ran = cut.tidemill(&queue);
    assert_eq!((ran.code, armed.fired()), (Some(0), 2), "{ran:?}");
    assert_eq!(ran.value()["created"], true, "this call created the run");
    let runs = cut.fixture.runs();
    assert_eq!(runs.len(), 1, "three requests queued one run");
    let id = runs[0].run_id.as_str();
    assert_eq!(ran.value()["run_id"], id);

    let armed = cut.arm(Fault::cut_after_commit_of("cancel_run"));
    let ran = cut.tidemill(&["run", "cancel", id]);
    assert_eq!((ran.code, armed.fired()), (Some(0), 1), "{ran:?}");
    assert!(ran.stdout.contains("is cancelled"), "{ran:?}");

    let armed = cut.arm(Fault::cut_after_commit_of("retry_run"));
    let ran = cut.tidemill(&["run", "retry", id]);
    assert_eq!((ran.code, armed.fired()), (Some(0), 1), "{ran:?}");
    let tries = cut.fixture.tries(&runs[0].run_id);
    assert_eq!((tries.len(), tries[1].run_id.as_str()), (2, ran.stdout.trim()));

    let armed = cut.arm(Fault::cut_after_commit_of("add_artifact"));
    let ran = cut.tidemill(&["run", "artifact", "add", id, "--type", "log", "--url", "s3://x"]);
    assert_eq!((ran.code, armed.fired()), (Some(0), 1), "{ran:?}");
    assert_eq!(cut.fixture.json(&["run", "artifact", "list", id]).as_array().map(Vec::len), Some(1));
}

/// Each call of a worker fails once after its commit and once before it: one attempt per run, every line once, no
/// refusal.
#[test]
fn worker_with_lost_responses_duplicates_nothing() {
    let cut = CutFixture::new();
    let verbs = [
        "register_worker",
        "claim_next_run",
        "append_events",
        "beat_worker",
        "finish_run",
        "declare_waiting",
    ];
    let environment = [("SECS", "0.7"), ("TIDEMILL_DATABASE", cut.url.as_str())];
    let first = cut.arm(Fault::cut_after_commit_of("register_worker"));
    let mut worker = Process::worker_with(&cut.fixture, "builder", &[], TASK, &environment);
    let mut requests = Vec::new();
    for verb in verbs.into_iter().skip(1) {
        for fault in [Fault::cut_after_commit_of(verb), Fault::cut_before(verb)] {
            let armed = cut.arm(fault.clone());
            let id = ledger::requests(&cut.fixture, &format!("{verb}-{}", requests.len()), 1).remove(0);
            cut.fixture.wait_for_state(&id, RunState::Success);
            cut.fixture
                .block(async { tokio::time::timeout(TIMEOUT, armed.wait_fired(1)).await })
                .expect(verb);
            let lines = cut.fixture.messages(&id, EventKind::Log);
            assert_eq!(lines.len(), 2, "{fault:?}: {lines:?}");
            assert_eq!(cut.fixture.messages(&id, EventKind::Refusal), [""; 0], "{fault:?}");
            requests.push(id);
        }
    }
    assert_eq!(first.fired(), 1);
    assert!(worker.is_running(), "{}", worker.stderr());
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    let summary = ledger::check(&cut.fixture, &requests);
    assert_eq!(
        (summary.tries, summary.done),
        (requests.len(), requests.len()),
        "a lost response cost an attempt"
    );
}

/// A sweep whose connection fails before or after its commit leaves nothing half done.
#[test]
fn interrupted_sweep_is_completed_by_the_next() {
    let cut = CutFixture::new();
    let requests = ledger::requests(&cut.fixture, "r", 3);
    let options = ["--no-upkeep", "--slots", "3"];
    let mut worker = Process::worker_with(&cut.fixture, "builder", &options, TASK, &[("SECS", "600")]);
    for id in &requests {
        cut.fixture.wait_for_state(id, RunState::Running);
    }
    worker.kill();
    std::thread::sleep(DEAD_AFTER);
    let armed =
        [cut.arm(Fault::cut_before(".sweep(")), cut.arm(Fault::cut_after_commit_of(".sweep(").nth(1))];
    wait_until("the runs are swept", || {
        let ran = cut.tidemill(&["--json", "sweep"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        (cut.fixture.runs().len() == 6).then_some(())
    });
    assert!(armed.iter().all(|armed| armed.fired() == 1), "{armed:?}");
    for id in &requests {
        let tries = cut.fixture.tries(id);
        assert_eq!((tries.len(), tries[0].end_cause), (2, Some(EndCause::Lost)));
    }
    assert_eq!(cut.tidemill(&["sweep"]).ok().trim(), "0 ended, 0 scheduled, 0 pruned");
}

/// A server that does not answer: the command is killed before its lease can move, and the request continues.
#[test]
fn cut_off_worker_loses_its_run_after_its_command_is_dead() {
    let cut = CutFixture::new();
    let environment = [("SECS", "600"), ("TIDEMILL_DATABASE", cut.url.as_str())];
    let mut isolated = Process::worker_with(&cut.fixture, "isolated", &[], TASK, &environment);
    let id = ledger::requests(&cut.fixture, "r", 1).remove(0);
    cut.fixture.wait_for_state(&id, RunState::Running);
    let stalled = cut.arm(Fault::stall("SELECT").times(1_000_000));
    let mut other = Process::worker(&cut.fixture, "other", &["--drain"], TASK);
    assert_eq!(other.wait_for_exit(TIMEOUT), Some(0));
    assert!(stalled.fired() > 0);
    ledger::check(&cut.fixture, std::slice::from_ref(&id));
    assert!(isolated.is_running());
    // The connection works again: the worker registers again and continues.
    stalled.disarm();
    stalled.release();
    let more = ledger::requests(&cut.fixture, "later", 1).remove(0);
    cut.fixture.wait_for_state(&more, RunState::Running);
    isolated.kill();
}

/// A request on a connection that stopped answering is repeated on another one.
///
/// Heartbeats still arrive, so that no sweeper would end the run.
#[test]
fn report_without_response_is_repeated() {
    let cut = CutFixture::new();
    let environment = [("TIDEMILL_DATABASE", cut.url.as_str())];
    for verb in ["finish_run_outcome", "append_events"] {
        let stalled = cut.arm(Fault::stall(verb).times(1));
        let id = ledger::requests(&cut.fixture, verb, 1).remove(0);
        let mut worker = Process::worker_with(&cut.fixture, verb, &[], TASK, &environment);
        cut.fixture.wait_for_state(&id, RunState::Success);
        assert_eq!(stalled.fired(), 1);
        assert_eq!(cut.fixture.tries(&id).len(), 1);
        let lines = cut.fixture.messages(&id, EventKind::Log);
        assert_eq!(lines.len(), 2, "{lines:?}");
        worker.signal(Signal::TERM);
        assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());
    }
}

/// All open connections stop answering, but new ones work: the worker uses new ones.
#[test]
fn worker_replaces_connections_that_died_silently() {
    let cut = CutFixture::new();
    let environment = [("TIDEMILL_DATABASE", cut.url.as_str())];
    let mut isolated = Process::worker_with(&cut.fixture, "isolated", &[], TASK, &environment);
    let id = ledger::requests(&cut.fixture, "r", 1).remove(0);
    cut.fixture.wait_for_state(&id, RunState::Success);
    let stalled = cut.arm(Fault::stall("SELECT").times(1_000_000));
    let fired = cut.fixture.block(async { tokio::time::timeout(TIMEOUT, stalled.wait_fired(3)).await });
    fired.expect("connections are stalled");
    // The stalled connections are not released.
    stalled.disarm();
    let more = ledger::requests(&cut.fixture, "later", 1).remove(0);
    wait_until("the worker continues", || {
        let tries = cut.fixture.tries(&more);
        tries.last().is_some_and(|run| run.status == RunState::Success).then_some(())
    });
    isolated.signal(Signal::TERM);
    assert_eq!(isolated.wait_for_exit(TIMEOUT), Some(0), "{}", isolated.stderr());
}
