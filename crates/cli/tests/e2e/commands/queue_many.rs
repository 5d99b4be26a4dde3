//! `run queue --from FILE`: many requests, in batches.

use std::path::Path;

use serde_json::{Value, json};

use super::text;
use crate::fixture::{Fixture, on_both};
use crate::process::Output;

on_both!(repeated_file_queues_each_run_once, refused_line_is_named_and_earlier_batches_stay);

/// More than two batches.
const LINES: usize = 2_500;

fn queue_from(fixture: &Fixture, file: &Path) -> Output {
    fixture.tidemill(&["--json", "run", "queue", "--from", file.to_str().unwrap()])
}

/// Writes the lines into a file, with an empty line after the first one.
fn write_lines(fixture: &Fixture, line: impl Fn(usize) -> Value) -> std::path::PathBuf {
    let mut lines: Vec<String> = (1..=LINES).map(|number| line(number).to_string()).collect();
    lines.insert(1, String::new());
    fixture.write("requests.jsonl", &lines.join("\n"))
}

fn outcomes(output: &Output) -> Vec<Value> {
    output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn count(fixture: &Fixture) -> usize {
    fixture.runs().len()
}

fn repeated_file_queues_each_run_once(fixture: &Fixture) {
    let file = write_lines(fixture, |number| match number % 2 {
        0 => json!({"project": "shop", "env": "staging", "idempotency_key": format!("line {number}")}),
        _ => json!({"project": "shop", "env": "staging", "run_id": format!("run-line-{number}")}),
    });
    let first = queue_from(fixture, &file);
    assert_eq!(first.code, Some(0), "{first:?}");
    let queued = outcomes(&first);
    assert_eq!((queued.len(), count(fixture)), (LINES, LINES));
    assert!(queued.iter().all(|outcome| outcome["created"] == true), "{queued:?}");
    assert_eq!(text(&queued[2], "run_id"), "run-line-3");

    let again = queue_from(fixture, &file);
    assert_eq!(again.code, Some(0), "{again:?}");
    let repeated = outcomes(&again);
    assert!(repeated.iter().all(|outcome| outcome["created"] == false), "{repeated:?}");
    let ids = |outcomes: &[Value]| -> Vec<Value> {
        outcomes.iter().map(|outcome| outcome["run_id"].clone()).collect()
    };
    assert_eq!((ids(&repeated), count(fixture)), (ids(&queued), LINES));
    let told = fixture.tidemill(&["run", "queue", "--from", file.to_str().unwrap()]);
    assert!(told.stderr.contains("2500 of 2500 runs existed already"), "{}", told.stderr);
    let printed: Vec<&str> = told.stdout.lines().collect();
    assert_eq!(printed, queued.iter().map(|outcome| text(outcome, "run_id")).collect::<Vec<_>>());
}

fn refused_line_is_named_and_earlier_batches_stay(fixture: &Fixture) {
    let file = write_lines(fixture, |number| {
        let project = if number == 1_206 { "nowhere" } else { "shop" };
        json!({"project": project, "env": "staging"})
    });
    let refused = queue_from(fixture, &file);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    // The empty line counts.
    assert!(refused.stderr.contains("requests.jsonl:1207: project `nowhere`"), "{}", refused.stderr);
    assert!(refused.stderr.contains("1000 runs of earlier lines stay queued"), "{}", refused.stderr);
    let queued = outcomes(&refused);
    assert_eq!((queued.len(), count(fixture)), (1_000, 1_000));
    assert!(queued.iter().all(|outcome| outcome["created"] == true));

    let file = write_lines(fixture, |number| {
        let field = if number == 4 { "priorty" } else { "priority" };
        json!({"project": "shop", "env": "staging", field: 3})
    });
    let refused = queue_from(fixture, &file);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    assert!(refused.stderr.contains("requests.jsonl:5: "), "{}", refused.stderr);
    assert!(refused.stderr.contains("priorty"), "{}", refused.stderr);
    assert_eq!((outcomes(&refused).len(), count(fixture)), (0, 1_000));
}
