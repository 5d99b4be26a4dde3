//! Task directories that are removed, emptied, replaced or made unreadable.
//!
//! The task fails, its command is killed, and no second command is started.

use crate::fixture::{Fixture, cancel, is_alive, kill, order, signal, success, until};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use tidemill_core::task::TaskResult;

/// Ways to lose a directory. `$D` is the task directory, `$T` that of all tasks, `$H` that of the agent.
const LOSSES: [(&str, &str); 7] = [
    ("removed", "rm -rf \"$D\""),
    ("emptied", "rm -rf \"$D\"/*"),
    ("replaced-by-a-file", "rm -rf \"$D\"; echo x > \"$D\""),
    (
        "replaced-by-a-link",
        "rm -rf \"$D\"; mkdir -p %elsewhere/work; touch %elsewhere/run.json; ln -s %elsewhere \"$D\"",
    ),
    ("created-again", "rm -rf \"$D\"; mkdir \"$D\""),
    ("all-tasks-removed", "rm -rf \"$T\""),
    ("root-removed", "rm -rf \"$H\""),
];
const NAMES: &str = "D=$TIDEMILL_TASK_DIR; T=$(dirname \"$D\"); H=$(dirname \"$T\")";

fn is_directory_failure(result: &TaskResult) -> bool {
    matches!(result, TaskResult::Failed { fatal: false, message, .. } if message.contains("directory of the task"))
}

/// The failure is retryable, and the agent accepts the next task.
#[tokio::test]
async fn lost_directory_ends_the_command_and_the_task() {
    for (name, loss) in LOSSES {
        let fixture = Fixture::new().await;
        let agent = fixture.agent();
        let line = format!("{NAMES}; echo ran >> %ran; echo $$ > %pid; {loss}; exec sleep 1000");
        fixture.server.order(order(&fixture, "job", &line));
        let pid = fixture.pid("pid").await;
        let result = fixture.result("job-001").await;
        assert!(is_directory_failure(&result), "{name}: {result:?}");
        assert!(!is_alive(pid), "{name}: the failure was reported while the command ran");
        fixture.server.order(order(&fixture, "next", "true"));
        assert_eq!(fixture.result("next-001").await, success(), "{name}");
        fixture.until_clean().await;
        assert_eq!(fixture.read("ran"), "ran\n", "{name}");
        let summary = agent.stop().await.unwrap();
        assert_eq!((summary.taken, summary.ended, summary.held), (2, 2, 0), "{name}");
    }
}

/// The command removes its directory as its last action, with or without outputs.
#[tokio::test]
async fn directory_lost_at_the_end_fails_the_task() {
    for outputs in [json!({}), json!({"out": "out"})] {
        let fixture = Fixture::new().await;
        let _agent = fixture.agent();
        let mut job = order(&fixture, "job", "echo x > out; rm -rf \"$TIDEMILL_TASK_DIR\"");
        job["work"]["outputs"] = outputs.clone();
        fixture.server.order(job);
        let result = fixture.result("job-001").await;
        assert!(is_directory_failure(&result), "{outputs}: {result:?}");
        fixture.server.order(order(&fixture, "next", "true"));
        assert_eq!(fixture.result("next-001").await, success());
    }
}

#[tokio::test]
async fn directory_lost_before_outputs_are_matched_fails_the_task() {
    let fixture = Fixture::new().await;
    let agent = fixture.process();
    let mut job =
        order(&fixture, "job", "echo x > out; echo $$ > %pid; while ! test -e %go; do sleep 0.02; done");
    job["work"]["outputs"] = json!({"out": "out"});
    fixture.server.order(job);
    let pid = fixture.pid("pid").await;
    kill(agent).await;
    fs::write(fixture.path("go"), "").unwrap();
    let dir = fixture.agent_dir().join("tasks/job-001");
    until("the command ends", || !is_alive(pid) && dir.join("exit.json").exists()).await;
    fs::remove_dir_all(dir.join("work")).unwrap();
    let _agent = fixture.process();
    let result = fixture.result("job-001").await;
    assert!(matches!(result, TaskResult::Failed { fatal: false, .. }), "{result:?}");
    fixture.until_clean().await;
}

/// The agent kills the command and does not start it again.
#[tokio::test]
async fn restarted_agent_kills_a_command_without_directory() {
    for (name, loss) in LOSSES {
        let fixture = Fixture::new().await;
        let agent = fixture.process();
        let line = format!(
            "{NAMES}; echo ran >> %ran; echo $$ > %pid; while ! test -e %go; do sleep 0.02; done; cd /; {loss}; \
             touch %gone; exec sleep 1000"
        );
        fixture.server.order(order(&fixture, "job", &line));
        let pid = fixture.pid("pid").await;
        kill(agent).await;
        fs::write(fixture.path("go"), "").unwrap();
        until("the directory is lost", || fixture.path("gone").exists()).await;
        assert!(is_alive(pid), "{name}");
        let agent = fixture.process();
        // An agent without its own directory has a new id. It still kills the command that it finds.
        until("the command is dead", || !is_alive(pid)).await;
        let result = fixture.result("job-001").await;
        assert!(is_directory_failure(&result), "{name}: {result:?}");
        assert_eq!(fixture.read("ran"), "ran\n", "{name}: the command was started again");
        fixture.server.order(order(&fixture, "next", "true"));
        assert_eq!(fixture.result("next-001").await, success(), "{name}");
        kill(agent).await;
    }
}

