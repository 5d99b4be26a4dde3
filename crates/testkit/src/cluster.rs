//! A throwaway PostgreSQL server: its own directory, its own port on 127.0.0.1, removed with its owner.
//!
//! It does not touch installed services and leaves nothing behind: see [`guard`] for how the server ends even if its
//! owner is killed. All calls here block; none of them needs a runtime.

mod address;
mod binaries;
mod database;
mod guard;
mod template;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::statvfs;
use rustix::process::Signal;
use uuid::Uuid;

pub use address::{Address, with_database};
pub(crate) use binaries::executable;
pub use binaries::{POSTGRES_MAJOR_MIN, ServerBinaries, find_on_path};
pub use database::Database;
pub(crate) use guard::{Account, Guard, end, tail};
pub use template::{TEMPLATE_VARIABLE, Template};

/// Environment variable with the URL of the server that tests use.
pub const SERVER_URL_VARIABLE: &str = "TIDEMILL_TEST_POSTGRES";

/// Time limit for a server to accept connections, including crash recovery.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Time limit for a server to end before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
/// Number of ports to try, because another program may take a port between the check and its use.
const START_ATTEMPTS_MAX: u32 = 5;

/// Durability of a cluster's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Data does not survive a power failure; for tests.
    #[default]
    Fast,
    /// Production settings; for benchmarks.
    Full,
}

/// How a running server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Ends every session and shuts down cleanly.
    Fast,
    /// Ends without a checkpoint, like a crash: the next start runs recovery.
    Immediate,
}

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    pub durability: Durability,
    /// Maximum number of sessions.
    pub connections_max: u32,
    /// Additional lines for `postgresql.conf` as name and value. They override all others.
    pub settings: Vec<(String, String)>,
    /// Programs of the server; without them, those of this machine.
    pub binaries: Option<ServerBinaries>,
}

impl Default for Options {
    fn default() -> Self {
        Self { durability: Durability::default(), connections_max: 200, settings: Vec::new(), binaries: None }
    }
}

/// A PostgreSQL server of this process.
///
/// Dropping it stops the server and removes its directory.
#[derive(Debug)]
pub struct Cluster {
    /// `None` while the server is stopped.
    server: Option<Child>,
    /// Returns the port on 127.0.0.1.
    port: u16,
    binaries: ServerBinaries,
    /// Account that the server runs as, if it is not the current one.
    account: Option<Account>,
    /// Program and arguments before the server's own, such as a profiler; usually empty.
    wrapper: Vec<OsString>,
    /// Owns the directory, and ends the server if this process is killed.
    guard: Guard,
}

impl Cluster {
    /// Creates a cluster and returns when it accepts connections.
    pub fn start(options: &Options) -> Result<Self> {
        let binaries = match &options.binaries {
            Some(binaries) => binaries.clone(),
            None => ServerBinaries::find()?,
        };
        let account = Account::for_server()?;
        let guard = Guard::new(&parent(options.durability), account, Signal::QUIT)?;
        let wrapper = Vec::new();
        let mut cluster = Self { server: None, port: free_port()?, binaries, account, wrapper, guard };
        cluster.initialise(options)?;
        let mut attempt = 1;
        while let Err(error) = cluster.resume() {
            if attempt == START_ATTEMPTS_MAX || !cluster.lost_its_port()? {
                return Err(error);
            }
            attempt += 1;
            cluster.port = free_port()?;
        }
        Ok(cluster)
    }

    /// Returns the URL of `database` on this server for the superuser `postgres`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the port on 127.0.0.1. It stays the same across restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the major version of the server.
    pub fn version_major(&self) -> u32 {
        self.binaries.version_major
    }

    /// Returns the directory that is removed with the cluster. The server may write to it.
    pub fn directory(&self) -> &Path {
        self.guard.directory()
    }

    /// Returns the process id of the running server.
    pub fn process_id(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    /// Sets the program and the arguments that run the server from the next start on.
    pub fn run_under(&mut self, wrapper: Vec<OsString>) {
        self.wrapper = wrapper;
    }

    /// Returns the path of the server log.
    pub fn log(&self) -> PathBuf {
        self.guard.directory().join("server.log")
    }

    /// Stops the server and keeps its data; [`Cluster::resume`] starts it again.
    pub fn stop(&mut self, shutdown: Shutdown) -> Result<()> {
        let Some(server) = &mut self.server else { return Ok(()) };
        let signal = match shutdown {
            Shutdown::Fast => Signal::INT,
            Shutdown::Immediate => Signal::QUIT,
        };
        end(server, signal, STOP_TIMEOUT).context("could not stop the PostgreSQL server")?;
        self.server = None;
        self.guard.watch(None)
    }

    /// Starts a stopped server, and returns when it accepts connections.
    pub fn resume(&mut self) -> Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        let log = fs::File::options().create(true).append(true).open(self.log())?;
        let mut command = match self.wrapper.as_slice() {
            [] => self.guard.command(&self.binaries.postgres, self.account),
            [program, arguments @ ..] => {
                let mut command = self.guard.command(Path::new(program), self.account);
                command.args(arguments).arg(&self.binaries.postgres);
                command
            }
        };
        command.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string());
        command.stdout(log.try_clone()?).stderr(log);
        let server = command.spawn().context("could not start the PostgreSQL server")?;
        self.guard.watch(Some(server.id()))?;
        let server = self.server.insert(server);

