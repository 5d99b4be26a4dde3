//! The outliving mode: the command belongs to a directory, and not to the process that started it.

use std::fs::{File, TryLockError};
use std::io::{self, IsTerminal, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{getpid, set_child_subreaper, setsid};

use super::desk::Desk;
use super::master::Master as _;
use super::pipes::Output;
use super::start::{self, Ordered};
use super::{Failure, complain, watch};
use crate::mask::Mask;
use crate::order::Program;
use crate::process_table::DIRECTORY_VARIABLE;
use crate::record::{
    ALIVE, Begun, EXIT, Exit, FORBIDDEN, Handover, LastingSpec, SPEC, STARTED, create, machine_start,
    reserve_record, sync_folder, write_reserved,
};
use crate::report::End;

/// How long to wait for those who only look whether somebody is there.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// How long a launch step may take to listen.
const LAUNCH_PATIENCE: Duration = Duration::from_secs(30);

/// The body of the hidden subcommand for commands that outlive whoever started them.
///
/// To be called first thing in `main`, in the main thread, with an empty environment and the directory of the
/// task as the current one; see [`Lasting`](crate::Lasting), which starts it. `launch_args` are as for
/// [`supervise`](crate::supervise).
///
/// # What is promised
///
/// - A command is started at most once in a directory, however often and by however many processes this is called.
/// - It is not started where [`Lasting::forbid`](crate::Lasting::forbid) was called before.
/// - It goes on when whoever started it dies. Its output and its end are on the disk.
/// - It, and everything that descends from it, is dead before its end is written down, and when no sign of
///   contact came for `contact_max`, where there is one.
///
/// What is not promised is the same as for [`supervise`](crate::supervise). The end of a command whose
/// supervisor was killed is not known: see [`Lasting::kill_remains`](crate::Lasting::kill_remains).
pub fn supervise_detached(launch_args: &[&str]) -> ExitCode {
    match run(launch_args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure);
            ExitCode::FAILURE
        }
    }
}

fn run(launch_args: &[&str]) -> Result<(), Failure> {
    if io::stdin().is_terminal() {
        return Err(Failure::ByHand);
    }
    // A session of its own: what is sent to the terminal or the group of whoever started us is not for us.
    setsid().map_err(Failure::Session)?;
    set_child_subreaper(Some(getpid())).map_err(Failure::Subreaper)?;
    let Some(handover) = handover().map_err(Failure::Header)? else { return Ok(()) };
    let Some(lock) = lock().map_err(Failure::Directory)? else { return Ok(()) };
    if Path::new(FORBIDDEN).exists() || Path::new(STARTED).exists() || Path::new(EXIT).exists() {
        return Ok(());
    }
    let done = carry_out(launch_args, handover);
    // Held to the very end: who sees it free knows that we are gone.
    drop(lock);
    done
}

fn carry_out(launch_args: &[&str], handover: Handover) -> Result<(), Failure> {
    let spec: LastingSpec = std::fs::read(SPEC)
        .and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))
        .map_err(Failure::Directory)?;
    let mask = Mask::new(handover.secrets.iter().map(|(_, value)| value.as_str()));
    let mut desk = Desk::open(spec.clone(), &mask, handover.contact).map_err(Failure::Directory)?;
    // Whoever started us may have been frozen since; then the task may already be another's.
    if desk.is_late() {
        return leave(&desk, End::LostContact);
    }
    // A command can fill the disk, also that of other commands: how it ended must still fit on it.
    reserve_record(Path::new(EXIT)).map_err(Failure::Directory)?;
    begin().map_err(Failure::Directory)?;
    let mut env = spec.env;
    env.extend(handover.secrets);
    let program = Program {
        command: spec.command,
        env,
        env_remove: vec![DIRECTORY_VARIABLE.to_owned()],
        dir: Some(spec.dir),
        limits: spec.limits,
    };
    let ordered = Ordered {
        program,
        stdin: Vec::new(),
        line_bytes_max: spec.line_bytes_max,
        patience: spec.contact_max.unwrap_or(LAUNCH_PATIENCE).min(LAUNCH_PATIENCE),
    };
    match start::start(launch_args, ordered) {
        Ok(started) => {
            let (end, mut outputs) = watch::watch(&mut desk, started)?;
            while !outputs.iter().all(Output::is_closed) {
                for output in &mut outputs {
                    output.read_rest(&mut desk);
                }
                desk.flush();
            }
            leave(&desk, end)
        }
        Err(reason) => leave(&desk, End::NotStarted { reason }),
    }
}

/// What came through the pipe; none if whoever started us died before all of it was there.
fn handover() -> io::Result<Option<Handover>> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    match bytes.strip_suffix(b"\n") {
        Some(whole) => Ok(Some(serde_json::from_slice(whole)?)),
        None => Ok(None),
    }
}

/// The lock that says that we live; none if another supervisor of this directory has it.
fn lock() -> io::Result<Option<File>> {
    let file = create().create(true).truncate(false).open(ALIVE)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_WAIT => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Writes down that the command may run from now on. It is there once, or this fails.
fn begin() -> io::Result<()> {
    let begun = Begun { session: getpid().as_raw_nonzero().get(), machine_start: machine_start() };
    let mut file = create().create_new(true).open(STARTED)?;
    file.write_all(&serde_json::to_vec(&begun)?)?;
    file.sync_all()?;
    sync_folder(Path::new(STARTED))
}

fn leave(desk: &Desk, end: End) -> Result<(), Failure> {
    let exit = Exit { end, timed_out: desk.timed_out, stopped: desk.stopped };
    let bytes = serde_json::to_vec(&exit).map_err(|error| Failure::Directory(error.into()))?;
    write_reserved(Path::new(EXIT), &bytes).map_err(Failure::Directory)
}