#[tokio::test]
async fn restarted_agent_kills_orphans_without_directory() {
    let fixture = Fixture::new().await;
    let agent = fixture.process();
    let line = "echo ran >> %ran; setsid sleep 1000 & echo $! > %away; \
                cut -d ' ' -f 4 /proc/$$/stat > %supervisor; wait";
    fixture.server.order(order(&fixture, "job", line));
    let (supervisor, away) = (fixture.pid("supervisor").await, fixture.pid("away").await);
    kill(agent).await;
    signal(supervisor, Signal::KILL);
    until("the supervisor is dead", || !is_alive(supervisor)).await;
    fs::remove_dir_all(fixture.agent_dir().join("tasks/job-001")).unwrap();
    assert!(is_alive(away));
    let agent = fixture.process();
    let result = fixture.result("job-001").await;
    assert!(is_directory_failure(&result), "{result:?}");
    assert!(!is_alive(away), "the failure was reported while a process was alive");
    assert_eq!(fixture.read("ran"), "ran\n");
    kill(agent).await;
}

/// The cancellation is confirmed only when the command is dead.
#[tokio::test]
async fn cancel_kills_a_command_without_directory() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    let line = "trap '' TERM; rm -rf \"$TIDEMILL_TASK_DIR\"; echo $$ > %pid; while true; do sleep 0.1; done";
    fixture.server.order(order(&fixture, "job", line));
    let pid = fixture.pid("pid").await;
    fixture.server.order(cancel("job"));
    assert_eq!(fixture.result("job-001-cancel").await, TaskResult::Stopped);
    assert!(!is_alive(pid));
    fixture.result("job-001").await;
}

#[tokio::test]
async fn ended_task_without_directory_is_stopped() {
    let fixture = Fixture::new().await;
    let _agent = fixture.agent();
    fixture.server.state().over.insert("job-001".to_owned());
    let line = "trap '' TERM; rm -rf \"$TIDEMILL_TASK_DIR\"; echo $$ > %pid; while true; do sleep 0.1; done";
    fixture.server.order(order(&fixture, "job", line));
    let pid = fixture.pid("pid").await;
    until("it is stopped", || !is_alive(pid)).await;
}

#[tokio::test]
async fn directory_lost_before_the_start_is_created_again() {
    let fixture = Fixture::new().await;
    fixture.server.state().blocked_route = Some("stage");
    let _agent = fixture.agent();
    fixture.server.order(order(&fixture, "job", "echo ran >> %ran"));
    let tasks = fixture.agent_dir().join("tasks");
    until("the order is stored", || tasks.join("job-001/order.json").exists()).await;
    fs::remove_dir_all(&tasks).unwrap();
    fixture.server.state().blocked_route = None;
    assert_eq!(fixture.result("job-001").await, success());
    assert_eq!(fixture.read("ran"), "ran\n");
    fixture.until_clean().await;
}

#[tokio::test]
async fn unusable_task_directories_do_not_stop_the_agent() {
    let fixture = Fixture::new().await;
    let tasks = fixture.agent_dir().join("tasks");
    fs::create_dir_all(tasks.join("empty-001")).unwrap();
    fs::write(tasks.join("file-001"), "x").unwrap();
    std::os::unix::fs::symlink("/nowhere", tasks.join("link-001")).unwrap();
    std::os::unix::fs::symlink(tasks.join("loop-001"), tasks.join("loop-001")).unwrap();
    fs::create_dir_all(tasks.join("odd-001/order.json")).unwrap();
    fs::write(tasks.join(".aside"), "x").unwrap();
    let _agent = fixture.agent();
    fixture.server.order(order(&fixture, "job", "echo ran >> %ran"));
    assert_eq!(fixture.result("job-001").await, success());
    fixture.until_clean().await;
}

/// Root can read every file, so the agent runs as another user if the tests run as root.
#[tokio::test]
async fn permissions_of_the_task_directory_are_restored() {
    let fixture = Fixture::new().await;
    let agent = fixture.process_of_another_user();
    let line = "echo ran >> %ran; chmod 000 \"$TIDEMILL_TASK_DIR\"; sleep 2; exit 3";
    fixture.server.order(order(&fixture, "job", line));
    let result = fixture.result("job-001").await;
    assert!(matches!(result, TaskResult::Ended { exit_code: 3, .. }), "{result:?}");
    assert_eq!(fixture.read("ran"), "ran\n");
    fixture.server.order(order(&fixture, "next", "true"));
    assert_eq!(fixture.result("next-001").await, success());
    fixture.until_clean().await;
    kill(agent).await;
    assert_eq!(fs::metadata(fixture.agent_dir().join("tasks")).unwrap().permissions().mode() & 0o777, 0o700);
}
