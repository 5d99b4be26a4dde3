//! One worker that dies or freezes: what becomes of its run, and when.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_core::event::EventKind;
use tidemill_core::run::{EndCause, RunState};
use tidemill_testkit::proxy::{Fault, Proxy};

use crate::ledger::{self, TASK};
use crate::process::{Process, is_alive};
use crate::stage::{DEAD_AFTER, Kind, PATIENCE, Stage, on_both, until, until_moving, until_within};

on_both!(
    sweepers_at_once_agree,
    a_worker_killed_while_its_run_is_running_is_followed_soon,
    a_worker_killed_while_its_run_is_claimed_is_followed_soon,
    a_frozen_worker_loses_its_run_and_its_command_dies_first,
    what_a_frozen_worker_has_to_say_later_is_refused_and_recorded_once,
    a_run_that_kills_its_workers_is_put_into_quarantine,
);

/// One sweep, and what a busy machine needs. The lease of a run lasts for five minutes.
const SOON: Duration = PATIENCE;

/// Waits for the second try of a request; it must come soon after `since`.
fn successor(stage: &Stage, id: &tidemill_core::RunId, since: Instant) -> tidemill_core::RunId {
    let left = (DEAD_AFTER + SOON).saturating_sub(since.elapsed());
    let next = until_within("there is a successor", left, || stage.tries(id).get(1).cloned());
    println!("the successor was there after {:.2} s", since.elapsed().as_secs_f64());
    next.run_id
}

fn a_worker_killed_while_its_run_is_running_is_followed_soon(stage: &Stage) {
    let id = ledger::requests(stage, "r", 1).remove(0);
    let mut first = Process::worker_with(stage, "first", &["--no-upkeep"], TASK, &[("SECS", "600")]);
    let begun = until("the command begins", || ledger::entries(stage).first().cloned());
    stage.until(&id, RunState::Running);
    let mut second = Process::worker(stage, "second", &[], TASK);
    let killed = Instant::now();
    first.kill();
    let next = successor(stage, &id, killed);
    assert!(killed.elapsed() >= DEAD_AFTER / 2, "a run was taken from a worker that might have lived");
    assert!(!is_alive(begun.pid), "the command outlived its worker");
    let lost = stage.run(&id);
    assert_eq!((lost.status, lost.end_cause), (RunState::Failed, Some(EndCause::Lost)));
    assert_eq!(lost.metadata["error"], "worker lost");
    assert_eq!(stage.until(&next, RunState::Success).claimed_by.as_deref(), Some("second"));
    second.signal(Signal::TERM);
    assert_eq!(second.ended_within(PATIENCE), Some(0));
    ledger::verdict(stage, &[id]);
}

/// A worker with many runs dies, and four processes sweep at the same moment: one successor for each run.
fn sweepers_at_once_agree(stage: &Stage) {
    let requests = ledger::requests(stage, "r", 12);
    let options = ["--no-upkeep", "--slots", "12"];
    let mut first = Process::worker_with(stage, "first", &options, TASK, &[("SECS", "600")]);
    until("all commands have begun", || (ledger::entries(stage).len() == 12).then_some(()));
    first.kill();
    let begun = Instant::now();
    while stage.runs().len() < 24 {
        assert!(begun.elapsed() < DEAD_AFTER + SOON, "not every run has a successor");
        let sweep = |number| Process::start(stage, &format!("s{number}"), &mut stage.command(&["sweep"]));
        let mut sweeps: Vec<Process> = (0..4).map(sweep).collect();
        for sweep in &mut sweeps {
            assert_eq!(sweep.ended_within(PATIENCE), Some(0), "{}", sweep.said());
        }
    }
    let runs = stage.runs();
    assert_eq!(runs.len(), 24, "a run has two successors");
    for id in &requests {
        let lost = stage.run(id);
        assert_eq!(
            lost.end_cause,
            Some(if lost.status == RunState::Failed { EndCause::Lost } else { EndCause::Stale })
        );
        assert_eq!(runs.iter().filter(|run| run.retry_of.as_ref() == Some(id)).count(), 1);
    }
}

