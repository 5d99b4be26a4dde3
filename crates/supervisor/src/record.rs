//! The files in the directory of a detached command, and how they are written.
//!
//! A record is written to a temporary file, synced and renamed, so that a reader finds a complete record or none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::boot_instant::BootInstant;
use crate::isolation::Isolation;
use crate::report::End;

/// The [`DetachedSpec`] as JSON, without secrets.
pub(crate) const SPEC: &str = "run.json";
/// Lock file, locked while the supervisor is alive.
pub(crate) const ALIVE: &str = "alive";
/// The [`StartRecord`] as JSON. It exists as soon as the command may run.
pub(crate) const STARTED: &str = "started";
/// Named pipe for control messages, one per line.
pub(crate) const CONTROL: &str = "control";
/// Output of the command.
pub(crate) const LOG: &str = "log";
/// The [`Exit`] as JSON.
pub(crate) const EXIT: &str = "exit.json";
/// If this file exists, no supervisor starts the command.
pub(crate) const FORBIDDEN: &str = "forbidden";
/// Error output of the supervisor itself.
pub(crate) const SUPERVISOR_LOG: &str = "supervisor.log";

/// A detached command and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedSpec {
    /// The program and its arguments; the program is looked up in the `PATH` of `env` unless it contains a slash.
    pub command: Vec<String>,
    /// The complete environment except the secrets.
    pub env: Vec<(String, String)>,
    pub dir: PathBuf,
    pub limits: Limits,
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL when it times out.
    pub grace: Duration,
    /// Time after the last confirmed contact at which it is killed; `None` disables the check.
    pub contact_max: Option<Duration>,
    /// Longer lines are split into pieces.
    pub line_bytes_max: usize,
    /// Output beyond this size is dropped.
    pub log_bytes_max: u64,
    #[serde(default)]
    pub isolation: Isolation,
}

/// Resource limits of a command.
///
/// The control group of the command limits memory, processes and CPU share of all its processes together. Where it
/// cannot, `setrlimit` limits the memory of each process, and the number of processes of the command's user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Processor time of each process.
    pub cpu_secs: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Number of processes and threads at the same time.
    pub processes: Option<u32>,
    /// CPU share in percent of one CPU.
    pub cpu_percent: Option<u32>,
    /// Size of a file that it writes.
    pub file_bytes: Option<u64>,
    /// Size of the files in its own `/dev/shm`, which it has with namespaces. They use memory that belongs to no
    /// process.
    pub shared_memory_bytes: Option<u64>,
    /// Size of a core dump, which may contain secrets.
    pub core_bytes: Option<u64>,
}

/// Record of how a detached command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub end: End,
    /// Whether the supervisor stopped it at its timeout.
    pub timed_out: bool,
    /// Whether a stop or kill message was received.
    pub stopped: bool,
}

/// Start parameters that the supervisor reads from its standard input, because they must not be written to disk.
#[derive(Serialize, Deserialize)]
pub(crate) struct StartInput {
    /// Environment variables with secret values.
    pub(crate) secrets: Vec<(String, String)>,
    /// Time of the first confirmed contact.
    pub(crate) contact: BootInstant,
}

/// Record of the supervisor that started the command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartRecord {
    /// Process id of the supervisor, which is also its session id.
    pub(crate) session: i32,
    /// Boot id of the machine: process ids are only valid within one boot.
    pub(crate) machine_start: String,
}

/// Identifies the current boot of the machine.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Writes a file atomically and durably (it survives a power loss), readable by its owner only.
pub fn write_durable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temporary, file) = write_temporary(path, bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_parent(path)
}

/// Writes a file atomically, but not durably: a power loss can remove it.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temporary, _) = write_temporary(path, bytes)?;
    fs::rename(&temporary, path)
}

/// Size of the reserved space: larger than any [`Exit`] record.
const RESERVED_BYTES: usize = 4096;

/// Allocates the disk space that [`write_reserved`] needs later.
pub(crate) fn reserve_record(path: &Path) -> io::Result<()> {
    let (_, file) = write_temporary(path, &[b' '; RESERVED_BYTES])?;
    file.sync_all()
}

/// Writes a record into its reserved space, which works on a full disk. The record is padded with spaces.
pub(crate) fn write_reserved(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_path(path);
    // Truncating would release the reserved space.
    let mut file = private_file().create(true).truncate(false).open(&temporary)?;
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().max(RESERVED_BYTES), b' ');
    file.write_all(&padded)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_parent(path)
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    PathBuf::from(temporary)
}

fn write_temporary(path: &Path, bytes: &[u8]) -> io::Result<(PathBuf, File)> {
    let temporary = temporary_path(path);
    let mut file = private_file().truncate(true).create(true).open(&temporary)?;
    file.write_all(bytes)?;
    Ok((temporary, file))
}

/// Syncs the directory of `path`, so that the file name survives a power loss.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
        .sync_all()
}

/// Options to open a file for writing that only its owner can read.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// Reads a file; returns `None` if it does not exist.
pub(crate) fn read_optional(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
