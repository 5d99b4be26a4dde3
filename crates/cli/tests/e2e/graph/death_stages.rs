//! An agent that is killed in each stage of a task, aimed by what its directory shows and by a gate that keeps it
//! there: its next process goes on, the command runs once, and its result arrives.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::RunState;

use super::gate::{Gate, Side};
use super::ground::{FRESH, PATIENCE, Site, graph, until_there};
use crate::process::{Process, is_alive};
use crate::stage::{Stage, on_both, until_within};

on_both!(
    when_it_has_taken_the_order,
    when_the_answer_that_the_task_is_its_own_is_lost,
    while_it_brings_inputs,
    when_it_has_prepared,
    while_it_starts_the_command,
    while_the_command_runs,
    when_the_command_is_over,
    while_it_looks_at_what_was_left,
    when_the_result_is_written_down,
    when_the_server_has_the_result_and_the_agent_does_not_know,
);

/// An agent that is about to die.
struct Scene<'s> {
    site: Site<'s>,
    gate: Gate,
    agent: Process,
    run: RunId,
}

impl<'s> Scene<'s> {
    /// A site on which `ready` sets the gate up before there is anything to do.
    fn start<T>(
        stage: &'s Stage,
        jobs: &dyn Fn(&Site<'s>) -> Vec<String>,
        ready: &dyn Fn(&Gate) -> T,
    ) -> (Self, T) {
        let site = Site::start(stage);
        let gate = Gate::to(&site.url);
        let held = ready(&gate);
        let agent = site.agent_at("ann", &gate.url(), &[]);
        let run = site.submit(&graph(&jobs(&site)));
        (Self { site, gate, agent, run }, held)
    }

    /// A file of the task.
    fn file(&self, name: &str) -> PathBuf {
        self.site.task_dir("ann", &self.run, "work").join(name)
    }

    fn assert_files(&self, there: &[&str], missing: &[&str]) {
        for name in there {
            assert!(self.file(name).exists(), "{name} is missing");
        }
        for name in missing {
            assert!(!self.file(name).exists(), "{name} is there");
        }
    }

    /// Kills the agent, and lets another process of it find out.
    fn die(&mut self) {
        self.agent.kill();
        self.gate.open();
        self.agent = self.site.agent_at("ann", &self.gate.url(), &[]);
    }

    /// Every command ran once, and everything of it arrived once.
    fn check(&self) {
        let (site, run) = (&self.site, &self.run);
        assert_eq!(site.until_ended(run), RunState::Success, "{:?}", site.codes(run));
        let ledger = site.ledger();
        for name in site.codes(run).keys() {
            for line in [format!("begin {name} "), format!("end {name}")] {
                assert_eq!(ledger.count(&line), 1, "{line}: {ledger:?}");
            }
        }
        let job = site.job(run, "work");
        assert_eq!((&job["job"]["tasks"], &job["job"]["errors"]), (&json!(1), &json!(0)), "{job}");
        assert_eq!(site.stage.ok(&["graph", "logs", run.as_str(), "work"]).trim(), "said");
        if site.codes(run).contains_key("next") {
            assert_eq!(site.stage.ok(&["graph", "logs", run.as_str(), "next"]).trim(), "made");
        }
        site.check(run);
        let tasks = site.dir("ann").join("tasks");
        until_within("the agent keeps nothing of it", PATIENCE, || {
            std::fs::read_dir(&tasks).expect("the directory is read").next().is_none().then_some(())
        });
    }
}

/// A job that leaves a file, and one that needs it.
fn plain(site: &Site<'_>) -> Vec<String> {
    vec![
        site.step("work", &[], "echo said; echo made > made.txt", "outputs: {made: made.txt}"),
        site.step("next", &["work"], "cat made.txt", ""),
    ]
}

/// The same with a command that waits for a file of the stage.
fn waiting(site: &Site<'_>) -> Vec<String> {
    let work = format!(
        "echo said; while ! test -e {}; do sleep 0.05; done; echo made > made.txt",
        site.stage.path("go").display()
    );
    vec![
        site.step("work", &[], &work, "outputs: {made: made.txt}"),
        site.step("next", &["work"], "cat made.txt", ""),
    ]
}

fn when_it_has_taken_the_order(stage: &Stage) {
    let (mut scene, word) = Scene::start(stage, &plain, &|gate| gate.hold_stage(Side::Question, "preparing"));
    word.until_caught();
    assert_eq!(scene.site.code(&scene.run, "work"), "initiated");
    scene.assert_files(&["order.json"], &["taken"]);
    scene.die();
    scene.check();
}

fn when_the_answer_that_the_task_is_its_own_is_lost(stage: &Stage) {
    let (mut scene, word) = Scene::start(stage, &plain, &|gate| gate.hold_stage(Side::Answer, "preparing"));
    word.until_caught();
    scene.site.until_code(&scene.run, "work", "preparing");
    scene.assert_files(&["order.json"], &["taken"]);
    scene.die();
    scene.check();
}

/// What was brought in part is brought anew.
fn while_it_brings_inputs(stage: &Stage) {
    let jobs = |site: &Site<'_>| {
        let work = "echo said; test $(stat -c %s large) = 536870912; echo made > made.txt";
        vec![
            site.step("first", &[], "truncate -s 512M large", "outputs: {large: large}"),
            site.step("work", &["first"], &format!("set -e; {work}"), "outputs: {made: made.txt}"),
            site.step("next", &["work"], "cat made.txt", ""),
        ]
    };
    let (mut scene, ()) = Scene::start(stage, &jobs, &|_| ());
    until_there(&scene.file("work/large"));
    scene.agent.signal(Signal::STOP);
    scene.assert_files(&["taken"], &["prepared"]);
    scene.die();
    scene.check();
}

