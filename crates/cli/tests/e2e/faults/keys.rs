//! A concurrency key: whoever holds it works alone, across processes and in spite of kills.

use std::time::Duration;

use rustix::process::Signal;
use tidemill_core::run::{QueueRun, RunState};

use super::Dice;
use crate::process::Process;
use crate::stage::{PATIENCE, Stage, on_both, until};

on_both!(runs_of_one_key_never_overlap);

/// Takes the key's lock for as long as it works: somebody else who is at work has it.
const ALONE: &str = r#"
exec 9>>"$LEDGER.$TIDEMILL_GIT_REF"
flock -n 9 || echo "$TIDEMILL_RUN_ID overlap" >>"$LEDGER"
echo "$TIDEMILL_RUN_ID begun" >>"$LEDGER"
sleep 0.1 & wait
echo "$TIDEMILL_RUN_ID done" >>"$LEDGER"
"#;

fn runs_of_one_key_never_overlap(stage: &Stage) {
    let mut dice = Dice::thrown();
    for number in 0..30 {
        let key = format!("key-{}", number % 2);
        stage.request(QueueRun {
            git_ref: Some(key.clone()),
            concurrency_key: Some(key),
            priority: i32::try_from(dice.below(3)).unwrap_or(0),
            max_losses: 1_000,
            ..QueueRun::new("shop", "staging")
        });
    }
    let start = |number| Process::worker(stage, &format!("mill-{number}"), &["--slots", "3"], ALONE);
    let mut workers: Vec<Process> = (0..2).map(start).collect();
    // The holder of a key is killed: the key goes on to the next, and never to two.
    for place in [0, 1, 0] {
        std::thread::sleep(Duration::from_millis(200 + dice.below(400)));
        workers[place].kill();
        workers[place] = start(place);
    }
    until("every run ends", || stage.runs().iter().all(|run| run.status.is_terminal()).then_some(()));
    for worker in &mut workers {
        worker.signal(Signal::TERM);
        assert_eq!(worker.ended_within(PATIENCE), Some(0));
    }
    let ledger = std::fs::read_to_string(stage.path("ledger")).unwrap();
    assert!(!ledger.contains("overlap"), "{ledger}");
    let runs = stage.runs();
    let successes: Vec<_> = runs.iter().filter(|run| run.status == RunState::Success).collect();
    assert_eq!(successes.len(), 30);
    for run in successes {
        assert_eq!(ledger.matches(&format!("{} done", run.run_id)).count(), 1, "{ledger}");
    }
}
