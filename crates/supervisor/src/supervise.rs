//! The supervisor: one process, one thread, one command.
//!
//! A single loop waits for control messages, output, the end of the command and the next deadline. No operation in it
//! blocks, so a worker that reads slowly, or not at all, delays neither a deadline nor a kill. Only the wait for the
//! death of a killed process has no time limit.

mod controller;
mod deliver;
mod detached;
mod init_connection;
mod monitor;
mod pipes;
mod process_tree;
mod start;
mod task_directory;
mod worker_connection;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{getpid, set_child_subreaper};

use crate::boot_instant::BootInstant;
use crate::isolation::Isolation;
use crate::protocol::Header;
use crate::report::End;
use controller::Controller as _;
use deliver::deliver;
pub use detached::supervise_detached;
use worker_connection::WorkerConnection;

/// Longest sleep. `poll` does not count the time while the machine is suspended, but deadlines do.
const TICK: Duration = Duration::from_secs(1);

/// Internal error of the supervisor.
#[derive(Debug, thiserror::Error)]
enum SupervisorError {
    #[error("this internal command is started by workers and agents only, not from a terminal")]
    FromTerminal,
    #[error("could not create a session")]
    Session(#[source] Errno),
    #[error("could not access the directory of the task")]
    Directory(#[source] io::Error),
    #[error("could not become the subreaper of orphaned processes")]
    Subreaper(#[source] Errno),
    #[error("could not read the command from the worker")]
    Header(#[source] io::Error),
    #[error("could not wait for events")]
    Poll(#[source] Errno),
    #[error("the exit status of the command is unknown")]
    NoStatus,
    #[error("the worker did not read the last reports")]
    Unread,
}

/// The body of the hidden supervisor subcommand: runs one command for the worker that started this process.
///
/// Call it first in `main`, in the main thread, before any other thread or runtime starts.
/// `launch_args` are the arguments with which this program calls [`launch`](crate::launch).
///
/// # Guarantees
///
/// The supervisor kills the command and all its descendants in these cases:
///
/// - The worker dies or drops its handle (end-of-file on the standard input).
/// - No contact was confirmed for `contact_max`: the worker is frozen, stuck or cut off from its database.
/// - The worker requests it.
/// - The main process has ended. The other processes have until the output is closed, at most one second. After a stop
///   they have until the end of its grace period. [`Report::Exited`](crate::Report::Exited) is sent when all are dead.
///
/// # Exceptions
///
/// - If this supervisor is killed with SIGKILL, the main process of the command dies with it. Processes that the
///   command had started survive, unless the command has a PID namespace. If it has a control group, the worker or the
///   agent kills them.
/// - If this supervisor is stopped with SIGSTOP, it does nothing until it is resumed. The worker, or the agent, notices
///   that within seconds and kills the command. If that process has died too, the command continues.
/// - A command that runs as another user (set-user-id) may not be killable. The supervisor then waits for its end.
/// - Without a control group and a PID namespace, a program that forks continuously, with each child leaving its
///   group, can escape the search.
///
/// SIGTERM to this process ends it and the main process of the command. A service manager should therefore send
/// signals to the worker only (systemd: `KillMode=mixed`).
pub fn supervise(launch_args: &[&str]) -> ExitCode {
    match run(launch_args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(launch_args: &[&str]) -> Result<(), SupervisorError> {
    if io::stdin().is_terminal() || io::stdout().is_terminal() {
        return Err(SupervisorError::FromTerminal);
    }
    set_child_subreaper(Some(getpid())).map_err(SupervisorError::Subreaper)?;
    let Some((mut worker, header, stdin)) = WorkerConnection::open().map_err(SupervisorError::Header)? else {
        return Ok(());
    };
    // If the worker was frozen since its claim, another worker may already hold the run.
    if worker.is_lost(BootInstant::now()) {
        return deliver(&mut worker, &mut [], End::LostContact);
    }
    let Header { program, line_bytes_max, contact_max, cgroup, .. } = header;
    let isolation = Isolation { namespaces: None, cgroup };
    let options =
        start::StartOptions { program, stdin, line_bytes_max, launch_timeout: contact_max, isolation };
    match start::start(launch_args, options) {
        Ok(command) => {
            let (end, mut outputs) = monitor::monitor(&mut worker, command)?;
            deliver(&mut worker, &mut outputs, end)
        }
        Err(reason) => deliver(&mut worker, &mut [], End::NotStarted { reason }),
    }
}

/// Sleeps until a descriptor is ready or `deadline` is reached, for at most [`TICK`].
fn sleep(fds: &mut [PollFd<'_>], now: BootInstant, deadline: BootInstant) -> Result<(), SupervisorError> {
    let span = now.until(deadline).min(TICK);
    let timeout = Timespec::try_from(span).unwrap_or_default();
    match poll(fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(SupervisorError::Poll(error)),
    }
}

/// Writes an error with its causes to the standard error.
fn print_error(error: &SupervisorError) {
    let mut message = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    let _ = writeln!(io::stderr(), "{message}");
}
