//! Agents that are killed in each stage of a task: the next process continues, and the command runs once.
//!
//! The files of the task and a proxy that holds requests back determine the time of the kill.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::RunState;

use super::fixture::{CONFIRMATION_LIFETIME, GraphFixture, TIMEOUT, graph, wait_for_file};
use super::proxy::{HoldingProxy, Side};
use crate::fixture::{Fixture, on_both, wait_until_within};
use crate::process::{Process, is_alive};

on_both!(
    agent_killed_after_accepting_the_order,
    agent_killed_before_the_confirmation_arrives,
    agent_killed_while_fetching_inputs,
    agent_killed_after_preparation,
    agent_killed_while_starting_the_command,
    agent_killed_while_the_command_runs,
    agent_killed_after_the_command_ended,
    agent_killed_while_collecting_outputs,
    agent_killed_after_writing_the_result,
    agent_killed_after_the_server_stored_the_result,
);

/// An agent that will be killed.
struct DeathCase<'s> {
    graphs: GraphFixture<'s>,
    proxy: HoldingProxy,
    agent: Process,
    run: RunId,
}

impl<'s> DeathCase<'s> {
    /// Starts the services, and calls `prepare` to set up the proxy before the graph is submitted.
    fn start<T>(
        fixture: &'s Fixture,
        jobs: &dyn Fn(&GraphFixture<'s>) -> Vec<String>,
        prepare: &dyn Fn(&HoldingProxy) -> T,
    ) -> (Self, T) {
        let graphs = GraphFixture::start(fixture);
        let proxy = HoldingProxy::new(&graphs.url);
        let held = prepare(&proxy);
        let agent = graphs.agent_at("ann", &proxy.url(), &[]);
        let run = graphs.submit(&graph(&jobs(&graphs)));
        (Self { graphs, proxy, agent, run }, held)
    }

    /// File of the task.
    fn file(&self, name: &str) -> PathBuf {
        self.graphs.task_dir("ann", &self.run, "work").join(name)
    }

    fn assert_files(&self, there: &[&str], missing: &[&str]) {
        for name in there {
            assert!(self.file(name).exists(), "{name} is missing");
        }
        for name in missing {
            assert!(!self.file(name).exists(), "{name} exists");
        }
    }

    /// Kills the agent, and starts it again.
    fn restart_agent(&mut self) {
        self.agent.kill();
        self.proxy.release_all();
        self.agent = self.graphs.agent_at("ann", &self.proxy.url(), &[]);
    }

    /// Checks that every command ran once, and that its result was stored once.
    fn check(&self) {
        let (graphs, run) = (&self.graphs, &self.run);
        assert_eq!(graphs.wait_for_end(run), RunState::Success, "{:?}", graphs.codes(run));
        let ledger = graphs.ledger();
        for name in graphs.codes(run).keys() {
            for line in [format!("begin {name} "), format!("end {name}")] {
                assert_eq!(ledger.count(&line), 1, "{line}: {ledger:?}");
            }
        }
        let job = graphs.job(run, "work");
        assert_eq!((&job["job"]["tasks"], &job["job"]["errors"]), (&json!(1), &json!(0)), "{job}");
        assert_eq!(graphs.fixture.ok(&["graph", "logs", run.as_str(), "work"]).trim(), "printed");
        if graphs.codes(run).contains_key("next") {
            assert_eq!(graphs.fixture.ok(&["graph", "logs", run.as_str(), "next"]).trim(), "made");
        }
        graphs.check(run);
        let tasks = graphs.dir("ann").join("tasks");
        wait_until_within("the agent has removed the task", TIMEOUT, || {
            std::fs::read_dir(&tasks).expect("the directory is read").next().is_none().then_some(())
        });
    }
}

/// A job with an output, and one that depends on it.
fn plain(graphs: &GraphFixture<'_>) -> Vec<String> {
    vec![
        graphs.step("work", &[], "echo printed; echo made > made.txt", "outputs: {made: made.txt}"),
        graphs.step("next", &["work"], "cat made.txt", ""),
    ]
}

/// The same jobs, with a command that waits for the file `go`.
fn waiting(graphs: &GraphFixture<'_>) -> Vec<String> {
    let work = format!(
        "echo printed; while ! test -e {}; do sleep 0.05; done; echo made > made.txt",
        graphs.fixture.path("go").display()
    );
    vec![
        graphs.step("work", &[], &work, "outputs: {made: made.txt}"),
        graphs.step("next", &["work"], "cat made.txt", ""),
    ]
}

fn agent_killed_after_accepting_the_order(fixture: &Fixture) {
    let (mut case, held) =
        DeathCase::start(fixture, &plain, &|proxy| proxy.hold_stage(Side::Request, "preparing"));
    held.wait_until_held();
    assert_eq!(case.graphs.code(&case.run, "work"), "initiated");
    case.assert_files(&["order.json"], &["taken"]);
    case.restart_agent();
    case.check();
}

fn agent_killed_before_the_confirmation_arrives(fixture: &Fixture) {
    let (mut case, held) =
        DeathCase::start(fixture, &plain, &|proxy| proxy.hold_stage(Side::Response, "preparing"));
    held.wait_until_held();
    case.graphs.wait_for_code(&case.run, "work", "preparing");
    case.assert_files(&["order.json"], &["taken"]);
    case.restart_agent();
    case.check();
}

/// Partially fetched inputs are fetched again.
fn agent_killed_while_fetching_inputs(fixture: &Fixture) {
    let jobs = |graphs: &GraphFixture<'_>| {
        let work = "echo printed; test $(stat -c %s large) = 536870912; echo made > made.txt";
        vec![
            graphs.step("first", &[], "truncate -s 512M large", "outputs: {large: large}"),
            graphs.step("work", &["first"], &format!("set -e; {work}"), "outputs: {made: made.txt}"),
            graphs.step("next", &["work"], "cat made.txt", ""),
        ]
    };
    let (mut case, ()) = DeathCase::start(fixture, &jobs, &|_| ());
    wait_for_file(&case.file("work/large"));
    case.agent.signal(Signal::STOP);
    case.assert_files(&["taken"], &["prepared"]);
    case.restart_agent();
    case.check();
}

