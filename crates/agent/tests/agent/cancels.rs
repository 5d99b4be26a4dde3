//! Orders to stop, at every point of a task's life: nothing runs once they are confirmed.

use crate::stage::{Ground, cancel, is_alive, kill, order, until, well};
use serde_json::json;
use std::fs;
use tidemill_core::task::TaskResult;

/// The order to run comes late, to the process that confirmed the stop or to the next one.
#[tokio::test]
async fn what_never_came_is_confirmed_at_once_and_never_runs() {
    let ground = Ground::new().await;
    let agent = ground.agent();
    for job in ["soon", "later"] {
        ground.server.order(cancel(job));
        assert_eq!(ground.result(&format!("{job}-001-cancel")).await, TaskResult::Stopped);
    }
    ground.server.order(order(&ground, "soon", "echo ran >> %ran"));
    assert_eq!(ground.result("soon-001").await, TaskResult::Stopped);
    agent.stop().await.unwrap();
    let _agent = ground.agent();
    ground.server.order(order(&ground, "later", "echo ran >> %ran"));
    assert_eq!(ground.result("later-001").await, TaskResult::Stopped);
    assert!(!ground.path("ran").exists());
}

#[tokio::test]
async fn before_the_server_said_yes() {
    let ground = Ground::new().await;
    ground.server.known().held = Some("stage");
    let _agent = ground.agent();
    ground.server.order(order(&ground, "job", "echo ran >> %ran"));
    until("the order is kept", || ground.home().join("tasks/job-001/order.json").exists()).await;
    ground.server.order(cancel("job"));
    assert_eq!(ground.result("job-001-cancel").await, TaskResult::Stopped);
    ground.server.known().held = None;
    assert_eq!(ground.result("job-001").await, TaskResult::Stopped);
    assert!(!ground.path("ran").exists());
}

#[tokio::test]
async fn while_it_runs_and_twice() {
    let ground = Ground::new().await;
    ground.server.known().repeats = true;
    let _agent = ground.agent();
    let script = "trap 'echo asked >> %asked; exit 1' TERM; echo $$ > %pid; while :; do sleep 0.02; done";
    ground.server.order(order(&ground, "job", script));
    let pid = ground.pid("pid").await;
    ground.server.order(cancel("job"));
    assert_eq!(ground.result("job-001-cancel").await, TaskResult::Stopped);
    assert!(!is_alive(pid), "it was confirmed while it ran");
    assert_eq!(ground.wrote("asked"), "asked\n");
    assert_eq!(ground.result("job-001").await, TaskResult::Stopped);
    ground.server.order(cancel("job"));
    until("it is confirmed again", || ground.server.known().results["job-001-cancel"].len() > 1).await;
}

/// Shows that a command that does not listen is killed, with what it started.
#[tokio::test]
async fn a_command_that_does_not_listen_is_killed() {
    let ground = Ground::new().await;
    let mut settings = ground.settings();
    settings.grace = std::time::Duration::from_millis(200);
    let _agent = ground.agent_with(settings);
    let script =
        "trap '' TERM; setsid sleep 1000 & echo $! > %away; echo $$ > %pid; while :; do sleep 0.02; done";
    ground.server.order(order(&ground, "job", script));
    let (pid, away) = (ground.pid("pid").await, ground.pid("away").await);
    ground.server.order(cancel("job"));
    assert_eq!(ground.result("job-001-cancel").await, TaskResult::Stopped);
    assert!(!is_alive(pid) && !is_alive(away));
}

#[tokio::test]
async fn while_what_was_left_is_looked_at() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    let mut job = order(&ground, "job", "truncate -s 20G large");
    job["work"]["outputs"] = json!({"large": "large"});
    ground.server.order(job);
    until("it looks", || ground.server.has_stage("job-001", "finalizing")).await;
    ground.server.order(cancel("job"));
    assert_eq!(ground.result("job-001-cancel").await, TaskResult::Stopped);
    assert_eq!(ground.result("job-001").await, TaskResult::Stopped);
    ground.until_clean().await;
    assert!(!ground.home().join("workspaces/main/job").exists());
}

#[tokio::test]
async fn after_its_end() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    ground.server.known().held = Some("result");
    ground.server.order(order(&ground, "job", "echo ran >> %ran"));
    until("the result is written down", || ground.home().join("tasks/job-001/manifest.json").exists()).await;
    ground.server.order(cancel("job"));
    until("the order to stop is kept", || ground.home().join("tasks/job-001-cancel").exists()).await;
    ground.server.known().held = None;
    assert_eq!(ground.result("job-001-cancel").await, TaskResult::Stopped);
    assert_eq!(ground.result("job-001").await, well());
}

/// Shows that an agent which is killed between an order to stop and its confirmation goes on with it.
#[tokio::test]
async fn the_agent_is_killed_meanwhile() {
    let ground = Ground::new().await;
    let agent = ground.process();
    ground.server.order(order(&ground, "job", "echo $$ > %pid; exec sleep 1000"));
    let pid = ground.pid("pid").await;
    kill(agent).await;
    ground.server.order(cancel("job"));
    ground.server.known().held = Some("result");
    let agent = ground.process();
    until("it is stopped", || !is_alive(pid)).await;
    kill(agent).await;
    ground.server.known().held = None;
    let _agent = ground.process();
    assert_eq!(ground.result("job-001-cancel").await, TaskResult::Stopped);
    assert_eq!(ground.result("job-001").await, TaskResult::Stopped);
}

/// Shows that what is over for the server is stopped, removed, and not reported.
#[tokio::test]
async fn what_is_over_is_forgotten() {
    let ground = Ground::new().await;
    let agent = ground.agent();
    ground.server.order(order(&ground, "job", "echo $$ > %pid; exec sleep 1000"));
    ground.server.order(cancel("never"));
    let pid = ground.pid("pid").await;
    assert_eq!(ground.result("never-001-cancel").await, TaskResult::Stopped);
    until("it is remembered", || {
        let known = ground.server.known();
        known.beats.last().is_some_and(|beat| beat.holding.iter().any(|held| held.task_id == "never-001"))
    })
    .await;
    {
        let mut known = ground.server.known();
        known.orders.clear();
        known.over.extend(["job-001".to_owned(), "never-001".to_owned()]);
    }
    ground.until_clean().await;
    assert!(!is_alive(pid));
    assert!(ground.server.result("job-001").is_none());
    agent.stop().await.unwrap();
    assert!(fs::read_dir(ground.home().join("tasks")).unwrap().next().is_none());
}
