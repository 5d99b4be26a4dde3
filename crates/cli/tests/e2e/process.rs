//! Processes of tests: run to completion, or in the background.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fixture::{Fixture, Kind, TIMEOUT, wait_until, wait_until_within};

/// Time in which an unused SQLite file can be locked. A worker that is frozen for longer could lose its lease.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// Exit code and output of a process.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Returns the standard output of a successful process.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Parses the standard output as JSON.
    #[track_caller]
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command to completion.
pub(crate) fn run(command: &mut Command) -> Output {
    run_within(command, TIMEOUT)
}

/// Runs a command to completion, with a time limit. Its output goes to files, so that no pipe can block it.
pub(crate) fn run_within(command: &mut Command, longest: Duration) -> Output {
    let (stdout, stderr) = (tempfile::NamedTempFile::new(), tempfile::NamedTempFile::new());
    let (stdout, stderr) = (stdout.expect("the file is created"), stderr.expect("the file is created"));
    command.stdout(stdout.reopen().expect("the file opens")).stderr(stderr.reopen().expect("the file opens"));
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the process can be waited for") {
            break status;
        }
        if started.elapsed() > longest {
            let _ = child.kill();
            let _ = child.wait();
            let stderr = fs::read_to_string(stderr.path()).unwrap_or_default();
            panic!("{command:?} did not end within {longest:?}: {stderr}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = |path| String::from_utf8_lossy(&fs::read(path).expect("the output is read")).into_owned();
    Output { code: status.code(), stdout: text(stdout.path()), stderr: text(stderr.path()) }
}

/// A background process. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a command. Its output goes to files of the fixture.
    pub(crate) fn start(fixture: &Fixture, name: &str, command: &mut Command) -> Self {
        let log = fixture.path(&format!("{name}.log"));
        let open =
            |path: &PathBuf| fs::File::options().create(true).append(true).open(path).expect("a log opens");
        command.stdout(open(&log.with_extension("out"))).stderr(open(&log));
        let child =
            command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, log, ended: None }
    }

    /// Starts `tidemill work` with these options and this shell script as the command of every run.
    pub(crate) fn worker(fixture: &Fixture, name: &str, options: &[&str], script: &str) -> Self {
        Self::worker_with(fixture, name, options, script, &[])
    }

    /// Starts `tidemill work` with additional environment variables.
    pub(crate) fn worker_with(
        fixture: &Fixture,
        name: &str,
        options: &[&str],
        script: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = fixture.command(&["work", "--worker", name]);
        command.args(options).args(["--", "bash", "-c", script]).env("LEDGER", fixture.path("ledger"));
        command.envs(environment.iter().copied());
        Self::start(fixture, name, &mut command)
    }

    /// Waits until standard error contains a text `times` times, including earlier processes of the same name.
    #[track_caller]
    pub(crate) fn wait_for_stderr(&mut self, sentence: &str, times: usize) {
        wait_until(&format!("process {} prints {sentence:?}", self.pid()), || {
            assert!(self.is_running(), "the process ended: {}", self.stderr());
            (self.stderr().matches(sentence).count() >= times).then_some(())
        });
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id fits")
    }

    /// Standard error so far, including earlier processes of the same name.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Standard output so far.
    pub(crate) fn stdout(&self) -> String {
        let path = self.log.with_extension("out");
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("the process can be waited for");
        }
        self.ended.is_none()
    }

    /// Sends a signal, unless the process has ended.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            signal_to(self.pid(), signal);
        }
    }

    /// Freezes the process outside of its writes to the database.
    ///
    /// On SQLite, a process that is frozen in a write holds the only write lock, and all other processes wait for it.
    pub(crate) fn freeze(&mut self, fixture: &Fixture) {
        wait_until("the process is frozen outside of its writes", || {
            self.stop_and_wait();
            let is_outside = fixture.kind == Kind::Postgres || fixture.is_writable(LOCK_TIMEOUT);
            if !is_outside {
                self.signal(Signal::CONT);
            }
            is_outside.then_some(())
        });
    }

    /// Freezes the process within a write to the SQLite file. It must write most of the time.
    pub(crate) fn freeze_in_write(&mut self, fixture: &Fixture) {
        wait_until("the process is frozen in a write", || {
            self.stop_and_wait();
            // Longer than a turn of any other process.
            let is_inside = !fixture.is_writable(LOCK_TIMEOUT * 4);
            if !is_inside {
                self.signal(Signal::CONT);
            }
            is_inside.then_some(())
        });
    }

    /// Sends SIGSTOP, and waits until every thread has stopped.
    fn stop_and_wait(&mut self) {
        let pid = self.pid();
        self.signal(Signal::STOP);
        wait_until("every thread has stopped", || {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
            let mut states = threads.map(|thread| fields_of(&thread.path().join("stat")));
            states.all(|fields| fields.is_none_or(|fields| fields[0] == "T")).then_some(())
        });
    }

    /// Sends SIGKILL, and waits until the process is dead.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.ended = Some(self.child.wait().expect("the process can be waited for"));
    }

    /// Waits until the process has ended, and returns its exit code.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self, longest: Duration) -> Option<i32> {
        let stderr = self.stderr();
        let what = format!("process {} ends (standard error: {stderr})", self.pid());
        wait_until_within(&what, longest, || (!self.is_running()).then_some(()));
        self.ended.and_then(|status| status.code())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!("--- {}:\n{}", self.log.display(), self.stderr());
        }
    }
}

/// Reports behaviour that this machine cannot test. Written without the macros, whose output the test runner hides.
pub(crate) fn not_tested(what: &str) {
    let _ = writeln!(io::stderr(), "not tested: {what}");
}

/// Sends a signal to a process that must exist.
pub(crate) fn signal_to(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process id is not zero"), signal).expect("the process exists");
}

/// Fields of `/proc/<pid>/stat`, beginning with the state.
fn stat(pid: i32) -> Option<Vec<String>> {
    fields_of(Path::new(&format!("/proc/{pid}/stat")))
}

/// Fields of the `stat` file of a process or a thread, beginning with the state.
fn fields_of(file: &Path) -> Option<Vec<String>> {
    let stat = fs::read_to_string(file).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

/// Returns whether a process runs. A zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|fields| !matches!(fields[0].as_str(), "Z" | "X"))
}

/// Waits until all of these processes are dead.
pub(crate) fn wait_until_dead(pids: &[i32]) {
    wait_until("the processes die", || (!pids.iter().any(|&pid| is_alive(pid))).then_some(()));
}
