//! Cancel orders at every stage of a task: no process is alive once they are confirmed.

use crate::fixture::{Fixture, cancel, is_alive, kill, order, success, until};
use serde_json::json;
use std::fs;
use tidemill_core::task::TaskResult;

/// The run order arrives late, at the process that confirmed the cancellation or at the next one.
#[tokio::test]
async fn cancel_before_the_run_order_prevents_the_run() {
    let fixture = Fixture::new().await;
    let agent = fixture.agent();
    for job in ["soon", "later"] {
        fixture.server.order(cancel(job));
        assert_eq!(fixture.result(&format!("{job}-001-cancel")).await, TaskResult::Stopped);
    }
    fixture.server.order(order(&fixture, "soon", "echo ran >> %ran"));
    assert_eq!(fixture.result("soon-001").await, TaskResult::Stopped);
    agent.stop().await.unwrap();
    let _agent = fixture.agent();
    fixture.server.order(order(&fixture, "later", "echo ran >> %ran"));
    assert_eq!(fixture.result("later-001").await, TaskResult::Stopped);
    assert!(!fixture.path("ran").exists());
}

#[tokio::test]
async fn cancel_before_the_assignment_is_confirmed() {
    let fixture = Fixture::new().await;
    fixture.server.state().blocked_route = Some("stage");
    let _agent = fixture.agent();
    fixture.server.order(order(&fixture, "job", "echo ran >> %ran"));
    until("the order is stored", || fixture.agent_dir().join("tasks/job-001/order.json").exists()).await;
    fixture.server.order(cancel("job"));
    assert_eq!(fixture.result("job-001-cancel").await, TaskResult::Stopped);
    fixture.server.state().blocked_route = None;
    assert_eq!(fixture.result("job-001").await, TaskResult::Stopped);
    assert!(!fixture.path("ran").exists());
}

#[tokio::test]
async fn repeated_cancel_of_a_running_command_is_confirmed() {
    let fixture = Fixture::new().await;
    fixture.server.state().repeats_orders = true;
    let _agent = fixture.agent();
    let script = "trap 'echo stopped >> %stopped; exit 1' TERM; echo $$ > %pid; while :; do sleep 0.02; done";
    fixture.server.order(order(&fixture, "job", script));
    let pid = fixture.pid("pid").await;
    fixture.server.order(cancel("job"));
    assert_eq!(fixture.result("job-001-cancel").await, TaskResult::Stopped);
    assert!(!is_alive(pid), "the cancellation was confirmed while the command ran");
    assert_eq!(fixture.read("stopped"), "stopped\n");
    assert_eq!(fixture.result("job-001").await, TaskResult::Stopped);
    fixture.server.order(cancel("job"));
    until("it is confirmed again", || fixture.server.state().results["job-001-cancel"].len() > 1).await;
}

#[tokio::test]
async fn cancel_kills_a_command_that_ignores_sigterm() {
    let fixture = Fixture::new().await;
    let mut settings = fixture.settings();
    settings.grace = std::time::Duration::from_millis(200);
    let _agent = fixture.agent_with(settings);
    let script =
        "trap '' TERM; setsid sleep 1000 & echo $! > %away; echo $$ > %pid; while :; do sleep 0.02; done";
    fixture.server.order(order(&fixture, "job", script));
    let (pid, away) = (fixture.pid("pid").await, fixture.pid("away").await);
    fixture.server.order(cancel("job"));
    assert_eq!(fixture.result("job-001-cancel").await, TaskResult::Stopped);
    assert!(!is_alive(pid) && !is_alive(away));
}

#[tokio::test]
async fn cancel_while_outputs_are_collected() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    let mut job = order(&fixture, "job", "truncate -s 20G large");
    job["work"]["outputs"] = json!({"large": "large"});
    fixture.server.order(job);
    until("the outputs are being collected", || fixture.server.has_stage("job-001", "finalizing")).await;
    fixture.server.order(cancel("job"));
    assert_eq!(fixture.result("job-001-cancel").await, TaskResult::Stopped);
    assert_eq!(fixture.result("job-001").await, TaskResult::Stopped);
    fixture.until_clean().await;
    assert!(!fixture.agent_dir().join("workspaces/main/job").exists());
}

#[tokio::test]
async fn cancel_after_the_end_keeps_the_result() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    fixture.server.state().blocked_route = Some("result");
    fixture.server.order(order(&fixture, "job", "echo ran >> %ran"));
    until("the result is stored", || fixture.agent_dir().join("tasks/job-001/manifest.json").exists()).await;
    fixture.server.order(cancel("job"));
    until("the cancel order is stored", || fixture.agent_dir().join("tasks/job-001-cancel").exists()).await;
    fixture.server.state().blocked_route = None;
    assert_eq!(fixture.result("job-001-cancel").await, TaskResult::Stopped);
    assert_eq!(fixture.result("job-001").await, success());
}

#[tokio::test]
async fn killed_agent_resumes_a_cancel_order() {
    let fixture = Fixture::new().await;
    let agent = fixture.process();
    fixture.server.order(order(&fixture, "job", "echo $$ > %pid; exec sleep 1000"));
    let pid = fixture.pid("pid").await;
    kill(agent).await;
    fixture.server.order(cancel("job"));
    fixture.server.state().blocked_route = Some("result");
    let agent = fixture.process();
    until("it is stopped", || !is_alive(pid)).await;
    kill(agent).await;
    fixture.server.state().blocked_route = None;
    let _agent = fixture.process();
    assert_eq!(fixture.result("job-001-cancel").await, TaskResult::Stopped);
    assert_eq!(fixture.result("job-001").await, TaskResult::Stopped);
}

#[tokio::test]
async fn ended_task_is_stopped_and_removed_without_report() {
    let fixture = Fixture::new().await;
    let agent = fixture.agent();
    fixture.server.order(order(&fixture, "job", "echo $$ > %pid; exec sleep 1000"));
    fixture.server.order(cancel("never"));
    let pid = fixture.pid("pid").await;
    assert_eq!(fixture.result("never-001-cancel").await, TaskResult::Stopped);
    until("it is remembered", || {
        let state = fixture.server.state();
        state
            .heartbeats
            .last()
            .is_some_and(|beat| beat.holding.iter().any(|held| held.task_id == "never-001"))
    })
    .await;
    {
        let mut state = fixture.server.state();
        state.orders.clear();
        state.over.extend(["job-001".to_owned(), "never-001".to_owned()]);
    }
    fixture.until_clean().await;
    assert!(!is_alive(pid));
    assert!(fixture.server.result("job-001").is_none());
    agent.stop().await.unwrap();
    assert!(fs::read_dir(fixture.agent_dir().join("tasks")).unwrap().next().is_none());
}
