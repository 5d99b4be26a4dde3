//! An agent with the capabilities of `deploy/kustomize/base/agent.yaml`, and no others, isolates its tasks.

use std::process::Command;

use rustix::process::Signal;
use tidemill_core::RunId;
use tidemill_core::run::RunState;

use crate::fixture::{Fixture, Kind, TIMEOUT, wait_until};
use crate::graph::fixture::controller;
use crate::process::{Process, not_tested};
use crate::server::server;

const MANIFEST: &str = include_str!("../../../../deploy/kustomize/base/agent.yaml");

/// Returns the capabilities of the container, in the words of setpriv: `-all,+chown`.
fn capabilities() -> String {
    let (_, rest) = MANIFEST.split_once("\n              add: [").expect("the container adds capabilities");
    let (names, _) = rest.split_once(']').expect("the list ends");
    names.split(", ").fold("-all".to_owned(), |all, name| all + ",+" + &name.to_lowercase())
}

#[test]
fn capabilities_of_the_manifest_isolate_tasks() {
    if !rustix::process::geteuid().is_root() {
        return not_tested("only root can start an agent with chosen capabilities");
    }
    let fixture = Fixture::new(Kind::Sqlite);
    let (server, address) = server(&fixture, &["server"], &[]);
    let controller = controller(&fixture, "controller");
    let url = format!("http://{address}");
    let dir = fixture.path("agent.dir");
    let words =
        ["--server", &url, "agent", "run", "--name", "pod", "--isolation", "required", "--stop-commands"];
    let mut agent = fixture.command(&words);
    agent.arg("--dir").arg(&dir);
    let mut limited = Command::new("setpriv");
    fixture.prepare(&mut limited);
    let capabilities = capabilities();
    limited.args(["--no-new-privs", "--bounding-set", &capabilities, "--inh-caps", &capabilities]);
    limited.arg(agent.get_program()).args(agent.get_args());
    for (name, value) in agent.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let mut agent = Process::start(&fixture, "agent", &mut limited);
    wait_until("the agent registers or ends", || {
        let agents = fixture.json(&["agent", "list"]);
        (agents.as_array().is_some_and(|list| !list.is_empty()) || !agent.is_running()).then_some(())
    });
    if !agent.is_running() {
        let missing = "this machine cannot isolate the tasks of an agent, or the capabilities do not suffice";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}: {}", agent.stderr());
        return not_tested(missing);
    }
    // A directory that only the task may enter, which the agent removes; an output, and a user id of its own.
    let script = ["id -u > id", "mkdir -m 700 own", "touch own/file", "test $(cat id) -ge 2000000000"];
    let text = format!(
        "version: 1\njobs:\n  a:\n    run: |\n      {}\n    outputs: {{id: id}}\n  b: {{needs: a, run: cat id}}\n",
        script.join("\n      ")
    );
    let file = fixture.write("capabilities.graph.yaml", &text).display().to_string();
    let submitted = fixture.ok(&["graph", "submit", &file, "--project", "shop", "--env", "staging"]);
    let run: RunId = submitted.trim().parse().expect("the output is a run id");
    assert_eq!(fixture.wait_for_end(&run).status, RunState::Success, "{}", agent.stderr());
    for process in [agent, controller, server] {
        let mut process = process;
        process.signal(Signal::TERM);
        assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
    }
}
