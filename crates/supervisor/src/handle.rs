//! The worker's side: starts a supervisor, reads its reports, gives it orders.
//!
//! Dropping the [`Supervised`] ends the command: the supervisor sees the end of its input and kills everything.

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

use crate::moment::Moment;
use crate::order::{Header, Order};
use crate::process_table::SupervisorProcess;
use crate::report::Report;
use crate::spec::Spec;

/// Orders that may wait for a supervisor which is slow to read them.
const ORDERS_WAITING_MAX: usize = 64;
/// How often to look whether a signal has stopped the supervisor.
const LOOK_STOPPED: Duration = Duration::from_millis(500);
/// How long a signal may have stopped the supervisor before its command is killed, and again before it is itself.
const STOPPED_MAX: Duration = Duration::from_secs(2);

/// Why a command could not be supervised, or its end is not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The supervisor process did not start; nothing runs.
    #[error("could not start the supervisor `{}`", path.display())]
    Start {
        /// The program that was to be the supervisor.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The supervisor did not take the command; nothing runs.
    #[error("could not hand the command over to its supervisor")]
    Handover(#[source] io::Error),
    /// The reports could not be read. Drop the handle to make sure of the command's end.
    #[error("could not read what the supervisor reports")]
    Read(#[source] io::Error),
    /// A report made no sense: another version, or not our supervisor.
    #[error("could not understand what the supervisor reports")]
    Malformed(#[source] serde_json::Error),
    /// A signal stopped the supervisor, so the command was killed.
    #[error("a signal (SIGSTOP) stopped the supervisor of the command, which was killed for it")]
    Stopped,
    /// The supervisor is gone and never told how the command ended.
    ///
    /// The main process of the command died with it; processes which that one had started may live on.
    #[error("the supervisor ended without a word on the command ({status})")]
    Lost {
        /// How the supervisor itself ended.
        status: ExitStatus,
    },
}

/// A command that runs under its supervisor.
#[derive(Debug)]
pub struct Supervised {
    supervisor: Child,
    reports: Lines<BufReader<ChildStdout>>,
    control: Control,
    /// Owns the supervisor's input, whose end the supervisor takes for our death.
    writer: JoinHandle<()>,
    is_over: bool,
    process: Option<SupervisorProcess>,
    /// Since when a signal has stopped the supervisor, as far as that was seen.
    stopped_at: Option<Moment>,
    /// Whether the command was killed for that.
    is_condemned: bool,
}

impl Supervised {
    /// Starts `supervisor args…`, which must call [`supervise`](crate::supervise), and gives it the command.
    ///
    /// Prefer `/proc/self/exe` for `supervisor`: it is this very program even after an upgrade replaced the file.
    /// That the command cannot be executed is not an error here, but a report.
    pub async fn spawn(supervisor: &Path, args: &[&str], spec: &Spec) -> Result<Self, Error> {
        let start_error = |source| Error::Start { path: supervisor.to_owned(), source };
        // If we inherited an ignored SIGCHLD, the supervisor would inherit it too and never learn an exit code.
        // A handler, unlike an ignored signal, is not handed on to other programs.
        drop(signal(SignalKind::child()).map_err(start_error)?);
        let mut child = Command::new(supervisor)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl-C in the worker's terminal is for the worker alone to act on.
            .process_group(0)
            .spawn()
            .map_err(start_error)?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(start_error(io::Error::other("the pipes are missing")));
        };
        let process =
            child.id().and_then(|pid| SupervisorProcess::of_child(Path::new(""), pid).ok().flatten());
        hand_over(&mut stdin, spec).await.map_err(Error::Handover)?;
        let (sender, receiver) = mpsc::channel(ORDERS_WAITING_MAX);
        Ok(Self {
            supervisor: child,
            reports: BufReader::new(stdout).lines(),
            control: Control { orders: sender },
            writer: tokio::spawn(write_orders(stdin, receiver)),
            is_over: false,
            process,
            stopped_at: None,
            is_condemned: false,
        })
    }

    /// The next report; `None` after [`Report::Exited`].
    ///
    /// Nothing is lost when the future is dropped before it is ready. Reading slowly holds the command back.
    pub async fn next(&mut self) -> Result<Option<Report>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let line = loop {
            tokio::select! {
                line = self.reports.next_line() => break line.map_err(Error::Read)?,
                () = tokio::time::sleep(LOOK_STOPPED) => self.look_for_stop(),
            }
        };
        if let Some(line) = line {
            let report = serde_json::from_str(&line).map_err(Error::Malformed)?;
            self.is_over = matches!(report, Report::Exited(_));
            if self.is_over && self.is_condemned {
                return Err(Error::Stopped);
            }
            return Ok(Some(report));
        }
        let status = self.supervisor.wait().await.map_err(Error::Read)?;
        self.is_over = true;
        Err(if self.is_condemned { Error::Stopped } else { Error::Lost { status } })
    }

    /// Has the command killed when a signal has kept the supervisor stopped for too long: it keeps no time limit then,
    /// and would not notice the loss of contact.
    fn look_for_stop(&mut self) {
        let Some(process) = &self.process else { return };
        if !process.is_stopped() {
            self.stopped_at = None;
            return;
        }
        let now = Moment::now();
        if self.stopped_at.get_or_insert(now).until(now) < STOPPED_MAX {
            return;
        }
        // Continued, it kills the command with all that it started; one that is stopped again is killed itself.
        let ended = if self.is_condemned {
            process.kill()
        } else {
            self.is_condemned = true;
            let _ = self.control.orders.try_send(Order::Kill);
            process.resume()
        };
        if let Err(error) = ended {
            debug!(error = %error, "the stopped supervisor could not be signalled");
        }
    }

    /// A handle for orders, which may be given from anywhere.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// The process id of the supervisor, until it was seen to end.
    pub fn supervisor_id(&self) -> Option<u32> {
        self.supervisor.id()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// Gives orders to one supervisor; without effect once the command is over.
#[derive(Clone, Debug)]
pub struct Control {
    orders: mpsc::Sender<Order>,
}

impl Control {
    /// Says that the lease was held at `at`, so the command may live for `contact_max` from then on.
    ///
    /// To be called after each successful heartbeat, with the moment *before* that heartbeat was sent. A worker
    /// that was frozen while it waited for the answer would otherwise grant the command time that the lease does
    /// not have. Never waits: a sign of contact that a stuck supervisor cannot take is dropped.
    pub fn contact(&self, at: Moment) {
        if self.orders.try_send(Order::Contact { at }).is_err() {
            debug!("the supervisor took no sign of contact");
        }
    }

    /// Asks the command to end (SIGTERM to its process group), and kills what is left of it after `grace`.
    pub async fn stop(&self, grace: Duration) {
        self.give(Order::Stop { grace }).await;
    }

    /// Kills the command and everything it started, now.
    pub async fn kill(&self) {
        self.give(Order::Kill).await;
    }

    async fn give(&self, order: Order) {
        if self.orders.send(order).await.is_err() {
            debug!("the supervisor is gone and takes no order");
        }
    }
}

async fn hand_over(stdin: &mut ChildStdin, spec: &Spec) -> io::Result<()> {
    let mut header = serde_json::to_vec(&Header::from(spec))?;
    header.push(b'\n');
    stdin.write_all(&header).await?;
    stdin.write_all(&spec.stdin).await?;
    stdin.flush().await
}

async fn write_orders(mut stdin: ChildStdin, mut orders: mpsc::Receiver<Order>) {
    while let Some(order) = orders.recv().await {
        let written = match serde_json::to_vec(&order) {
            Ok(mut line) => {
                line.push(b'\n');
                stdin.write_all(&line).await
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = written {
            debug!(error = %error, "the supervisor no longer reads");
            return;
        }
    }
}
