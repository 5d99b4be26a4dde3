//! Processes: run to their end, or kept running, stopped, continued and killed.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stage::{PATIENCE, Stage, until, until_within};

/// How a process ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The standard output of a success.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The answer as JSON.
    #[track_caller]
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command to its end, which must come.
pub(crate) fn run(command: &mut Command) -> Ran {
    run_within(command, PATIENCE)
}

/// Runs a command to its end, for so long at most. Its output goes through files, so that none of it can block.
pub(crate) fn run_within(command: &mut Command, longest: Duration) -> Ran {
    let (stdout, stderr) = (tempfile::NamedTempFile::new(), tempfile::NamedTempFile::new());
    let (stdout, stderr) = (stdout.expect("a file is made"), stderr.expect("a file is made"));
    command.stdout(stdout.reopen().expect("the file opens")).stderr(stderr.reopen().expect("the file opens"));
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the process can be waited for") {
            break status;
        }
        if begun.elapsed() > longest {
            let _ = child.kill();
            let _ = child.wait();
            let said = fs::read_to_string(stderr.path()).unwrap_or_default();
            panic!("{command:?} did not end within {longest:?}: {said}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = |path| String::from_utf8_lossy(&fs::read(path).expect("the output is read")).into_owned();
    Ran { code: status.code(), stdout: text(stdout.path()), stderr: text(stderr.path()) }
}

/// A process that runs beside the test. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a command; what it says goes to files of the stage.
    pub(crate) fn start(stage: &Stage, name: &str, command: &mut Command) -> Self {
        let log = stage.path(&format!("{name}.log"));
        let open =
            |path: &PathBuf| fs::File::options().create(true).append(true).open(path).expect("a log opens");
        command.stdout(open(&log.with_extension("out"))).stderr(open(&log));
        let child =
            command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, log, ended: None }
    }

    /// Starts `tidemill work` with these options and this shell script as the command of every run.
    pub(crate) fn worker(stage: &Stage, name: &str, options: &[&str], script: &str) -> Self {
        Self::worker_with(stage, name, options, script, &[])
    }

    /// The same with more in its environment.
    pub(crate) fn worker_with(
        stage: &Stage,
        name: &str,
        options: &[&str],
        script: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = stage.command(&["work", "--worker", name]);
        command.args(options).args(["--", "bash", "-c", script]).env("LEDGER", stage.path("ledger"));
        command.envs(environment.iter().copied());
        Self::start(stage, name, &mut command)
    }

    /// Waits until it has said a sentence so often; whatever had the same name before it counts too.
    #[track_caller]
    pub(crate) fn until_said(&mut self, sentence: &str, times: usize) {
        until(&format!("process {} says {sentence:?}", self.pid()), || {
            assert!(self.is_running(), "the process ended: {}", self.said());
            (self.said().matches(sentence).count() >= times).then_some(())
        });
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id fits")
    }

    /// What it said on standard error so far, with whatever had the same name before it.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// What it wrote to standard output so far.
    pub(crate) fn wrote(&self) -> String {
        let path = self.log.with_extension("out");
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("the process can be looked at");
        }
        self.ended.is_none()
    }

    /// Sends a signal, unless it has ended.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            signal_to(self.pid(), signal);
        }
    }

    /// Kills it with SIGKILL, and waits until it is dead.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ended = Some(self.child.wait().expect("the process can be waited for"));
    }

    /// Waits until it has ended by itself; its exit code.
    #[track_caller]
    pub(crate) fn ended_within(&mut self, longest: Duration) -> Option<i32> {
        let said = self.said();
        let what = format!("process {} ends (it said: {said})", self.pid());
        until_within(&what, longest, || (!self.is_running()).then_some(()));
        self.ended.and_then(|status| status.code())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!("--- {} said:\n{}", self.log.display(), self.said());
        }
    }
}

/// Sends a signal to a process that must exist.
pub(crate) fn signal_to(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process id is not zero"), signal).expect("the process exists");
}

/// The fields of `/proc/<pid>/stat` from the state on.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

/// Whether a process runs; one that nobody has collected yet does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| !matches!(fields[0].as_str(), "Z" | "X"))
}

/// Waits until none of these processes runs.
pub(crate) fn until_dead(pids: &[i32]) {
    until("the processes die", || (!pids.iter().any(|&pid| is_alive(pid))).then_some(()));
}
