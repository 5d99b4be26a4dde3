//! Agents that are killed at any moment and started again: a command runs once, and its result arrives.

use crate::stage::{Ground, is_alive, kill, order, signal, until, well};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tidemill_agent::{Commands, Error};
use tidemill_core::task::TaskResult;

/// Kills an agent over and over, at moments that fall everywhere in the life of a task.
#[tokio::test]
async fn killed_at_any_moment() {
    for round in 0..6_u64 {
        let ground = Ground::new().await;
        let script = "echo begin >> %ran; echo one; sleep 0.1; echo two; echo x > out; echo end >> %ran";
        let mut job = order(&ground, "job", script);
        job["work"]["outputs"] = json!({"out": "out"});
        ground.server.order(job);
        let mut kills = 0;
        // Longer and longer, so that also a busy machine makes progress.
        for lives in (0..).map(|turn| 7 + round + turn * 5 % 160 + turn * turn / 40) {
            let agent = ground.process();
            tokio::time::sleep(Duration::from_millis(lives)).await;
            let is_over = ground.server.result("job-001").is_some();
            kill(agent).await;
            kills += 1;
            if is_over {
                break;
            }
            assert!(kills < 400, "the job makes no progress");
        }
        let agent = ground.process();
        ground.until_clean().await;
        assert_eq!(ground.result("job-001").await, well(), "after {kills} kills");
        assert_eq!(ground.wrote("ran"), "begin\nend\n", "after {kills} kills");
        assert_eq!(ground.server.log("job-001"), ["stdout: one", "stdout: two"], "after {kills} kills");
        kill(agent).await;
    }
}

#[tokio::test]
async fn killed_before_the_server_said_yes() {
    let ground = Ground::new().await;
    ground.server.known().held = Some("stage");
    ground.server.order(order(&ground, "job", "echo ran >> %ran"));
    let agent = ground.process();
    let order = ground.home().join("tasks/job-001/order.json");
    until("the order is kept", || order.exists()).await;
    kill(agent).await;
    assert!(!ground.path("ran").exists());
    ground.server.known().held = None;
    let _agent = ground.process();
    assert_eq!(ground.result("job-001").await, well());
    assert_eq!(ground.wrote("ran"), "ran\n");
}

/// Shows that a task which was prepared, and is another's when its agent comes back, is not started.
#[tokio::test]
async fn what_became_anothers_meanwhile_is_not_started() {
    for name in ["taken", "prepared"] {
        let ground = Ground::new().await;
        let dir = ground.home().join("tasks/job-001");
        fs::create_dir_all(dir.join("work")).unwrap();
        fs::create_dir_all(dir.join("tmp")).unwrap();
        let order = order(&ground, "job", "echo ran >> %ran");
        fs::write(dir.join("order.json"), order.to_string()).unwrap();
        fs::write(dir.join("taken"), "").unwrap();
        fs::write(dir.join(name), "").unwrap();
        ground.server.known().stale.insert("job-001".to_owned());
        ground.server.known().held = Some("stage");
        let agent = ground.agent();
        // As long as the server says nothing, nothing happens.
        until("time passes", || ground.server.known().beats.len() > 2).await;
        assert!(!ground.path("ran").exists(), "{name}");
        ground.server.known().held = None;
        ground.until_clean().await;
        agent.stop().await.unwrap();
        assert!(!ground.path("ran").exists(), "{name}");
        assert!(ground.server.result("job-001").is_none(), "{name}");
    }
}

#[tokio::test]
async fn killed_while_the_command_runs() {
    let ground = Ground::new().await;
    let script = "echo $$ > %pid; echo one; while ! test -e %go; do sleep 0.02; done; echo two; exit 5";
    ground.server.order(order(&ground, "job", script));
    let agent = ground.process();
    let pid = ground.pid("pid").await;
    kill(agent).await;
    assert!(is_alive(pid));
    let agent = ground.process();
    until("it is taken up", || ground.server.known().registered.len() == 2).await;
    kill(agent).await;
    assert!(is_alive(pid));
    fs::write(ground.path("go"), "").unwrap();
    until("the command ends", || !is_alive(pid)).await;
    assert!(ground.server.result("job-001").is_none(), "nobody was there to say so");
    let _agent = ground.process();
    let ended = TaskResult::Ended { exit_code: 5, unmatched: Vec::new(), hint: Vec::new(), message: None };
    assert_eq!(ground.result("job-001").await, ended);
    assert_eq!(ground.server.log("job-001"), ["stdout: one", "stdout: two"]);
}

#[tokio::test]
async fn killed_while_it_looks_at_what_was_left() {
    let ground = Ground::new().await;
    let mut job = order(&ground, "job", "truncate -s 1G large; echo ran >> %ran");
    job["work"]["outputs"] = json!({"large": "large"});
    ground.server.order(job);
    let agent = ground.process();
    until("it looks", || ground.server.has_stage("job-001", "finalizing")).await;
    kill(agent).await;
    assert!(ground.server.result("job-001").is_none());
    let _agent = ground.process();
    assert_eq!(ground.result("job-001").await, well());
    assert_eq!(ground.server.result("job-001").unwrap().outputs[0].size_bytes, 1 << 30);
    assert_eq!(ground.wrote("ran"), "ran\n");
}

