//! Agents that cannot isolate tasks fully, and the credentials of an agent that can.
//!
//! In a user namespace with one user id, root can give a task no other id, and another user is not root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tidemill_core::RunId;
use tidemill_core::run::RunState;

use crate::fixture::{Fixture, Kind, TIMEOUT, wait_until};
use crate::graph::fixture::controller;
use crate::process::{Process, not_tested, run};
use crate::server::server;

/// A user namespace in which a command is root, and one in which it is another user.
const AS_ROOT: &[&str] = &["--user", "--map-root-user"];
const AS_USER: &[&str] = &["--user", "--map-user=1000", "--map-group=1000"];

/// Runs a command in a user namespace with one user id. Returns `None` if this machine forbids user namespaces.
fn in_user_namespace(fixture: &Fixture, flags: &[&str], command: &Command) -> Option<Command> {
    let tried = Command::new("unshare").args(flags).arg("true").output().expect("unshare is installed");
    if !tried.status.success() {
        let missing = "this machine allows no user namespaces, so isolation cannot be made to fail";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
        not_tested(missing);
        return None;
    }
    let mut inside = Command::new("unshare");
    fixture.prepare(&mut inside);
    inside.args(flags).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    Some(inside)
}

fn stop(mut process: Process) {
    process.signal(Signal::TERM);
    assert_eq!(process.wait_for_exit(TIMEOUT), Some(0), "{}", process.stderr());
}

fn agents(fixture: &Fixture) -> Vec<Value> {
    fixture.json(&["agent", "list"]).as_array().expect("a list").clone()
}

#[test]
fn required_isolation_refuses_to_start() {
    let fixture = Fixture::new(Kind::Sqlite);
    let (server, address) = server(&fixture, &["server"], &[]);
    let url = format!("http://{address}");
    let same = "same user as the agent, which is not root";
    for (name, flags, reason) in [("root", AS_ROOT, ""), ("user", AS_USER, same)] {
        let words = ["--server", url.as_str(), "agent", "run", "--name", name, "--dir", name];
        let agent = |mode| fixture.command(&[&words[..], &["--isolation", mode]].concat());
        let Some(mut required) = in_user_namespace(&fixture, flags, &agent("required")) else { return };
        let refused = run(&mut required);
        assert_eq!(refused.code, Some(3), "{refused:?}");
        let sentence = "error: isolation of tasks is required, but not available: user ids (";
        assert!(refused.stderr.contains(&format!("{sentence}{reason}")), "{refused:?}");
        assert!(refused.stderr.contains("use --isolation auto"), "{refused:?}");
        let named = || agents(&fixture).into_iter().filter(|agent| agent["name"] == name).collect::<Vec<_>>();
        assert_eq!(named(), Vec::<Value>::new(), "a refused agent does not register");

        // The control: the same agent starts without that requirement, with a warning.
        let mut auto = in_user_namespace(&fixture, flags, &agent("auto")).expect("it worked before");
        let auto = Process::start(&fixture, name, &mut auto);
        wait_until("the agent registers", || (named().len() == 1).then_some(()));
        assert!(auto.stderr().contains(&format!("no user ids: {reason}")), "{}", auto.stderr());
        let isolation = &named()[0]["isolation"];
        assert_ne!(isolation["user_ids"], "yes", "{isolation}");
        assert_eq!(isolation["pid_namespace"] == "yes", flags == AS_USER, "{isolation}");
        stop(auto);
    }
    stop(server);
}

