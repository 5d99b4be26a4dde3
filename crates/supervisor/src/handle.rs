//! The worker's side: starts a supervisor, reads its reports and sends it control messages.
//!
//! Dropping the [`SupervisedCommand`] ends the command: the supervisor reads end-of-file and kills every process.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::debug;

use crate::boot_instant::BootInstant;
use crate::cgroup::CommandGroup;
use crate::process_table::SupervisorProcess;
use crate::protocol::{ControlMessage, Header};
use crate::report::Report;
use crate::spec::Spec;
use crate::worker_groups;

/// Control messages that may wait for a slow supervisor.
const QUEUED_MESSAGES_MAX: usize = 64;
/// Interval of the check whether a signal has stopped the supervisor.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Time a supervisor may be stopped before its command is killed, and again before the supervisor is killed.
const STOPPED_MAX: Duration = Duration::from_secs(2);
/// Interval of the check whether killed processes have ended.
const GROUP_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Reason why a command could not be supervised, or why its end is unknown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The supervisor process did not start, so no command runs.
    #[error("could not start the supervisor `{}`", path.display())]
    Start {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The supervisor did not read the command, so no command runs.
    #[error("could not send the command to its supervisor")]
    Send(#[source] io::Error),
    /// The command may still run: drop the handle to end it.
    #[error("could not read the reports of the supervisor")]
    Read(#[source] io::Error),
    /// The other process has another version, or is not a supervisor.
    #[error("the supervisor sent an invalid report")]
    Malformed(#[source] serde_json::Error),
    #[error("a signal (SIGSTOP) stopped the supervisor, so the command was killed")]
    Stopped,
    /// The supervisor ended without a report about the end of the command.
    ///
    /// The main process of the command died with it. Processes that the main process had started were killed with the
    /// control group of the command. They may still run if this process could not create one.
    #[error("the supervisor ended without reporting the end of the command ({status})")]
    Lost {
        /// Exit status of the supervisor itself.
        status: ExitStatus,
    },
}

/// Handle of a command that runs under its supervisor.
#[derive(Debug)]
pub struct SupervisedCommand {
    supervisor: Child,
    reports: Lines<BufReader<ChildStdout>>,
    control: Control,
    /// Owns the supervisor's standard input. The supervisor treats end-of-file as the death of the worker.
    writer: JoinHandle<()>,
    is_over: bool,
    process: Option<SupervisorProcess>,
    /// Time of the first check that found the supervisor stopped by a signal.
    stopped_at: Option<BootInstant>,
    /// Whether the command was killed because its supervisor was stopped.
    is_killed: bool,
    /// Control group of the command, if this process can create one.
    group: Option<CommandGroup>,
}

impl SupervisedCommand {
    /// Starts `supervisor args…`, which must call [`supervise`](crate::supervise), and sends it the command.
    ///
    /// Prefer `/proc/self/exe` for `supervisor`: it is the running program even after an upgrade replaced the file.
    /// A command that cannot be executed is reported by [`Self::next`]; it is not an error here.
    pub async fn spawn(supervisor: &Path, args: &[&str], spec: &Spec) -> Result<Self, Error> {
        let start_error = |source| Error::Start { path: supervisor.to_owned(), source };
        // If this process ignores SIGCHLD, the supervisor would inherit that and could not read an exit code.
        // A signal handler, unlike an ignored signal, is reset by exec.
        drop(signal(SignalKind::child()).map_err(start_error)?);
        let mut child = Command::new(supervisor)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C in the terminal must reach the worker only.
            .process_group(0)
            .spawn()
            .map_err(start_error)?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(start_error(io::Error::other("the pipes of the child process are missing")));
        };
        let process =
            child.id().and_then(|pid| SupervisorProcess::of_child(Path::new(""), pid).ok().flatten());
        let group = worker_groups::create();
        send_command(&mut stdin, spec, group.as_ref()).await.map_err(Error::Send)?;
        let (sender, receiver) = mpsc::channel(QUEUED_MESSAGES_MAX);
        Ok(Self {
            supervisor: child,
            reports: BufReader::new(stdout).lines(),
            control: Control { messages: sender },
            writer: tokio::spawn(write_messages(stdin, receiver)),
            is_over: false,
            process,
            stopped_at: None,
            is_killed: false,
            group,
        })
    }

    /// Waits for the next report; returns `None` after [`Report::Exited`].
    ///
    /// The future is cancel-safe. A slow reader slows the command down through its full pipes.
    pub async fn next(&mut self) -> Result<Option<Report>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let line = loop {
            tokio::select! {
                line = self.reports.next_line() => break line.map_err(Error::Read)?,
                () = tokio::time::sleep(STOP_CHECK_INTERVAL) => self.check_stopped(),
            }
        };
        if let Some(line) = line {
            let report = serde_json::from_str(&line).map_err(Error::Malformed)?;
            self.is_over = matches!(report, Report::Exited(_));
            if self.is_over && self.is_killed {
                return Err(Error::Stopped);
            }
            return Ok(Some(report));
        }
        let status = self.supervisor.wait().await.map_err(Error::Read)?;
        self.kill_group().await;
        self.is_over = true;
        Err(if self.is_killed { Error::Stopped } else { Error::Lost { status } })
    }

    /// Kills the processes that a killed supervisor has left in the control group, and waits for their end.
    async fn kill_group(&self) {
        let Some(group) = &self.group else { return };
        loop {
            let killed = group.kill().and_then(|()| group.is_populated());
            match killed {
                Ok(true) => tokio::time::sleep(GROUP_CHECK_INTERVAL).await,
                Ok(false) => break,
                Err(error) => {
                    debug!(error = %error, "could not kill the control group of the command");
                    break;
                }
            }
        }
        // The next worker removes a group that is left.
        let _ = group.remove();
    }

    /// Kills the command when a signal has stopped the supervisor for too long.
    ///
    /// A stopped supervisor enforces no time limit and does not notice lost contact.
    fn check_stopped(&mut self) {
        let Some(process) = &self.process else { return };
        if !process.is_stopped() {
            self.stopped_at = None;
            return;
        }
        let now = BootInstant::now();
        if self.stopped_at.get_or_insert(now).until(now) < STOPPED_MAX {
            return;
        }
        // The resumed supervisor kills the whole command. If it is stopped again, it is killed itself.
        let signalled = if self.is_killed {
            process.kill()
        } else {
            self.is_killed = true;
            let _ = self.control.messages.try_send(ControlMessage::Kill);
            process.resume()
        };
        if let Err(error) = signalled {
            debug!(error = %error, "could not signal the stopped supervisor");
        }
    }

    /// Returns a handle that sends control messages; it can be cloned and used from any task.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Process id of the supervisor; `None` after its end was observed.
    pub fn supervisor_id(&self) -> Option<u32> {
        self.supervisor.id()
    }
}

impl Drop for SupervisedCommand {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// Sends control messages to one supervisor. They have no effect after the command ended.
#[derive(Clone, Debug)]
pub struct Control {
    messages: mpsc::Sender<ControlMessage>,
}

impl Control {
    /// Confirms that the lease was held at `at`, so that the command may run until `at` plus `contact_max`.
    ///
    /// Call it after each successful heartbeat, with the time *before* that heartbeat was sent. Otherwise a worker
    /// that was frozen while it waited for the response would extend the command beyond its lease.
    /// Never waits: the message is dropped if the queue to a stuck supervisor is full.
    pub fn contact(&self, at: BootInstant) {
        if self.messages.try_send(ControlMessage::Contact { at }).is_err() {
            debug!("contact message dropped: the queue to the supervisor is full or closed");
        }
    }

    /// Sends SIGTERM to the process group of the command, and kills its remaining processes after `grace`.
    pub async fn stop(&self, grace: Duration) {
        self.send(ControlMessage::Stop { grace }).await;
    }

    /// Kills the command and its descendants immediately.
    pub async fn kill(&self) {
        self.send(ControlMessage::Kill).await;
    }

    async fn send(&self, message: ControlMessage) {
        if self.messages.send(message).await.is_err() {
            debug!("control message dropped: the supervisor has ended");
        }
    }
}

async fn send_command(stdin: &mut ChildStdin, spec: &Spec, group: Option<&CommandGroup>) -> io::Result<()> {
    let cgroup = group.map(|group| group.dir().to_owned());
    let mut header = serde_json::to_vec(&Header::new(spec, cgroup))?;
    header.push(b'\n');
    stdin.write_all(&header).await?;
    stdin.write_all(&spec.stdin).await?;
    stdin.flush().await
}

async fn write_messages(mut stdin: ChildStdin, mut messages: mpsc::Receiver<ControlMessage>) {
    while let Some(message) = messages.recv().await {
        let written = match serde_json::to_vec(&message) {
            Ok(mut line) => {
                line.push(b'\n');
                stdin.write_all(&line).await
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = written {
            debug!(error = %error, "could not write to the supervisor");
            return;
        }
    }
}
