//! Lost contact: the command is dead before another worker can get the lease.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_supervisor::{BootInstant, End};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::fixture::{
    LONG, TIMEOUT, command, is_alive, next_pid, rest, run, shell, signal, start, test_program, until,
    until_dead,
};

/// A worker in a separate process, which a test can kill or freeze.
struct Worker {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(contact_max: Duration, script: &str) -> Self {
        Self::start_by(Command::new(test_program()), contact_max, script)
    }

    fn start_by(mut command: Command, contact_max: Duration, script: &str) -> Self {
        let contact_max = contact_max.as_millis().to_string();
        command.args(["worker", &contact_max, script]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the worker did not start");
        let stdout = process.stdout.take().expect("the output is not a pipe");
        Self { process, lines: BufReader::new(stdout).lines() }
    }

    /// Waits for a line that begins with `word`; returns the rest of that line.
    async fn next(&mut self, word: &str) -> String {
        loop {
            let line = tokio::time::timeout(TIMEOUT, self.lines.next_line()).await.expect("no line in time");
            let line = line.expect("could not read from the worker").expect("the worker has ended");
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    async fn next_pid(&mut self) -> i32 {
        self.next("line").await.parse().expect("the line is not a process id")
    }

    fn signal(&self, sent: Signal) {
        signal(
            self.process.id().expect("the worker has ended").try_into().expect("the process id is too large"),
            sent,
        );
    }
}

/// Prints the process ids of the command, of a child in its group, and of a child in another session.
const PROCESS_TREE: &str = "echo $$; sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait";

#[tokio::test]
async fn killed_worker_takes_all_processes_along() {
    let mut worker = Worker::start(LONG, PROCESS_TREE);
    let pids = [worker.next_pid().await, worker.next_pid().await, worker.next_pid().await];
    assert!(pids.iter().all(|&pid| is_alive(pid)));
    worker.signal(Signal::KILL);
    until_dead(&pids).await;
}

#[tokio::test]
async fn killed_worker_takes_a_flooding_command_along() {
    let mut worker = Worker::start(LONG, "echo $$; exec yes");
    let pid = worker.next_pid().await;
    worker.signal(Signal::KILL);
    until_dead(&[pid]).await;
}

/// Tries a silent command and one that floods its pipes. The worker receives the reason when it is resumed.
#[tokio::test]
async fn frozen_worker_loses_its_command() {
    const CONTACT_MAX: Duration = Duration::from_secs(6);
    for script in ["echo $$; exec sleep 1000", "echo $$; exec yes"] {
        let mut worker = Worker::start(CONTACT_MAX, script);
        let pid = worker.next_pid().await;
        // Repeated contact keeps it alive for longer than one contact message is valid.
        let started = Instant::now();
        until("time passes", || started.elapsed() > CONTACT_MAX + Duration::from_secs(1)).await;
        assert!(is_alive(pid), "{script}");
        worker.signal(Signal::STOP);
        until_dead(&[pid]).await;
        worker.signal(Signal::CONT);
        assert_eq!(worker.next("end").await, End::LostContact.to_string(), "{script}");
    }
}

#[tokio::test]
async fn worker_without_contact_loses_its_command() {
    let mut spec = shell(PROCESS_TREE);
    // Long enough to start all processes on a busy machine.
    spec.contact_max = Duration::from_secs(10);
    let mut supervised = start(&spec).await;
    let mut pids = Vec::new();
    while pids.len() < 3 {
        pids.push(next_pid(&mut supervised).await);
    }
    assert_eq!(rest(&mut supervised).await.end, End::LostContact);
    assert!(!pids.iter().any(|&pid| is_alive(pid)), "a process was alive after the end was reported");
    assert!(spec.contact.until(BootInstant::now()) >= spec.contact_max);
}

/// A heartbeat counts from the time it was sent: a late contact message extends nothing.
#[tokio::test]
async fn repeated_old_contact_does_not_extend_the_deadline() {
    let mut spec = command(&["sleep", "1000"]);
    spec.contact_max = Duration::from_millis(500);
    let mut supervised = start(&spec).await;
    let control = supervised.control();
    let sent = spec.contact;
    let repeating = tokio::spawn(async move {
        loop {
            control.contact(sent);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(rest(&mut supervised).await.end, End::LostContact);
    repeating.abort();
}

#[tokio::test]
async fn contact_in_the_future_does_not_extend_the_deadline() {
    let mut spec = command(&["sleep", "1000"]);
    spec.contact_max = Duration::from_millis(500);
    spec.contact = BootInstant::now().after(LONG);
    let mut supervised = start(&spec).await;
    supervised.control().contact(BootInstant::now().after(LONG));
    assert_eq!(rest(&mut supervised).await.end, End::LostContact);
}

/// A worker that was frozen between its claim and the start does not start the command.
#[tokio::test]
async fn command_with_expired_lease_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("ran");
    let mut spec = command(&["touch", marker.to_str().unwrap()]);
    spec.contact_max = Duration::from_millis(1);
    until("the lease ends", || spec.contact.until(BootInstant::now()) > spec.contact_max).await;
    let outcome = run(&spec).await;
    assert_eq!(outcome.end, End::LostContact);
    assert_eq!(outcome.pid, None);
    assert!(!marker.exists());
}

#[tokio::test]
async fn inherited_ignored_sigchld_does_not_hide_the_exit_code() {
    let mut env = Command::new("env");
    env.arg("--ignore-signal=CHLD").arg(test_program());
    let mut worker = Worker::start_by(env, LONG, "exit 3");
    assert_eq!(worker.next("end").await, "exit code 3");
}

#[tokio::test]
async fn supervisor_gives_up_on_a_worker_that_stays_frozen() {
    let script = "echo $$; cut -d ' ' -f 4 /proc/$$/stat; exec yes";
    let mut worker = Worker::start(Duration::from_secs(6), script);
    let pids = [worker.next_pid().await, worker.next_pid().await];
    worker.signal(Signal::STOP);
    until_dead(&pids).await;
}
