//! Task directories that are removed while commands run.

use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, graph};
use crate::fixture::{Fixture, on_both};

on_both!(removed_directories_do_not_block_an_agent, restarted_agent_runs_nothing_beside_a_lost_command);

/// Four commands that remove their directories fill an agent of capacity 4. Each ends, frees its slot and is retried.
fn removed_directories_do_not_block_an_agent(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let mut agent = graphs.agent("ann", &["--capacity", "4"]);
    let work = "if [ \"$TIDEMILL_ATTEMPT\" = 1 ]; then cd /; rm -rf \"$TIDEMILL_TASK_DIR\"; sleep 1000; fi";
    let mut jobs: Vec<String> =
        (0..4).map(|number| graphs.step(&format!("gone{number}"), &[], work, "timeout: 1h")).collect();
    jobs.push(graphs.step("next", &["gone0", "gone1", "gone2", "gone3"], "true", ""));
    let run = graphs.submit(&graph(&jobs));
    assert_eq!(graphs.wait_for_end(&run), RunState::Success, "{:?}", graphs.codes(&run));
    for number in 0..4 {
        assert_eq!(graphs.ledger().count(&format!("begin gone{number} ")), 2);
        let tasks = graphs.job(&run, &format!("gone{number}"))["tasks"].to_string();
        assert!(tasks.contains("the directory of the task"), "{tasks}");
    }
    graphs.check(&run);
    agent.kill();
}

/// The directory of a running command is removed while its agent is dead.
fn restarted_agent_runs_nothing_beside_a_lost_command(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let mut agent = graphs.agent("ann", &[]);
    let work = "if [ \"$TIDEMILL_ATTEMPT\" = 1 ]; then cd /; sleep 1000; fi";
    let run = graphs.submit(&graph(&[graphs.step("alone", &[], work, "")]));
    graphs.wait_for_line("begin alone 1");
    agent.kill();
    std::fs::remove_dir_all(graphs.task_dir("ann", &run, "alone")).expect("the directory is removed");
    let mut agent = graphs.agent("ann", &[]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Success, "{:?}", graphs.codes(&run));
    assert_eq!(graphs.ledger().count("begin alone "), 2, "{:?}", graphs.ledger());
    graphs.check(&run);
    agent.kill();
}
