//! Deaths of agents, supervisors and servers: no command runs twice at once, no result is lost, and no job is stuck.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tidemill_core::run::RunState;

use super::fixture::{GraphFixture, TIMEOUT, graph};
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::process::{is_alive, signal_to};

on_both!(
    command_outlives_its_agent,
    repeatedly_killed_agent_loses_no_job,
    command_whose_supervisor_is_killed_runs_again,
    killed_server_loses_no_job,
    frozen_agent_loses_an_unstarted_task,
    jobs_of_a_forgotten_agent_go_to_other_agents,
);

/// The next process of the agent finds the result of a command that ended without an agent.
fn command_outlives_its_agent(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let mut agent = graphs.agent("ann", &[]);
    let go = fixture.path("go");
    let work = format!("while ! test -e {}; do sleep 0.05; done; echo done > done.txt", go.display());
    let run = graphs.submit(&graph(&[
        graphs.step("long", &[], &work, "outputs: {done: done.txt}"),
        graphs.step("next", &["long"], "cat done.txt", ""),
    ]));
    graphs.wait_for_line("begin long");
    graphs.wait_for_code(&run, "long", "executing");
    agent.kill();
    let pid = graphs.ledger().pid("long");
    assert!(is_alive(pid), "the command is alive");
    fixture.write("go", "");
    graphs.wait_for_line("end long");
    let _agent = graphs.agent("ann", &[]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    assert_eq!(graphs.ledger().count("begin long"), 1, "{:?}", graphs.ledger());
    assert_eq!(fixture.ok(&["graph", "logs", run.as_str(), "next"]).trim(), "done");
    graphs.check(&run);
}

/// The kills happen in every stage of some job: accept, prepare, start, wait, collect and report.
fn repeatedly_killed_agent_loses_no_job(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let mut steps = Vec::new();
    let names: Vec<String> = (0..12).map(|number| format!("job-{number:02}")).collect();
    for (number, name) in names.iter().enumerate() {
        let needs: Vec<&str> = if number < 3 { Vec::new() } else { vec![names[number - 3].as_str()] };
        let work = format!("sleep 0.{}; seq 1 1000 > {name}.txt", number % 4);
        steps.push(graphs.step(name, &needs, &work, &format!("outputs: {{made: {name}.txt}}")));
    }
    let run = graphs.submit(&graph(&steps));
    let mut deaths = 0;
    while !fixture.run(&run).status.is_terminal() && deaths < 25 {
        let mut agent = graphs.agent("ann", &[]);
        // Increasing delays, so that the kills happen in all stages.
        std::thread::sleep(Duration::from_millis(250 + 37 * (deaths % 9)));
        agent.kill();
        deaths += 1;
    }
    assert!(deaths >= 3, "the graph ended before the agent was killed");
    let _agent = graphs.agent("ann", &[]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Success, "{:?}", graphs.codes(&run));
    // No command started twice, because each outlived the agent.
    let ledger = graphs.ledger();
    for name in &names {
        assert_eq!(ledger.count(&format!("begin {name} ")), 1, "{name}: {ledger:?}");
        assert_eq!(ledger.count(&format!("end {name}")), 1, "{name}: {ledger:?}");
    }
    graphs.check(&run);
}

/// The command dies with its supervisor, because its result would be unknown, and another task runs it again.
fn command_whose_supervisor_is_killed_runs_again(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = graphs.submit(&graph(&[graphs.step("fragile", &[], work, "")]));
    graphs.wait_for_line("begin fragile");
    graphs.wait_for_code(&run, "fragile", "executing");
    let pid = graphs.ledger().pid("fragile");
    let supervisor = parent(pid);
    assert!(command_of(supervisor).contains("lasting"), "{}", command_of(supervisor));
    signal_to(supervisor, Signal::KILL);
    wait_until_within("the command dies with it", TIMEOUT, || (!is_alive(pid)).then_some(()));
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    let job = graphs.job(&run, "fragile");
    assert_eq!((&job["job"]["tasks"], &job["job"]["errors"]), (&json!(2), &json!(1)), "{job}");
    let codes = job["changes"].to_string();
    assert!(codes.contains("waiting_on_new_task"), "{codes}");
    assert_eq!(graphs.ledger().count("begin fragile"), 2);
    graphs.check(&run);
}

/// Agents wait for the server, and commands are not affected.
fn killed_server_loses_no_job(fixture: &Fixture) {
    let mut graphs = GraphFixture::start(fixture);
    let _agent = graphs.agent("ann", &[]);
    let work = "sleep 1; echo done > done.txt";
    let run = graphs.submit(&graph(&[
        graphs.step("long", &[], work, "outputs: {done: done.txt}"),
        graphs.step("next", &["long"], "cat done.txt", ""),
    ]));
    graphs.wait_for_line("begin long");
    graphs.server.kill();
    graphs.wait_for_line("end long");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(graphs.code(&run, "next"), "waiting_on_dependencies");
    graphs.restart_server();
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    let ledger = graphs.ledger();
    assert_eq!((ledger.count("begin long"), ledger.count("begin next")), (1, 1), "{ledger:?}");
    graphs.check(&run);
}

/// A frozen agent has not accepted its task, so another agent gets it. The thawed agent does not start it.
fn frozen_agent_loses_an_unstarted_task(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let mut frozen = graphs.agent("frozen", &["--label", "frozen"]);
    let _first = graphs.submit(&graph(&[graphs.step("warm", &[], "true", "labels: [frozen]")]));
    graphs.wait_for_line("end warm");
    wait_until_within("the agent is idle", TIMEOUT, || {
        fixture.sql("SELECT task_id FROM ops.tasks WHERE active").expect("tasks").is_empty().then_some(())
    });
    frozen.signal(Signal::STOP);
    let run = graphs.submit(&graph(&[graphs.step("work", &[], "true", "")]));
    graphs.wait_for_code(&run, "work", "initiated");
    let _other = graphs.agent("other", &[]);
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    frozen.signal(Signal::CONT);
    std::thread::sleep(Duration::from_secs(2));
    let job = graphs.job(&run, "work");
    assert_eq!(job["tasks"][0]["end"], json!("withdrawn"), "{job}");
    assert_eq!((&job["job"]["errors"], &job["job"]["tasks"]), (&json!(0), &json!(2)), "{job}");
    assert_eq!(graphs.ledger().count("begin work"), 1, "{:?}", graphs.ledger());
    graphs.check(&run);
}

/// `agent forget` declares that no command of the agent runs.
fn jobs_of_a_forgotten_agent_go_to_other_agents(fixture: &Fixture) {
    let graphs = GraphFixture::start(fixture);
    let mut gone = graphs.agent("gone", &[]);
    let work = "test \"$TIDEMILL_ATTEMPT\" -gt 1 || sleep 600";
    let run = graphs.submit(&graph(&[graphs.step("work", &[], work, "")]));
    graphs.wait_for_line("begin work");
    graphs.wait_for_code(&run, "work", "executing");
    gone.kill();
    // Simulates the loss of the machine: supervisor, command and its children.
    let pid = graphs.ledger().pid("work");
    signal_to(parent(pid), Signal::KILL);
    let group = Pid::from_raw(pid).expect("a process id is not zero");
    let _ = kill_process_group(group, Signal::KILL);
    wait_until_within("the command is dead", TIMEOUT, || (!is_alive(pid)).then_some(()));
    let _other = graphs.agent("other", &[]);
    assert!(fixture.ok(&["agent", "forget", "gone", "--force"]).contains("forgotten"));
    assert_eq!(graphs.wait_for_end(&run), RunState::Success);
    assert_eq!(graphs.ledger().count("begin work"), 2);
    assert_eq!(graphs.job(&run, "work")["tasks"][0]["end"], json!("forgotten"));
    graphs.check(&run);
}

/// Returns the parent of a process.
pub(crate) fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process exists");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    fields.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a process id")
}

/// Returns the command line of a process.
pub(crate) fn command_of(pid: i32) -> String {
    let words = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}
