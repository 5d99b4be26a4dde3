//! Cancel of waiting and running jobs: the job ends as cancelled, and its command is dead before its slot is free.

use rustix::process::Signal;
use serde_json::json;
use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, TIMEOUT, graph};
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::process::is_alive;

on_both!(
    unstarted_jobs_are_cancelled_without_a_task,
    cancelled_command_is_dead_before_its_slot_is_free,
    cancel_reaches_an_agent_after_its_restart,
    cancelled_job_does_not_stop_independent_jobs,
);

fn unstarted_jobs_are_cancelled_without_a_task(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let run = graphs.submit(&graph(&[
        graphs.step("first", &[], "true", ""),
        graphs.step("second", &["first"], "true", ""),
    ]));
    graphs.wait_for_code(&run, "second", "waiting_on_dependencies");
    graphs.wait_for_code(&run, "first", "waiting_on_workers");
    let printed = fixture.ok(&["graph", "cancel", run.as_str(), "--reason", "wrong branch"]);
    assert!(printed.contains("2 jobs"), "{printed}");
    assert_eq!(graphs.wait_for_end(&run), RunState::Cancelled);
    let codes = graphs.codes(&run);
    assert!(codes.values().all(|code| code == "cancelled_by_user"), "{codes:?}");
    // No task was created.
    let tasks = fixture.sql("SELECT task_id FROM ops.tasks").expect("tasks are read");
    assert_eq!(tasks, Vec::<String>::new());
    let again = fixture.tidemill(&["run", "cancel", run.as_str()]);
    assert_eq!(again.code, Some(3), "{again:?}");
    assert!(again.stderr.contains("has already ended: cancelled"), "{again:?}");
    let _agent = graphs.agent("ann", &[]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(graphs.ledger().0, Vec::<String>::new());
    graphs.check(&run);
}

fn cancelled_command_is_dead_before_its_slot_is_free(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &["--capacity", "1", "--grace", "2s"]);
    // The command and its child ignore SIGTERM.
    let work = "trap '' TERM; (trap '' TERM; sleep 600) & sleep 600";
    let run = graphs.submit(&graph(&[graphs.step("stubborn", &[], work, "")]));
    graphs.wait_for_line("begin stubborn");
    graphs.wait_for_code(&run, "stubborn", "executing");
    let pid = graphs.ledger().pid("stubborn");
    let after = graphs.submit(&graph(&[graphs.step("after", &[], "true", "")]));
    fixture.ok(&["graph", "cancel", run.as_str()]);
    // The second cancel has no effect, or reports that the graph has ended.
    let again = fixture.tidemill(&["graph", "cancel", run.as_str()]);
    assert!(matches!(again.code, Some(0 | 3)), "{again:?}");
    // The job is cancelled at once; its slot is free after the command is dead.
    graphs.wait_for_code(&run, "stubborn", "cancelled_by_user");
    wait_until_within("the next job starts", TIMEOUT, || {
        let has_begun = graphs.ledger().count("begin after") > 0;
        assert!(!has_begun || !is_alive(pid), "the next job started while the command was alive");
        has_begun.then_some(())
    });
    assert_eq!(graphs.wait_for_end(&after), RunState::Success);
    assert_eq!(graphs.wait_for_end(&run), RunState::Cancelled);
    let job = graphs.job(&run, "stubborn");
    let kinds: Vec<_> = job["tasks"].as_array().unwrap().iter().map(|task| task["kind"].clone()).collect();
    assert_eq!(kinds, [json!("RUNJOB"), json!("CANCELJOB")], "{job}");
    assert_eq!(graphs.ledger().count("end stubborn"), 0);
    graphs.check(&run);
}

fn cancel_reaches_an_agent_after_its_restart(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let mut agent = graphs.agent("ann", &["--capacity", "1"]);
    let run = graphs.submit(&graph(&[graphs.step("long", &[], "sleep 600", "")]));
    graphs.wait_for_line("begin long");
    graphs.wait_for_code(&run, "long", "executing");
    let pid = graphs.ledger().pid("long");
    agent.kill();
    fixture.ok(&["graph", "cancel", run.as_str()]);
    graphs.wait_for_code(&run, "long", "cancelled_by_user");
    // The cancel is not confirmed, so the slot is not free.
    let waiting = graphs.submit(&graph(&[graphs.step("waits", &[], "true", "")]));
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(is_alive(pid), "the agent is dead");
    assert_eq!(graphs.ledger().count("begin waits"), 0);
    let shown = fixture.json(&["job", "show", &format!("{run}/long")]);
    assert_eq!(shown["job"]["stopping"], json!(true), "{shown}");
    let _agent = graphs.agent("ann", &["--capacity", "1", "--grace", "2s"]);
    assert_eq!(graphs.wait_for_end(&waiting), RunState::Success);
    assert!(!is_alive(pid), "the command is dead");
    assert_eq!(graphs.wait_for_end(&run), RunState::Cancelled);
    graphs.check(&run);
}

fn cancelled_job_does_not_stop_independent_jobs(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let mut agent = graphs.agent("ann", &[]);
    let run = graphs.submit(&graph(&[
        graphs.step("stopped", &[], "sleep 600", ""),
        graphs.step("after", &["stopped"], "true", ""),
        graphs.step("independent", &[], "true", ""),
    ]));
    graphs.wait_for_line("begin stopped");
    let unknown = fixture.tidemill(&["graph", "cancel", run.as_str(), "--job", "nope"]);
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    assert!(unknown.stderr.contains("has no job `nope`"), "{unknown:?}");
    fixture.ok(&["graph", "cancel", run.as_str(), "--job", "stopped"]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Cancelled, "no other job failed");
    let codes = graphs.codes(&run);
    assert_eq!(codes["stopped"], "cancelled_by_user");
    assert_eq!(codes["independent"], "succeeded");
    assert_eq!(codes["after"], "dependency_failed");
    graphs.check(&run);
    agent.signal(Signal::TERM);
    assert_eq!(agent.wait_for_exit(TIMEOUT), Some(0));
}
