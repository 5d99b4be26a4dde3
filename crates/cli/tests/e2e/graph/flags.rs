//! Pauses, maintenance and restarts: jobs are reset, wait with a reason, and go on.

use serde_json::json;
use tidemill_core::run::RunState;

use super::ground::{PATIENCE, Site, graph};
use crate::process::is_alive;
use crate::stage::{Stage, on_both, until_within};

on_both!(
    a_pause_holds_what_has_not_begun,
    maintenance_resets_jobs_that_use_the_database,
    a_restart_is_safe_when_nothing_runs,
    a_probe_raises_maintenance_and_clears_it,
);

fn a_pause_holds_what_has_not_begun(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    stage.ok(&["flag", "set", "paused", "--scope", "lane:graph", "--note", "audit"]);
    let run = site.submit(&graph(&[site.step("held", &[], "true", "")]));
    site.until_code(&run, "held", "paused");
    let why = stage.tidemill(&["job", "why", &format!("{run}/held")]);
    assert!(why.stdout.contains("audit"), "{why:?}");
    assert!(why.stderr.contains("tidemill flag clear paused --scope lane:graph"), "{why:?}");
    let listed = stage.ok(&["flag", "list"]);
    assert!(listed.contains("lane:graph") && listed.contains("audit"), "{listed}");
    assert!(stage.ok(&["flag", "clear", "paused", "--scope", "lane:graph"]).contains("is off"));
    assert_eq!(site.until_ended(&run), RunState::Success);
    let strange = stage.tidemill(&["flag", "set", "maintenance", "--scope", "project:shop"]);
    assert_eq!(strange.code, Some(3), "{strange:?}");
    site.check(&run);
}

fn maintenance_resets_jobs_that_use_the_database(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &["--grace", "2s"]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = site.submit(&graph(&[
        site.step("reader", &[], work, "pool: database"),
        site.step("other", &[], "sleep 1", ""),
    ]));
    site.until_written("begin reader");
    site.until_code(&run, "reader", "executing");
    let pid = site.ledger().pid("reader");
    stage.ok(&["flag", "set", "maintenance", "--note", "vacuum"]);
    site.until_code(&run, "reader", "waiting_db_maintenance");
    until_within("the command is stopped", PATIENCE, || (!is_alive(pid)).then_some(()));
    // What does not use the database goes on.
    site.until_code(&run, "other", "succeeded");
    assert_eq!(site.ledger().count("begin reader"), 1);
    stage.ok(&["flag", "clear", "maintenance"]);
    assert_eq!(site.until_ended(&run), RunState::Success);
    assert_eq!(site.ledger().count("begin reader"), 2);
    site.check(&run);
}

fn a_restart_is_safe_when_nothing_runs(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &["--grace", "2s"]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run =
        site.submit(&graph(&[site.step("long", &[], work, ""), site.step("next", &["long"], "true", "")]));
    site.until_written("begin long");
    site.until_code(&run, "long", "executing");
    let pid = site.ledger().pid("long");
    let idle = stage.tidemill(&["prepare-for-reboot", "--status"]);
    assert_eq!(idle.code, Some(3), "{idle:?}");
    stage.ok(&["prepare-for-reboot", "--note", "kernel"]);
    until_within("it is safe", PATIENCE, || {
        let status = stage.tidemill(&["--json", "prepare-for-reboot", "--status"]);
        if status.code == Some(0) {
            assert!(!is_alive(pid), "it is said to be safe while a command runs");
            assert_eq!(status.value()["safe"], json!(true));
            return Some(());
        }
        None
    });
    assert_eq!(site.code(&run, "long"), "waiting_on_reboot");
    assert!(stage.ok(&["job", "why", &format!("{run}/long")]).contains("kernel"));
    assert!(stage.ok(&["prepare-for-reboot", "--cancel"]).contains("go on"));
    assert_eq!(site.until_ended(&run), RunState::Success);
    assert_eq!(site.ledger().count("begin long"), 2);
    site.check(&run);
}

fn a_probe_raises_maintenance_and_clears_it(stage: &Stage) {
    let site = Site::start(stage);
    let down = stage.write("down", "");
    let probe = format!("test -e {} && {{ echo busy; exit 3; }}; exit 0", down.display());
    let _agent = site.agent("ann", &["--probe", &probe, "--probe-every", "200ms"]);
    let flags = || stage.json(&["flag", "list"]).to_string();
    until_within("the probe raises it", PATIENCE, || flags().contains("\"probe\"").then_some(()));
    let run = site.submit(&graph(&[site.step("reader", &[], "true", "pool: database")]));
    site.until_code(&run, "reader", "waiting_db_maintenance");
    // A person's word counts more: the probe does not clear it.
    stage.ok(&["flag", "set", "maintenance", "--note", "mine"]);
    std::fs::remove_file(&down).expect("it is mended");
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(flags().contains("mine"), "{}", flags());
    stage.ok(&["flag", "clear", "maintenance"]);
    assert_eq!(site.until_ended(&run), RunState::Success);
    site.check(&run);
}
