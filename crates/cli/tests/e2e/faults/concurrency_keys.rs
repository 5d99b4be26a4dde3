//! Concurrency keys: runs of one key never overlap, across processes and despite kills.

use std::time::Duration;

use rustix::process::Signal;
use tidemill_core::run::{QueueRun, RunState};

use super::SeededRandom;
use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until};
use crate::process::Process;

on_both!(runs_of_one_key_never_overlap);

/// Holds the lock of its key while it runs, and reports an overlap if another command has the lock.
const EXCLUSIVE: &str = r#"
exec 9>>"$LEDGER.$TIDEMILL_GIT_REF"
flock -n 9 || echo "$TIDEMILL_RUN_ID overlap" >>"$LEDGER"
echo "$TIDEMILL_RUN_ID begun" >>"$LEDGER"
sleep 0.1 & wait
echo "$TIDEMILL_RUN_ID done" >>"$LEDGER"
"#;

fn runs_of_one_key_never_overlap(fixture: &Fixture) {
    let mut random = SeededRandom::from_environment();
    for number in 0..30 {
        let key = format!("key-{}", number % 2);
        fixture.request(QueueRun {
            git_ref: Some(key.clone()),
            concurrency_key: Some(key),
            priority: i32::try_from(random.below(3)).unwrap_or(0),
            max_losses: 1_000,
            ..QueueRun::new("shop", "staging")
        });
    }
    let start = |number| Process::worker(fixture, &format!("builder-{number}"), &["--slots", "3"], EXCLUSIVE);
    let mut workers: Vec<Process> = (0..2).map(start).collect();
    // Workers that hold keys are killed: each key moves to one other run.
    for index in [0, 1, 0] {
        std::thread::sleep(Duration::from_millis(200 + random.below(400)));
        workers[index].kill();
        workers[index] = start(index);
    }
    wait_until("every run ends", || fixture.runs().iter().all(|run| run.status.is_terminal()).then_some(()));
    for worker in &mut workers {
        worker.signal(Signal::TERM);
        assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    }
    let ledger = std::fs::read_to_string(fixture.path("ledger")).unwrap();
    assert!(!ledger.contains("overlap"), "{ledger}");
    let runs = fixture.runs();
    let successes: Vec<_> = runs.iter().filter(|run| run.status == RunState::Success).collect();
    assert_eq!(successes.len(), 30);
    for run in successes {
        assert_eq!(ledger.matches(&format!("{} done", run.run_id)).count(), 1, "{ledger}");
    }
}
