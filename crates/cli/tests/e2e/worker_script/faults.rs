//! Faults of the script: lost responses, an unreachable server, signals.

use rustix::process::Signal;
use tidemill_core::event::EventKind;
use tidemill_core::run::{EndCause, RunState};
use tidemill_testkit::proxy::{Fault, Proxy};

use super::{Script, lines};
use crate::fixture::{TIMEOUT, wait_until};
use crate::process::{Process, wait_until_dead};

/// The connection fails between the commit and the response: the script repeats the call, and nothing is duplicated.
#[test]
fn lost_response_is_requested_again() {
    let mut script = Script::new();
    let direct = script.url.clone();
    let proxy = script.fixture.block(Proxy::in_front_of(&direct)).expect("a proxy starts");
    script.url = proxy.url(direct.rsplit('/').next().unwrap());
    for verb in ["claim_next_run", "append_events", "finish_run"] {
        let id = script.fixture.queue(&[]);
        let armed = proxy.arm(Fault::cut_after_commit_of(verb));
        let ran = script.once("echo one; echo two");
        assert_eq!((ran.code, armed.fired()), (Some(0), 1), "{verb}: {ran:?}");
        let tries = script.fixture.tries(&id);
        assert_eq!((tries.len(), tries[0].status), (1, RunState::Success), "{verb}: {ran:?}");
        assert_eq!(lines(&script.fixture, &id), ["one", "two"], "{verb}");
        assert_eq!(script.fixture.messages(&id, EventKind::Refusal), [""; 0], "{verb}");
    }
    // The connection fails before the statement.
    let id = script.fixture.queue(&[]);
    let armed =
        ["claim_next_run", "append_events", "finish_run"].map(|verb| proxy.arm(Fault::cut_before(verb)));
    script.once("echo one").ok();
    assert!(armed.iter().all(|armed| armed.fired() == 1));
    assert_eq!(
        (script.fixture.run(&id).status, lines(&script.fixture, &id)),
        (RunState::Success, vec!["one".to_owned()])
    );
}

/// Without a connection, the command is killed before its lease can move to another worker.
#[test]
fn cut_off_command_is_killed_before_its_successor_starts() {
    let mut script = Script::new();
    let direct = script.url.clone();
    let proxy = script.fixture.block(Proxy::in_front_of(&direct)).expect("a proxy starts");
    script.url = proxy.url(direct.rsplit('/').next().unwrap());
    let id = script.fixture.queue(&[]);
    let mut worker = script.start("worker", &[], "trap '' TERM; sleep 600 & echo pids $$ $!; wait; wait");
    let pids = script.wait_for_event(&id, "pids ");
    drop(proxy);
    let mut sweeper =
        Process::start(&script.fixture, "sweeper", &mut script.fixture.command(&["sweep", "--loop"]));
    let successor = wait_until("a successor exists", || script.fixture.tries(&id).get(1).cloned());
    assert!(!pids.iter().any(|&pid| crate::process::is_alive(pid)), "the command outlived its lease");
    assert_eq!(script.fixture.run(&id).end_cause, Some(EndCause::Lost));
    assert_eq!(successor.status, RunState::Queued);
    assert!(worker.is_running(), "the worker waits for the database: {}", worker.stderr());
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    sweeper.signal(Signal::TERM);
    assert_eq!(sweeper.wait_for_exit(TIMEOUT), Some(0));
}

#[test]
fn stopped_script_waits_for_its_command_and_claims_no_more() {
    let script = Script::new();
    let (first, waiting) = (script.fixture.queue(&[]), script.fixture.queue(&[]));
    let script_text = "trap 'echo told; sleep 0.5; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    let mut worker = script.start("waiting", &[], script_text);
    script.wait_for_event(&first, "up");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    assert_eq!(
        script.fixture.run(&first).status,
        RunState::Success,
        "it ended within its grace: {}",
        worker.stderr()
    );
    assert_eq!(script.fixture.run(&waiting).status, RunState::Queued, "it claimed a run after SIGTERM");

    // A command that does not end is killed after the grace, and its run ends with its lease.
    let mut worker = script.start("stubborn", &[], "trap '' TERM; echo up $$; while :; do sleep 0.05; done");
    let pids = script.wait_for_event(&waiting, "up ");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    wait_until_dead(&pids);
    assert_eq!(script.fixture.run(&waiting).status, RunState::Running);
    let mut sweeper =
        Process::start(&script.fixture, "sweeper", &mut script.fixture.command(&["sweep", "--loop"]));
    assert_eq!(script.fixture.wait_for_end(&waiting).end_cause, Some(EndCause::Lost));
    assert_eq!(script.fixture.tries(&waiting).len(), 2, "its request has a successor");
    sweeper.signal(Signal::TERM);
    assert_eq!(sweeper.wait_for_exit(TIMEOUT), Some(0));
}

/// The script is killed: its command dies long before the lease ends.
#[test]
fn command_dies_with_its_killed_worker() {
    let script = Script::new();
    let id = script.fixture.queue(&[]);
    let mut worker =
        script.start("worker", &["--lease", "300"], "trap '' TERM; sleep 600 & echo pids $$ $!; wait; wait");
    let pids = script.wait_for_event(&id, "pids ");
    worker.kill();
    crate::fixture::wait_until_within("the command dies", TIMEOUT, || {
        (!pids.iter().any(|&pid| crate::process::is_alive(pid))).then_some(())
    });
    assert_eq!(script.fixture.run(&id).status, RunState::Running, "its lease has not ended");
}
