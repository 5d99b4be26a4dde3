//! Two processes that write to the same SQLite file without a pause: neither starves.

use std::time::Instant;

use rustix::process::Signal;
use tidemill_core::run::RunState;

use crate::fixture::{Fixture, Kind, TIMEOUT, wait_until};
use crate::process::Process;

/// Lines that each process writes.
const LINES: usize = 12_000;

#[test]
fn two_processes_share_one_sqlite_file_fairly() {
    let fixture = Fixture::new(Kind::Sqlite);
    let ids = ["left", "right"].map(|label| fixture.queue(&["--label", label]));
    let script = format!("while [ ! -e go ]; do sleep 0.01; done; seq {LINES}");
    let mut workers =
        ["left", "right"].map(|label| Process::worker(&fixture, label, &["--label", label], &script));
    for id in &ids {
        fixture.wait_for_state(id, RunState::Running);
    }
    fixture.write("go", "");
    let started = Instant::now();
    let count = |index: usize| {
        let text = format!("SELECT cast(count(*) AS text) FROM run_events WHERE run_id = '{}'", ids[index]);
        fixture.sql(&text).expect("events are counted")[0].parse::<usize>().expect("a number")
    };
    // A third process that writes occasionally does not starve either.
    let mut waits = Vec::new();
    let counts = wait_until("one of them has finished", || {
        let requested = Instant::now();
        fixture.queue(&["--label", "never"]);
        waits.push(requested.elapsed());
        let counts = [count(0), count(1)];
        counts.iter().any(|count| *count >= LINES).then_some(counts)
    });
    for id in &ids {
        fixture.wait_for_state(id, RunState::Success);
    }
    let took = started.elapsed();
    let (min, max) = (counts[0].min(counts[1]), counts[0].max(counts[1]));
    let longest = waits.iter().max().copied().unwrap_or_default();
    println!(
        "the first was done at {counts:?} ({} %), both after {:.1} s; a third waited {:.2} s at most, of {} times",
        min * 100 / max.max(1),
        took.as_secs_f64(),
        longest.as_secs_f64(),
        waits.len()
    );
    assert!(min * 4 >= max, "one of two writers starves: {counts:?}");
    assert!(longest < TIMEOUT / 2, "a third writer starves: {waits:?}");
    for worker in &mut workers {
        worker.signal(Signal::TERM);
        assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0));
    }
}
