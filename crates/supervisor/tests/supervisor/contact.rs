//! The safety rule: whatever happens to the worker, the command is dead before the lease can be another's.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidemill_supervisor::{End, Moment};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::stage::{
    LONG, PATIENCE, command, is_alive, next_pid, rest, run, shell, signal, stand, start, until, until_dead,
};

/// A worker in a process of its own, which a test may kill or freeze.
struct Worker {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(contact_max: Duration, script: &str) -> Self {
        Self::start_by(Command::new(stand()), contact_max, script)
    }

    fn start_by(mut command: Command, contact_max: Duration, script: &str) -> Self {
        let contact_max = contact_max.as_millis().to_string();
        command.args(["worker", &contact_max, script]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the worker starts");
        let stdout = process.stdout.take().expect("the output is a pipe");
        Self { process, lines: BufReader::new(stdout).lines() }
    }

    /// The rest of the next line that begins with `word`.
    async fn next(&mut self, word: &str) -> String {
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time");
            let line = line.expect("the worker can be read").expect("the worker has more to say");
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    async fn next_pid(&mut self) -> i32 {
        self.next("line").await.parse().expect("the line is a process id")
    }

    fn signal(&self, sent: Signal) {
        signal(self.process.id().expect("the worker runs").try_into().expect("an id fits"), sent);
    }
}

/// Prints the ids of a command, of a child in its group, and of one that left the group and the session.
const FAMILY: &str = "echo $$; sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait";

#[tokio::test]
async fn a_worker_that_is_killed_takes_all_its_processes_along() {
    let mut worker = Worker::start(LONG, FAMILY);
    let pids = [worker.next_pid().await, worker.next_pid().await, worker.next_pid().await];
    assert!(pids.iter().all(|&pid| is_alive(pid)));
    worker.signal(Signal::KILL);
    until_dead(&pids).await;
}

#[tokio::test]
async fn a_worker_that_is_killed_takes_a_flood_along() {
    let mut worker = Worker::start(LONG, "echo $$; exec yes");
    let pid = worker.next_pid().await;
    worker.signal(Signal::KILL);
    until_dead(&[pid]).await;
}

/// Shows that a frozen worker loses its command, a silent one and one that floods pipes which nobody reads; and
/// that the worker is told when it thaws.
#[tokio::test]
async fn a_frozen_worker_loses_its_command() {
    const CONTACT_MAX: Duration = Duration::from_secs(6);
    for script in ["echo $$; exec sleep 1000", "echo $$; exec yes"] {
        let mut worker = Worker::start(CONTACT_MAX, script);
        let pid = worker.next_pid().await;
        // Contact keeps it alive for longer than one sign of contact lasts.
        let begun = Instant::now();
        until("time passes", || begun.elapsed() > CONTACT_MAX + Duration::from_secs(1)).await;
        assert!(is_alive(pid), "{script}");
        worker.signal(Signal::STOP);
        until_dead(&[pid]).await;
        worker.signal(Signal::CONT);
        assert_eq!(worker.next("end").await, End::LostContact.to_string(), "{script}");
    }
}

#[tokio::test]
async fn a_worker_without_contact_loses_its_command() {
    let mut spec = shell(FAMILY);
    // Long enough to start all of them on a busy machine.
    spec.contact_max = Duration::from_secs(10);
    let mut supervised = start(&spec).await;
    let mut pids = Vec::new();
    while pids.len() < 3 {
        pids.push(next_pid(&mut supervised).await);
    }
    assert_eq!(rest(&mut supervised).await.end, End::LostContact);
    assert!(!pids.iter().any(|&pid| is_alive(pid)), "the end is told after the death of all");
    assert!(spec.contact.until(Moment::now()) >= spec.contact_max);
}

/// Shows that a heartbeat counts from when it was sent: news that come late prolong nothing.
#[tokio::test]
async fn old_news_are_no_contact() {
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
async fn a_moment_to_come_is_no_credit() {
    let mut spec = command(&["sleep", "1000"]);
    spec.contact_max = Duration::from_millis(500);
    spec.contact = Moment::now().after(LONG);
    let mut supervised = start(&spec).await;
    supervised.control().contact(Moment::now().after(LONG));
    assert_eq!(rest(&mut supervised).await.end, End::LostContact);
}

/// Shows that a worker which was frozen between its claim and the start does not start anything.
#[tokio::test]
async fn a_command_whose_lease_is_over_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let mut spec = command(&["touch", mark.to_str().unwrap()]);
    spec.contact_max = Duration::from_millis(1);
    until("the lease ends", || spec.contact.until(Moment::now()) > spec.contact_max).await;
    let outcome = run(&spec).await;
    assert_eq!(outcome.end, End::LostContact);
    assert_eq!(outcome.pid, None);
    assert!(!mark.exists());
}

/// Shows that an inherited, ignored SIGCHLD does not keep the supervisor from learning the exit code.
#[tokio::test]
async fn an_ignored_child_signal_does_not_hide_the_end() {
    let mut env = Command::new("env");
    env.arg("--ignore-signal=CHLD").arg(stand());
    let mut worker = Worker::start_by(env, LONG, "exit 3");
    assert_eq!(worker.next("end").await, "exit code 3");
}

/// Shows that a supervisor does not wait for ever to be heard by a frozen worker.
#[tokio::test]
async fn a_supervisor_gives_up_on_a_worker_that_stays_frozen() {
    let script = "echo $$; cut -d ' ' -f 4 /proc/$$/stat; exec yes";
    let mut worker = Worker::start(Duration::from_secs(6), script);
    let pids = [worker.next_pid().await, worker.next_pid().await];
    worker.signal(Signal::STOP);
    until_dead(&pids).await;
}
