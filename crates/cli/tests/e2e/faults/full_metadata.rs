//! A request whose metadata is full: the result of its run is recorded even if nothing can be added to the metadata.

use serde_json::{Value, json};
use tidemill_core::RunId;
use tidemill_core::event::EventKind;
use tidemill_core::limits::METADATA_BYTES_MAX;
use tidemill_core::run::{QueueRun, RunState};

use crate::fixture::{Fixture, on_both};
use crate::process::run;
use crate::server::server;

on_both!(run_with_full_metadata_keeps_its_result, remote_run_with_full_metadata_keeps_its_result,);

/// Queues a request whose metadata leaves this many bytes free, in the format of PostgreSQL.
fn request(fixture: &Fixture, free: usize) -> RunId {
    let frame = r#"{"fill": ""}"#.len();
    let metadata = json!({"fill": "x".repeat(METADATA_BYTES_MAX - frame - free)});
    fixture.request(QueueRun { metadata, ..QueueRun::new("shop", "staging") })
}

/// Executes all queued runs with this script, with the database or with a server.
fn work(fixture: &Fixture, remote: Option<&str>, script: &str) {
    let mut command = fixture.command(&["work", "--drain", "--", "bash", "-c", script]);
    if let Some(url) = remote {
        command.env_remove("TIDEMILL_DATABASE").env("TIDEMILL_SERVER", url);
    }
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

fn check_results(fixture: &Fixture, remote: Option<&str>) {
    let printed = |id: &RunId| {
        let lines = fixture.messages(id, EventKind::Log).into_iter();
        lines.filter(|line| line.contains("exceeds the metadata limit")).count()
    };
    for (free, script, state, exit_code) in [
        (10, "true", RunState::Success, None),
        (10, "echo oh no >&2; exit 7", RunState::Failed, None),
        // Only the exit code fits.
        (40, "echo oh no >&2; exit 7", RunState::Failed, Some(7)),
        (200, "true", RunState::Success, Some(0)),
    ] {
        let id = request(fixture, free);
        work(fixture, remote, script);
        let tries = fixture.tries(&id);
        assert_eq!((tries.len(), tries[0].status), (1, state), "{free} bytes are free, {script}");
        let metadata = &tries[0].metadata;
        assert!(
            metadata["fill"].as_str().is_some_and(|text| text.len() > 200_000),
            "the metadata of the request stays"
        );
        assert_eq!(metadata.get("exit_code").and_then(Value::as_i64), exit_code, "{free} bytes are free");
        assert_eq!(metadata.get("stderr"), None, "{free} bytes are free, {script}");
        assert_eq!(printed(&id), usize::from(free < 200), "{free} bytes are free, {script}");
    }
}

fn run_with_full_metadata_keeps_its_result(fixture: &Fixture) {
    check_results(fixture, None);
}

fn remote_run_with_full_metadata_keeps_its_result(fixture: &Fixture) {
    let (_server, address) = server(fixture, &["server"], &[]);
    check_results(fixture, Some(&format!("http://{address}")));
}
