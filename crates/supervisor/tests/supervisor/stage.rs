//! What the tests share: commands, their outcome, and waiting for a condition.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidemill_supervisor::{End, Moment, Part, Report, Spec, Stream, Supervised};

/// How long anything may take on a machine that is busy with other things; reached only by a failure.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Longer than any test: contact is not what the test is about.
pub(crate) const LONG: Duration = Duration::from_hours(1);

/// The program that can be a supervisor: an example, which a plain `cargo test` builds next to the tests.
///
/// With a filter `cargo test` does not build it. A test of yesterday's supervisor would be worse than none.
pub(crate) fn stand() -> PathBuf {
    let found = tidemill_testkit::stand::example("tidemill-supervisor", env!("CARGO_MANIFEST_DIR"), "stand");
    found.unwrap_or_else(|error| panic!("{error}"))
}

/// A command with nothing special about it.
pub(crate) fn command(words: &[&str]) -> Spec {
    Spec {
        command: words.iter().map(|&word| word.to_owned()).collect(),
        env: Vec::new(),
        env_remove: Vec::new(),
        dir: None,
        stdin: Vec::new(),
        contact: Moment::now(),
        contact_max: LONG,
        line_bytes_max: 8000,
    }
}

/// A shell script with nothing special about it.
pub(crate) fn shell(script: &str) -> Spec {
    command(&["sh", "-c", script])
}

/// Starts a command.
pub(crate) async fn start(spec: &Spec) -> Supervised {
    Supervised::spawn(&stand(), &["supervise"], spec).await.expect("the supervisor starts")
}

/// The next report, which must come.
pub(crate) async fn next(supervised: &mut Supervised) -> Report {
    let report = tokio::time::timeout(PATIENCE, supervised.next()).await.expect("a report comes in time");
    report.expect("the report can be read").expect("there is a report")
}

/// The text of the next line of output.
pub(crate) async fn next_line(supervised: &mut Supervised) -> String {
    loop {
        match next(supervised).await {
            Report::Started { .. } => {}
            Report::Output { text, .. } => return text,
            Report::Exited(end) => panic!("the command ended early: {end}"),
        }
    }
}

/// The number on the next line of output.
pub(crate) async fn next_pid(supervised: &mut Supervised) -> i32 {
    next_line(supervised).await.trim().parse().expect("the line is a process id")
}

/// All that was reported of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) pid: Option<i32>,
    pub(crate) output: Vec<(Stream, String, Part)>,
    pub(crate) end: End,
}

impl Outcome {
    /// The texts of one stream.
    pub(crate) fn texts(&self, wanted: Stream) -> Vec<&str> {
        let of_stream = self.output.iter().filter(|(stream, ..)| *stream == wanted);
        of_stream.map(|(_, text, _)| text.as_str()).collect()
    }

    /// The texts of the standard output.
    pub(crate) fn stdout(&self) -> Vec<&str> {
        self.texts(Stream::Stdout)
    }
}

/// Reads all reports that are left.
pub(crate) async fn rest(supervised: &mut Supervised) -> Outcome {
    let (mut pid, mut output) = (None, Vec::new());
    loop {
        match next(supervised).await {
            Report::Started { pid: started } => {
                assert!(pid.replace(started).is_none(), "a command starts once");
                assert!(output.is_empty(), "a command starts before it writes");
            }
            Report::Output { stream, text, part } => output.push((stream, text, part)),
            Report::Exited(end) => {
                assert!(matches!(supervised.next().await, Ok(None)), "the end is the last report");
                return Outcome { pid, output, end };
            }
        }
    }
}

/// Runs a command to its end.
pub(crate) async fn run(spec: &Spec) -> Outcome {
    rest(&mut start(spec).await).await
}

/// The fields of `/proc/<pid>/stat` from the state on, or `None` if there is no such process.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

/// Whether a process runs; one that nobody has collected yet does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| !matches!(fields[0].as_str(), "Z" | "X"))
}

/// The process group of a process.
pub(crate) fn group(pid: i32) -> i32 {
    stat(pid).expect("the process exists")[2].parse().expect("the group is a number")
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until none of these processes runs.
pub(crate) async fn until_dead(pids: &[i32]) {
    until("the processes die", || !pids.iter().any(|&pid| is_alive(pid))).await;
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process id is not zero"), signal).expect("the process exists");
}
