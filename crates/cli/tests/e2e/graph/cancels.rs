//! Cancel before anything began, while it waits, while it runs, twice, and while the agent is away: the job ends as
//! cancelled, and the command is dead before its room is free.

use rustix::process::Signal;
use serde_json::json;
use tidemill_core::run::RunState;

use super::ground::{PATIENCE, Site, graph};
use crate::process::is_alive;
use crate::stage::{Stage, on_both, until_within};

on_both!(
    what_has_not_begun_is_cancelled_without_an_order,
    a_command_is_dead_before_its_room_is_free,
    a_cancel_reaches_an_agent_that_was_away,
    one_job_is_cancelled_and_the_others_go_on,
);

fn what_has_not_begun_is_cancelled_without_an_order(stage: &Stage) {
    let site = Site::start(stage);
    let run = site
        .submit(&graph(&[site.step("first", &[], "true", ""), site.step("second", &["first"], "true", "")]));
    site.until_code(&run, "second", "waiting_on_dependencies");
    site.until_code(&run, "first", "waiting_on_workers");
    let said = stage.ok(&["graph", "cancel", run.as_str(), "--reason", "wrong branch"]);
    assert!(said.contains("2 jobs"), "{said}");
    assert_eq!(site.until_ended(&run), RunState::Cancelled);
    let codes = site.codes(&run);
    assert!(codes.values().all(|code| code == "cancelled_by_user"), "{codes:?}");
    // Where no task was made, there is none to stop.
    let tasks = stage.sql("SELECT task_id FROM ops.tasks").expect("tasks are read");
    assert_eq!(tasks, Vec::<String>::new());
    let again = stage.tidemill(&["run", "cancel", run.as_str()]);
    assert_eq!(again.code, Some(3), "{again:?}");
    assert!(again.stderr.contains("nothing to cancel"), "{again:?}");
    let _agent = site.agent("ann", &[]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(site.ledger().0, Vec::<String>::new());
    site.check(&run);
}

fn a_command_is_dead_before_its_room_is_free(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &["--capacity", "1", "--grace", "2s"]);
    // It does not want to end, and has a child that does not either.
    let work = "trap '' TERM; (trap '' TERM; sleep 600) & sleep 600";
    let run = site.submit(&graph(&[site.step("stubborn", &[], work, "")]));
    site.until_written("begin stubborn");
    site.until_code(&run, "stubborn", "executing");
    let pid = site.ledger().pid("stubborn");
    let after = site.submit(&graph(&[site.step("after", &[], "true", "")]));
    stage.ok(&["graph", "cancel", run.as_str()]);
    // Asked twice, it is one wish; or the graph has ended by now, and it says so.
    let again = stage.tidemill(&["graph", "cancel", run.as_str()]);
    assert!(matches!(again.code, Some(0 | 3)), "{again:?}");
    // The person has their answer at once; the room is free when nothing runs any more.
    site.until_code(&run, "stubborn", "cancelled_by_user");
    until_within("the next job begins", PATIENCE, || {
        let has_begun = site.ledger().count("begin after") > 0;
        assert!(!has_begun || !is_alive(pid), "the next job began while the command was alive");
        has_begun.then_some(())
    });
    assert_eq!(site.until_ended(&after), RunState::Success);
    assert_eq!(site.until_ended(&run), RunState::Cancelled);
    let job = site.job(&run, "stubborn");
    let kinds: Vec<_> = job["tasks"].as_array().unwrap().iter().map(|task| task["kind"].clone()).collect();
    assert_eq!(kinds, [json!("RUNJOB"), json!("CANCELJOB")], "{job}");
    assert_eq!(site.ledger().count("end stubborn"), 0);
    site.check(&run);
}

fn a_cancel_reaches_an_agent_that_was_away(stage: &Stage) {
    let site = Site::start(stage);
    let mut agent = site.agent("ann", &["--capacity", "1"]);
    let run = site.submit(&graph(&[site.step("long", &[], "sleep 600", "")]));
    site.until_written("begin long");
    site.until_code(&run, "long", "executing");
    let pid = site.ledger().pid("long");
    agent.kill();
    stage.ok(&["graph", "cancel", run.as_str()]);
    site.until_code(&run, "long", "cancelled_by_user");
    // Nobody has confirmed: its room is not free, and whoever waits is told so.
    let waiting = site.submit(&graph(&[site.step("waits", &[], "true", "")]));
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(is_alive(pid), "nobody could stop it yet");
    assert_eq!(site.ledger().count("begin waits"), 0);
    let shown = stage.json(&["job", "show", &format!("{run}/long")]);
    assert_eq!(shown["job"]["stopping"], json!(true), "{shown}");
    let _agent = site.agent("ann", &["--capacity", "1", "--grace", "2s"]);
    assert_eq!(site.until_ended(&waiting), RunState::Success);
    assert!(!is_alive(pid), "the command is dead");
    assert_eq!(site.until_ended(&run), RunState::Cancelled);
    site.check(&run);
}

fn one_job_is_cancelled_and_the_others_go_on(stage: &Stage) {
    let site = Site::start(stage);
    let mut agent = site.agent("ann", &[]);
    let run = site.submit(&graph(&[
        site.step("stopped", &[], "sleep 600", ""),
        site.step("after", &["stopped"], "true", ""),
        site.step("beside", &[], "true", ""),
    ]));
    site.until_written("begin stopped");
    let unknown = stage.tidemill(&["graph", "cancel", run.as_str(), "--job", "nope"]);
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    assert!(unknown.stderr.contains("has no job `nope`"), "{unknown:?}");
    stage.ok(&["graph", "cancel", run.as_str(), "--job", "stopped"]);
    assert_eq!(site.until_ended(&run), RunState::Cancelled, "nothing failed otherwise");
    let codes = site.codes(&run);
    assert_eq!(codes["stopped"], "cancelled_by_user");
    assert_eq!(codes["beside"], "succeeded");
    assert_eq!(codes["after"], "dependency_failed");
    site.check(&run);
    agent.signal(Signal::TERM);
    assert_eq!(agent.ended_within(PATIENCE), Some(0));
}
