//! Commands that are told to end: by a cancel, by a timeout, by the end of their worker.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::run::{EndCause, RunState};

use crate::process::{Process, is_alive, run, until_dead};
use crate::stage::{PATIENCE, Stage, on_both, until};

on_both!(
    a_cancel_kills_the_whole_process_group,
    a_cancelled_command_may_end_in_good_order,
    a_timeout_kills_and_is_reported,
    a_stopped_worker_lets_its_command_end_within_the_grace,
    a_stopped_worker_hands_on_what_does_not_end_in_time,
);

/// Waits until the run's command has said this; the numbers after it.
fn until_said(stage: &Stage, id: &RunId, word: &str) -> Vec<i32> {
    until(&format!("the command says {word}"), || {
        let events = stage.events(id);
        let said = events.iter().find_map(|event| event.message.strip_prefix(word))?;
        Some(said.split_whitespace().filter_map(|number| number.parse().ok()).collect())
    })
}

/// A command, its child, its grandchild that ignores SIGTERM, and one in a session of its own.
const FAMILY: &str = r#"
trap '' TERM
bash -c 'trap "" TERM; sleep 600 & echo $! >grandchild; wait; wait' &
setsid sleep 600 & echo $! >stray
while [ ! -s grandchild ]; do sleep 0.01; done
echo "pids $$ $! $(cat grandchild) $(cat stray)"
wait; wait
"#;

fn a_cancel_kills_the_whole_process_group(stage: &Stage) {
    let id = stage.queue(&[]);
    let mut worker = Process::worker(stage, "mill", &["--grace", "500ms"], FAMILY);
    let pids = until_said(stage, &id, "pids ");
    assert!(pids.len() == 4 && pids.iter().all(|&pid| is_alive(pid)), "{pids:?}");
    stage.ok(&["run", "cancel", id.as_str()]);
    let run = stage.until_ended(&id);
    assert!(!pids.iter().any(|&pid| is_alive(pid)), "the run has ended and a process of it lives");
    assert_eq!((run.status, run.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
    assert_eq!(run.metadata["signal"], 9);
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
}

fn a_cancelled_command_may_end_in_good_order(stage: &Stage) {
    let id = stage.queue(&[]);
    let script =
        "trap 'echo cleaning; sleep 0.3; echo clean; exit 7' TERM; echo up; while :; do sleep 0.02; done";
    let mut worker = Process::worker(stage, "mill", &["--grace", "20s"], script);
    until_said(stage, &id, "up");
    stage.ok(&["run", "cancel", id.as_str()]);
    let run = stage.until(&id, RunState::Cancelled);
    assert_eq!(run.metadata["exit_code"], 7);
    assert!(stage.events(&id).iter().any(|event| event.message == "clean"));
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
}

fn a_timeout_kills_and_is_reported(stage: &Stage) {
    let id = stage.queue(&["--timeout", "1s"]);
    let begun = Instant::now();
    let mut worker = Process::worker(stage, "mill", &["--grace", "300ms"], FAMILY);
    let pids = until_said(stage, &id, "pids ");
    let ended = stage.until(&id, RunState::Failed);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    until_dead(&pids);
    assert_eq!(ended.metadata["error"], "the run took longer than 1 s");
    let why = stage.ok(&["run", "why", id.as_str()]);
    assert!(why.contains("took longer than 1 s"), "{why}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
}

fn a_stopped_worker_lets_its_command_end_within_the_grace(stage: &Stage) {
    let (id, waiting) = (stage.queue(&["--priority", "1"]), stage.queue(&[]));
    let script = "trap 'echo told; sleep 0.5; exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut worker = Process::worker(stage, "mill", &["--grace", "20s"], script);
    until_said(stage, &id, "up");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
    let done = stage.run(&id);
    assert_eq!((done.status, done.attempt), (RunState::Success, 1), "{}", worker.said());
    assert_eq!(stage.run(&waiting).status, RunState::Queued, "it claimed after it was told to end");
    let workers = "SELECT end_cause FROM ops.workers WHERE name = 'mill'";
    assert_eq!(stage.sql(workers).unwrap(), ["stopped"], "it said goodbye");
}

fn a_stopped_worker_hands_on_what_does_not_end_in_time(stage: &Stage) {
    let id = stage.queue(&[]);
    let mut worker = Process::worker(stage, "mill", &["--grace", "500ms"], FAMILY);
    let pids = until_said(stage, &id, "pids ");
    // Ctrl-C means the same as SIGTERM.
    worker.signal(Signal::INT);
    assert_eq!(worker.ended_within(PATIENCE), Some(0));
    assert!(
        !pids.iter().any(|&pid| is_alive(pid)),
        "the worker has ended and a process of its command lives"
    );
    // At once, without waiting for anybody to find the worker dead.
    let tries = stage.tries(&id);
    assert_eq!(tries.len(), 2, "{}", worker.said());
    assert_eq!((tries[0].end_cause, tries[1].status), (Some(EndCause::Interrupted), RunState::Queued));
    let drained = run(&mut stage.command(&["work", "--drain", "--", "true"]));
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert_eq!(stage.tries(&id)[1].status, RunState::Success);
}
