//! Commands of a worker that try to outlive their run.

use rustix::process::Signal;
use tidemill_supervisor::{CommandGroup, Error, parent_group};

use crate::fixture::{is_alive, next_pid, not_tested, shell, signal, start, until};

/// Starts a process with a session of its own and an empty environment. It has left the command only when `setsid` and
/// `env` have become `sleep`, so the script waits for that.
const ESCAPE: &str = "setsid env -i sleep 1000 & until grep -qx sleep /proc/$!/comm; do sleep 0.02; done";

/// Creates and removes a control group.
fn try_group() -> Result<(), String> {
    let group = CommandGroup::new(parent_group()?.join(format!("tidemill-test-{}", std::process::id())));
    group.create().and_then(|()| group.remove()).map_err(|error| error.to_string())
}

/// The process has another session, an empty environment and no parent of the command, and its supervisor is dead.
#[tokio::test]
async fn escaped_process_dies_when_its_supervisor_is_killed() {
    if let Err(reason) = try_group() {
        return not_tested(&format!("commands of workers have no control group here: {reason}"));
    }
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    let script = format!(
        "{ESCAPE}; echo $!; until test -e {}; do sleep 0.02; done; kill -9 $PPID; sleep 1000",
        go.display()
    );
    let mut supervised = start(&shell(&script)).await;
    let child = next_pid(&mut supervised).await;
    assert!(is_alive(child));
    std::fs::write(&go, "").unwrap();
    let error = tokio::time::timeout(crate::fixture::TIMEOUT, async {
        loop {
            if let Err(error) = supervised.next().await {
                return error;
            }
        }
    });
    assert!(matches!(error.await.unwrap(), Error::Lost { .. }));
    let is_left = is_alive(child);
    if is_left {
        signal(child, Signal::KILL);
    }
    assert!(!is_left, "the end was reported while a process was alive");
}

/// Worker and supervisor are killed at once, so no process is left that could kill the command.
#[tokio::test]
async fn next_worker_kills_the_commands_of_a_dead_worker() {
    if let Err(reason) = try_group() {
        return not_tested(&format!("commands of workers have no control group here: {reason}"));
    }
    let worker = |script: &str| {
        let mut command = tokio::process::Command::new(crate::fixture::test_program());
        command.args(["worker", "3600000", script]).stdout(std::process::Stdio::piped()).kill_on_drop(true);
        command.spawn().unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pids");
    let script = format!("{ESCAPE}; echo $! $PPID > {}.new; mv {0}.new {0}; wait", path.display());
    let mut first = worker(&script);
    let mut pids = Vec::new();
    until("the process ids are written", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        pids = text.split_ascii_whitespace().map(|pid| pid.parse::<i32>().unwrap()).collect();
        pids.len() == 2
    })
    .await;
    // A stopped supervisor cannot kill the command when its worker dies.
    signal(pids[1], Signal::STOP);
    first.kill().await.unwrap();
    signal(pids[1], Signal::KILL);
    assert!(is_alive(pids[0]));
    let mut second = worker("true");
    second.wait().await.unwrap();
    until("the escaped process is dead", || !is_alive(pids[0])).await;
}
