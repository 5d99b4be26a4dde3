//! Through a server: the commands, `tidemill work`, and the workers of `examples/`.

mod draining;
mod examples;
mod killed;
mod others;
mod pasted;
mod patience;
mod server;
mod stalled;
mod trust;

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tidemill_core::run::RunState;

use crate::ledger::{self, TASK};
use crate::process::{Process, Ran, run};
use crate::stage::{PATIENCE, Stage, on_both, until};

use server::Server;

/// `tidemill` that knows the server and no database.
fn command(stage: &Stage, server: &str, args: &[&str]) -> Command {
    let mut command = stage.command(args);
    command.env_remove("TIDEMILL_DATABASE").env("TIDEMILL_SERVER", server);
    command
}

fn far(stage: &Stage, server: &Server, args: &[&str]) -> Ran {
    run(&mut command(stage, &server.url(), args))
}

on_both!(
    what_is_said_of_runs_is_the_same_from_far_away,
    a_refusal_is_the_same_from_far_away,
    a_worker_far_away_lives_through_the_death_of_its_server,
);

/// Each command prints through a server what it prints beside the database.
fn what_is_said_of_runs_is_the_same_from_far_away(stage: &Stage) {
    let server = Server::start(stage);
    let queue = ["run", "queue", "--project", "shop", "--env", "staging", "--idempotency-key", "once – ö"];
    let near: Value = stage.json(&queue);
    let again: Value = far(stage, &server, &[&["--json"], &queue[..]].concat()).value();
    assert_eq!((&again["run_id"], &again["created"]), (&near["run_id"], &Value::Bool(false)));
    let id = near["run_id"].as_str().expect("there is an id").to_owned();
    assert_eq!(far(stage, &server, &["run", "cancel", &id, "--reason", "not now"]).code, Some(0));
    let artifact = ["run", "artifact", "add", &id, "--type", "log", "--url", "s3://a/b", "--size", "7"];
    assert_eq!(far(stage, &server, &artifact).code, Some(0));
    let retried = far(stage, &server, &["--json", "run", "retry", &id]).value();
    assert_eq!(retried["created"], true);
    let next = retried["run_id"].as_str().expect("there is an id").to_owned();
    let file =
        stage.write("named.graph.yaml", "version: 1\nname: Nightly ' build\njobs:\n  one: {run: 'true'}\n");
    let file = file.display().to_string();
    let graph = || stage.json(&["graph", "submit", &file, "--project", "shop", "--env", "staging"]);
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
        let (near, far) = (stage.tidemill(&args), far(stage, &server, &args));
        assert_eq!((far.code, &far.stdout), (near.code, &near.stdout), "{args:?}");
    }
    let named = stage.tidemill(&["run", "list", "--name", "Nightly '", "--limit", "1"]);
    let last = last["run_id"].as_str().expect("there is an id");
    let older = format!("tidemill run list --name 'Nightly '\\''' --before {last}");
    assert!(named.stderr.contains(&older), "a command that can be pasted: {named:?}");
    assert_eq!(stage.json(&["run", "list", "--name", "Nightly '"]).as_array().map(Vec::len), Some(2));
    assert_eq!(stage.json(&["run", "list", "--name", "nightly"]).as_array().map(Vec::len), Some(0));
    let header = |table: &str| table.lines().next().unwrap_or_default().to_owned();
    assert!(
        header(&named.stdout).contains(" NAME ") && named.stdout.contains("Nightly ' build"),
        "{named:?}"
    );
    assert_eq!(stage.json(&["run", "list", "--name", "Nightly '"])[0]["name"], "Nightly ' build");
    let unnamed = stage.tidemill(&["run", "list", "--lane", "ops"]);
    assert!(!header(&unnamed.stdout).contains("NAME"), "runs without a name need no column: {unnamed:?}");
    assert_eq!(stage.json(&["run", "list", "--lane", "ops"])[0]["name"], Value::Null);
    assert_eq!(far(stage, &server, &["run", "cancel", &next]).code, Some(0));
    let watched = far(stage, &server, &["run", "watch", &id]);
    assert_eq!(watched.code, Some(3), "{watched:?}");
    assert!(watched.stdout.contains(&next), "{watched:?}");
}