/// The kill must fall between the claim and the first event, which is a matter of milliseconds: tried until it does.
fn a_worker_killed_while_its_run_is_claimed_is_followed_soon(stage: &Stage) {
    for number in 0..20 {
        let id = ledger::requests(stage, &format!("r{number}"), 1).remove(0);
        let mut first = Process::worker_with(stage, "first", &["--no-upkeep"], TASK, &[("SECS", "600")]);
        until("the run is claimed", || (stage.run(&id).status != RunState::Queued).then_some(()));
        first.kill();
        let killed = Instant::now();
        let was = stage.run(&id).status;
        let mut second = Process::worker(stage, "second", &["--drain"], TASK);
        let next = successor(stage, &id, killed);
        assert_eq!(second.ended_within(PATIENCE), Some(0));
        assert_eq!(stage.run(&next).status, RunState::Success);
        ledger::verdict(stage, std::slice::from_ref(&id));
        if was == RunState::Claimed {
            let ended = stage.run(&id);
            assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Stale)));
            assert_eq!(ended.metadata["cancelled_by"], "system");
            return;
        }
    }
    panic!("no kill came between a claim and its first event");
}

/// On PostgreSQL the first event can be held back for as long as one likes.
#[test]
fn a_worker_killed_before_its_first_event_leaves_no_command() {
    let stage = Stage::new(Kind::Postgres);
    let proxy = stage.block(Proxy::in_front_of(&stage.url)).expect("a proxy starts");
    let id = ledger::requests(&stage, "r", 1).remove(0);
    let held = proxy.arm(Fault::stall("append_events").times(100));
    let url = proxy.url(stage.url.rsplit('/').next().unwrap());
    let environment = [("SECS", "600"), ("TIDEMILL_DATABASE", url.as_str())];
    let mut first = Process::worker_with(&stage, "first", &["--no-upkeep"], TASK, &environment);
    let begun = until("the command begins", || ledger::entries(&stage).first().cloned());
    stage.block(held.wait_fired(1));
    assert_eq!(stage.run(&id).status, RunState::Claimed);
    first.kill();
    let killed = Instant::now();
    let mut second = Process::worker(&stage, "second", &["--drain"], TASK);
    let next = successor(&stage, &id, killed);
    assert!(!is_alive(begun.pid));
    assert_eq!(stage.run(&id).end_cause, Some(EndCause::Stale));
    assert_eq!(second.ended_within(PATIENCE), Some(0));
    assert_eq!(stage.run(&next).status, RunState::Success);
    ledger::verdict(&stage, &[id]);
}

/// Frozen past its lease and thawed: the command was killed before the successor began, and the worker goes on as a
/// new one.
fn a_frozen_worker_loses_its_run_and_its_command_dies_first(stage: &Stage) {
    let id = ledger::requests(stage, "r", 1).remove(0);
    let mut first = Process::worker_with(stage, "first", &["--no-upkeep"], TASK, &[("SECS", "600")]);
    let begun = until("the command begins", || ledger::entries(stage).first().cloned());
    stage.until(&id, RunState::Running);
    let mut second = Process::worker(stage, "second", &[], TASK);
    let frozen = Instant::now();
    first.signal(Signal::STOP);
    let next = successor(stage, &id, frozen);
    assert!(!is_alive(begun.pid), "the command outlived the lease of its frozen worker");
    stage.until(&next, RunState::Success);
    second.signal(Signal::TERM);
    assert_eq!(second.ended_within(PATIENCE), Some(0));

    first.signal(Signal::CONT);
    until("the worker begins anew", || first.said().contains("begins anew").then_some(()));
    let more = ledger::requests(stage, "later", 1).remove(0);
    let begun = until("it carries out another run", || {
        ledger::entries(stage).into_iter().find(|entry| entry.run == more && entry.what == "begun")
    });
    assert!(is_alive(begun.pid));
    first.signal(Signal::TERM);
    assert_eq!(first.ended_within(PATIENCE), Some(0));
    ledger::verdict(stage, &[id]);
}

