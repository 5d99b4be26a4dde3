//! Stalled runs in `run list`, `run show`, `run why`, `doctor` and `run fail`, with the database and with a server.

use super::remote;
use super::server::Server;
use crate::fixture::{Fixture, on_both};
use serde_json::Value;
use tidemill_core::RunId;
use tidemill_core::run::{QueueRun, RunState};
use tidemill_store::{ClaimRuns, Holder};

on_both!(stalled_run_is_shown_and_failed_by_one_command);

/// Starts a run with a worker that requests no lease, and sweeps as if six minutes had passed.
fn stall_run(fixture: &Fixture) -> RunId {
    let run = fixture.request(QueueRun::new("shop", "staging"));
    let engine = &fixture.engine;
    fixture.block(async {
        let ask = ClaimRuns { lease_secs: None, ..ClaimRuns::one("worker-1") };
        engine.claim(ask).await.expect("the run is claimed");
        engine.start(&run, &Holder::default()).await.expect("the run starts");
        let later = engine.store().now(None).await.expect("the time is read") + chrono::TimeDelta::minutes(6);
        engine.store().sweep(100, 3_600.0, Some(later)).await.expect("the sweep succeeds");
    });
    run
}

fn stalled_run_is_shown_and_failed_by_one_command(fixture: &Fixture) {
    let run = stall_run(fixture);
    let id = run.as_str();
    assert!(fixture.ok(&["run", "list"]).contains("running (stalled)"));
    assert!(fixture.ok(&["run", "show", id]).contains("running (stalled)"));
    let why = fixture.json(&["run", "why", id]);
    assert_eq!((why["code"].as_str(), why["worker"].as_str()), (Some("stalled"), Some("worker-1")));
    assert_eq!(why["hint"].as_str(), Some(format!("tidemill run fail {id}").as_str()));
    let doctor = fixture.tidemill(&["doctor"]);
    assert_eq!(doctor.code, Some(3));
    assert!(doctor.stdout.contains(&format!("tidemill run fail {id}")), "{}", doctor.stdout);
    let printed = fixture.ok(&["run", "fail", id, "--reason", "the host is gone"]);
    assert_eq!(printed.trim(), format!("run {id} is failed"));
    assert_eq!(fixture.run(&run).metadata["reason"], "the host is gone");
    assert_eq!(fixture.tries(&run).len(), 1);

    let server = Server::start(fixture);
    let run = stall_run(fixture);
    let id = run.as_str();
    let failed: Value = remote(fixture, &server, &["--json", "run", "fail", id, "--retry"]).value();
    let tries = fixture.tries(&run);
    assert_eq!((tries[0].status, tries.len()), (RunState::Failed, 2));
    assert_eq!(failed["successor"].as_str(), Some(tries[1].run_id.as_str()));
    let again: Value = remote(fixture, &server, &["--json", "run", "fail", id, "--retry"]).value();
    assert_eq!((&again["outcome"], &again["successor"]), (&Value::from("duplicate"), &failed["successor"]));

    let queued = tries[1].run_id.as_str();
    let local = fixture.tidemill(&["run", "fail", queued]);
    let refused = remote(fixture, &server, &["run", "fail", queued]);
    assert_eq!((local.code, refused.code), (Some(3), Some(3)));
    for printed in [local.stderr, refused.stderr] {
        assert!(printed.contains(&format!("run {queued} is queued, and not stalled")), "{printed}");
    }
}
