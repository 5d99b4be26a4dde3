//! Task directories that vanish: removed, emptied, replaced or unreadable, at any moment and by anybody. The task ends,
//! its command dies, and nothing is ever started beside it.

use crate::stage::{Ground, cancel, is_alive, kill, order, signal, until, well};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use tidemill_core::task::TaskResult;

/// The ways in which a directory is lost. `$D` is the task's, `$T` the directory of all tasks, `$H` the agent's own.
const WAYS: [(&str, &str); 7] = [
    ("removed", "rm -rf \"$D\""),
    ("emptied", "rm -rf \"$D\"/*"),
    ("replaced-by-a-file", "rm -rf \"$D\"; echo x > \"$D\""),
    (
        "replaced-by-a-link",
        "rm -rf \"$D\"; mkdir -p %elsewhere/work; touch %elsewhere/run.json; ln -s %elsewhere \"$D\"",
    ),
    ("made-anew", "rm -rf \"$D\"; mkdir \"$D\""),
    ("all-tasks-removed", "rm -rf \"$T\""),
    ("root-removed", "rm -rf \"$H\""),
];
const NAMES: &str = "D=$TIDEMILL_TASK_DIR; T=$(dirname \"$D\"); H=$(dirname \"$T\")";

fn failed_for_its_directory(result: &TaskResult) -> bool {
    matches!(result, TaskResult::Failed { fatal: false, message, .. } if message.contains("directory of the task"))
}

/// Shows that a command which loses its directory is killed, that its task ends as a failure which may pass, and that
/// the agent takes the next task.
#[tokio::test]
async fn lost_directory_ends_the_command_and_the_task() {
    for (name, way) in WAYS {
        let ground = Ground::new().await;
        let agent = ground.agent();
        let line = format!("{NAMES}; echo ran >> %ran; echo $$ > %pid; {way}; exec sleep 1000");
        ground.server.order(order(&ground, "job", &line));
        let pid = ground.pid("pid").await;
        let result = ground.result("job-001").await;
        assert!(failed_for_its_directory(&result), "{name}: {result:?}");
        assert!(!is_alive(pid), "{name}: it was told while the command ran");
        ground.server.order(order(&ground, "next", "true"));
        assert_eq!(ground.result("next-001").await, well(), "{name}");
        ground.until_clean().await;
        assert_eq!(ground.wrote("ran"), "ran\n", "{name}");
        let carried = agent.stop().await.unwrap();
        assert_eq!((carried.taken, carried.ended, carried.held), (2, 2, 0), "{name}");
    }
}

/// Shows that a command which removes its directory as its last act has not succeeded, with or without outputs.
#[tokio::test]
async fn directory_lost_at_the_end_fails_the_task() {
    for outputs in [json!({}), json!({"out": "out"})] {
        let ground = Ground::new().await;
        let _agent = ground.agent();
        let mut job = order(&ground, "job", "echo x > out; rm -rf \"$TIDEMILL_TASK_DIR\"");
        job["work"]["outputs"] = outputs.clone();
        ground.server.order(job);
        let result = ground.result("job-001").await;
        assert!(failed_for_its_directory(&result), "{outputs}: {result:?}");
        ground.server.order(order(&ground, "next", "true"));
        assert_eq!(ground.result("next-001").await, well());
    }
}

/// Shows that the command's files may go after it ended and before its outputs are matched.
#[tokio::test]
async fn directory_lost_before_outputs_are_matched_fails_the_task() {
    let ground = Ground::new().await;
    let agent = ground.process();
    let mut job =
        order(&ground, "job", "echo x > out; echo $$ > %pid; while ! test -e %go; do sleep 0.02; done");
    job["work"]["outputs"] = json!({"out": "out"});
    ground.server.order(job);
    let pid = ground.pid("pid").await;
    kill(agent).await;
    fs::write(ground.path("go"), "").unwrap();
    let dir = ground.home().join("tasks/job-001");
    until("the command ends", || !is_alive(pid) && dir.join("exit.json").exists()).await;
    fs::remove_dir_all(dir.join("work")).unwrap();
    let _agent = ground.process();
    let result = ground.result("job-001").await;
    assert!(matches!(result, TaskResult::Failed { fatal: false, .. }), "{result:?}");
    ground.until_clean().await;
}

/// Shows that an agent which comes back finds a command whose directory went meanwhile, ends it, and starts nothing
/// beside it.
#[tokio::test]
async fn restarted_agent_finds_a_command_without_directory() {
    for (name, way) in WAYS {
        let ground = Ground::new().await;
        let agent = ground.process();
        let line = format!(
            "{NAMES}; echo ran >> %ran; echo $$ > %pid; while ! test -e %go; do sleep 0.02; done; cd /; {way}; \
             touch %gone; exec sleep 1000"
        );
        ground.server.order(order(&ground, "job", &line));
        let pid = ground.pid("pid").await;
        kill(agent).await;
        fs::write(ground.path("go"), "").unwrap();
        until("the directory is lost", || ground.path("gone").exists()).await;
        assert!(is_alive(pid), "{name}");
        let agent = ground.process();
        // An agent whose own directory went is another one: the server has nothing for it, and it ends what it finds.
        until("the command is dead", || !is_alive(pid)).await;
        let result = ground.result("job-001").await;
        assert!(failed_for_its_directory(&result), "{name}: {result:?}");
        assert_eq!(ground.wrote("ran"), "ran\n", "{name}: it was started a second time");
        ground.server.order(order(&ground, "next", "true"));
        assert_eq!(ground.result("next-001").await, well(), "{name}");
        kill(agent).await;
    }
}