/// The command ends while its worker is frozen, and before the worker's lease is over; when the worker is thawed, it
/// wants to report a success. That comes too late: refused, recorded once, and without effect.
fn what_a_frozen_worker_has_to_say_later_is_refused_and_recorded_once(stage: &Stage) {
    let id = ledger::requests(stage, "r", 1).remove(0);
    let script = r#"if [ "$TIDEMILL_ATTEMPT" = 1 ]; then echo up; while [ ! -e go ]; do sleep 0.01; done; seq 100; fi"#;
    let mut first = Process::worker(stage, "first", &["--no-upkeep"], script);
    until("the command is up", || stage.events(&id).iter().any(|event| event.message == "up").then_some(()));
    first.signal(Signal::STOP);
    stage.write("go", "");
    let mut second = Process::worker(stage, "second", &[], script);
    let next = successor(stage, &id, Instant::now());
    stage.until(&next, RunState::Success);
    let (lost, before) = (stage.run(&id), stage.events(&id).len());
    assert_eq!(lost.end_cause, Some(EndCause::Lost));
    first.signal(Signal::CONT);
    until("the late end is refused", || {
        first.said().contains("its end (success) changed nothing").then_some(())
    });
    first.signal(Signal::TERM);
    assert_eq!(first.ended_within(PATIENCE), Some(0));

    assert_eq!(stage.run(&id), lost, "a late report changed the run");
    let late = &stage.events(&id)[before..];
    assert!(late.iter().all(|event| event.kind == EventKind::Refusal), "{late:?}");
    let mut verbs: Vec<String> = late.iter().map(|event| event.payload["verb"].to_string()).collect();
    verbs.sort();
    assert_eq!(verbs, ["\"append\"", "\"finish\""], "one record for each verb: {late:?}");
    assert_eq!(stage.tries(&id).len(), 2);
    second.signal(Signal::TERM);
    assert_eq!(second.ended_within(PATIENCE), Some(0));
}

/// Each try kills the worker process that carries it out: after the third loss the request is given up, with the last
/// lines that it said.
fn a_run_that_kills_its_workers_is_put_into_quarantine(stage: &Stage) {
    let id = stage.queue(&[]);
    // The command's parent is its supervisor; the worker is the parent of that. It is killed once the record has the
    // line, however long that takes.
    let script = r#"echo "try $TIDEMILL_ATTEMPT kills its worker"
        while [ ! -e "told-$TIDEMILL_ATTEMPT" ]; do sleep 0.01; done
        read -r _ _ _ worker _ <"/proc/$PPID/stat"; kill -9 "$worker"; sleep 600"#;
    let mut keeper = Process::start(stage, "keeper", &mut stage.command(&["sweep", "--loop"]));
    let mut worker = Process::worker(stage, "victim", &["--no-upkeep"], script);
    let mut workers = 1;
    let ended = until_moving("the request is given up", || {
        if !worker.is_running() {
            worker = Process::worker(stage, "victim", &["--no-upkeep"], script);
            workers += 1;
        }
        let tries = stage.tries(&id);
        let last = tries.last().expect("there is a try").clone();
        let line = format!("try {} kills its worker", last.attempt);
        if stage.messages(&last.run_id, EventKind::Log).contains(&line) {
            stage.write(&format!("told-{}", last.attempt), "");
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
    assert!(tail.contains(&format!("try {tries} kills its worker")), "{tail}");
    assert_eq!(tries, 4, "three losses are allowed, and the fourth is one too many");
    let table = stage.ok(&["run", "list"]);
    assert!(table.contains("quarantined"), "{table}");
    let why = stage.ok(&["run", "why", last.run_id.as_str()]);
    assert!(why.contains("quarantine") || why.contains("lost its worker"), "{why}");
    // The next worker finds nothing to do. It is told to end before a person tries again: it would be killed as well.
    worker.until_said("waits for runs", workers);
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
    let next = stage.ok(&["run", "retry", last.run_id.as_str()]);
    stage.ok(&["run", "cancel", next.trim()]);
    keeper.signal(Signal::TERM);
    assert_eq!(keeper.ended_within(PATIENCE), Some(0));
}
