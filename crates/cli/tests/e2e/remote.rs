//! Commands, `tidemill work` and the workers of `examples/` that use a server.

mod doc_commands;
mod draining;
mod example_workers;
mod objects;
mod retry_after;
mod server;
mod server_death;
mod stalled_runs;
mod tls;

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tidemill_core::run::{RunCursor, RunState};

use crate::fixture::{Fixture, TIMEOUT, on_both, wait_until};
use crate::ledger::{self, TASK};
use crate::process::{Output, Process, run};

use server::Server;

/// `tidemill` with a server and without a database.
fn command(fixture: &Fixture, server: &str, args: &[&str]) -> Command {
    let mut command = fixture.command(args);
    command.env_remove("TIDEMILL_DATABASE").env("TIDEMILL_SERVER", server);
    command
}

fn remote(fixture: &Fixture, server: &Server, args: &[&str]) -> Output {
    run(&mut command(fixture, &server.url(), args))
}

on_both!(
    run_commands_are_equal_locally_and_remotely,
    run_refusals_are_equal_locally_and_remotely,
    remote_worker_survives_the_death_of_its_server,
);

/// Each command prints the same with a server as with the database.
fn run_commands_are_equal_locally_and_remotely(fixture: &Fixture) {
    let server = Server::start(fixture);
    let queue = ["run", "queue", "--project", "shop", "--env", "staging", "--idempotency-key", "once – ö"];
    let local: Value = fixture.json(&queue);
    let again: Value = remote(fixture, &server, &[&["--json"], &queue[..]].concat()).value();
    assert_eq!((&again["run_id"], &again["created"]), (&local["run_id"], &Value::Bool(false)));
    let id = local["run_id"].as_str().expect("there is an id").to_owned();
    assert_eq!(remote(fixture, &server, &["run", "cancel", &id, "--reason", "not now"]).code, Some(0));
    let artifact = ["run", "artifact", "add", &id, "--type", "log", "--url", "s3://a/b", "--size", "7"];
    assert_eq!(remote(fixture, &server, &artifact).code, Some(0));
    let retried = remote(fixture, &server, &["--json", "run", "retry", &id]).value();
    assert_eq!(retried["created"], true);
    let next = retried["run_id"].as_str().expect("there is an id").to_owned();
    let file =
        fixture.write("named.graph.yaml", "version: 1\nname: Nightly ' build\njobs:\n  one: {run: 'true'}\n");
    let file = file.display().to_string();
    let graph = || fixture.json(&["graph", "submit", &file, "--project", "shop", "--env", "staging"]);
    let (_, last) = (graph(), graph());
    for args in [
        &["run", "list"][..],
        &["run", "list", "--name", "Nightly '"],
        &["run", "list", "--name", "Nightly '", "--lane", "graph", "--env", "staging", "--limit", "1"],
        &["run", "list", "--name", "nightly"],
        &["run", "list", "--status", "cancelled", "--limit", "1"],
        &["run", "list", "--lane", "ops", "--env", "staging", "--since", "1h", "--id", &id[4..20]],
        &["run", "list", "--lane", "sync"],
        &["run", "show", &id],
        &["run", "why", &next],
        &["run", "events", &id, "--level", "info", "--limit", "2"],
        &["run", "artifact", "list", &id],
    ] {
        let args = [&["--json"], args].concat();
        let (local, remote) = (fixture.tidemill(&args), remote(fixture, &server, &args));
        assert_eq!((remote.code, &remote.stdout), (local.code, &local.stdout), "{args:?}");
    }
    let named = fixture.tidemill(&["run", "list", "--name", "Nightly '", "--limit", "1"]);
    let last = last["run_id"].as_str().expect("there is an id");
    let last = RunCursor::at(&fixture.run(&last.parse().expect("an id")));
    let older = format!("tidemill run list --name 'Nightly '\\''' --before {last}");
    assert!(named.stderr.contains(&older), "the command works when pasted: {named:?}");
    assert_eq!(fixture.json(&["run", "list", "--name", "Nightly '"]).as_array().map(Vec::len), Some(2));
    assert_eq!(fixture.json(&["run", "list", "--name", "nightly"]).as_array().map(Vec::len), Some(0));
    let header = |table: &str| table.lines().next().unwrap_or_default().to_owned();
    assert!(
        header(&named.stdout).contains(" NAME ") && named.stdout.contains("Nightly ' build"),
        "{named:?}"
    );
    assert_eq!(fixture.json(&["run", "list", "--name", "Nightly '"])[0]["name"], "Nightly ' build");
    let unnamed = fixture.tidemill(&["run", "list", "--lane", "ops"]);
    assert!(!header(&unnamed.stdout).contains("NAME"), "runs without names have no name column: {unnamed:?}");
    assert_eq!(fixture.json(&["run", "list", "--lane", "ops"])[0]["name"], Value::Null);
    assert_eq!(remote(fixture, &server, &["run", "cancel", &next]).code, Some(0));
    let watched = remote(fixture, &server, &["run", "watch", &id]);
    assert_eq!(watched.code, Some(3), "{watched:?}");
    assert!(watched.stdout.contains(&next), "{watched:?}");
}

