//! Agents, supervisors and servers that die, in every stage: nothing runs twice at the same time, no result is lost,
//! and no job is stuck.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tidemill_core::run::RunState;

use super::ground::{PATIENCE, Site, graph};
use crate::process::{is_alive, signal_to};
use crate::stage::{Stage, on_both, until_within};

on_both!(
    a_command_outlives_its_agent,
    an_agent_that_is_killed_again_and_again_loses_nothing,
    a_command_whose_supervisor_is_killed_runs_again,
    a_server_that_is_killed_costs_no_job,
    an_agent_that_never_began_loses_its_task_to_others,
    what_a_forgotten_agent_had_goes_to_others,
);

/// The result of a command that ended while nobody was there to see it is found by the next process of its agent.
fn a_command_outlives_its_agent(stage: &Stage) {
    let site = Site::start(stage);
    let mut agent = site.agent("ann", &[]);
    let go = stage.path("go");
    let work = format!("while ! test -e {}; do sleep 0.05; done; echo done > done.txt", go.display());
    let run = site.submit(&graph(&[
        site.step("long", &[], &work, "outputs: {done: done.txt}"),
        site.step("next", &["long"], "cat done.txt", ""),
    ]));
    site.until_written("begin long");
    site.until_code(&run, "long", "executing");
    agent.kill();
    let pid = site.ledger().pid("long");
    assert!(is_alive(pid), "the command lives on");
    stage.write("go", "");
    site.until_written("end long");
    let _agent = site.agent("ann", &[]);
    assert_eq!(site.until_ended(&run), RunState::Success);
    assert_eq!(site.ledger().count("begin long"), 1, "{:?}", site.ledger());
    assert_eq!(stage.ok(&["graph", "logs", run.as_str(), "next"]).trim(), "done");
    site.check(&run);
}

/// Killed at moments that fall into every stage of some job: while it takes, prepares, starts, waits, collects or
/// reports.
fn an_agent_that_is_killed_again_and_again_loses_nothing(stage: &Stage) {
    let site = Site::start(stage);
    let mut steps = Vec::new();
    let names: Vec<String> = (0..12).map(|number| format!("job-{number:02}")).collect();
    for (number, name) in names.iter().enumerate() {
        let needs: Vec<&str> = if number < 3 { Vec::new() } else { vec![names[number - 3].as_str()] };
        let work = format!("sleep 0.{}; seq 1 1000 > {name}.txt", number % 4);
        steps.push(site.step(name, &needs, &work, &format!("outputs: {{made: {name}.txt}}")));
    }
    let run = site.submit(&graph(&steps));
    let mut deaths = 0;
    while !stage.run(&run).status.is_terminal() && deaths < 25 {
        let mut agent = site.agent("ann", &[]);
        // A little longer each time, so that the deaths fall into all stages.
        std::thread::sleep(Duration::from_millis(250 + 37 * (deaths % 9)));
        agent.kill();
        deaths += 1;
    }
    assert!(deaths >= 3, "the graph was over before the agent could die");
    let _agent = site.agent("ann", &[]);
    assert_eq!(site.until_ended(&run), RunState::Success, "{:?}", site.codes(&run));
    // Whatever was killed: no command was begun a second time, for each outlived the agent.
    let ledger = site.ledger();
    for name in &names {
        assert_eq!(ledger.count(&format!("begin {name} ")), 1, "{name}: {ledger:?}");
        assert_eq!(ledger.count(&format!("end {name}")), 1, "{name}: {ledger:?}");
    }
    site.check(&run);
}

/// Without its supervisor nobody knows how the command ended: it dies with it, and another task does it again.
fn a_command_whose_supervisor_is_killed_runs_again(stage: &Stage) {
    let site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = site.submit(&graph(&[site.step("fragile", &[], work, "")]));
    site.until_written("begin fragile");
    site.until_code(&run, "fragile", "executing");
    let pid = site.ledger().pid("fragile");
    let supervisor = parent(pid);
    assert!(command_of(supervisor).contains("lasting"), "{}", command_of(supervisor));
    signal_to(supervisor, Signal::KILL);
    until_within("the command dies with it", PATIENCE, || (!is_alive(pid)).then_some(()));
    assert_eq!(site.until_ended(&run), RunState::Success);
    let job = site.job(&run, "fragile");
    assert_eq!((&job["job"]["tasks"], &job["job"]["errors"]), (&json!(2), &json!(1)), "{job}");
    let codes = job["changes"].to_string();
    assert!(codes.contains("waiting_on_new_task"), "{codes}");
    assert_eq!(site.ledger().count("begin fragile"), 2);
    site.check(&run);
}

