//! Workers that die or freeze: their runs get successors in time.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_core::event::EventKind;
use tidemill_core::run::{EndCause, RunState};
use tidemill_testkit::proxy::{Fault, Proxy};

use crate::fixture::{
    DEAD_AFTER, Fixture, Kind, TIMEOUT, on_both, wait_until, wait_until_within, wait_while_progressing,
};
use crate::ledger::{self, TASK};
use crate::process::{Process, is_alive};

on_both!(
    concurrent_sweepers_create_one_successor_per_run,
    worker_killed_during_a_run_is_replaced_soon,
    worker_killed_after_a_claim_is_replaced_soon,
    frozen_worker_loses_its_run_after_its_command_is_dead,
    late_report_of_a_frozen_worker_is_refused_once,
    run_that_kills_its_workers_is_quarantined,
);

/// Time for one sweep on a busy machine. The lease of a run is five minutes.
const SOON: Duration = TIMEOUT;

/// Waits for the second attempt of a request, which must exist soon after `since`.
fn wait_for_successor(fixture: &Fixture, id: &tidemill_core::RunId, since: Instant) -> tidemill_core::RunId {
    let left = (DEAD_AFTER + SOON).saturating_sub(since.elapsed());
    let next = wait_until_within("a successor exists", left, || fixture.tries(id).get(1).cloned());
    println!("successor after {:.2} s", since.elapsed().as_secs_f64());
    next.run_id
}

fn worker_killed_during_a_run_is_replaced_soon(fixture: &Fixture) {
    let id = ledger::requests(fixture, "r", 1).remove(0);
    let mut first = Process::worker_with(fixture, "first", &["--no-upkeep"], TASK, &[("SECS", "600")]);
    let begun = wait_until("the command starts", || ledger::entries(fixture).first().cloned());
    fixture.wait_for_state(&id, RunState::Running);
    let mut second = Process::worker(fixture, "second", &[], TASK);
    let killed = Instant::now();
    first.kill();
    let next = wait_for_successor(fixture, &id, killed);
    assert!(killed.elapsed() >= DEAD_AFTER / 2, "the run was taken before `dead-after`");
    assert!(!is_alive(begun.pid), "the command outlived its worker");
    let lost = fixture.run(&id);
    assert_eq!((lost.status, lost.end_cause), (RunState::Failed, Some(EndCause::Lost)));
    assert_eq!(lost.metadata["error"], "worker lost");
    assert_eq!(fixture.wait_for_state(&next, RunState::Success).claimed_by.as_deref(), Some("second"));
    second.signal(Signal::TERM);
    assert_eq!(second.wait_for_exit(TIMEOUT), Some(0));
    ledger::check(fixture, &[id]);
}

/// A worker with many runs dies, and four processes sweep at the same time: one successor per run.
fn concurrent_sweepers_create_one_successor_per_run(fixture: &Fixture) {
    let requests = ledger::requests(fixture, "r", 12);
    let options = ["--no-upkeep", "--slots", "12"];
    let mut first = Process::worker_with(fixture, "first", &options, TASK, &[("SECS", "600")]);
    wait_until("all commands have begun", || (ledger::entries(fixture).len() == 12).then_some(()));
    first.kill();
    let begun = Instant::now();
    while fixture.runs().len() < 24 {
        assert!(begun.elapsed() < DEAD_AFTER + SOON, "not every run has a successor");
        let sweep = |number| Process::start(fixture, &format!("s{number}"), &mut fixture.command(&["sweep"]));
        let mut sweeps: Vec<Process> = (0..4).map(sweep).collect();
        for sweep in &mut sweeps {
            assert_eq!(sweep.wait_for_exit(TIMEOUT), Some(0), "{}", sweep.stderr());
        }
    }
    let runs = fixture.runs();
    assert_eq!(runs.len(), 24, "a run has two successors");
    for id in &requests {
        let lost = fixture.run(id);
        assert_eq!(
            lost.end_cause,
            Some(if lost.status == RunState::Failed { EndCause::Lost } else { EndCause::Stale })
        );
        assert_eq!(runs.iter().filter(|run| run.retry_of.as_ref() == Some(id)).count(), 1);
    }
}

