//! What lies in the directory of a command that outlives whoever started it: names, records, and how they are
//! written.
//!
//! A record is written beside its name, made durable, and renamed: whoever reads it finds all of it, or nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::moment::Moment;
use crate::report::End;

/// What is to be run. Secrets are not in it.
pub(crate) const SPEC: &str = "run.json";
/// Locked as long as the supervisor lives.
pub(crate) const ALIVE: &str = "alive";
/// There from the moment on at which the command may run.
pub(crate) const STARTED: &str = "started";
/// A pipe with a name: orders, one per line.
pub(crate) const CONTROL: &str = "control";
/// What the command wrote.
pub(crate) const LOG: &str = "log";
/// How the command ended.
pub(crate) const EXIT: &str = "exit.json";
/// Where it lies, no command is started any more.
pub(crate) const FORBIDDEN: &str = "forbidden";
/// What the supervisor itself has to complain about.
pub(crate) const COMPLAINTS: &str = "supervisor.log";

/// A command that outlives whoever started it, and the limits that it runs under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastingSpec {
    /// The program and its arguments; the program is looked up in the `PATH` of `env` unless it contains a slash.
    pub command: Vec<String>,
    /// Its whole environment, but for the secrets.
    pub env: Vec<(String, String)>,
    /// Where it runs.
    pub dir: PathBuf,
    /// Bounds that the system keeps.
    pub limits: Limits,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// How long it may take to end after it was asked to, before it is killed.
    pub grace: Duration,
    /// How long after the last sign of contact it is killed; without it, contact does not matter.
    pub contact_max: Option<Duration>,
    /// How many bytes of output make one line of the log at most.
    pub line_bytes_max: usize,
    /// How many bytes of output are kept.
    pub log_bytes_max: u64,
}

/// Bounds of a command that the system keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Seconds of processor time of one process.
    pub cpu_secs: Option<u64>,
    /// Bytes of memory of one process.
    pub memory_bytes: Option<u64>,
    /// Bytes of one file that it writes.
    pub file_bytes: Option<u64>,
    /// Bytes of the memory that is dumped when it crashes: what is in it may be secret.
    pub core_bytes: Option<u64>,
}

/// How a command ended that outlives whoever started it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// How it ended.
    pub end: End,
    /// Whether it was told to end because its time was over.
    pub timed_out: bool,
    /// Whether somebody asked for its end.
    pub stopped: bool,
}

/// What the supervisor is told over its standard input, and nowhere else.
#[derive(Serialize, Deserialize)]
pub(crate) struct Handover {
    /// Variables that are secret.
    pub(crate) secrets: Vec<(String, String)>,
    /// The first sign of contact.
    pub(crate) contact: Moment,
}

/// The supervisor that began.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// Its process id, which is also the id of its session.
    pub(crate) session: i32,
    /// Which start of the machine this was: process ids mean nothing in another.
    pub(crate) machine_start: String,
}

/// Which start of the machine this is.
pub(crate) fn machine_start() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Writes a file that is whole or not there, for our eyes only, and lasts through a loss of power.
pub fn write_record(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (beside, file) = write_beside(path, bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    sync_folder(path)
}

/// The same for what can be made again after a loss of power.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (beside, _) = write_beside(path, bytes)?;
    fs::rename(&beside, path)
}

/// Bytes that are reserved for a record: more than an end of a command takes.
const RESERVED_BYTES: usize = 4096;

/// Takes the space on the disk that [`write_reserved`] needs later.
pub(crate) fn reserve_record(path: &Path) -> io::Result<()> {
    let (_, file) = write_beside(path, &[b' '; RESERVED_BYTES])?;
    file.sync_all()
}

/// Writes a record into the space that was reserved for it, which works on a full disk. Blanks follow the record.
pub(crate) fn write_reserved(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(path);
    // Truncating would give the space away.
    let mut file = create().create(true).truncate(false).open(&beside)?;
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().max(RESERVED_BYTES), b' ');
    file.write_all(&padded)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    sync_folder(path)
}

fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    PathBuf::from(beside)
}

fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<(PathBuf, File)> {
    let beside = beside(path);
    let mut file = create().truncate(true).create(true).open(&beside)?;
    file.write_all(bytes)?;
    Ok((beside, file))
}

/// Makes sure that a name in its folder lasts.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
        .sync_all()
}

/// How files for our eyes only are opened.
pub(crate) fn create() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// What a file holds; none where there is no such file.
pub(crate) fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
