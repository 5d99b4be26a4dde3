//! The supervisor: one process, one thread, one command.
//!
//! A single loop waits for orders, output, the end of the command and the next deadline, whichever comes first.
//! Nothing in it blocks, so a worker that reads slowly, or not at all, delays neither a deadline nor a kill. The
//! only waits without limit are those for a killed process to be dead.

mod deliver;
mod desk;
mod detached;
mod family;
mod master;
mod parent;
mod pipes;
mod start;
mod watch;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{getpid, set_child_subreaper};

use crate::moment::Moment;
use crate::order::Header;
use crate::report::End;
use deliver::deliver;
pub use detached::supervise_detached;
use master::Master as _;
use parent::Parent;

/// The longest sleep: waiting does not count the time in which the machine is suspended, deadlines do.
const TICK: Duration = Duration::from_secs(1);

/// Why the supervisor could not do its work.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("this step is started by a worker, not by hand")]
    ByHand,
    #[error("could not begin a session of its own")]
    Session(#[source] Errno),
    #[error("could not use the directory of the task")]
    Directory(#[source] io::Error),
    #[error("could not become the heir of orphaned processes")]
    Subreaper(#[source] Errno),
    #[error("could not learn from the worker what to run")]
    Header(#[source] io::Error),
    #[error("could not wait for anything to happen")]
    Poll(#[source] Errno),
    #[error("the system did not tell how the command ended")]
    NoStatus,
    #[error("the worker did not read how the command ended")]
    Unread,
}

/// The body of the hidden supervisor subcommand: runs one command for the worker that started this process.
///
/// To be called first thing in `main`, in the main thread, before any other thread or runtime starts.
/// `launch_args` are the arguments with which this same program calls [`launch`](crate::launch).
///
/// # What is promised
///
/// The command, and everything that descends from it, is dead
/// - at once when the worker dies or drops its handle (the end of our input);
/// - when no sign of contact came for `contact_max`, be the worker frozen, stuck, or cut off from its database;
/// - when the worker asks for it, and before [`Report::Exited`](crate::Report::Exited) is sent. A command cannot
///   leave anything behind: when its output ends after its main process, or one second has passed, the rest is
///   killed (after a stop, at the end of its grace).
///
/// # What is not
///
/// - If this supervisor is killed with SIGKILL, the main process of the command dies with it; processes that the
///   command had started live on.
/// - If this supervisor is stopped with SIGSTOP, it does nothing until it continues. The worker, or the agent, notices
///   that within seconds and has the command killed; where that process is gone as well, the command goes on.
/// - A command that runs as another user (set-user-id) may be beyond our power to kill; we wait for it then.
/// - A program that forks without pause, each child leaving its group, can outrun the search for it.
///
/// SIGTERM sent to this process ends it, and with it the main process of the command. A service manager should
/// therefore signal the worker alone (systemd: `KillMode=mixed`).
pub fn supervise(launch_args: &[&str]) -> ExitCode {
    match run(launch_args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure);
            ExitCode::FAILURE
        }
    }
}

fn run(launch_args: &[&str]) -> Result<(), Failure> {
    if io::stdin().is_terminal() || io::stdout().is_terminal() {
        return Err(Failure::ByHand);
    }
    set_child_subreaper(Some(getpid())).map_err(Failure::Subreaper)?;
    let Some((mut parent, header, stdin)) = Parent::meet().map_err(Failure::Header)? else {
        return Ok(());
    };
    // The worker may have been frozen since its claim; then the run may already be another's.
    if parent.is_lost(Moment::now()) {
        return deliver(&mut parent, &mut [], End::LostContact);
    }
    let Header { program, line_bytes_max, contact_max, .. } = header;
    let ordered = start::Ordered { program, stdin, line_bytes_max, patience: contact_max };
    match start::start(launch_args, ordered) {
        Ok(started) => {
            let (end, mut outputs) = watch::watch(&mut parent, started)?;
            deliver(&mut parent, &mut outputs, end)
        }
        Err(reason) => deliver(&mut parent, &mut [], End::NotStarted { reason }),
    }
}

/// Sleeps until something happens, or until `deadline`, or for a while.
fn sleep(fds: &mut [PollFd<'_>], now: Moment, deadline: Moment) -> Result<(), Failure> {
    let span = now.until(deadline).min(TICK);
    let timeout = Timespec::try_from(span).unwrap_or_default();
    match poll(fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(Failure::Poll(error)),
    }
}

/// Tells the worker's log what went wrong, if it can still be told.
fn complain(failure: &Failure) {
    let mut message = format!("error: {failure}");
    let mut source = failure.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    let _ = writeln!(io::stderr(), "{message}");
}