fn agent_killed_after_preparation(fixture: &Fixture) {
    let (mut case, (held, ready)) = DeathCase::start(fixture, &plain, &|proxy| {
        (proxy.hold_stage(Side::Response, "preparing"), proxy.hold_stage(Side::Request, "prepared"))
    });
    held.wait_until_held();
    // The agent does not trust such a late confirmation, and asks again after the preparation.
    std::thread::sleep(CONFIRMATION_LIFETIME);
    held.release();
    ready.wait_until_held();
    case.assert_files(&["taken", "prepared"], &["run.json", "started"]);
    case.restart_agent();
    case.check();
}

/// The supervisor may have been started before the kill or not. The command runs once in both cases.
fn agent_killed_while_starting_the_command(fixture: &Fixture) {
    let (mut case, ()) = DeathCase::start(fixture, &plain, &|_| ());
    wait_for_file(&case.file("run.json"));
    case.restart_agent();
    case.check();
}

fn agent_killed_while_the_command_runs(fixture: &Fixture) {
    let (mut case, ()) = DeathCase::start(fixture, &waiting, &|_| ());
    case.graphs.wait_for_line("begin work");
    case.graphs.wait_for_code(&case.run, "work", "executing");
    case.assert_files(&["started"], &["exit.json"]);
    let pid = case.graphs.ledger().pid("work");
    case.restart_agent();
    assert!(is_alive(pid), "the command is alive");
    fixture.write("go", "");
    case.check();
}

fn agent_killed_after_the_command_ended(fixture: &Fixture) {
    let (mut case, ()) = DeathCase::start(fixture, &waiting, &|_| ());
    case.graphs.wait_for_line("begin work");
    case.graphs.wait_for_code(&case.run, "work", "executing");
    case.agent.signal(Signal::STOP);
    fixture.write("go", "");
    wait_for_file(&case.file("exit.json"));
    case.assert_files(&["exit.json"], &["manifest.json"]);
    case.restart_agent();
    case.check();
}

fn agent_killed_while_collecting_outputs(fixture: &Fixture) {
    let jobs = |graphs: &GraphFixture<'_>| {
        vec![graphs.step("work", &[], "echo printed; truncate -s 2G large", "outputs: {large: large}")]
    };
    let (mut case, held) =
        DeathCase::start(fixture, &jobs, &|proxy| proxy.hold_stage(Side::Request, "finalizing"));
    held.wait_until_held();
    case.agent.signal(Signal::STOP);
    case.assert_files(&["exit.json"], &["manifest.json"]);
    case.restart_agent();
    case.check();
    let left = &case.graphs.job(&case.run, "work")["outputs"];
    assert_eq!(left[0]["size_bytes"], json!(2_u64 << 30), "{left}");
}

fn agent_killed_after_writing_the_result(fixture: &Fixture) {
    let (mut case, held) =
        DeathCase::start(fixture, &plain, &|proxy| proxy.hold(Side::Request, "/result", ""));
    held.wait_until_held();
    case.assert_files(&["manifest.json"], &[]);
    assert_ne!(case.graphs.code(&case.run, "work"), "succeeded");
    case.restart_agent();
    case.check();
}

fn agent_killed_after_the_server_stored_the_result(fixture: &Fixture) {
    let (mut case, held) =
        DeathCase::start(fixture, &plain, &|proxy| proxy.hold(Side::Response, "/result", ""));
    held.wait_until_held();
    case.graphs.wait_for_code(&case.run, "work", "succeeded");
    case.assert_files(&["manifest.json"], &[]);
    case.restart_agent();
    case.check();
}
