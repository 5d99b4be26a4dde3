//! Agents that are killed and restarted at any time: a command runs once, and its result arrives.

use crate::fixture::{Fixture, is_alive, kill, order, signal, success, until};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tidemill_agent::{CommandsOnExit, Error};
use tidemill_core::task::TaskResult;

/// Kills an agent repeatedly, at times in every phase of a task.
#[tokio::test]
async fn agent_killed_repeatedly_runs_the_command_once() {
    for round in 0..6_u64 {
        let fixture = Fixture::new().await;
        let script = "echo begin >> %ran; echo one; sleep 0.1; echo two; echo x > out; echo end >> %ran";
        let mut job = order(&fixture, "job", script);
        job["work"]["outputs"] = json!({"out": "out"});
        fixture.server.order(job);
        let mut kills = 0;
        // The lifetime grows, so that a busy machine makes progress too.
        for millis in (0..).map(|turn| 7 + round + turn * 5 % 160 + turn * turn / 40) {
            let agent = fixture.process();
            tokio::time::sleep(Duration::from_millis(millis)).await;
            let is_over = fixture.server.result("job-001").is_some();
            kill(agent).await;
            kills += 1;
            if is_over {
                break;
            }
            assert!(kills < 400, "the job makes no progress");
        }
        let agent = fixture.process();
        fixture.until_clean().await;
        assert_eq!(fixture.result("job-001").await, success(), "after {kills} kills");
        assert_eq!(fixture.read("ran"), "begin\nend\n", "after {kills} kills");
        assert_eq!(fixture.server.log("job-001"), ["stdout: one", "stdout: two"], "after {kills} kills");
        kill(agent).await;
    }
}

#[tokio::test]
async fn agent_killed_before_the_assignment_is_confirmed() {
    let fixture = Fixture::new().await;
    fixture.server.state().blocked_route = Some("stage");
    fixture.server.order(order(&fixture, "job", "echo ran >> %ran"));
    let agent = fixture.process();
    let order = fixture.agent_dir().join("tasks/job-001/order.json");
    until("the order is stored", || order.exists()).await;
    kill(agent).await;
    assert!(!fixture.path("ran").exists());
    fixture.server.state().blocked_route = None;
    let _agent = fixture.process();
    assert_eq!(fixture.result("job-001").await, success());
    assert_eq!(fixture.read("ran"), "ran\n");
}

#[tokio::test]
async fn prepared_task_that_was_reassigned_is_not_started() {
    for name in ["taken", "prepared"] {
        let fixture = Fixture::new().await;
        let dir = fixture.agent_dir().join("tasks/job-001");
        fs::create_dir_all(dir.join("work")).unwrap();
        fs::create_dir_all(dir.join("tmp")).unwrap();
        let order = order(&fixture, "job", "echo ran >> %ran");
        fs::write(dir.join("order.json"), order.to_string()).unwrap();
        fs::write(dir.join("taken"), "").unwrap();
        fs::write(dir.join(name), "").unwrap();
        fixture.server.state().stale.insert("job-001".to_owned());
        fixture.server.state().blocked_route = Some("stage");
        let agent = fixture.agent();
        // Without a confirmation of the server, the command is not started.
        until("time passes", || fixture.server.state().heartbeats.len() > 2).await;
        assert!(!fixture.path("ran").exists(), "{name}");
        fixture.server.state().blocked_route = None;
        fixture.until_clean().await;
        agent.stop().await.unwrap();
        assert!(!fixture.path("ran").exists(), "{name}");
        assert!(fixture.server.result("job-001").is_none(), "{name}");
    }
}

