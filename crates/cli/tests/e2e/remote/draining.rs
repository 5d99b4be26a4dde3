//! Draining of workers: of runs and of pages, with the database and with a server.

use serde_json::Value;
use tidemill_core::run::RunState;

use super::command;
use super::server::Server;
use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until};
use crate::process::Process;

on_both!(
    draining_worker_finishes_its_run_and_exits,
    remote_worker_drains_and_resumes_with_undo,
    sync_roles_drain,
);

/// Message of a drained worker.
const DRAINED: &str = "drained: no new work is accepted, and no work is left";

/// A command that waits for the file `go`.
fn waiting_script(fixture: &Fixture) -> String {
    format!("echo up; while [ ! -e {} ]; do sleep 0.05; done", fixture.path("go").display())
}

fn workers(fixture: &Fixture) -> Vec<Value> {
    fixture.json(&["worker", "list"]).as_array().cloned().unwrap_or_default()
}

/// Waits until a live worker of this name is registered.
fn wait_for_worker(fixture: &Fixture, name: &str) {
    wait_until("the worker is registered", || {
        workers(fixture)
            .iter()
            .any(|worker| worker["name"] == name && worker["ended_at"].is_null())
            .then_some(())
    });
}

fn draining_worker_finishes_its_run_and_exits(fixture: &Fixture) {
    let held = fixture.queue(&[]);
    let mut worker = Process::worker(fixture, "builder", &["--slots", "2"], &waiting_script(fixture));
    fixture.wait_for_state(&held, RunState::Running);
    let message = fixture.ok(&["worker", "drain", "builder"]);
    assert_eq!(message, "worker builder gets no new work; it exits when its current work has ended\n");
    let waiting = fixture.queue(&[]);
    let listed = fixture.ok(&["worker", "list"]);
    assert!(listed.contains("builder") && listed.contains("draining"), "{listed}");
    let why = fixture.ok(&["run", "why", waiting.as_str()]);
    assert!(why.contains("1 matching worker is draining and takes no new runs"), "{why}");
    assert!(worker.is_running(), "it still executes a run: {}", worker.stderr());
    fixture.write("go", "");
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());
    assert!(worker.stderr().contains(&format!("{DRAINED}; 1 claimed, 1 finished")), "{}", worker.stderr());
    assert_eq!(fixture.run(&held).status, RunState::Success);
    assert_eq!(fixture.run(&waiting).status, RunState::Queued, "it had a free slot and claimed nothing");
    let late = fixture.tidemill(&["worker", "drain", "builder"]);
    assert_eq!(late.code, Some(3), "{late:?}");
    assert!(late.stderr.contains("worker `builder` does not exist or has ended"), "{late:?}");
    assert!(late.stderr.contains("hint: tidemill worker list"), "{late:?}");
}

/// No run is queued, so that the server holds the claim of the worker back when it is drained.
fn remote_worker_drains_and_resumes_with_undo(fixture: &Fixture) {
    let server = Server::start(fixture);
    let start = |name: &str| {
        let args = ["work", "--worker", name, "--", "bash", "-c", &waiting_script(fixture)];
        Process::start(fixture, name, &mut command(fixture, &server.url(), &args))
    };
    let mut worker = start("builder");
    wait_for_worker(fixture, "builder");
    let held = fixture.queue(&[]);
    fixture.wait_for_state(&held, RunState::Running);
    let drain = |undo: &[&str]| {
        super::remote(fixture, &server, &[&["--json", "worker", "drain", "builder"], undo].concat()).value()
    };
    assert_eq!(drain(&[])["draining"], true);
    assert_eq!(drain(&["--undo"])["draining"], false);
    fixture.write("go", "");
    fixture.wait_for_state(&held, RunState::Success);
    let next = fixture.queue(&[]);
    fixture.wait_for_state(&next, RunState::Success);
    assert!(worker.is_running(), "it accepts work again: {}", worker.stderr());
    assert_eq!(drain(&[])["draining"], true);
    assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());
    assert!(worker.stderr().contains(DRAINED), "{}", worker.stderr());
}

fn sync_roles_drain(fixture: &Fixture) {
    for role in ["worker", "scheduler", "consolidator"] {
        let mut process = Process::start(fixture, role, &mut fixture.command(&[role]));
        let name = wait_until("the worker is registered", || {
            let of = |worker: &&Value| {
                worker["ended_at"].is_null()
                    && worker["name"].as_str().is_some_and(|name| name.ends_with(role))
            };
            workers(fixture).iter().find(of).and_then(|worker| worker["name"].as_str().map(str::to_owned))
        });
        fixture.ok(&["worker", "drain", &name]);
        assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{role}: {}", process.stderr());
        assert!(process.stderr().contains(DRAINED), "{role}: {}", process.stderr());
    }
    let both = fixture.tidemill(&["worker", "--once", "list"]);
    assert_eq!(both.code, Some(2), "options and subcommands exclude each other: {both:?}");
}
