//! Commands that are stopped: by a cancel, by a timeout, by the shutdown of their worker.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::run::{EndCause, RunState};

use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until};
use crate::process::{Process, is_alive, run, wait_until_dead};

on_both!(
    cancel_kills_the_whole_process_group,
    cancelled_command_can_clean_up,
    timeout_kills_the_command_and_is_reported,
    stopped_worker_waits_for_its_command_within_the_grace,
    stopped_worker_releases_a_run_that_exceeds_the_grace,
);

/// Waits for an event that starts with `word`, and returns the numbers after it.
fn wait_for_event(fixture: &Fixture, id: &RunId, word: &str) -> Vec<i32> {
    wait_until(&format!("the command prints {word}"), || {
        let events = fixture.events(id);
        let printed = events.iter().find_map(|event| event.message.strip_prefix(word))?;
        Some(printed.split_whitespace().filter_map(|number| number.parse().ok()).collect())
    })
}

/// A command with a child, a grandchild that ignores SIGTERM, and a process in another session.
const PROCESS_TREE: &str = r#"
trap '' TERM
bash -c 'trap "" TERM; sleep 600 & echo $! >grandchild; wait; wait' &
setsid sleep 600 & echo $! >stray
while [ ! -s grandchild ]; do sleep 0.01; done
echo "pids $$ $! $(cat grandchild) $(cat stray)"
wait; wait
"#;

fn cancel_kills_the_whole_process_group(fixture: &Fixture) {
    let id = fixture.queue(&[]);
    let mut worker = Process::worker(fixture, "builder", &["--grace", "500ms"], PROCESS_TREE);
    let pids = wait_for_event(fixture, &id, "pids ");
    assert!(pids.len() == 4 && pids.iter().all(|&pid| is_alive(pid)), "{pids:?}");
    fixture.ok(&["run", "cancel", id.as_str()]);
    let run = fixture.wait_for_end(&id);
    assert!(!pids.iter().any(|&pid| is_alive(pid)), "a process of the ended run is alive");
    assert_eq!((run.status, run.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
    assert_eq!(run.metadata["signal"], 9);
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
}

fn cancelled_command_can_clean_up(fixture: &Fixture) {
    let id = fixture.queue(&[]);
    let script =
        "trap 'echo cleaning; sleep 0.3; echo clean; exit 7' TERM; echo up; while :; do sleep 0.02; done";
    let mut worker = Process::worker(fixture, "builder", &["--grace", "20s"], script);
    wait_for_event(fixture, &id, "up");
    fixture.ok(&["run", "cancel", id.as_str()]);
    let run = fixture.wait_for_state(&id, RunState::Cancelled);
    assert_eq!(run.metadata["exit_code"], 7);
    assert!(fixture.events(&id).iter().any(|event| event.message == "clean"));
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
}

fn timeout_kills_the_command_and_is_reported(fixture: &Fixture) {
    let id = fixture.queue(&["--timeout", "1s"]);
    let begun = Instant::now();
    let mut worker = Process::worker(fixture, "builder", &["--grace", "300ms"], PROCESS_TREE);
    let pids = wait_for_event(fixture, &id, "pids ");
    let ended = fixture.wait_for_state(&id, RunState::Failed);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    wait_until_dead(&pids);
    assert_eq!(ended.metadata["error"], "the run took longer than 1 s");
    let why = fixture.ok(&["run", "why", id.as_str()]);
    assert!(why.contains("took longer than 1 s"), "{why}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
}

fn stopped_worker_waits_for_its_command_within_the_grace(fixture: &Fixture) {
    let (id, waiting) = (fixture.queue(&["--priority", "1"]), fixture.queue(&[]));
    let script = "trap 'echo told; sleep 0.5; exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut worker = Process::worker(fixture, "builder", &["--grace", "20s"], script);
    wait_for_event(fixture, &id, "up");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    let done = fixture.run(&id);
    assert_eq!((done.status, done.attempt), (RunState::Success, 1), "{}", worker.stderr());
    assert_eq!(fixture.run(&waiting).status, RunState::Queued, "it claimed a run after SIGTERM");
    let workers = "SELECT end_cause FROM ops.workers WHERE name = 'builder'";
    assert_eq!(fixture.sql(workers).unwrap(), ["stopped"], "it deregistered");
}

fn stopped_worker_releases_a_run_that_exceeds_the_grace(fixture: &Fixture) {
    let id = fixture.queue(&[]);
    let mut worker = Process::worker(fixture, "builder", &["--grace", "500ms"], PROCESS_TREE);
    let pids = wait_for_event(fixture, &id, "pids ");
    // SIGINT has the same effect as SIGTERM.
    worker.signal(Signal::INT);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    assert!(!pids.iter().any(|&pid| is_alive(pid)), "a process of the command outlived the worker");
    // Immediately, without waiting until a sweeper detects the death of the worker.
    let tries = fixture.tries(&id);
    assert_eq!(tries.len(), 2, "{}", worker.stderr());
    assert_eq!((tries[0].end_cause, tries[1].status), (Some(EndCause::Interrupted), RunState::Queued));
    let drained = run(&mut fixture.command(&["work", "--drain", "--", "true"]));
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert_eq!(fixture.tries(&id)[1].status, RunState::Success);
}
