//! Pauses, maintenance and reboots: jobs are reset, wait with a reason, and continue.

use serde_json::json;
use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, TIMEOUT, graph};
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::process::is_alive;

on_both!(
    pause_holds_jobs_that_have_not_started,
    maintenance_resets_jobs_that_use_the_database,
    reboot_is_safe_when_no_task_runs,
    probe_sets_and_clears_maintenance,
);

fn pause_holds_jobs_that_have_not_started(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    fixture.ok(&["flag", "set", "paused", "--scope", "lane:graph", "--note", "audit"]);
    let run = graphs.submit(&graph(&[graphs.step("held", &[], "true", "")]));
    graphs.wait_for_code(&run, "held", "paused");
    let why = fixture.tidemill(&["job", "why", &format!("{run}/held")]);
    assert!(why.stdout.contains("audit"), "{why:?}");
    assert!(why.stderr.contains("tidemill flag clear paused --scope lane:graph"), "{why:?}");
    let listed = fixture.ok(&["flag", "list"]);
    assert!(listed.contains("lane:graph") && listed.contains("audit"), "{listed}");
    assert!(fixture.ok(&["flag", "clear", "paused", "--scope", "lane:graph"]).contains("is cleared"));
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    let strange = fixture.tidemill(&["flag", "set", "maintenance", "--scope", "project:shop"]);
    assert_eq!(strange.code, Some(3), "{strange:?}");
    graphs.check(&run);
}

fn maintenance_resets_jobs_that_use_the_database(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &["--grace", "2s"]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = graphs.submit(&graph(&[
        graphs.step("reader", &[], work, "pool: database"),
        graphs.step("other", &[], "sleep 1", ""),
    ]));
    graphs.wait_for_line("begin reader");
    graphs.wait_for_code(&run, "reader", "executing");
    let pid = graphs.ledger().pid("reader");
    fixture.ok(&["flag", "set", "maintenance", "--note", "vacuum"]);
    graphs.wait_for_code(&run, "reader", "waiting_db_maintenance");
    wait_until_within("the command is stopped", TIMEOUT, || (!is_alive(pid)).then_some(()));
    // Jobs that do not use the database continue.
    graphs.wait_for_code(&run, "other", "succeeded");
    assert_eq!(graphs.ledger().count("begin reader"), 1);
    fixture.ok(&["flag", "clear", "maintenance"]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    assert_eq!(graphs.ledger().count("begin reader"), 2);
    graphs.check(&run);
}

fn reboot_is_safe_when_no_task_runs(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &["--grace", "2s"]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = graphs
        .submit(&graph(&[graphs.step("long", &[], work, ""), graphs.step("next", &["long"], "true", "")]));
    graphs.wait_for_line("begin long");
    graphs.wait_for_code(&run, "long", "executing");
    let pid = graphs.ledger().pid("long");
    let idle = fixture.tidemill(&["prepare-for-reboot", "--status"]);
    assert_eq!(idle.code, Some(3), "{idle:?}");
    fixture.ok(&["prepare-for-reboot", "--note", "kernel"]);
    wait_until_within("the reboot is safe", TIMEOUT, || {
        let status = fixture.tidemill(&["--json", "prepare-for-reboot", "--status"]);
        if status.code == Some(0) {
            assert!(!is_alive(pid), "the reboot is reported as safe while a command runs");
            assert_eq!(status.value()["safe"], json!(true));
            return Some(());
        }
        None
    });
    assert_eq!(graphs.code(&run, "long"), "waiting_on_reboot");
    assert!(fixture.ok(&["job", "why", &format!("{run}/long")]).contains("kernel"));
    assert!(fixture.ok(&["prepare-for-reboot", "--cancel"]).contains("jobs are resumed"));
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    assert_eq!(graphs.ledger().count("begin long"), 2);
    graphs.check(&run);
}

fn probe_sets_and_clears_maintenance(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let down = fixture.write("down", "");
    let probe = format!("test -e {} && {{ echo busy; exit 3; }}; exit 0", down.display());
    let _agent = graphs.agent("ann", &["--probe", &probe, "--probe-every", "200ms"]);
    let flags = || fixture.json(&["flag", "list"]).to_string();
    wait_until_within("the probe sets the flag", TIMEOUT, || flags().contains("\"probe\"").then_some(()));
    let run = graphs.submit(&graph(&[graphs.step("reader", &[], "true", "pool: database")]));
    graphs.wait_for_code(&run, "reader", "waiting_db_maintenance");
    // The probe does not clear a flag that an operator set.
    fixture.ok(&["flag", "set", "maintenance", "--note", "mine"]);
    std::fs::remove_file(&down).expect("the file is removed");
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(flags().contains("mine"), "{}", flags());
    fixture.ok(&["flag", "clear", "maintenance"]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    graphs.check(&run);
}