#[test]
fn up_with_tokens_runs_no_agent_without_isolation() {
    let no_users = "only root can give them users of their own";
    let with_tokens = &["up", "--auth"][..];
    for (flags, words, refusal) in [
        (AS_ROOT, with_tokens, Some("because its tasks cannot be isolated: user ids (")),
        (AS_USER, with_tokens, Some(no_users)),
        (AS_ROOT, &["up"], None),
        (AS_USER, &["up"], None),
    ] {
        let runs_agent = refusal.is_none();
        let fixture = Fixture::new(Kind::Sqlite);
        let Some(mut up) = in_user_namespace(&fixture, flags, &fixture.command(words)) else { return };
        let mut up = Process::start(&fixture, "up", &mut up);
        up.wait_for_stderr("the server is listening on http://", 1);
        if let Some(refusal) = refusal {
            up.wait_for_stderr(refusal, 1);
            up.wait_for_stderr("warning: no agent runs here", 1);
            up.wait_for_stderr("tidemill agent run --server URL --token @FILE --dir DIR", 1);
        } else {
            wait_until("the agent registers", || (agents(&fixture).len() == 1).then_some(()));
        }
        let file = fixture.write("one.graph.yaml", "version: 1\njobs:\n  one: {run: echo ran > %ran}\n");
        let text = fs::read_to_string(&file).expect("the file is read");
        let ran = fixture.path("ran");
        fs::write(&file, text.replace("%ran", &ran.display().to_string())).expect("the file is written");
        let file = file.display().to_string();
        let submitted = fixture.ok(&["graph", "submit", &file, "--project", "shop", "--env", "staging"]);
        let run: RunId = submitted.trim().parse().expect("the output is a run id");
        if runs_agent {
            assert_eq!(fixture.wait_for_end(&run).status, RunState::Success, "{}", up.stderr());
        } else {
            let code = format!("SELECT code FROM ops.jobs WHERE run_id = '{run}'");
            let waits = || fixture.sql(&code).expect("a job is read") == ["waiting_on_workers"];
            wait_until("the job waits for an agent", || waits().then_some(()));
            assert_eq!(agents(&fixture), Vec::<Value>::new());
        }
        assert_eq!(ran.exists(), runs_agent);
        stop(up);
    }
}

/// The agent needs its token and the secrets as long as it runs. The second agent is the control.
#[test]
fn task_cannot_read_the_token_or_the_secrets_of_its_agent() {
    let fixture = Fixture::new(Kind::Sqlite);
    fs::set_permissions(fixture.path(""), fs::Permissions::from_mode(0o755)).expect("the mode is set");
    let (server, address) = server(&fixture, &["server", "--auth"], &[]);
    let controller = controller(&fixture, "controller");
    let url = format!("http://{address}");
    let secrets = fixture.write("secrets", "KEY=hunter2-secret\nOTHER=hunter3-secret\n");
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o600)).expect("the mode is set");
    for (mode, is_isolated) in [("required", true), ("off", false)] {
        let created = fixture.json(&["token", "create", mode, "--role", "agent", "--project", "shop"]);
        let secret = created["secret"].as_str().expect("a secret").to_owned();
        let token = fixture.write(&format!("{mode}.token"), &format!("{secret}\n"));
        // Only the isolation is to protect it.
        fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).expect("the mode is set");
        let mut agent = fixture.command(&["--server", &url, "agent", "run", "--name", mode, "--label", mode]);
        agent.env_remove("TIDEMILL_DATABASE").arg("--token").arg(format!("@{}", token.display()));
        agent.arg("--secrets").arg(&secrets).arg("--dir").arg(fixture.path(&format!("{mode}.agent")));
        let mut agent = Process::start(&fixture, mode, agent.args(["--isolation", mode]));
        let registers = || {
            assert!(agent.is_running() || is_isolated, "{}", agent.stderr());
            let is_listed = agents(&fixture).iter().any(|agent| agent["name"] == mode);
            (is_listed || !agent.is_running()).then_some(())
        };
        wait_until("the agent registers", registers);
        if agent.stderr().contains("isolation of tasks is required, but not available") {
            let missing = "this machine cannot isolate the tasks of an agent";
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}: {}", agent.stderr());
            return not_tested(missing);
        }
        // A shared directory that contains the agent's own directory is not replaced.
        let warns = agent.stderr().contains("tasks share the files in /tmp with the machine");
        let is_shared = fixture.path("").starts_with("/tmp");
        assert_eq!(warns, is_isolated && is_shared, "{}", agent.stderr());
        let script =
            format!("cat {} {} 2>/dev/null; echo KEY is $KEY; true", token.display(), secrets.display());
        let text = format!(
            "version: 1\njobs:\n  attack:\n    labels: [{mode}]\n    secrets: [OTHER]\n    run: |\n      {script}\n"
        );
        let file = fixture.write("attack.graph.yaml", &text).display().to_string();
        let submitted = fixture.ok(&["graph", "submit", &file, "--project", "shop", "--env", "staging"]);
        let run: RunId = submitted.trim().parse().expect("the output is a run id");
        assert_eq!(fixture.wait_for_end(&run).status, RunState::Success, "{}", agent.stderr());
        let log = fixture.ok(&["graph", "logs", run.as_str(), "attack"]);
        for evidence in [secret.as_str(), "hunter2-secret"] {
            assert_eq!(log.contains(evidence), !is_isolated, "{mode}: {log}");
        }
        assert!(
            log.lines().any(|line| line == "KEY is"),
            "a job gets the secrets that it names: {mode}: {log}"
        );
        stop(agent);
    }
    stop(controller);
    stop(server);
}