        let pid_file = self.guard.directory().join("data/postmaster.pid");
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = server.try_wait()? {
                self.server = None;
                self.guard.watch(None)?;
                bail!("the PostgreSQL server did not start ({status}); its log ends:\n{}", tail(&self.log()));
            }
            if is_ready(&pid_file, server.id()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                self.stop(Shutdown::Immediate)?;
                bail!("the PostgreSQL server was not ready in time; its log ends:\n{}", tail(&self.log()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops the server and starts it again on the same port.
    pub fn restart(&mut self, shutdown: Shutdown) -> Result<()> {
        self.stop(shutdown)?;
        self.resume()
    }

    fn data(&self) -> PathBuf {
        self.guard.directory().join("data")
    }

    fn initialise(&mut self, options: &Options) -> Result<()> {
        let mut initdb = self.guard.command(&self.binaries.initdb, self.account);
        initdb.arg("-D").arg(self.data());
        initdb.args(["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]);
        let initdb = initdb.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let initdb = initdb.context("could not run initdb")?;
        // `initdb` runs temporary servers, which leave shared memory behind if their files vanish.
        self.guard.watch(Some(initdb.id()))?;
        let output = initdb.wait_with_output()?;
        self.guard.watch(None)?;
        ensure!(
            output.status.success(),
            "initdb failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let mut file = fs::File::options().append(true).open(self.data().join("postgresql.conf"))?;
        file.write_all(settings(options, self.guard.directory()).as_bytes())?;
        let log = fs::File::create(self.log())?;
        drop(log);
        if let Some(account) = self.account {
            chown(self.log(), Some(account.uid), Some(account.gid))?;
        }
        Ok(())
    }

    /// Returns whether the last start failed because another program uses the port.
    fn lost_its_port(&self) -> Result<bool> {
        let log = fs::read_to_string(self.log())?;
        Ok(log.contains("could not bind IPv4 address"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The guard ends the remaining processes, so a failure here is ignored.
        let _ = self.stop(Shutdown::Immediate);
    }
}

/// Returns the URL of the test server: the one in `TIDEMILL_TEST_POSTGRES`, or one of this process.
///
/// The server of this process starts at the first call and ends with the process.
pub fn server_url() -> Result<String> {
    static OWN: OnceLock<Result<Cluster, String>> = OnceLock::new();
    if let Ok(url) = std::env::var(SERVER_URL_VARIABLE) {
        return Ok(url);
    }
    match OWN.get_or_init(|| Cluster::start(&Options::default()).map_err(|error| format!("{error:#}"))) {
        Ok(cluster) => Ok(cluster.url("postgres")),
        Err(reason) => bail!("there is no PostgreSQL server for the tests: {reason}"),
    }
}

/// Returns the parent directory of a cluster: in memory if the data need not last and there is enough space.
///
/// A new database consists of hundreds of small files, which take ten times as long on a disk.
fn parent(durability: Durability) -> PathBuf {
    const MEMORY: &str = "/dev/shm";
    const ROOM_BYTES_MIN: u64 = 4 * 1024 * 1024 * 1024;
    let has_room = || statvfs(MEMORY).is_ok_and(|room| room.f_bavail * room.f_frsize >= ROOM_BYTES_MIN);
    if durability == Durability::Fast && has_room() { MEMORY.into() } else { std::env::temp_dir() }
}

/// Returns a free port on 127.0.0.1.
///
/// The port is below the ephemeral range: any client could take a port of that range while a server restarts.
pub(crate) fn free_port() -> Result<u16> {
    const FIRST: u128 = 20_000;
    const COUNT: u128 = 12_000;
    for _ in 0..200 {
        let port = u16::try_from(FIRST + Uuid::new_v4().as_u128() % COUNT)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port on 127.0.0.1 was found; end programs that listen between 20000 and 32000")
}

/// Returns the lines for `postgresql.conf`.
fn settings(options: &Options, directory: &Path) -> String {
    let connections_max = options.connections_max.to_string();
    let directory = directory.to_string_lossy();
    let mut settings = vec![
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", &*directory),
        ("max_connections", &connections_max),
        ("timezone", "UTC"),
        ("log_timezone", "UTC"),
    ];
    match options.durability {
        Durability::Fast => {
            settings.extend([("fsync", "off"), ("synchronous_commit", "off"), ("full_page_writes", "off")]);
            // The write-ahead log may lie in memory, and a checkpoint is cheap there.
            settings.push(("max_wal_size", "256MB"));
        }
        Durability::Full => settings.extend([
            ("fsync", "on"),
            ("synchronous_commit", "on"),
            ("full_page_writes", "on"),
            ("shared_buffers", "1GB"),
        ]),
    }
    settings.extend(options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    settings.iter().fold(String::from("\n"), |mut text, (name, value)| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} = '{}'", value.replace('\'', "''"));
        text
    })
}

/// Returns whether the lock file says that the server with this process id accepts connections.
fn is_ready(pid_file: &Path, pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(pid_file) else { return false };
    let mut lines = text.lines();
    lines.next().is_some_and(|line| line.trim() == pid.to_string())
        && lines.nth(6).is_some_and(|line| line.trim() == "ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_file_counts_only_if_own_and_ready() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("postmaster.pid");
        assert!(!is_ready(&file, 7));
        fs::write(&file, "7\n/data\n1\n5432\n/socket\n127.0.0.1\n 1 2\nready   \n").unwrap();
        assert!(is_ready(&file, 7));
        assert!(!is_ready(&file, 8));
        fs::write(&file, "7\n/data\n1\n5432\n/socket\n127.0.0.1\n 1 2\nstarting\n").unwrap();
        assert!(!is_ready(&file, 7));
    }

    #[test]
    fn settings_given_by_the_caller_come_last_and_are_quoted() {
        let options = Options { settings: vec![("search_path".into(), "it's".into())], ..Options::default() };
        let text = settings(&options, Path::new("/tmp/x"));
        assert!(text.ends_with("search_path = 'it''s'\n"), "{text}");
        assert!(text.contains("max_connections = '200'\n"), "{text}");
    }
}