/// Sentences, hints and exit codes are those of the database's side; what needs the database itself says so.
fn a_refusal_is_the_same_from_far_away(stage: &Stage) {
    let mut server = Server::start(stage);
    let id = stage.queue(&[]).to_string();
    stage.ok(&["run", "cancel", &id]);
    for args in [
        &["run", "show", "run-00000000-0000-7000-8000-000000000000"][..],
        &["run", "queue", "--project", "nobody", "--env", "staging"],
        &["run", "queue", "--project", "shop", "--env", "test"],
        &["run", "queue", "--project", "shop", "--env", "staging", "--attempts", "0"],
        &["run", "cancel", &id],
    ] {
        let (near, far) = (stage.tidemill(args), far(stage, &server, args));
        assert_eq!((far.code, &far.stderr), (Some(3), &near.stderr), "{args:?}: {near:?}");
    }
    for args in [&["migrate"][..], &["sweep"], &["config", "check"], &["up"]] {
        let refused = far(stage, &server, args);
        assert_eq!(refused.code, Some(2), "{args:?}: {refused:?}");
        let sentence = format!("error: tidemill {} works beside its database", args[0]);
        assert!(refused.stderr.starts_with(&sentence), "{args:?}: {refused:?}");
    }
    let told = far(stage, &server, &["run", "list", "--token", "tm_secret"]);
    assert!(told.stderr.contains("warning: the token on the command line"), "{told:?}");
    let kept = stage.write("token", "tm_secret\n").display().to_string();
    let kept = far(stage, &server, &["run", "list", "--token", &format!("@{kept}")]);
    assert!(!kept.stderr.contains("warning"), "{kept:?}");
    server.kill();
    let away = far(stage, &server, &["run", "list"]);
    assert_eq!(away.code, Some(1), "{away:?}");
    let told = format!("error: the server at {} does not answer: ", server.url());
    assert!(away.stderr.starts_with(&told), "{away:?}");
    let no_address = run(&mut command(stage, "ftp://x", &["run", "list"]));
    assert_eq!(no_address.code, Some(2), "{no_address:?}");
}

/// Two workers at a server that is killed again and again: every request is done once, and nothing is done beside it.
fn a_worker_far_away_lives_through_the_death_of_its_server(stage: &Stage) {
    let mut server = Server::start(stage);
    let mut requests = ledger::requests(stage, "f0", 16);
    let start = |number: i32| {
        let name = format!("far-{number}");
        let mut command = command(stage, &server.url(), &["work", "--worker", &name, "--slots", "2"]);
        command.args(["--", "bash", "-c", TASK]).env("LEDGER", stage.path("ledger"));
        Process::start(stage, &name, command.envs([("SECS", "0.2"), ("FAILS_ONCE", "yes")]))
    };
    let mut workers: Vec<Process> = (0..2).map(start).collect();
    for round in 1..=3 {
        let ended = || stage.runs().iter().filter(|run| run.status == RunState::Success).count();
        let before = ended();
        until("something is done", || (ended() > before).then_some(()));
        server.kill();
        // Longer than a worker may be silent, the second time: what it runs is cut off, and done again.
        std::thread::sleep(if round == 2 {
            crate::stage::DEAD_AFTER * 2
        } else {
            crate::stage::DEAD_AFTER / 4
        });
        server.resume(stage);
        requests.extend(ledger::requests(stage, &format!("f{round}"), 8));
    }
    until("every request ends", || stage.runs().iter().all(|run| run.status.is_terminal()).then_some(()));
    for worker in &mut workers {
        assert!(worker.is_running(), "a worker ended: {}", worker.said());
        worker.signal(Signal::TERM);
    }
    for worker in &mut workers {
        assert_eq!(worker.ended_within(PATIENCE), Some(0), "{}", worker.said());
    }
    let seen = ledger::verdict(stage, &requests);
    println!("{seen:?}");
    let drained = far(stage, &server, &["work", "--drain", "--", "true"]);
    assert_eq!(drained.code, Some(0), "{drained:?}");
}
