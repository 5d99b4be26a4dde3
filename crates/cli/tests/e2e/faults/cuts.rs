//! The connection dies after COMMIT was sent and before its answer: the caller learns the truth, nothing doubles.

use rustix::process::Signal;
use tidemill_core::event::EventKind;
use tidemill_core::run::{EndCause, RunState};
use tidemill_testkit::proxy::{Armed, Fault, Proxy};

use crate::ledger::{self, TASK};
use crate::process::{Process, Ran, run};
use crate::stage::{DEAD_AFTER, Kind, PATIENCE, Stage, until};

/// A stage with a way to its database that loses answers.
struct Cut {
    stage: Stage,
    proxy: Proxy,
    url: String,
}

impl Cut {
    fn new() -> Self {
        let stage = Stage::new(Kind::Postgres);
        let proxy = stage.block(Proxy::in_front_of(&stage.url)).expect("a proxy starts");
        let url = proxy.url(stage.url.rsplit('/').next().unwrap_or_default());
        Self { stage, proxy, url }
    }

    fn arm(&self, fault: Fault) -> Armed {
        self.proxy.arm(fault)
    }

    /// Runs a command by way of the proxy.
    fn tidemill(&self, args: &[&str]) -> Ran {
        run(self.stage.command(args).env("TIDEMILL_DATABASE", &self.url))
    }
}

#[test]
fn a_person_whose_answer_was_lost_learns_the_truth() {
    let cut = Cut::new();
    let queue = ["--json", "run", "queue", "--project", "shop", "--env", "staging"];
    let armed = cut.arm(Fault::cut_after_commit_of("queue_run").times(2));
    let ran = cut.tidemill(&queue);
    assert_eq!((ran.code, armed.fired()), (Some(0), 2), "{ran:?}");
    assert_eq!(ran.value()["created"], true, "it was this call that made the run");
    let runs = cut.stage.runs();
    assert_eq!(runs.len(), 1, "asked three times, queued once");
    let id = runs[0].run_id.as_str();
    assert_eq!(ran.value()["run_id"], id);

    let armed = cut.arm(Fault::cut_after_commit_of("cancel_run"));
    let ran = cut.tidemill(&["run", "cancel", id]);
    assert_eq!((ran.code, armed.fired()), (Some(0), 1), "{ran:?}");
    assert!(ran.stdout.contains("is cancelled"), "{ran:?}");

    let armed = cut.arm(Fault::cut_after_commit_of("retry_run"));
    let ran = cut.tidemill(&["run", "retry", id]);
    assert_eq!((ran.code, armed.fired()), (Some(0), 1), "{ran:?}");
    let tries = cut.stage.tries(&runs[0].run_id);
    assert_eq!((tries.len(), tries[1].run_id.as_str()), (2, ran.stdout.trim()));

    let armed = cut.arm(Fault::cut_after_commit_of("add_artifact"));
    let ran = cut.tidemill(&["run", "artifact", "add", id, "--type", "log", "--url", "s3://x"]);
    assert_eq!((ran.code, armed.fired()), (Some(0), 1), "{ran:?}");
    assert_eq!(cut.stage.json(&["run", "artifact", "list", id]).as_array().map(Vec::len), Some(1));
}

/// Every verb of a worker loses its answer once, at one run each, and once more before it arrives: one try each, every
/// line once, nothing refused.
#[test]
fn a_worker_whose_answers_are_lost_doubles_nothing() {
    let cut = Cut::new();
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
    let mut worker = Process::worker_with(&cut.stage, "mill", &[], TASK, &environment);
    let mut requests = Vec::new();
    for verb in verbs.into_iter().skip(1) {
        for fault in [Fault::cut_after_commit_of(verb), Fault::cut_before(verb)] {
            let armed = cut.arm(fault.clone());
            let id = ledger::requests(&cut.stage, &format!("{verb}-{}", requests.len()), 1).remove(0);
            cut.stage.until(&id, RunState::Success);
            cut.stage.block(async { tokio::time::timeout(PATIENCE, armed.wait_fired(1)).await }).expect(verb);
            let lines = cut.stage.messages(&id, EventKind::Log);
            assert_eq!(lines.len(), 2, "{fault:?}: {lines:?}");
            assert_eq!(cut.stage.messages(&id, EventKind::Refusal), [""; 0], "{fault:?}");
            requests.push(id);
        }
    }
    assert_eq!(first.fired(), 1);
    assert!(worker.is_running(), "{}", worker.said());
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
    let seen = ledger::verdict(&cut.stage, &requests);
    assert_eq!((seen.tries, seen.done), (requests.len(), requests.len()), "a lost answer cost a try");
}

