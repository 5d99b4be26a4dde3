//! The script under faults: lost answers, a server that is gone, signals.

use rustix::process::Signal;
use tidemill_core::event::EventKind;
use tidemill_core::run::{EndCause, RunState};
use tidemill_testkit::proxy::{Fault, Proxy};

use super::{Script, lines};
use crate::process::{Process, until_dead};
use crate::stage::{PATIENCE, until};

/// The connection dies after the server has committed and before its answer: the script asks again, nothing doubles.
#[test]
fn a_lost_answer_is_asked_for_again() {
    let mut script = Script::new();
    let direct = script.url.clone();
    let proxy = script.stage.block(Proxy::in_front_of(&direct)).expect("a proxy starts");
    script.url = proxy.url(direct.rsplit('/').next().unwrap());
    for verb in ["claim_next_run", "append_events", "finish_run"] {
        let id = script.stage.queue(&[]);
        let armed = proxy.arm(Fault::cut_after_commit_of(verb));
        let ran = script.once("echo one; echo two");
        assert_eq!((ran.code, armed.fired()), (Some(0), 1), "{verb}: {ran:?}");
        let tries = script.stage.tries(&id);
        assert_eq!((tries.len(), tries[0].status), (1, RunState::Success), "{verb}: {ran:?}");
        assert_eq!(lines(&script.stage, &id), ["one", "two"], "{verb}");
        assert_eq!(script.stage.messages(&id, EventKind::Refusal), [""; 0], "{verb}");
    }
    // The same where the statement never arrived.
    let id = script.stage.queue(&[]);
    let armed =
        ["claim_next_run", "append_events", "finish_run"].map(|verb| proxy.arm(Fault::cut_before(verb)));
    script.once("echo one").ok();
    assert!(armed.iter().all(|armed| armed.fired() == 1));
    assert_eq!(
        (script.stage.run(&id).status, lines(&script.stage, &id)),
        (RunState::Success, vec!["one".to_owned()])
    );
}

/// Without a way to the database the command is killed before the lease can move to somebody else.
#[test]
fn a_command_whose_lease_may_be_gone_is_killed_before_a_successor_begins() {
    let mut script = Script::new();
    let direct = script.url.clone();
    let proxy = script.stage.block(Proxy::in_front_of(&direct)).expect("a proxy starts");
    script.url = proxy.url(direct.rsplit('/').next().unwrap());
    let id = script.stage.queue(&[]);
    let mut worker = script.start("worker", &[], "trap '' TERM; sleep 600 & echo pids $$ $!; wait; wait");
    let pids = script.until_said(&id, "pids ");
    drop(proxy);
    let mut keeper = Process::start(&script.stage, "keeper", &mut script.stage.command(&["sweep", "--loop"]));
    let successor = until("there is a successor", || script.stage.tries(&id).get(1).cloned());
    assert!(!pids.iter().any(|&pid| crate::process::is_alive(pid)), "the command outlived its lease");
    assert_eq!(script.stage.run(&id).end_cause, Some(EndCause::Lost));
    assert_eq!(successor.status, RunState::Queued);
    assert!(worker.is_running(), "the worker waits for the database: {}", worker.said());
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
    keeper.signal(Signal::TERM);
    assert_eq!(keeper.ended_within(PATIENCE), Some(0));
}

#[test]
fn a_stopped_worker_lets_its_command_end_and_claims_nothing_more() {
    let script = Script::new();
    let (first, waiting) = (script.stage.queue(&[]), script.stage.queue(&[]));
    let patient = "trap 'echo told; sleep 0.5; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    let mut worker = script.start("patient", &[], patient);
    script.until_said(&first, "up");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
    assert_eq!(
        script.stage.run(&first).status,
        RunState::Success,
        "it ended within its grace: {}",
        worker.said()
    );
    assert_eq!(script.stage.run(&waiting).status, RunState::Queued, "it claimed after it was told to end");

    // A command that does not end is killed after the grace time, and its run is left to its lease.
    let mut worker = script.start("stubborn", &[], "trap '' TERM; echo up $$; while :; do sleep 0.05; done");
    let pids = script.until_said(&waiting, "up ");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
    until_dead(&pids);
    assert_eq!(script.stage.run(&waiting).status, RunState::Running);
    let mut keeper = Process::start(&script.stage, "keeper", &mut script.stage.command(&["sweep", "--loop"]));
    assert_eq!(script.stage.until_ended(&waiting).end_cause, Some(EndCause::Lost));
    assert_eq!(script.stage.tries(&waiting).len(), 2, "its request goes on");
    keeper.signal(Signal::TERM);
    assert_eq!(keeper.ended_within(PATIENCE), Some(0));
}

/// The script itself is killed: its command dies soon, long before the lease is over.
#[test]
fn a_killed_worker_takes_its_command_with_it() {
    let script = Script::new();
    let id = script.stage.queue(&[]);
    let mut worker =
        script.start("worker", &["--lease", "300"], "trap '' TERM; sleep 600 & echo pids $$ $!; wait; wait");
    let pids = script.until_said(&id, "pids ");
    worker.kill();
    crate::stage::until_within("the command dies", PATIENCE, || {
        (!pids.iter().any(|&pid| crate::process::is_alive(pid))).then_some(())
    });
    assert_eq!(script.stage.run(&id).status, RunState::Running, "its lease is not over");
}