/// Shows that nothing is started beside what a killed supervisor left, where its directory is gone as well.
#[tokio::test]
async fn restarted_agent_ends_what_a_killed_supervisor_left() {
    let ground = Ground::new().await;
    let agent = ground.process();
    let line = "echo ran >> %ran; setsid sleep 1000 & echo $! > %away; \
                cut -d ' ' -f 4 /proc/$$/stat > %supervisor; wait";
    ground.server.order(order(&ground, "job", line));
    let (supervisor, away) = (ground.pid("supervisor").await, ground.pid("away").await);
    kill(agent).await;
    signal(supervisor, Signal::KILL);
    until("the supervisor is dead", || !is_alive(supervisor)).await;
    fs::remove_dir_all(ground.home().join("tasks/job-001")).unwrap();
    assert!(is_alive(away));
    let agent = ground.process();
    let result = ground.result("job-001").await;
    assert!(failed_for_its_directory(&result), "{result:?}");
    assert!(!is_alive(away), "it was told while something ran");
    assert_eq!(ground.wrote("ran"), "ran\n");
    kill(agent).await;
}

/// Shows that a cancel of a command without a directory is confirmed when the command is dead, and not before.
#[tokio::test]
async fn cancel_kills_a_command_without_directory() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    let line = "trap '' TERM; rm -rf \"$TIDEMILL_TASK_DIR\"; echo $$ > %pid; while true; do sleep 0.1; done";
    ground.server.order(order(&ground, "job", line));
    let pid = ground.pid("pid").await;
    ground.server.order(cancel("job"));
    assert_eq!(ground.result("job-001-cancel").await, TaskResult::Stopped);
    assert!(!is_alive(pid));
    ground.result("job-001").await;
}

/// Shows that contact and a task that is over for the server reach a command without a directory.
#[tokio::test]
async fn task_without_directory_that_is_over_is_stopped() {
    let ground = Ground::new().await;
    let _agent = ground.agent();
    ground.server.known().over.insert("job-001".to_owned());
    let line = "trap '' TERM; rm -rf \"$TIDEMILL_TASK_DIR\"; echo $$ > %pid; while true; do sleep 0.1; done";
    ground.server.order(order(&ground, "job", line));
    let pid = ground.pid("pid").await;
    until("it is stopped", || !is_alive(pid)).await;
}

/// Shows that a directory which goes before anything was started is made again: nothing was lost.
#[tokio::test]
async fn directory_lost_before_the_start_is_made_again() {
    let ground = Ground::new().await;
    ground.server.known().held = Some("stage");
    let _agent = ground.agent();
    ground.server.order(order(&ground, "job", "echo ran >> %ran"));
    let tasks = ground.home().join("tasks");
    until("the order is kept", || tasks.join("job-001/order.json").exists()).await;
    fs::remove_dir_all(&tasks).unwrap();
    ground.server.known().held = None;
    assert_eq!(ground.result("job-001").await, well());
    assert_eq!(ground.wrote("ran"), "ran\n");
    ground.until_clean().await;
}

/// Shows that one task whose remains cannot be read or removed does not keep the agent from starting and working.
#[tokio::test]
async fn one_bad_directory_does_not_stop_the_agent() {
    let ground = Ground::new().await;
    let tasks = ground.home().join("tasks");
    fs::create_dir_all(tasks.join("empty-001")).unwrap();
    fs::write(tasks.join("file-001"), "x").unwrap();
    std::os::unix::fs::symlink("/nowhere", tasks.join("link-001")).unwrap();
    std::os::unix::fs::symlink(tasks.join("loop-001"), tasks.join("loop-001")).unwrap();
    fs::create_dir_all(tasks.join("odd-001/order.json")).unwrap();
    fs::write(tasks.join(".aside"), "x").unwrap();
    let _agent = ground.agent();
    ground.server.order(order(&ground, "job", "echo ran >> %ran"));
    assert_eq!(ground.result("job-001").await, well());
    ground.until_clean().await;
}

/// Shows that a command which takes the rights from its directory does not take it from its agent. Root can always
/// read, so the agent runs as somebody else where the tests run as root.
#[tokio::test]
async fn unreadable_directory_is_opened_again() {
    let ground = Ground::new().await;
    let agent = ground.process_of_another_user();
    let line = "echo ran >> %ran; chmod 000 \"$TIDEMILL_TASK_DIR\"; sleep 2; exit 3";
    ground.server.order(order(&ground, "job", line));
    let result = ground.result("job-001").await;
    assert!(matches!(result, TaskResult::Ended { exit_code: 3, .. }), "{result:?}");
    assert_eq!(ground.wrote("ran"), "ran\n");
    ground.server.order(order(&ground, "next", "true"));
    assert_eq!(ground.result("next-001").await, well());
    ground.until_clean().await;
    kill(agent).await;
    assert_eq!(fs::metadata(ground.home().join("tasks")).unwrap().permissions().mode() & 0o777, 0o700);
}
