//! Stopping and killing commands, including their descendants.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_supervisor::{End, Error};

use crate::fixture::{
    LONG, TIMEOUT, is_alive, next_line, next_pid, rest, run, shell, signal, start, until_dead,
};

/// Long enough to distinguish from an immediate kill, short enough to wait for.
const GRACE: Duration = Duration::from_millis(700);

#[tokio::test]
async fn command_that_handles_sigterm_exits_by_itself() {
    let script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let mut supervised = start(&shell(script)).await;
    assert_eq!(next_line(&mut supervised).await, "ready");
    supervised.control().stop(LONG).await;
    let outcome = rest(&mut supervised).await;
    assert_eq!(outcome.stdout(), ["bye"]);
    assert_eq!(outcome.end, End::Code(7));
}

/// Tries a command that stops its supervisor once, and one that does so repeatedly.
#[tokio::test]
async fn command_that_stops_its_supervisor_is_killed() {
    let once = "sleep 1000 & echo $! $$ > pids; kill -STOP $PPID; wait";
    let repeatedly = "sleep 1000 & echo $! $$ > pids; while true; do kill -STOP $PPID; done";
    for (script, kills_all) in [(once, true), (repeatedly, false)] {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = shell(script);
        spec.dir = Some(dir.path().to_owned());
        let mut supervised = start(&spec).await;
        let error = tokio::time::timeout(TIMEOUT, async {
            loop {
                if let Err(error) = supervised.next().await {
                    return error;
                }
            }
        });
        assert!(matches!(error.await.expect("the stop was not detected in time"), Error::Stopped));
        let pids = std::fs::read_to_string(dir.path().join("pids")).unwrap();
        let pids: Vec<i32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        let (child, main) = (pids[0], pids[1]);
        until_dead(&[main]).await;
        if kills_all {
            until_dead(&[child]).await;
        } else if is_alive(child) {
            // The children of the main process may survive a killed supervisor.
            signal(child, Signal::KILL);
        }
    }
}

#[tokio::test]
async fn command_without_handler_ends_by_sigterm() {
    let mut supervised = start(&shell("echo ready; exec sleep 1000")).await;
    assert_eq!(next_line(&mut supervised).await, "ready");
    supervised.control().stop(LONG).await;
    assert_eq!(rest(&mut supervised).await.end, End::Signal(15));
}

#[tokio::test]
async fn command_that_ignores_sigterm_is_killed_after_grace() {
    let mut supervised = start(&shell("trap '' TERM; echo $$; while :; do sleep 0.01; done")).await;
    let pid = next_pid(&mut supervised).await;
    let started = Instant::now();
    supervised.control().stop(GRACE).await;
    assert_eq!(rest(&mut supervised).await.end, End::Signal(9));
    assert!(started.elapsed() >= GRACE);
    assert!(!is_alive(pid));
}

/// The shell dies immediately; its child may finish within the grace period.
#[tokio::test]
async fn grace_applies_to_the_whole_process_group() {
    let script =
        "sh -c 'trap \"sleep 2; echo saved; exit\" TERM; echo ready; while :; do sleep 0.01; done'; true";
    let mut supervised = start(&shell(script)).await;
    assert_eq!(next_line(&mut supervised).await, "ready");
    supervised.control().stop(LONG).await;
    let outcome = rest(&mut supervised).await;
    assert_eq!(outcome.stdout(), ["saved"]);
    assert_eq!(outcome.end, End::Signal(15));
}

#[tokio::test]
async fn second_stop_can_only_shorten_the_grace() {
    let mut supervised = start(&shell("trap '' TERM; echo $$; while :; do sleep 0.01; done")).await;
    next_pid(&mut supervised).await;
    supervised.control().stop(LONG).await;
    supervised.control().stop(Duration::from_millis(1)).await;
    supervised.control().stop(LONG).await;
    assert_eq!(rest(&mut supervised).await.end, End::Signal(9));
}

#[tokio::test]
async fn kill_reaches_all_descendants_and_no_other_process() {
    let mut bystander = tokio::process::Command::new("sleep");
    let bystander = bystander.arg("1000").stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let script = "
        sleep 1000 & echo $!
        setsid sh -c 'echo $$; setsid sleep 1000 & echo $!; wait' &
        (setsid sleep 1000 & echo $!)
        echo $$; wait";
    let mut supervised = start(&shell(script)).await;
    let mut pids = Vec::new();
    while pids.len() < 5 {
        pids.push(next_pid(&mut supervised).await);
    }
    assert!(pids.iter().all(|&pid| is_alive(pid)));
    supervised.control().kill().await;
    assert_eq!(rest(&mut supervised).await.end, End::Signal(9));
    assert!(!pids.iter().any(|&pid| is_alive(pid)), "a process was alive after the end was reported");
    assert!(is_alive(bystander.id().unwrap().try_into().unwrap()));
}

#[tokio::test]
async fn stopped_process_is_killed_too() {
    let mut supervised = start(&shell("echo $$; kill -STOP $$; echo never")).await;
    let pid = next_pid(&mut supervised).await;
    supervised.control().kill().await;
    assert_eq!(rest(&mut supervised).await.end, End::Signal(9));
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn background_processes_do_not_delay_or_survive_the_end() {
    for background in ["sleep 1000", "setsid sleep 1000", "sleep 1000 > /dev/null 2>&1"] {
        let outcome = run(&shell(&format!("{background} & echo $!; exit 4"))).await;
        assert_eq!(outcome.end, End::Code(4));
        assert!(!is_alive(outcome.stdout()[0].parse().unwrap()), "{background}");
    }
}

#[tokio::test]
async fn flooding_background_process_does_not_delay_the_end() {
    let outcome = run(&shell("yes & echo $! >&2; exit 0")).await;
    assert_eq!(outcome.end, End::Code(0));
    let pid = outcome.texts(tidemill_supervisor::Stream::Stderr)[0].parse().unwrap();
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn ended_orphans_are_reaped_while_the_command_runs() {
    let mut supervised = start(&shell("(true & echo $!); exec sleep 1000")).await;
    let orphan = next_pid(&mut supervised).await;
    let path = format!("/proc/{orphan}");
    crate::fixture::until("the orphan is reaped", || !std::path::Path::new(&path).exists()).await;
    supervised.control().kill().await;
    rest(&mut supervised).await;
}

#[tokio::test]
async fn dropping_the_handle_kills_the_command() {
    let mut supervised = start(&shell("setsid sleep 1000 & echo $!; echo $$; wait")).await;
    let pids = [next_pid(&mut supervised).await, next_pid(&mut supervised).await];
    let control = supervised.control();
    drop(supervised);
    until_dead(&pids).await;
    drop(control);
}

#[tokio::test]
async fn main_process_dies_with_its_killed_supervisor() {
    let mut supervised = start(&shell("echo $$; exec sleep 1000")).await;
    let pid = next_pid(&mut supervised).await;
    signal(supervised.supervisor_id().unwrap().try_into().unwrap(), Signal::KILL);
    until_dead(&[pid]).await;
    let error = supervised.next().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the supervisor ended without reporting the end of the command (signal: 9 (SIGKILL))"
    );
    assert!(matches!(supervised.next().await, Ok(None)));
}
