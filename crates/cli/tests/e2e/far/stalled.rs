//! Stalled runs as people meet them: `run list`, `run show`, `run why`, `doctor`, and `run fail` with the database and
//! through a server.

use super::far;
use super::server::Server;
use crate::stage::{Stage, on_both};
use serde_json::Value;
use tidemill_core::RunId;
use tidemill_core::run::{QueueRun, RunState};
use tidemill_store::{ClaimRuns, Holder};

on_both!(a_stalled_run_is_shown_and_failed_by_one_command);

/// Has a worker that promises nothing start a run, and sweeps as if it had been silent for six minutes.
fn stalled(stage: &Stage) -> RunId {
    let run = stage.request(QueueRun::new("shop", "staging"));
    let engine = &stage.engine;
    stage.block(async {
        let ask = ClaimRuns { lease_secs: None, ..ClaimRuns::one("worker-1") };
        engine.claim(ask).await.expect("it is claimed");
        engine.start(&run, &Holder::default()).await.expect("it starts");
        let later = engine.store().now(None).await.expect("a time") + chrono::TimeDelta::minutes(6);
        engine.store().sweep(100, 3_600.0, Some(later)).await.expect("it is swept");
    });
    run
}

fn a_stalled_run_is_shown_and_failed_by_one_command(stage: &Stage) {
    let run = stalled(stage);
    let id = run.as_str();
    assert!(stage.ok(&["run", "list"]).contains("running (stalled)"));
    assert!(stage.ok(&["run", "show", id]).contains("running (stalled)"));
    let why = stage.json(&["run", "why", id]);
    assert_eq!((why["code"].as_str(), why["worker"].as_str()), (Some("stalled"), Some("worker-1")));
    assert_eq!(why["hint"].as_str(), Some(format!("tidemill run fail {id}").as_str()));
    let doctor = stage.tidemill(&["doctor"]);
    assert_eq!(doctor.code, Some(3));
    assert!(doctor.stdout.contains(&format!("tidemill run fail {id}")), "{}", doctor.stdout);
    let said = stage.ok(&["run", "fail", id, "--reason", "the host is gone"]);
    assert_eq!(said.trim(), format!("run {id} is failed"));
    assert_eq!(stage.run(&run).metadata["reason"], "the host is gone");
    assert_eq!(stage.tries(&run).len(), 1);

    let server = Server::start(stage);
    let run = stalled(stage);
    let id = run.as_str();
    let failed: Value = far(stage, &server, &["--json", "run", "fail", id, "--retry"]).value();
    let tries = stage.tries(&run);
    assert_eq!((tries[0].status, tries.len()), (RunState::Failed, 2));
    assert_eq!(failed["successor"].as_str(), Some(tries[1].run_id.as_str()));
    let again: Value = far(stage, &server, &["--json", "run", "fail", id, "--retry"]).value();
    assert_eq!((&again["outcome"], &again["successor"]), (&Value::from("duplicate"), &failed["successor"]));

    let queued = tries[1].run_id.as_str();
    let near = stage.tidemill(&["run", "fail", queued]);
    let refused = far(stage, &server, &["run", "fail", queued]);
    assert_eq!((near.code, refused.code), (Some(3), Some(3)));
    for said in [near.stderr, refused.stderr] {
        assert!(said.contains(&format!("run {queued} is queued, and not stalled")), "{said}");
    }
}