/// The kill must happen between the claim and the first event, within milliseconds, so it is repeated until it does.
fn worker_killed_after_a_claim_is_replaced_soon(fixture: &Fixture) {
    for number in 0..20 {
        let id = ledger::requests(fixture, &format!("r{number}"), 1).remove(0);
        let mut first = Process::worker_with(fixture, "first", &["--no-upkeep"], TASK, &[("SECS", "600")]);
        wait_until("the run is claimed", || (fixture.run(&id).status != RunState::Queued).then_some(()));
        first.kill();
        let killed = Instant::now();
        let status = fixture.run(&id).status;
        let mut second = Process::worker(fixture, "second", &["--drain"], TASK);
        let next = wait_for_successor(fixture, &id, killed);
        assert_eq!(second.wait_for_exit(TIMEOUT), Some(0));
        assert_eq!(fixture.run(&next).status, RunState::Success);
        ledger::check(fixture, std::slice::from_ref(&id));
        if status == RunState::Claimed {
            let ended = fixture.run(&id);
            assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Stale)));
            assert_eq!(ended.metadata["cancelled_by"], "system");
            return;
        }
    }
    panic!("no kill happened between a claim and its first event");
}

/// On PostgreSQL a proxy can delay the first event.
#[test]
fn worker_killed_before_its_first_event_leaves_no_command() {
    let fixture = Fixture::new(Kind::Postgres);
    let proxy = fixture.block(Proxy::in_front_of(&fixture.url)).expect("a proxy starts");
    let id = ledger::requests(&fixture, "r", 1).remove(0);
    let held = proxy.arm(Fault::stall("append_events").times(100));
    let url = proxy.url(fixture.url.rsplit('/').next().unwrap());
    let environment = [("SECS", "600"), ("TIDEMILL_DATABASE", url.as_str())];
    let mut first = Process::worker_with(&fixture, "first", &["--no-upkeep"], TASK, &environment);
    let begun = wait_until("the command starts", || ledger::entries(&fixture).first().cloned());
    fixture.block(held.wait_fired(1));
    assert_eq!(fixture.run(&id).status, RunState::Claimed);
    first.kill();
    let killed = Instant::now();
    let mut second = Process::worker(&fixture, "second", &["--drain"], TASK);
    let next = wait_for_successor(&fixture, &id, killed);
    assert!(!is_alive(begun.pid));
    assert_eq!(fixture.run(&id).end_cause, Some(EndCause::Stale));
    assert_eq!(second.wait_for_exit(TIMEOUT), Some(0));
    assert_eq!(fixture.run(&next).status, RunState::Success);
    ledger::check(&fixture, &[id]);
}

/// A worker that is frozen longer than its lease: its command is killed before the successor starts, and the worker
/// registers again.
fn frozen_worker_loses_its_run_after_its_command_is_dead(fixture: &Fixture) {
    let id = ledger::requests(fixture, "r", 1).remove(0);
    let mut first = Process::worker_with(fixture, "first", &["--no-upkeep"], TASK, &[("SECS", "600")]);
    let begun = wait_until("the command starts", || ledger::entries(fixture).first().cloned());
    fixture.wait_for_state(&id, RunState::Running);
    let mut second = Process::worker(fixture, "second", &[], TASK);
    first.freeze(fixture);
    let frozen = Instant::now();
    let next = wait_for_successor(fixture, &id, frozen);
    assert!(!is_alive(begun.pid), "the command outlived the lease of its frozen worker");
    fixture.wait_for_state(&next, RunState::Success);
    second.signal(Signal::TERM);
    assert_eq!(second.wait_for_exit(TIMEOUT), Some(0));

    first.signal(Signal::CONT);
    wait_until("the worker registers again", || first.stderr().contains("registers again").then_some(()));
    let more = ledger::requests(fixture, "later", 1).remove(0);
    let begun = wait_until("it executes another run", || {
        ledger::entries(fixture).into_iter().find(|entry| entry.run == more && entry.what == "begun")
    });
    assert!(is_alive(begun.pid));
    first.signal(Signal::TERM);
    assert_eq!(first.wait_for_exit(TIMEOUT), Some(0));
    ledger::check(fixture, &[id]);
}