/// A sweep whose connection breaks, before it or after its commit, leaves nothing half done: the next does the rest.
#[test]
fn a_sweep_that_is_cut_off_is_repaired_by_the_next() {
    let cut = Cut::new();
    let requests = ledger::requests(&cut.stage, "r", 3);
    let options = ["--no-upkeep", "--slots", "3"];
    let mut worker = Process::worker_with(&cut.stage, "mill", &options, TASK, &[("SECS", "600")]);
    for id in &requests {
        cut.stage.until(id, RunState::Running);
    }
    worker.kill();
    std::thread::sleep(DEAD_AFTER);
    let armed =
        [cut.arm(Fault::cut_before(".sweep(")), cut.arm(Fault::cut_after_commit_of(".sweep(").nth(1))];
    until("the runs are swept", || {
        let ran = cut.tidemill(&["--json", "sweep"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        (cut.stage.runs().len() == 6).then_some(())
    });
    assert!(armed.iter().all(|armed| armed.fired() == 1), "{armed:?}");
    for id in &requests {
        let tries = cut.stage.tries(id);
        assert_eq!((tries.len(), tries[0].end_cause), (2, Some(EndCause::Lost)));
    }
    assert_eq!(cut.tidemill(&["sweep"]).ok().trim(), "0 ended, 0 scheduled, 0 pruned");
}

/// A server that does not answer at all: the command is killed before its lease can move, and the request goes on.
#[test]
fn a_worker_that_is_cut_off_loses_its_run_after_its_command_is_dead() {
    let cut = Cut::new();
    let environment = [("SECS", "600"), ("TIDEMILL_DATABASE", cut.url.as_str())];
    let mut lonely = Process::worker_with(&cut.stage, "lonely", &[], TASK, &environment);
    let id = ledger::requests(&cut.stage, "r", 1).remove(0);
    cut.stage.until(&id, RunState::Running);
    let stalled = cut.arm(Fault::stall("SELECT").times(1_000_000));
    let mut other = Process::worker(&cut.stage, "other", &["--drain"], TASK);
    assert_eq!(other.ended_within(PATIENCE), Some(0));
    assert!(stalled.fired() > 0);
    ledger::verdict(&cut.stage, std::slice::from_ref(&id));
    assert!(lonely.is_running());
    // The way is free again: the worker goes on as a new one.
    stalled.disarm();
    stalled.release();
    let more = ledger::requests(&cut.stage, "later", 1).remove(0);
    cut.stage.until(&more, RunState::Running);
    lonely.kill();
}

/// A connection that dies without a word takes nothing with it: what was asked over it is asked again over another. The
/// beats get through all the while, so that nobody else would ever end the run.
#[test]
fn a_report_that_is_never_answered_is_made_again() {
    let cut = Cut::new();
    let environment = [("TIDEMILL_DATABASE", cut.url.as_str())];
    for verb in ["finish_run_outcome", "append_events"] {
        let stalled = cut.arm(Fault::stall(verb).times(1));
        let id = ledger::requests(&cut.stage, verb, 1).remove(0);
        let mut worker = Process::worker_with(&cut.stage, verb, &[], TASK, &environment);
        cut.stage.until(&id, RunState::Success);
        assert_eq!(stalled.fired(), 1);
        assert_eq!(cut.stage.tries(&id).len(), 1);
        let lines = cut.stage.messages(&id, EventKind::Log);
        assert_eq!(lines.len(), 2, "{lines:?}");
        worker.signal(Signal::TERM);
        assert_eq!(worker.ended_within(PATIENCE), Some(0), "{}", worker.said());
    }
}

/// A server that no connection ever hears of again, while new ones work: the worker goes on over those.
#[test]
fn a_worker_whose_connections_die_silently_goes_on_over_new_ones() {
    let cut = Cut::new();
    let environment = [("TIDEMILL_DATABASE", cut.url.as_str())];
    let mut lonely = Process::worker_with(&cut.stage, "lonely", &[], TASK, &environment);
    let id = ledger::requests(&cut.stage, "r", 1).remove(0);
    cut.stage.until(&id, RunState::Success);
    let stalled = cut.arm(Fault::stall("SELECT").times(1_000_000));
    let fired = cut.stage.block(async { tokio::time::timeout(PATIENCE, stalled.wait_fired(3)).await });
    fired.expect("connections die");
    // What is stalled stays so: nothing is released.
    stalled.disarm();
    let more = ledger::requests(&cut.stage, "later", 1).remove(0);
    until("the worker goes on", || {
        let tries = cut.stage.tries(&more);
        tries.last().is_some_and(|run| run.status == RunState::Success).then_some(())
    });
    lonely.signal(Signal::TERM);
    assert_eq!(lonely.ended_within(PATIENCE), Some(0), "{}", lonely.said());
}
