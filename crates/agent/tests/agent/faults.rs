//! A server that is away, loses answers, or gives a task to somebody else.

use crate::stage::{Ground, is_alive, kill, order, signal, until, well};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};
use tidemill_core::task::TaskResult;

/// Shows that every answer may get lost, several times, and everything happens once.
#[tokio::test]
async fn lost_answers_change_nothing() {
    let ground = Ground::new().await;
    ground.server.known().lost =
        ["register", "beat", "poll", "stage", "result", "logs"].map(|route| (route, 3)).into();
    let _agent = ground.agent();
    let mut job = order(&ground, "job", "echo ran >> %ran; echo one; sleep 0.5; echo two; echo x > out");
    job["work"]["outputs"] = json!({"out": "out"});
    ground.server.order(job);
    assert_eq!(ground.result("job-001").await, well());
    ground.until_clean().await;
    assert_eq!(ground.wrote("ran"), "ran\n");
    assert_eq!(ground.server.log("job-001"), ["stdout: one", "stdout: two"]);
    let results = ground.server.known().results["job-001"].clone();
    assert!(results.len() == 4 && results.iter().all(|result| *result == results[0]), "{results:?}");
}

#[tokio::test]
async fn a_server_that_is_away_gets_everything_later() {
    let ground = Ground::new().await;
    ground.server.known().is_down = true;
    let _agent = ground.agent();
    tokio::time::sleep(Duration::from_millis(300)).await;
    ground.server.known().is_down = false;
    let script = "echo begun; touch %running; while ! test -e %go; do sleep 0.02; done; seq 1 2000; exit 3";
    ground.server.order(order(&ground, "job", script));
    until("it runs", || ground.path("running").exists()).await;
    ground.server.known().is_down = true;
    fs::write(ground.path("go"), "").unwrap();
    let manifest = ground.home().join("tasks/job-001/manifest.json");
    until("it is over", || manifest.exists()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(ground.server.result("job-001").is_none());
    ground.server.known().is_down = false;
    let result = ground.result("job-001").await;
    assert!(matches!(result, TaskResult::Ended { exit_code: 3, .. }), "{result:?}");
    assert_eq!(ground.server.log("job-001").len(), 2001);
}

#[tokio::test]
async fn what_is_anothers_is_never_started() {
    let ground = Ground::new().await;
    ground.server.known().stale.insert("job-001".to_owned());
    let _agent = ground.agent();
    ground.server.order(order(&ground, "job", "echo ran >> %ran"));
    until("the agent asked", || ground.server.known().beats.len() > 1).await;
    ground.server.known().orders.clear();
    ground.until_clean().await;
    assert!(!ground.path("ran").exists());
    assert!(ground.server.result("job-001").is_none());
}

/// Shows that a command is stopped when the server says that the task is another's by now.
#[tokio::test]
async fn what_becomes_anothers_is_stopped() {
    let ground = Ground::new().await;
    ground.server.known().held = Some("poll");
    let agent = ground.agent();
    ground.server.order(order(&ground, "job", "echo $$ > %pid; exec sleep 1000"));
    ground.server.known().held = None;
    let pid = ground.pid("pid").await;
    agent.stop().await.unwrap();
    ground.server.known().stale.insert("job-001".to_owned());
    assert!(is_alive(pid));
    let _agent = ground.agent();
    until("it is stopped", || !is_alive(pid)).await;
    ground.server.known().orders.clear();
    ground.until_clean().await;
    assert!(ground.server.result("job-001").is_none());
}

/// Shows that an order which cannot be read after a restart costs no more than its task: what had not begun comes
/// again, and what runs is ended before it is said that it came to nothing.
#[tokio::test]
async fn an_order_that_cannot_be_read_is_told_or_comes_again() {
    let ground = Ground::new().await;
    let agent = ground.agent();
    ground.server.order(order(&ground, "runs", "echo $$ > %pid; exec sleep 1000"));
    let pid = ground.pid("pid").await;
    ground.server.known().held = Some("stage");
    ground.server.order(order(&ground, "waits", "echo ran >> %ran"));
    let kept = |task: &str| ground.home().join("tasks").join(task).join("order.json");
    until("the order is kept", || kept("waits-001").exists()).await;
    agent.stop().await.unwrap();
    // As a loss of power may leave them: there, and empty or half.
    fs::write(kept("runs-001"), "{\"task_id\": \"ru").unwrap();
    fs::write(kept("waits-001"), "").unwrap();
    assert!(is_alive(pid));
    ground.server.known().held = None;
    let _agent = ground.agent();
    let TaskResult::Failed { fatal: false, message, .. } = ground.result("runs-001").await else {
        panic!("another try may do better")
    };
    assert!(message.starts_with("its agent cannot read the order any more that it kept: "), "{message}");
    assert!(!is_alive(pid));
    assert_eq!(ground.result("waits-001").await, well());
    assert_eq!(ground.wrote("ran"), "ran\n");
    ground.until_clean().await;
}

/// Shows that the command of a job which is run elsewhere after a while is dead before that, though its agent
/// lives.
#[tokio::test]
async fn lost_contact_ends_a_command_in_time() {
    const AFTER: Duration = Duration::from_secs(20);
    let ground = Ground::new().await;
    let _agent = ground.agent();
    let mut job = order(&ground, "job", "echo $$ > %pid; exec sleep 1000");
    job["work"]["on_agent_lost"] = json!({"rerun_after": AFTER.as_secs()});
    ground.server.order(job);
    let mut kept = order(&ground, "kept", "echo $$ > %kept; exec sleep 1000");
    kept["work"]["on_agent_lost"] = json!("wait");
    ground.server.order(kept);
    let (pid, kept) = (ground.pid("pid").await, ground.pid("kept").await);
    // Contact keeps it alive for longer than it would live without.
    tokio::time::sleep(AFTER).await;
    assert!(is_alive(pid));
    let cut = Instant::now();
    ground.server.known().is_down = true;
    until("it is killed", || !is_alive(pid)).await;
    assert!(cut.elapsed() < AFTER, "{:?}", cut.elapsed());
    assert!(is_alive(kept), "this one waits for its agent");
    ground.server.known().is_down = false;
    let result = ground.result("job-001").await;
    assert!(matches!(result, TaskResult::Failed { fatal: false, .. }), "{result:?}");
    assert!(is_alive(kept));
    ground.server.known().over.insert("kept-001".to_owned());
    until("it is stopped", || !is_alive(kept)).await;
}

/// Shows that a frozen agent loses a command that is to run elsewhere, that it learns so when it thaws, and that a task
/// which it was about to start by then is asked for again.
#[tokio::test]
async fn a_frozen_agent_loses_its_command_in_time() {
    const AFTER: Duration = Duration::from_secs(20);
    let ground = Ground::new().await;
    let agent = ground.process();
    let mut job = order(&ground, "job", "echo $$ > %pid; exec sleep 1000");
    job["work"]["on_agent_lost"] = json!({"rerun_after": AFTER.as_secs()});
    ground.server.order(job);
    let pid = ground.pid("pid").await;
    until("the server knows that it runs", || ground.server.has_stage("job-001", "executing")).await;
    let id = agent.id().unwrap().try_into().unwrap();
    ground.server.known().held = Some("stage");
    let mut late = order(&ground, "late", "echo ran >> %ran");
    late["work"]["on_agent_lost"] = json!({"rerun_after": AFTER.as_secs()});
    ground.server.order(late);
    until("the order is kept", || ground.home().join("tasks/late-001/order.json").exists()).await;
    signal(id, Signal::STOP);
    let frozen = Instant::now();
    // Meanwhile the server gives both to somebody else.
    ground.server.known().stale.extend(["job-001".to_owned(), "late-001".to_owned()]);
    ground.server.known().held = None;
    until("it is killed", || !is_alive(pid)).await;
    assert!(frozen.elapsed() < AFTER, "{:?}", frozen.elapsed());
    signal(id, Signal::CONT);
    until("it learns that it is another's", || ground.server.known().results.contains_key("job-001")).await;
    ground.server.known().orders.clear();
    ground.until_clean().await;
    assert!(!ground.path("ran").exists());
    kill(agent).await;
}