/// Messages, hints and exit codes are the same as with the database. Commands that need the database report it.
fn run_refusals_are_equal_locally_and_remotely(fixture: &Fixture) {
    let mut server = Server::start(fixture);
    let id = fixture.queue(&[]).to_string();
    fixture.ok(&["run", "cancel", &id]);
    for args in [
        &["run", "show", "run-00000000-0000-7000-8000-000000000000"][..],
        &["run", "queue", "--project", "unknown", "--env", "staging"],
        &["run", "queue", "--project", "shop", "--env", "test"],
        &["run", "queue", "--project", "shop", "--env", "staging", "--attempts", "0"],
        &["run", "cancel", &id],
    ] {
        let (local, remote) = (fixture.tidemill(args), remote(fixture, &server, args));
        assert_eq!((remote.code, &remote.stderr), (Some(3), &local.stderr), "{args:?}: {local:?}");
    }
    for args in [&["migrate"][..], &["sweep"], &["config", "check"], &["up"]] {
        let refused = remote(fixture, &server, args);
        assert_eq!(refused.code, Some(2), "{args:?}: {refused:?}");
        let sentence = format!("error: tidemill {} needs direct database access", args[0]);
        assert!(refused.stderr.starts_with(&sentence), "{args:?}: {refused:?}");
    }
    let message = remote(fixture, &server, &["run", "list", "--token", "tm_secret"]);
    assert!(
        message.stderr.contains("warning: other users can read the token on the command line"),
        "{message:?}"
    );
    let file = fixture.write("token", "tm_secret\n").display().to_string();
    let output = remote(fixture, &server, &["run", "list", "--token", &format!("@{file}")]);
    assert!(!output.stderr.contains("warning"), "{output:?}");
    server.kill();
    let away = remote(fixture, &server, &["run", "list"]);
    assert_eq!(away.code, Some(1), "{away:?}");
    let message = format!("error: the server at {} does not answer: ", server.url());
    assert!(away.stderr.starts_with(&message), "{away:?}");
    let no_address = run(&mut command(fixture, "ftp://x", &["run", "list"]));
    assert_eq!(no_address.code, Some(2), "{no_address:?}");
}

/// Two workers of a server that is killed repeatedly: every request is executed once.
fn remote_worker_survives_the_death_of_its_server(fixture: &Fixture) {
    let mut server = Server::start(fixture);
    let mut requests = ledger::requests(fixture, "f0", 16);
    let start = |number: i32| {
        let name = format!("remote-{number}");
        let mut command = command(fixture, &server.url(), &["work", "--worker", &name, "--slots", "2"]);
        command.args(["--", "bash", "-c", TASK]).env("LEDGER", fixture.path("ledger"));
        Process::start(fixture, &name, command.envs([("SECS", "0.2"), ("FAILS_ONCE", "yes")]))
    };
    let mut workers: Vec<Process> = (0..2).map(start).collect();
    for round in 1..=3 {
        let ended = || fixture.runs().iter().filter(|run| run.status == RunState::Success).count();
        let before = ended();
        wait_until("a run succeeds", || (ended() > before).then_some(()));
        server.kill();
        // The second outage is longer than `dead-after`, so that running commands are killed and retried.
        std::thread::sleep(if round == 2 {
            crate::fixture::DEAD_AFTER * 2
        } else {
            crate::fixture::DEAD_AFTER / 4
        });
        server.restart(fixture);
        requests.extend(ledger::requests(fixture, &format!("f{round}"), 8));
    }
    wait_until("every request ends", || {
        fixture.runs().iter().all(|run| run.status.is_terminal()).then_some(())
    });
    for worker in &mut workers {
        assert!(worker.is_running(), "a worker ended: {}", worker.stderr());
        worker.signal(Signal::TERM);
    }
    for worker in &mut workers {
        assert_eq!(worker.wait_for_exit(TIMEOUT), Some(0), "{}", worker.stderr());
    }
    let summary = ledger::check(fixture, &requests);
    println!("{summary:?}");
    let drained = remote(fixture, &server, &["work", "--drain", "--", "true"]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
}