#[tokio::test]
async fn agent_killed_while_the_command_runs() {
    let fixture = Fixture::new().await;
    let script = "echo $$ > %pid; echo one; while ! test -e %go; do sleep 0.02; done; echo two; exit 5";
    fixture.server.order(order(&fixture, "job", script));
    let agent = fixture.process();
    let pid = fixture.pid("pid").await;
    kill(agent).await;
    assert!(is_alive(pid));
    let agent = fixture.process();
    until("the second process is registered", || fixture.server.state().registered.len() == 2).await;
    kill(agent).await;
    assert!(is_alive(pid));
    fs::write(fixture.path("go"), "").unwrap();
    until("the command ends", || !is_alive(pid)).await;
    assert!(fixture.server.result("job-001").is_none(), "no agent was running");
    let _agent = fixture.process();
    let ended = TaskResult::Ended { exit_code: 5, unmatched: Vec::new(), hint: Vec::new(), message: None };
    assert_eq!(fixture.result("job-001").await, ended);
    assert_eq!(fixture.server.log("job-001"), ["stdout: one", "stdout: two"]);
}

#[tokio::test]
async fn agent_killed_while_outputs_are_collected() {
    let fixture = Fixture::new().await;
    let mut job = order(&fixture, "job", "truncate -s 1G large; echo ran >> %ran");
    job["work"]["outputs"] = json!({"large": "large"});
    fixture.server.order(job);
    let agent = fixture.process();
    until("the outputs are being collected", || fixture.server.has_stage("job-001", "finalizing")).await;
    kill(agent).await;
    assert!(fixture.server.result("job-001").is_none());
    let _agent = fixture.process();
    assert_eq!(fixture.result("job-001").await, success());
    assert_eq!(fixture.server.result("job-001").unwrap().outputs[0].size_bytes, 1 << 30);
    assert_eq!(fixture.read("ran"), "ran\n");
}

#[tokio::test]
async fn agent_killed_before_the_result_is_submitted() {
    let fixture = Fixture::new().await;
    fixture.server.state().blocked_route = Some("result");
    fixture.server.order(order(&fixture, "job", "echo ran >> %ran; echo said"));
    let agent = fixture.process();
    let manifest = fixture.agent_dir().join("tasks/job-001/manifest.json");
    until("the result is stored", || manifest.exists()).await;
    kill(agent).await;
    fixture.server.state().blocked_route = None;
    let _agent = fixture.process();
    assert_eq!(fixture.result("job-001").await, success());
    fixture.until_clean().await;
    assert_eq!(fixture.read("ran"), "ran\n");
    assert_eq!(fixture.server.log("job-001"), ["stdout: said"]);
}

/// All processes of the command are dead when the failure is reported.
#[tokio::test]
async fn killed_supervisor_fails_the_task() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    let script = "setsid sleep 1000 & echo $! > %away; cut -d ' ' -f 4 /proc/$$/stat > %supervisor; wait";
    fixture.server.order(order(&fixture, "job", script));
    let (supervisor, away) = (fixture.pid("supervisor").await, fixture.pid("away").await);
    signal(supervisor, Signal::KILL);
    let result = fixture.result("job-001").await;
    assert!(matches!(result, TaskResult::Failed { fatal: false, .. }), "{result:?}");
    assert!(!is_alive(away), "the failure was reported while a process was alive");
}

/// Tries a command that stops its supervisor once, and one that does so repeatedly. The command is dead before a job
/// with `rerun after 10s` may run on another agent.
#[tokio::test]
async fn stopped_supervisor_loses_its_command_in_time() {
    const AFTER: Duration = Duration::from_secs(10);
    let once = "echo $$ > %pid; kill -STOP $PPID; exec sleep 1000";
    let repeatedly = "echo $$ > %pid; while true; do kill -STOP $PPID; done";
    for script in [once, repeatedly] {
        let fixture = Fixture::new().await;
        let _agent = fixture.agent();
        let mut job = order(&fixture, "job", script);
        job["work"]["on_agent_lost"] = json!({"rerun_after": 10});
        fixture.server.order(job);
        let pid = fixture.pid("pid").await;
        let stopped = std::time::Instant::now();
        until("the command is killed", || !is_alive(pid)).await;
        assert!(stopped.elapsed() < AFTER, "{:?}", stopped.elapsed());
        let result = fixture.result("job-001").await;
        let TaskResult::Failed { fatal: false, message, .. } = &result else { panic!("{result:?}") };
        assert!(message.contains("SIGSTOP"), "{message}");
        fixture.server.order(order(&fixture, "next", "true"));
        assert_eq!(fixture.result("next-001").await, success());
    }
}