/// Agents wait for the server, and commands do not notice.
fn a_server_that_is_killed_costs_no_job(stage: &Stage) {
    let mut site = Site::start(stage);
    let _agent = site.agent("ann", &[]);
    let work = "sleep 1; echo done > done.txt";
    let run = site.submit(&graph(&[
        site.step("long", &[], work, "outputs: {done: done.txt}"),
        site.step("next", &["long"], "cat done.txt", ""),
    ]));
    site.until_written("begin long");
    site.server.kill();
    site.until_written("end long");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(site.code(&run, "next"), "waiting_on_dependencies");
    site.restart_server();
    assert_eq!(site.until_ended(&run), RunState::Success);
    let ledger = site.ledger();
    assert_eq!((ledger.count("begin long"), ledger.count("begin next")), (1, 1), "{ledger:?}");
    site.check(&run);
}

/// A frozen agent has not taken its task: it goes to another one. When it thaws, it does not begin it.
fn an_agent_that_never_began_loses_its_task_to_others(stage: &Stage) {
    let site = Site::start(stage);
    let mut frozen = site.agent("frozen", &["--label", "frozen"]);
    let _first = site.submit(&graph(&[site.step("warm", &[], "true", "labels: [frozen]")]));
    site.until_written("end warm");
    until_within("it is idle again", PATIENCE, || {
        stage.sql("SELECT task_id FROM ops.tasks WHERE active").expect("tasks").is_empty().then_some(())
    });
    frozen.signal(Signal::STOP);
    let run = site.submit(&graph(&[site.step("work", &[], "true", "")]));
    site.until_code(&run, "work", "initiated");
    let _other = site.agent("other", &[]);
    assert_eq!(site.until_ended(&run), RunState::Success);
    frozen.signal(Signal::CONT);
    std::thread::sleep(Duration::from_secs(2));
    let job = site.job(&run, "work");
    assert_eq!(job["tasks"][0]["end"], json!("withdrawn"), "{job}");
    assert_eq!((&job["job"]["errors"], &job["job"]["tasks"]), (&json!(0), &json!(2)), "{job}");
    assert_eq!(site.ledger().count("begin work"), 1, "{:?}", site.ledger());
    site.check(&run);
}

/// `agent forget` is a person's word that nothing of it runs any more.
fn what_a_forgotten_agent_had_goes_to_others(stage: &Stage) {
    let site = Site::start(stage);
    let mut gone = site.agent("gone", &[]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = site.submit(&graph(&[site.step("work", &[], work, "")]));
    site.until_written("begin work");
    site.until_code(&run, "work", "executing");
    gone.kill();
    // The machine is gone: the supervisor, the command, and what that started.
    let pid = site.ledger().pid("work");
    signal_to(parent(pid), Signal::KILL);
    let group = Pid::from_raw(pid).expect("a process id is not zero");
    let _ = kill_process_group(group, Signal::KILL);
    until_within("nothing of it runs", PATIENCE, || (!is_alive(pid)).then_some(()));
    let _other = site.agent("other", &[]);
    assert!(stage.ok(&["agent", "forget", "gone", "--force"]).contains("forgotten"));
    assert_eq!(site.until_ended(&run), RunState::Success);
    assert_eq!(site.ledger().count("begin work"), 2);
    assert_eq!(site.job(&run, "work")["tasks"][0]["end"], json!("forgotten"));
    site.check(&run);
}

/// The parent of a process.
pub(crate) fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    fields.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a process id")
}

/// The words that a process was started with.
pub(crate) fn command_of(pid: i32) -> String {
    let words = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}
