//! The detached mode: the command belongs to a directory, not to the process that started it.

use std::fs::{File, TryLockError};
use std::io::{self, IsTerminal, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{getpid, set_child_subreaper, setsid};

use super::controller::Controller as _;
use super::pipes::Output;
use super::start::{self, StartOptions};
use super::task_directory::TaskDirectory;
use super::{SupervisorError, monitor, print_error};
use crate::mask::Mask;
use crate::process_table::DIRECTORY_VARIABLE;
use crate::protocol::Program;
use crate::record::{
    ALIVE, DetachedSpec, EXIT, Exit, FORBIDDEN, SPEC, STARTED, StartInput, StartRecord, boot_id,
    private_file, reserve_record, sync_parent, write_reserved,
};
use crate::report::End;

/// Time to wait for processes that hold the lock briefly to check whether a supervisor is alive.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Time limit for the launch step to read its request.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The body of the hidden subcommand for detached commands.
///
/// [`DetachedCommand`](crate::DetachedCommand) starts it with an empty environment and the directory of the task as the
/// current directory. Call it first in `main`, in the main thread. `launch_args` are as for
/// [`supervise`](crate::supervise).
///
/// # Guarantees
///
/// - A command is started at most once per directory, regardless of how many processes call this function.
/// - It is not started after [`DetachedCommand::forbid_start`](crate::DetachedCommand::forbid_start) was called.
/// - It continues when the process that started it dies. Its output and its end are written to disk.
/// - The command and its descendants are dead before its end is recorded. If `contact_max` is set, they are also killed
///   when no contact was confirmed for that time.
///
/// The exceptions are the same as for [`supervise`](crate::supervise). The end of a command whose supervisor was
/// killed is unknown: see [`DetachedCommand::kill_orphans`](crate::DetachedCommand::kill_orphans).
pub fn supervise_detached(launch_args: &[&str]) -> ExitCode {
    match run(launch_args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(launch_args: &[&str]) -> Result<(), SupervisorError> {
    if io::stdin().is_terminal() {
        return Err(SupervisorError::FromTerminal);
    }
    // Signals to the terminal or the process group of the starting process must not reach this process.
    setsid().map_err(SupervisorError::Session)?;
    set_child_subreaper(Some(getpid())).map_err(SupervisorError::Subreaper)?;
    let Some(input) = read_input().map_err(SupervisorError::Header)? else { return Ok(()) };
    let Some(lock) = lock().map_err(SupervisorError::Directory)? else { return Ok(()) };
    if Path::new(FORBIDDEN).exists() || Path::new(STARTED).exists() || Path::new(EXIT).exists() {
        return Ok(());
    }
    let result = execute(launch_args, input);
    // Released last: a free lock tells other processes that this supervisor has ended.
    drop(lock);
    result
}

fn execute(launch_args: &[&str], input: StartInput) -> Result<(), SupervisorError> {
    let spec: DetachedSpec = std::fs::read(SPEC)
        .and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))
        .map_err(SupervisorError::Directory)?;
    let mask = Mask::new(input.secrets.iter().map(|(_, value)| value.as_str()));
    let mut directory =
        TaskDirectory::open(spec.clone(), &mask, input.contact).map_err(SupervisorError::Directory)?;
    // If the starting process was frozen since, another agent may already hold the task.
    if directory.is_expired() {
        return record_exit(&directory, End::LostContact);
    }
    // This command, or another one, can fill the disk. The exit record must still fit on it.
    reserve_record(Path::new(EXIT)).map_err(SupervisorError::Directory)?;
    record_start().map_err(SupervisorError::Directory)?;
    let mut env = spec.env;
    env.extend(input.secrets);
    let program = Program {
        command: spec.command,
        env,
        env_remove: vec![DIRECTORY_VARIABLE.to_owned()],
        dir: Some(spec.dir),
        limits: spec.limits,
    };
    let options = StartOptions {
        program,
        stdin: Vec::new(),
        line_bytes_max: spec.line_bytes_max,
        launch_timeout: spec.contact_max.unwrap_or(LAUNCH_TIMEOUT).min(LAUNCH_TIMEOUT),
        isolation: spec.isolation,
    };
    match start::start(launch_args, options) {
        Ok(command) => {
            let (end, mut outputs) = monitor::monitor(&mut directory, command)?;
            while !outputs.iter().all(Output::is_closed) {
                for output in &mut outputs {
                    output.read_rest(&mut directory);
                }
                directory.flush();
            }
            record_exit(&directory, end)
        }
        Err(reason) => record_exit(&directory, End::NotStarted { reason }),
    }
}

/// Reads the start parameters; returns `None` if the starting process died before it had written all of them.
fn read_input() -> io::Result<Option<StartInput>> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    match bytes.strip_suffix(b"\n") {
        Some(line) => Ok(Some(serde_json::from_slice(line)?)),
        None => Ok(None),
    }
}

/// Takes the lock that marks this supervisor as alive; returns `None` if another supervisor of the directory holds it.
fn lock() -> io::Result<Option<File>> {
    let file = private_file().create(true).truncate(false).open(ALIVE)?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_TIMEOUT => {
                thread::sleep(LOCK_RETRY_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Records that the command may run from now on. Fails if the record already exists.
fn record_start() -> io::Result<()> {
    let record = StartRecord { session: getpid().as_raw_nonzero().get(), machine_start: boot_id() };
    let mut file = private_file().create_new(true).open(STARTED)?;
    file.write_all(&serde_json::to_vec(&record)?)?;
    file.sync_all()?;
    sync_parent(Path::new(STARTED))
}

fn record_exit(directory: &TaskDirectory, end: End) -> Result<(), SupervisorError> {
    let exit = Exit { end, timed_out: directory.timed_out, stopped: directory.stopped };
    let bytes = serde_json::to_vec(&exit).map_err(|error| SupervisorError::Directory(error.into()))?;
    write_reserved(Path::new(EXIT), &bytes).map_err(SupervisorError::Directory)
}
