//! A request that fills its metadata: how its run ends counts, whether or not there is room to say more.

use serde_json::{Value, json};
use tidemill_core::RunId;
use tidemill_core::event::EventKind;
use tidemill_core::limits::METADATA_BYTES_MAX;
use tidemill_core::run::{QueueRun, RunState};

use crate::process::run;
use crate::server::server;
use crate::stage::{Stage, on_both};

on_both!(
    a_run_with_full_metadata_ends_as_what_it_was,
    a_run_with_full_metadata_ends_as_what_it_was_from_far_away,
);

/// A request whose metadata leaves this many bytes free, as PostgreSQL writes it.
fn request(stage: &Stage, free: usize) -> RunId {
    let frame = r#"{"fill": ""}"#.len();
    let metadata = json!({"fill": "x".repeat(METADATA_BYTES_MAX - frame - free)});
    stage.request(QueueRun { metadata, ..QueueRun::new("shop", "staging") })
}

/// Carries out everything that is queued with this script, beside the database or through a server.
fn work(stage: &Stage, far: Option<&str>, script: &str) {
    let mut command = stage.command(&["work", "--drain", "--", "bash", "-c", script]);
    if let Some(url) = far {
        command.env_remove("TIDEMILL_DATABASE").env("TIDEMILL_SERVER", url);
    }
    let ran = run(&mut command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

fn ends(stage: &Stage, far: Option<&str>) {
    let said = |id: &RunId| {
        let lines = stage.messages(id, EventKind::Log).into_iter();
        lines.filter(|line| line.contains("does not fit into its metadata")).count()
    };
    for (free, script, state, exit_code) in [
        (10, "true", RunState::Success, None),
        (10, "echo oh no >&2; exit 7", RunState::Failed, None),
        // The rest does not fit, and this does.
        (40, "echo oh no >&2; exit 7", RunState::Failed, Some(7)),
        (200, "true", RunState::Success, Some(0)),
    ] {
        let id = request(stage, free);
        work(stage, far, script);
        let tries = stage.tries(&id);
        assert_eq!((tries.len(), tries[0].status), (1, state), "{free} bytes are free, {script}");
        let metadata = &tries[0].metadata;
        assert!(
            metadata["fill"].as_str().is_some_and(|text| text.len() > 200_000),
            "what was asked for stays"
        );
        assert_eq!(metadata.get("exit_code").and_then(Value::as_i64), exit_code, "{free} bytes are free");
        assert_eq!(metadata.get("stderr"), None, "{free} bytes are free, {script}");
        assert_eq!(said(&id), usize::from(free < 200), "{free} bytes are free, {script}");
    }
}

fn a_run_with_full_metadata_ends_as_what_it_was(stage: &Stage) {
    ends(stage, None);
}

fn a_run_with_full_metadata_ends_as_what_it_was_from_far_away(stage: &Stage) {
    let (_server, address) = server(stage, &["server"], &[]);
    ends(stage, Some(&format!("http://{address}")));
}
