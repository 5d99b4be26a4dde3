//! A server that is unreachable, loses responses, or assigns a task to another agent.

use crate::fixture::{Fixture, is_alive, kill, order, signal, success, until};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};
use tidemill_core::task::TaskResult;

/// Each route loses several responses, and each effect happens once.
#[tokio::test]
async fn lost_responses_have_no_effect() {
    let fixture = Fixture::new().await;
    fixture.server.state().lost_responses =
        ["register", "beat", "poll", "stage", "result", "logs"].map(|route| (route, 3)).into();
    let _agent = fixture.agent();
    let mut job = order(&fixture, "job", "echo ran >> %ran; echo one; sleep 0.5; echo two; echo x > out");
    job["work"]["outputs"] = json!({"out": "out"});
    fixture.server.order(job);
    assert_eq!(fixture.result("job-001").await, success());
    fixture.until_clean().await;
    assert_eq!(fixture.read("ran"), "ran\n");
    assert_eq!(fixture.server.log("job-001"), ["stdout: one", "stdout: two"]);
    let results = fixture.server.state().results["job-001"].clone();
    assert!(results.len() == 4 && results.iter().all(|result| *result == results[0]), "{results:?}");
}

#[tokio::test]
async fn unreachable_server_gets_all_reports_later() {
    let fixture = Fixture::new().await;
    fixture.server.state().is_down = true;
    let _agent = fixture.agent();
    tokio::time::sleep(Duration::from_millis(300)).await;
    fixture.server.state().is_down = false;
    let script = "echo begun; touch %running; while ! test -e %go; do sleep 0.02; done; seq 1 2000; exit 3";
    fixture.server.order(order(&fixture, "job", script));
    until("it runs", || fixture.path("running").exists()).await;
    fixture.server.state().is_down = true;
    fs::write(fixture.path("go"), "").unwrap();
    let manifest = fixture.agent_dir().join("tasks/job-001/manifest.json");
    until("it is over", || manifest.exists()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(fixture.server.result("job-001").is_none());
    fixture.server.state().is_down = false;
    let result = fixture.result("job-001").await;
    assert!(matches!(result, TaskResult::Ended { exit_code: 3, .. }), "{result:?}");
    assert_eq!(fixture.server.log("job-001").len(), 2001);
}

#[tokio::test]
async fn task_of_another_agent_is_never_started() {
    let fixture = Fixture::new().await;
    fixture.server.state().stale.insert("job-001".to_owned());
    let _agent = fixture.agent();
    fixture.server.order(order(&fixture, "job", "echo ran >> %ran"));
    until("the agent sends heartbeats", || fixture.server.state().heartbeats.len() > 1).await;
    fixture.server.state().orders.clear();
    fixture.until_clean().await;
    assert!(!fixture.path("ran").exists());
    assert!(fixture.server.result("job-001").is_none());
}

#[tokio::test]
async fn task_reassigned_to_another_agent_is_stopped() {
    let fixture = Fixture::new().await;
    fixture.server.state().blocked_route = Some("poll");
    let agent = fixture.agent();
    fixture.server.order(order(&fixture, "job", "echo $$ > %pid; exec sleep 1000"));
    fixture.server.state().blocked_route = None;
    let pid = fixture.pid("pid").await;
    agent.stop().await.unwrap();
    fixture.server.state().stale.insert("job-001".to_owned());
    assert!(is_alive(pid));
    let _agent = fixture.agent();
    until("it is stopped", || !is_alive(pid)).await;
    fixture.server.state().orders.clear();
    fixture.until_clean().await;
    assert!(fixture.server.result("job-001").is_none());
}

/// After a restart, a running task is stopped and fails, and a task that was not started gets its order again.
#[tokio::test]
async fn unreadable_order_fails_or_is_sent_again() {
    let fixture = Fixture::new().await;
    let agent = fixture.agent();
    fixture.server.order(order(&fixture, "runs", "echo $$ > %pid; exec sleep 1000"));
    let pid = fixture.pid("pid").await;
    fixture.server.state().blocked_route = Some("stage");
    fixture.server.order(order(&fixture, "waits", "echo ran >> %ran"));
    let order_file = |task: &str| fixture.agent_dir().join("tasks").join(task).join("order.json");
    until("the order is stored", || order_file("waits-001").exists()).await;
    agent.stop().await.unwrap();
    // Empty and truncated files, as after a power loss.
    fs::write(order_file("runs-001"), "{\"task_id\": \"ru").unwrap();
    fs::write(order_file("waits-001"), "").unwrap();
    assert!(is_alive(pid));
    fixture.server.state().blocked_route = None;
    let _agent = fixture.agent();
    let TaskResult::Failed { fatal: false, message, .. } = fixture.result("runs-001").await else {
        panic!("the failure is not retryable")
    };
    assert!(message.starts_with("the agent could not read its stored order: "), "{message}");
    assert!(!is_alive(pid));
    assert_eq!(fixture.result("waits-001").await, success());
    assert_eq!(fixture.read("ran"), "ran\n");
    fixture.until_clean().await;
}

/// The command is dead before the server reruns the job on another agent, although its agent is alive.
#[tokio::test]
async fn lost_contact_kills_a_command_in_time() {
    const AFTER: Duration = Duration::from_secs(20);
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    let mut job = order(&fixture, "job", "echo $$ > %pid; exec sleep 1000");
    job["work"]["on_agent_lost"] = json!({"rerun_after": AFTER.as_secs()});
    fixture.server.order(job);
    let mut waiting = order(&fixture, "waiting", "echo $$ > %waiting; exec sleep 1000");
    waiting["work"]["on_agent_lost"] = json!("wait");
    fixture.server.order(waiting);
    let (pid, waiting) = (fixture.pid("pid").await, fixture.pid("waiting").await);
    // With contact, the command lives longer than its limit without contact.
    tokio::time::sleep(AFTER).await;
    assert!(is_alive(pid));
    let cut = Instant::now();
    fixture.server.state().is_down = true;
    until("it is killed", || !is_alive(pid)).await;
    assert!(cut.elapsed() < AFTER, "{:?}", cut.elapsed());
    assert!(is_alive(waiting), "this command waits for its agent");
    fixture.server.state().is_down = false;
    let result = fixture.result("job-001").await;
    assert!(matches!(result, TaskResult::Failed { fatal: false, .. }), "{result:?}");
    assert!(is_alive(waiting));
    fixture.server.state().over.insert("waiting-001".to_owned());
    until("it is stopped", || !is_alive(waiting)).await;
}

/// The resumed agent learns that the task was reassigned, and confirms the assignment of a task that it was about to
/// start.
#[tokio::test]
async fn frozen_agent_loses_its_command_in_time() {
    const AFTER: Duration = Duration::from_secs(20);
    let fixture = Fixture::new().await;
    let agent = fixture.process();
    let mut job = order(&fixture, "job", "echo $$ > %pid; exec sleep 1000");
    job["work"]["on_agent_lost"] = json!({"rerun_after": AFTER.as_secs()});
    fixture.server.order(job);
    let pid = fixture.pid("pid").await;
    until("the server knows that it runs", || fixture.server.has_stage("job-001", "executing")).await;
    let id = agent.id().unwrap().try_into().unwrap();
    fixture.server.state().blocked_route = Some("stage");
    let mut late = order(&fixture, "late", "echo ran >> %ran");
    late["work"]["on_agent_lost"] = json!({"rerun_after": AFTER.as_secs()});
    fixture.server.order(late);
    until("the order is stored", || fixture.agent_dir().join("tasks/late-001/order.json").exists()).await;
    signal(id, Signal::STOP);
    let frozen = Instant::now();
    // Meanwhile the server assigns both to another agent.
    fixture.server.state().stale.extend(["job-001".to_owned(), "late-001".to_owned()]);
    fixture.server.state().blocked_route = None;
    until("it is killed", || !is_alive(pid)).await;
    assert!(frozen.elapsed() < AFTER, "{:?}", frozen.elapsed());
    signal(id, Signal::CONT);
    until("the agent reports the lost task", || fixture.server.state().results.contains_key("job-001")).await;
    fixture.server.state().orders.clear();
    fixture.until_clean().await;
    assert!(!fixture.path("ran").exists());
    kill(agent).await;
}