#[tokio::test]
async fn killed_before_the_result_was_taken() {
    let ground = Ground::new().await;
    ground.server.known().held = Some("result");
    ground.server.order(order(&ground, "job", "echo ran >> %ran; echo said"));
    let agent = ground.process();
    let manifest = ground.home().join("tasks/job-001/manifest.json");
    until("the result is written down", || manifest.exists()).await;
    kill(agent).await;
    ground.server.known().held = None;
    let _agent = ground.process();
    assert_eq!(ground.result("job-001").await, well());
    ground.until_clean().await;
    assert_eq!(ground.wrote("ran"), "ran\n");
    assert_eq!(ground.server.log("job-001"), ["stdout: said"]);
}

/// Shows that a supervisor's death is told as such, and that nothing of its command runs then.
#[tokio::test]
async fn a_supervisor_that_is_killed_is_told() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    let script = "setsid sleep 1000 & echo $! > %away; cut -d ' ' -f 4 /proc/$$/stat > %supervisor; wait";
    ground.server.order(order(&ground, "job", script));
    let (supervisor, away) = (ground.pid("supervisor").await, ground.pid("away").await);
    signal(supervisor, Signal::KILL);
    let result = ground.result("job-001").await;
    assert!(matches!(result, TaskResult::Failed { fatal: false, .. }), "{result:?}");
    assert!(!is_alive(away), "it was told while something ran");
}

/// Shows that a supervisor which its command stopped is noticed, and that the command is dead before a job with
/// `rerun after 10s` may run elsewhere, also where the command stops its supervisor over and over.
#[tokio::test]
async fn stopped_supervisor_loses_its_command_in_time() {
    const AFTER: Duration = Duration::from_secs(10);
    let once = "echo $$ > %pid; kill -STOP $PPID; exec sleep 1000";
    let always = "echo $$ > %pid; while true; do kill -STOP $PPID; done";
    for script in [once, always] {
        let ground = Ground::new().await;
        let _agent = ground.agent();
        let mut job = order(&ground, "job", script);
        job["work"]["on_agent_lost"] = json!({"rerun_after": 10});
        ground.server.order(job);
        let pid = ground.pid("pid").await;
        let stopped = std::time::Instant::now();
        until("the command is killed", || !is_alive(pid)).await;
        assert!(stopped.elapsed() < AFTER, "{:?}", stopped.elapsed());
        let result = ground.result("job-001").await;
        let TaskResult::Failed { fatal: false, message, .. } = &result else { panic!("{result:?}") };
        assert!(message.contains("SIGSTOP"), "{message}");
        ground.server.order(order(&ground, "next", "true"));
        assert_eq!(ground.result("next-001").await, well());
    }
}

/// Shows that an agent which is told to end leaves its commands running, and takes them up again.
#[tokio::test]
async fn commands_outlive_an_agent_that_is_told_to_end() {
    let ground = Ground::new().await;
    let agent = ground.agent();
    ground.server.order(order(&ground, "job", "echo $$ > %pid; while ! test -e %go; do sleep 0.02; done"));
    let pid = ground.pid("pid").await;
    let carried = agent.stop().await.unwrap();
    assert_eq!(carried.held, 1);
    assert_eq!(ground.server.known().goodbyes, 0, "what is held waits for the agent");
    assert!(is_alive(pid));
    fs::write(ground.path("go"), "").unwrap();
    let agent = ground.agent();
    assert_eq!(ground.result("job-001").await, well());
    ground.until_clean().await;
    agent.stop().await.unwrap();
    assert_eq!(ground.server.known().goodbyes, 1);
}

#[tokio::test]
async fn commands_are_stopped_where_that_is_wanted() {
    let ground = Ground::new().await;
    let mut settings = ground.settings();
    settings.commands = Commands::Stop;
    let agent = ground.agent_with(settings);
    ground.server.order(order(&ground, "job", "echo $$ > %pid; exec sleep 1000"));
    let pid = ground.pid("pid").await;
    let carried = agent.stop().await.unwrap();
    assert!(!is_alive(pid));
    assert_eq!(carried.held, 0);
    let result = ground.server.result("job-001").unwrap().result;
    assert!(matches!(result, TaskResult::Failed { fatal: false, .. }), "{result:?}");
}

#[tokio::test]
async fn a_directory_has_one_agent() {
    let ground = Ground::new().await;
    let agent = ground.agent();
    until("it is there", || !ground.server.known().registered.is_empty()).await;
    let error = ground.agent().ended().await.unwrap_err();
    assert!(matches!(&error, Error::Busy { path } if path.ends_with(Path::new("agent"))), "{error}");
    agent.stop().await.unwrap();
}

/// Shows that an agent ends when another process speaks for it, and that its commands go on.
#[tokio::test]
async fn an_agent_that_is_spoken_for_ends() {
    let ground = Ground::new().await;
    let agent = ground.agent();
    ground.server.order(order(&ground, "job", "echo $$ > %pid; exec sleep 1000"));
    let pid = ground.pid("pid").await;
    let mut other = ground.server.known().registered[0].clone();
    other.boot = uuid::Uuid::new_v4();
    ground.server.known().registered.push(other);
    let error = agent.ended().await.unwrap_err();
    assert!(error.to_string().starts_with("another process speaks for this agent"), "{error}");
    assert!(is_alive(pid));
    signal(pid, Signal::KILL);
}
