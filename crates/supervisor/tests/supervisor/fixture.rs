//! Test fixture: commands, their outcome, and waiting for a condition.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidemill_supervisor::{BootInstant, End, Part, Report, Spec, Stream, SupervisedCommand};

/// Time limit of each wait, generous for a busy machine. Only a failing test reaches it.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// Longer than any test, for tests that do not depend on contact.
pub(crate) const LONG: Duration = Duration::from_hours(1);

/// Path of the test program that can be a supervisor: an example, which a plain `cargo test` builds.
///
/// `cargo test` with a target filter does not build it. An outdated program is an error.
pub(crate) fn test_program() -> PathBuf {
    let found = tidemill_testkit::example_program::example_path(
        "tidemill-supervisor",
        env!("CARGO_MANIFEST_DIR"),
        "supervisor_program",
    );
    found.unwrap_or_else(|error| panic!("{error}"))
}

/// Specification of a command with default settings.
pub(crate) fn command(words: &[&str]) -> Spec {
    Spec {
        command: words.iter().map(|&word| word.to_owned()).collect(),
        env: Vec::new(),
        env_remove: Vec::new(),
        dir: None,
        stdin: Vec::new(),
        contact: BootInstant::now(),
        contact_max: LONG,
        line_bytes_max: 8000,
    }
}

/// Specification of a shell script with default settings.
pub(crate) fn shell(script: &str) -> Spec {
    command(&["sh", "-c", script])
}

pub(crate) async fn start(spec: &Spec) -> SupervisedCommand {
    SupervisedCommand::spawn(&test_program(), &["supervise"], spec)
        .await
        .expect("the supervisor did not start")
}

/// Waits for the next report; panics at the end or after [`TIMEOUT`].
pub(crate) async fn next(supervised: &mut SupervisedCommand) -> Report {
    let report = tokio::time::timeout(TIMEOUT, supervised.next()).await.expect("no report in time");
    report.expect("the report is invalid").expect("the command has already ended")
}

/// Waits for the text of the next line of output.
pub(crate) async fn next_line(supervised: &mut SupervisedCommand) -> String {
    loop {
        match next(supervised).await {
            Report::Started { .. } => {}
            Report::Output { text, .. } => return text,
            Report::Exited(end) => panic!("the command ended early: {end}"),
        }
    }
}

/// Waits for the next line of output, which must be a process id.
pub(crate) async fn next_pid(supervised: &mut SupervisedCommand) -> i32 {
    next_line(supervised).await.trim().parse().expect("the line is not a process id")
}

/// All reports of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) pid: Option<i32>,
    pub(crate) output: Vec<(Stream, String, Part)>,
    pub(crate) end: End,
}

impl Outcome {
    pub(crate) fn texts(&self, wanted: Stream) -> Vec<&str> {
        let of_stream = self.output.iter().filter(|(stream, ..)| *stream == wanted);
        of_stream.map(|(_, text, _)| text.as_str()).collect()
    }

    pub(crate) fn stdout(&self) -> Vec<&str> {
        self.texts(Stream::Stdout)
    }
}

/// Reads all remaining reports.
pub(crate) async fn rest(supervised: &mut SupervisedCommand) -> Outcome {
    let (mut pid, mut output) = (None, Vec::new());
    loop {
        match next(supervised).await {
            Report::Started { pid: started } => {
                assert!(pid.replace(started).is_none(), "a command must start only once");
                assert!(output.is_empty(), "output before the start report");
            }
            Report::Output { stream, text, part } => output.push((stream, text, part)),
            Report::Exited(end) => {
                assert!(matches!(supervised.next().await, Ok(None)), "report after the end");
                return Outcome { pid, output, end };
            }
        }
    }
}

/// Runs a command to its end.
pub(crate) async fn run(spec: &Spec) -> Outcome {
    rest(&mut start(spec).await).await
}

/// Fields of `/proc/<pid>/stat` from the state on; `None` if the process does not exist.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

/// Whether a process is alive; a zombie is not.
pub(crate) fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| !matches!(fields[0].as_str(), "Z" | "X"))
}

/// Process group id of a process.
pub(crate) fn group(pid: i32) -> i32 {
    stat(pid).expect("the process does not exist")[2].parse().expect("the group is not a number")
}

/// Waits until a condition holds.
pub(crate) async fn until(goal: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "not reached in time: {goal}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until none of these processes is alive.
pub(crate) async fn until_dead(pids: &[i32]) {
    until("the processes die", || !pids.iter().any(|&pid| is_alive(pid))).await;
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("the process id is zero"), signal)
        .expect("the process does not exist");
}

/// Says what a test could not test; in continuous integration that is a failure. Written without the macros, whose
/// output the test runner hides.
pub(crate) fn not_tested(what: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "not tested: {what}");
    let _ = writeln!(io::stderr(), "not tested: {what}");
}