/// The command succeeds while its worker is frozen. The late report is refused, recorded once, and has no effect.
fn late_report_of_a_frozen_worker_is_refused_once(fixture: &Fixture) {
    let id = ledger::requests(fixture, "r", 1).remove(0);
    let script = r#"if [ "$TIDEMILL_ATTEMPT" = 1 ]; then echo up; while [ ! -e go ]; do sleep 0.01; done; seq 100; fi"#;
    let mut first = Process::worker(fixture, "first", &["--no-upkeep"], script);
    wait_until("the command is up", || {
        fixture.events(&id).iter().any(|event| event.message == "up").then_some(())
    });
    first.freeze(fixture);
    fixture.write("go", "");
    let mut second = Process::worker(fixture, "second", &[], script);
    let next = wait_for_successor(fixture, &id, Instant::now());
    fixture.wait_for_state(&next, RunState::Success);
    let (lost, before) = (fixture.run(&id), fixture.events(&id).len());
    assert_eq!(lost.end_cause, Some(EndCause::Lost));
    first.signal(Signal::CONT);
    wait_until("the late report is refused", || {
        first.stderr().contains("its result (success) was discarded").then_some(())
    });
    first.signal(Signal::TERM);
    assert_eq!(first.wait_for_exit(TIMEOUT), Some(0));

    assert_eq!(fixture.run(&id), lost, "a late report changed the run");
    let late = &fixture.events(&id)[before..];
    assert!(late.iter().all(|event| event.kind == EventKind::Refusal), "{late:?}");
    let mut verbs: Vec<String> = late.iter().map(|event| event.payload["verb"].to_string()).collect();
    verbs.sort();
    assert_eq!(verbs, ["\"append\"", "\"finish\""], "one record for each verb: {late:?}");
    assert_eq!(fixture.tries(&id).len(), 2);
    second.signal(Signal::TERM);
    assert_eq!(second.wait_for_exit(TIMEOUT), Some(0));
}

/// Each attempt kills its worker: after three losses the request is quarantined, with its last lines.
fn run_that_kills_its_workers_is_quarantined(fixture: &Fixture) {
    let id = fixture.queue(&[]);
    // The parent of the command is its supervisor, whose parent is the worker. The kill waits until the line is stored.
    let script = r#"echo "attempt $TIDEMILL_ATTEMPT kills its worker"
        while [ ! -e "stored-$TIDEMILL_ATTEMPT" ]; do sleep 0.01; done
        read -r _ _ _ worker _ <"/proc/$PPID/stat"; kill -9 "$worker"; sleep 600"#;
    let mut sweeper = Process::start(fixture, "sweeper", &mut fixture.command(&["sweep", "--loop"]));
    let mut worker = Process::worker(fixture, "victim", &["--no-upkeep"], script);
    let mut workers = 1;
    let ended = wait_while_progressing("the request is quarantined", || {
        if !worker.is_running() {
            worker = Process::worker(fixture, "victim", &["--no-upkeep"], script);
            workers += 1;
        }
        let tries = fixture.tries(&id);
        let last = tries.last().expect("an attempt exists").clone();
        let line = format!("attempt {} kills its worker", last.attempt);
        if fixture.messages(&last.run_id, EventKind::Log).contains(&line) {
            fixture.write(&format!("stored-{}", last.attempt), "");
        }
        ((tries.len(), last.status), last.status.is_terminal().then_some((tries.len(), last)))
    });
    let (tries, last) = ended;
    assert_eq!((last.status, last.end_cause), (RunState::Failed, Some(EndCause::Quarantined)));
    assert_eq!(
        (last.metadata["quarantined"].as_bool(), last.metadata["losses"].as_u64()),
        (Some(true), Some(tries as u64))
    );
    let tail = last.metadata["output_tail"].to_string();
    assert!(tail.contains(&format!("attempt {tries} kills its worker")), "{tail}");
    assert_eq!(tries, 4, "the fourth loss exceeds the limit");
    let table = fixture.ok(&["run", "list"]);
    assert!(table.contains("quarantined"), "{table}");
    let why = fixture.ok(&["run", "why", last.run_id.as_str()]);
    assert!(why.contains("quarantine") || why.contains("lost its worker"), "{why}");
    // The next worker has no work. It is stopped before the retry, which would kill it, too.
    worker.wait_for_stderr("waits for runs", workers);
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    let next = fixture.ok(&["run", "retry", last.run_id.as_str()]);
    fixture.ok(&["run", "cancel", next.trim()]);
    sweeper.signal(Signal::TERM);
    assert_eq!(sweeper.wait_for_exit(TIMEOUT), Some(0));
}