fn when_it_has_prepared(stage: &Stage) {
    let (mut scene, (word, ready)) = Scene::start(stage, &plain, &|gate| {
        (gate.hold_stage(Side::Answer, "preparing"), gate.hold_stage(Side::Question, "prepared"))
    });
    word.until_caught();
    // An answer that comes so late is not trusted: the agent asks again when it is prepared.
    std::thread::sleep(FRESH);
    word.let_go();
    ready.until_caught();
    scene.assert_files(&["taken", "prepared"], &["run.json", "started"]);
    scene.die();
    scene.check();
}

/// Whether the supervisor was started by then or not: two of them never both run the command.
fn while_it_starts_the_command(stage: &Stage) {
    let (mut scene, ()) = Scene::start(stage, &plain, &|_| ());
    until_there(&scene.file("run.json"));
    scene.die();
    scene.check();
}

fn while_the_command_runs(stage: &Stage) {
    let (mut scene, ()) = Scene::start(stage, &waiting, &|_| ());
    scene.site.until_written("begin work");
    scene.site.until_code(&scene.run, "work", "executing");
    scene.assert_files(&["started"], &["exit.json"]);
    let pid = scene.site.ledger().pid("work");
    scene.die();
    assert!(is_alive(pid), "the command lives on");
    stage.write("go", "");
    scene.check();
}

fn when_the_command_is_over(stage: &Stage) {
    let (mut scene, ()) = Scene::start(stage, &waiting, &|_| ());
    scene.site.until_written("begin work");
    scene.site.until_code(&scene.run, "work", "executing");
    scene.agent.signal(Signal::STOP);
    stage.write("go", "");
    until_there(&scene.file("exit.json"));
    scene.assert_files(&["exit.json"], &["manifest.json"]);
    scene.die();
    scene.check();
}

fn while_it_looks_at_what_was_left(stage: &Stage) {
    let jobs = |site: &Site<'_>| {
        vec![site.step("work", &[], "echo said; truncate -s 2G large", "outputs: {large: large}")]
    };
    let (mut scene, word) = Scene::start(stage, &jobs, &|gate| gate.hold_stage(Side::Question, "finalizing"));
    word.until_caught();
    scene.agent.signal(Signal::STOP);
    scene.assert_files(&["exit.json"], &["manifest.json"]);
    scene.die();
    scene.check();
    let left = &scene.site.job(&scene.run, "work")["outputs"];
    assert_eq!(left[0]["size_bytes"], json!(2_u64 << 30), "{left}");
}

fn when_the_result_is_written_down(stage: &Stage) {
    let (mut scene, word) = Scene::start(stage, &plain, &|gate| gate.hold(Side::Question, "/result", ""));
    word.until_caught();
    scene.assert_files(&["manifest.json"], &[]);
    assert_ne!(scene.site.code(&scene.run, "work"), "succeeded");
    scene.die();
    scene.check();
}

fn when_the_server_has_the_result_and_the_agent_does_not_know(stage: &Stage) {
    let (mut scene, word) = Scene::start(stage, &plain, &|gate| gate.hold(Side::Answer, "/result", ""));
    word.until_caught();
    scene.site.until_code(&scene.run, "work", "succeeded");
    scene.assert_files(&["manifest.json"], &[]);
    scene.die();
    scene.check();
}
