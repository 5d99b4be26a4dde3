//! Task directories that are removed while commands run.

use tidemill_core::run::RunState;

use super::ground::{Site, graph};
use crate::stage::{Stage, on_both};

on_both!(removed_directories_do_not_block_an_agent, restarted_agent_runs_nothing_beside_a_lost_command);

/// Four commands that remove their directories fill an agent of capacity 4. Each ends, frees its slot and is retried.
fn removed_directories_do_not_block_an_agent(stage: &Stage) {
    let site = Site::start(stage);
    let mut agent = site.agent("ann", &["--capacity", "4"]);
    let work = "if [ \"$TIDEMILL_ATTEMPT\" = 1 ]; then cd /; rm -rf \"$TIDEMILL_TASK_DIR\"; sleep 1000; fi";
    let mut jobs: Vec<String> =
        (0..4).map(|number| site.step(&format!("gone{number}"), &[], work, "timeout: 1h")).collect();
    jobs.push(site.step("next", &["gone0", "gone1", "gone2", "gone3"], "true", ""));
    let run = site.submit(&graph(&jobs));
    assert_eq!(site.until_ended(&run), RunState::Success, "{:?}", site.codes(&run));
    for number in 0..4 {
        assert_eq!(site.ledger().count(&format!("begin gone{number} ")), 2);
        let tasks = site.job(&run, &format!("gone{number}"))["tasks"].to_string();
        assert!(tasks.contains("the directory of the task"), "{tasks}");
    }
    site.check(&run);
    agent.kill();
}

/// An agent is killed while its command runs, the command's directory is removed, and the agent comes back.
fn restarted_agent_runs_nothing_beside_a_lost_command(stage: &Stage) {
    let site = Site::start(stage);
    let mut agent = site.agent("ann", &[]);
    let work = "if [ \"$TIDEMILL_ATTEMPT\" = 1 ]; then cd /; sleep 1000; fi";
    let run = site.submit(&graph(&[site.step("alone", &[], work, "")]));
    site.until_written("begin alone 1");
    agent.kill();
    std::fs::remove_dir_all(site.task_dir("ann", &run, "alone")).expect("the directory is removed");
    let mut agent = site.agent("ann", &[]);
    assert_eq!(site.until_ended(&run), RunState::Success, "{:?}", site.codes(&run));
    assert_eq!(site.ledger().count("begin alone "), 2, "{:?}", site.ledger());
    site.check(&run);
    agent.kill();
}