/// The next process resumes them.
#[tokio::test]
async fn commands_outlive_a_stopped_agent() {
    let fixture = Fixture::new().await;
    let agent = fixture.agent();
    fixture.server.order(order(&fixture, "job", "echo $$ > %pid; while ! test -e %go; do sleep 0.02; done"));
    let pid = fixture.pid("pid").await;
    let summary = agent.stop().await.unwrap();
    assert_eq!(summary.held, 1);
    assert_eq!(fixture.server.state().retired, 0, "an agent with tasks must not be retired");
    assert!(is_alive(pid));
    fs::write(fixture.path("go"), "").unwrap();
    let agent = fixture.agent();
    assert_eq!(fixture.result("job-001").await, success());
    fixture.until_clean().await;
    agent.stop().await.unwrap();
    assert_eq!(fixture.server.state().retired, 1);
}

#[tokio::test]
async fn agent_stops_commands_on_exit_if_configured() {
    let fixture = Fixture::new().await;
    let mut settings = fixture.settings();
    settings.commands_on_exit = CommandsOnExit::Stop;
    let agent = fixture.agent_with(settings);
    fixture.server.order(order(&fixture, "job", "echo $$ > %pid; exec sleep 1000"));
    let pid = fixture.pid("pid").await;
    let summary = agent.stop().await.unwrap();
    assert!(!is_alive(pid));
    assert_eq!(summary.held, 0);
    let result = fixture.server.result("job-001").unwrap().result;
    assert!(matches!(result, TaskResult::Failed { fatal: false, .. }), "{result:?}");
}

#[tokio::test]
async fn second_agent_on_a_directory_is_refused() {
    let fixture = Fixture::new().await;
    let agent = fixture.agent();
    until("the agent is registered", || !fixture.server.state().registered.is_empty()).await;
    let error = fixture.agent().ended().await.unwrap_err();
    assert!(matches!(&error, Error::Busy { path } if path.ends_with(Path::new("agent"))), "{error}");
    agent.stop().await.unwrap();
}

/// The commands of the superseded agent continue.
#[tokio::test]
async fn superseded_agent_exits() {
    let fixture = Fixture::new().await;
    let agent = fixture.agent();
    fixture.server.order(order(&fixture, "job", "echo $$ > %pid; exec sleep 1000"));
    let pid = fixture.pid("pid").await;
    let mut other = fixture.server.state().registered[0].clone();
    other.boot = uuid::Uuid::new_v4();
    fixture.server.state().registered.push(other);
    let error = agent.ended().await.unwrap_err();
    assert!(error.to_string().starts_with("another process has registered as this agent"), "{error}");
    assert!(is_alive(pid));
    signal(pid, Signal::KILL);
}

/// Each registration proves the secret of the directory and replaces it. After a lost response it is repeated.
#[tokio::test]
async fn registration_replaces_the_secret_of_the_directory() {
    let fixture = Fixture::new().await;
    fixture.server.state().lost_responses.insert("register", 1);
    let agent = fixture.agent();
    until("the agent has sent a heartbeat", || !fixture.server.state().heartbeats.is_empty()).await;
    agent.stop().await.unwrap();
    let agent = fixture.agent();
    until("the next process is registered", || fixture.server.state().registered.len() == 3).await;
    agent.stop().await.unwrap();
    let sent = fixture.server.state().registered.clone();
    assert_eq!((&sent[0].secret, &sent[0].next_secret), (&sent[1].secret, &sent[1].next_secret));
    assert_eq!(sent[2].secret, sent[0].next_secret);
    assert_ne!(sent[2].next_secret, sent[2].secret);
    assert_ne!(sent[2].boot, sent[0].boot, "each process has its own id");
    assert!(sent[0].dir_lock.is_some() && sent[2].dir_lock == sent[0].dir_lock);
}
