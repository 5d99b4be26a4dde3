//! Workers that people ask to drain: beside the database and far from it, of runs and of pages.

use serde_json::Value;
use tidemill_core::run::RunState;

use super::command;
use super::server::Server;
use crate::process::Process;
use crate::stage::{PATIENCE, Stage, on_both, until};

on_both!(
    a_worker_that_drains_ends_what_it_has_takes_nothing_new_and_ends,
    a_worker_far_away_drains_too_and_may_be_told_otherwise,
    a_worker_of_pages_drains_too,
);

/// What a worker says that was drained.
const SENTENCE: &str = "drained: it was asked to take nothing new, and has nothing in hand";

/// A command that ends when the test says so.
fn patient(stage: &Stage) -> String {
    format!("echo up; while [ ! -e {} ]; do sleep 0.05; done", stage.path("go").display())
}

fn workers(stage: &Stage) -> Vec<Value> {
    stage.json(&["worker", "list"]).as_array().cloned().unwrap_or_default()
}

/// Waits until a worker that lives is known by this name.
fn until_known(stage: &Stage, name: &str) {
    until("the worker is known", || {
        workers(stage)
            .iter()
            .any(|worker| worker["name"] == name && worker["ended_at"].is_null())
            .then_some(())
    });
}

fn a_worker_that_drains_ends_what_it_has_takes_nothing_new_and_ends(stage: &Stage) {
    let held = stage.queue(&[]);
    let mut worker = Process::worker(stage, "mill", &["--slots", "2"], &patient(stage));
    stage.until(&held, RunState::Running);
    let told = stage.ok(&["worker", "drain", "mill"]);
    assert_eq!(told, "worker mill takes nothing new; it ends once what it has in hand has ended\n");
    let waits = stage.queue(&[]);
    let listed = stage.ok(&["worker", "list"]);
    assert!(listed.contains("mill") && listed.contains("draining"), "{listed}");
    let why = stage.ok(&["run", "why", waits.as_str()]);
    assert!(why.contains("1 worker that offers what it needs drains, and takes nothing new"), "{why}");
    assert!(worker.is_running(), "it has a run in hand: {}", worker.said());
    stage.write("go", "");
    assert_eq!(worker.ended_within(PATIENCE), Some(0), "{}", worker.said());
    assert!(worker.said().contains(&format!("{SENTENCE}; 1 claimed, 1 finished")), "{}", worker.said());
    assert_eq!(stage.run(&held).status, RunState::Success);
    assert_eq!(stage.run(&waits).status, RunState::Queued, "it had a slot free, and took nothing");
    let late = stage.tidemill(&["worker", "drain", "mill"]);
    assert_eq!(late.code, Some(3), "{late:?}");
    assert!(late.stderr.contains("worker `mill` does not exist, or has ended"), "{late:?}");
    assert!(late.stderr.contains("hint: tidemill worker list"), "{late:?}");
}

/// Nothing waits, so that its claim is held back by the server when it is asked to drain.
fn a_worker_far_away_drains_too_and_may_be_told_otherwise(stage: &Stage) {
    let server = Server::start(stage);
    let start = |name: &str| {
        let args = ["work", "--worker", name, "--", "bash", "-c", &patient(stage)];
        Process::start(stage, name, &mut command(stage, &server.url(), &args))
    };
    let mut worker = start("mill");
    until_known(stage, "mill");
    let held = stage.queue(&[]);
    stage.until(&held, RunState::Running);
    let drain = |undo: &[&str]| {
        super::far(stage, &server, &[&["--json", "worker", "drain", "mill"], undo].concat()).value()
    };
    assert_eq!(drain(&[])["draining"], true);
    assert_eq!(drain(&["--undo"])["draining"], false);
    stage.write("go", "");
    stage.until(&held, RunState::Success);
    let next = stage.queue(&[]);
    stage.until(&next, RunState::Success);
    assert!(worker.is_running(), "it works again: {}", worker.said());
    assert_eq!(drain(&[])["draining"], true);
    assert_eq!(worker.ended_within(PATIENCE), Some(0), "{}", worker.said());
    assert!(worker.said().contains(SENTENCE), "{}", worker.said());
}

fn a_worker_of_pages_drains_too(stage: &Stage) {
    for role in ["worker", "scheduler", "consolidator"] {
        let mut process = Process::start(stage, role, &mut stage.command(&[role]));
        let name = until("it is known", || {
            let of = |worker: &&Value| {
                worker["ended_at"].is_null()
                    && worker["name"].as_str().is_some_and(|name| name.ends_with(role))
            };
            workers(stage).iter().find(of).and_then(|worker| worker["name"].as_str().map(str::to_owned))
        });
        stage.ok(&["worker", "drain", &name]);
        assert_eq!(process.ended_within(PATIENCE), Some(0), "{role}: {}", process.said());
        assert!(process.said().contains(SENTENCE), "{role}: {}", process.said());
    }
    let both = stage.tidemill(&["worker", "--once", "list"]);
    assert_eq!(both.code, Some(2), "a worker is started, or listed: {both:?}");
}
