//! Two processes write the same SQLite file, without a pause: neither starves.

use std::time::Instant;

use rustix::process::Signal;
use tidemill_core::run::RunState;

use crate::process::Process;
use crate::stage::{Kind, PATIENCE, Stage, until};

/// Lines that each of the two has to get rid of.
const LINES: usize = 12_000;

#[test]
fn two_processes_share_one_file_fairly() {
    let stage = Stage::new(Kind::Sqlite);
    let ids = ["left", "right"].map(|label| stage.queue(&["--label", label]));
    let script = format!("while [ ! -e go ]; do sleep 0.01; done; seq {LINES}");
    let mut workers =
        ["left", "right"].map(|label| Process::worker(&stage, label, &["--label", label], &script));
    for id in &ids {
        stage.until(id, RunState::Running);
    }
    stage.write("go", "");
    let begun = Instant::now();
    let count = |place: usize| {
        let text = format!("SELECT cast(count(*) AS text) FROM run_events WHERE run_id = '{}'", ids[place]);
        stage.sql(&text).expect("events are counted")[0].parse::<usize>().expect("a number")
    };
    // A third process that wants to write once in a while is let in too.
    let mut waits = Vec::new();
    let counts = until("one of them is done", || {
        let asked = Instant::now();
        stage.queue(&["--label", "never"]);
        waits.push(asked.elapsed());
        let counts = [count(0), count(1)];
        counts.iter().any(|count| *count >= LINES).then_some(counts)
    });
    for id in &ids {
        stage.until(id, RunState::Success);
    }
    let took = begun.elapsed();
    let (least, most) = (counts[0].min(counts[1]), counts[0].max(counts[1]));
    let longest = waits.iter().max().copied().unwrap_or_default();
    println!(
        "the first was done at {counts:?} ({} %), both after {:.1} s; a third waited {:.2} s at most, of {} times",
        least * 100 / most.max(1),
        took.as_secs_f64(),
        longest.as_secs_f64(),
        waits.len()
    );
    assert!(least * 4 >= most, "one of two writers starves: {counts:?}");
    assert!(longest < PATIENCE / 2, "a third writer starves: {waits:?}");
    for worker in &mut workers {
        worker.signal(Signal::TERM);
        assert_eq!(worker.ended_within(PATIENCE), Some(0));
    }
}
