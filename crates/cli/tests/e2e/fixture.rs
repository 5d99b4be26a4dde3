//! Test fixture: a directory, a database and access to both. No process that it starts outlives it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr as _;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection as _};
use tempfile::TempDir;
use tidemill_core::RunId;
use tidemill_core::event::{Event, EventKind};
use tidemill_core::run::{QueueRun, Run, RunCursor, RunState};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_store::{EventPage, Options, RunFilter, Store};
use tidemill_testkit::cluster::{Database, server_url};
use tokio::runtime::Runtime;

use crate::process::{Output, run};

/// Time limit of every wait. It is long because the machine may be busy.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
pub(crate) const TIDEMILL: &str = env!("CARGO_BIN_EXE_tidemill");
/// Environment variable that marks every process of a fixture.
const MARK_VARIABLE: &str = "E2E_FIXTURE";

/// Shorter than the default, so that a death is detected within seconds.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(2);
const FAST_SETTINGS: [(&str, &str); 5] = [
    ("TIDEMILL_WORKER_BEAT", "300ms"),
    ("TIDEMILL_WORKER_DEAD_AFTER", "2s"),
    ("TIDEMILL_UPKEEP_EVERY", "200ms"),
    ("TIDEMILL_UPKEEP_IDLE", "200ms"),
    // Any free port, because tests run in parallel.
    ("TIDEMILL_SERVER_LISTEN", "127.0.0.1:0"),
];

/// Directory of the token files of all servers. Their names contain the port, so tests do not share one.
pub(crate) fn token_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tokens")
}

/// Token of a local server, or `None` if the server has none.
pub(crate) fn local_token(address: SocketAddr) -> Option<String> {
    let file = token_dir().join(format!("{}-{}.token", address.ip(), address.port()));
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// Defines a test for each of these functions on both databases.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(&$crate::fixture::Fixture::new($crate::fixture::Kind::Sqlite)); })*
        }
        mod postgres {
            $(#[test] fn $name() { super::$name(&$crate::fixture::Fixture::new($crate::fixture::Kind::Postgres)); })*
        }
    };
}
pub(crate) use on_both;

/// A database with the project `shop` (`staging`, `production`), and a directory.
pub(crate) struct Fixture {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    directory: TempDir,
    pub(crate) engine: Engine,
    runtime: Runtime,
    /// Dropped with the fixture.
    _database: Option<Database>,
}

impl Fixture {
    /// Creates a migrated database with one project.
    pub(crate) fn new(kind: Kind) -> Self {
        Self::on(kind, &server_url, Database::create_for_store).prepared()
    }

    /// Creates an empty database.
    pub(crate) fn bare(kind: Kind) -> Self {
        Self::on(kind, &server_url, Database::create)
    }

    /// Creates a database on a server of the test itself.
    pub(crate) fn on_server(server: &str) -> Self {
        Self::on(Kind::Postgres, &|| Ok(server.to_owned()), Database::create).prepared()
    }

    fn on(
        kind: Kind,
        server: &dyn Fn() -> anyhow::Result<String>,
        create: fn(&str) -> anyhow::Result<Database>,
    ) -> Self {
        let directory =
            tempfile::Builder::new().prefix("tidemill-e2e-").tempdir().expect("the directory is created");
        let (url, database) = match kind {
            Kind::Sqlite => (directory.path().join("tidemill.db").display().to_string(), None),
            Kind::Postgres => {
                let server = server().expect("a PostgreSQL server is available");
                let database = create(&server).expect("the database is created");
                (database.url.clone(), Some(database))
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("the runtime is created");
        let store = runtime.block_on(Store::open(&Options::new(&url, host_now))).expect("the database opens");
        let engine = Engine::new(store, Clock::Database, RetryPolicy::For(TIMEOUT));
        Self { kind, url, directory, engine, runtime, _database: database }
    }

    fn prepared(self) -> Self {
        self.block(self.engine.store().migrate(None)).expect("the database is migrated");
        let names = ["staging", "production"].map(str::to_owned).to_vec();
        self.block(self.engine.store().create_project("shop", names, None)).expect("the project is created");
        self
    }

    /// Waits for an asynchronous call of the library.
    pub(crate) fn block<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    pub(crate) fn store(&self) -> &Store {
        self.engine.store()
    }

    /// Path of a file in the directory of the fixture.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file into the directory of the fixture.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("the file is written");
        path
    }

    /// Marks a command as part of this fixture, and removes inherited settings.
    pub(crate) fn prepare(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("TIDEMILL_") || name.starts_with("PG") || name == "DATABASE_URL" {
                command.env_remove(name);
            }
        }
        command.env(MARK_VARIABLE, self.directory.path()).env("USER", "ann").env_remove("NO_COLOR");
        command.env("HOME", self.directory.path()).env_remove("XDG_STATE_HOME");
        command.current_dir(self.directory.path()).stdin(Stdio::null());
    }

    /// `tidemill` with these arguments, short intervals and the database of this fixture.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(TIDEMILL);
        self.prepare(&mut command);
        command.args(args).envs(FAST_SETTINGS).env("TIDEMILL_DATABASE", &self.url);
        command.env("TIDEMILL_SERVER_TOKEN_DIR", token_dir());
        command
    }

    pub(crate) fn tidemill(&self, args: &[&str]) -> Output {
        run(&mut self.command(args))
    }

    /// Runs `tidemill`, which must succeed, and returns its standard output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        self.tidemill(args).ok()
    }

    /// Runs `tidemill --json`, which must succeed, and returns its output.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let text = self.ok(&[&["--json"], args].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// Queues a run with the command line, and returns its id.
    pub(crate) fn queue(&self, args: &[&str]) -> RunId {
        let usual = ["run", "queue", "--project", "shop", "--env", "staging"];
        self.ok(&[&usual, args].concat()).trim().parse().expect("the output is a run id")
    }

    /// Queues a request with the library, and returns its first run.
    pub(crate) fn request(&self, request: QueueRun) -> RunId {
        self.block(self.engine.queue(request)).expect("the run is queued").run_id
    }

    pub(crate) fn run(&self, id: &RunId) -> Run {
        self.block(self.engine.run(id)).expect("the run exists")
    }

    /// All runs, oldest first.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut all: Vec<Run> = Vec::new();
        loop {
            let filter =
                RunFilter { limit: 1_000, before: all.last().map(RunCursor::at), ..RunFilter::default() };
            let read = || self.engine.store().runs(filter.clone());
            let page = self.block(RetryPolicy::For(TIMEOUT).retry("read runs", read)).expect("runs are read");
            let is_last = page.len() < 1_000;
            all.extend(page);
            if is_last {
                all.reverse();
                return all;
            }
        }
    }

    /// Attempts of a request, oldest first.
    pub(crate) fn tries(&self, id: &RunId) -> Vec<Run> {
        let read = || self.engine.store().tries(id.clone());
        self.block(RetryPolicy::For(TIMEOUT).retry("read tries", read)).expect("the tries are read")
    }

    /// All events of a run.
    pub(crate) fn events(&self, id: &RunId) -> Vec<Event> {
        let page = EventPage { after: 0, limit: 100_000 };
        let read = || self.engine.store().events(id.clone(), page);
        self.block(RetryPolicy::For(TIMEOUT).retry("read events", read)).expect("the events are read")
    }

    /// Messages of the events of one kind.
    pub(crate) fn messages(&self, id: &RunId, kind: EventKind) -> Vec<String> {
        let events = self.events(id).into_iter().filter(|event| event.kind == kind);
        events.map(|event| event.message).collect()
    }

    /// Waits until a run is in a state, and returns it.
    pub(crate) fn wait_for_state(&self, id: &RunId, state: RunState) -> Run {
        wait_until(&format!("run {id} is {state}"), || {
            let run = self.run(id);
            (run.status == state).then_some(run)
        })
    }

    /// Waits until a run has ended, and returns it.
    pub(crate) fn wait_for_end(&self, id: &RunId) -> Run {
        wait_until(&format!("run {id} ends"), || {
            let run = self.run(id);
            run.status.is_terminal().then_some(run)
        })
    }

    /// Runs plain SQL as the owner of the tables. `ops.` is removed on SQLite.
    pub(crate) fn sql(&self, text: &str) -> Result<Vec<String>, sqlx::Error> {
        self.sql_at(&self.url, text)
    }

    /// Runs plain SQL at another address, and returns the first column of each row as text.
    pub(crate) fn sql_at(&self, url: &str, text: &str) -> Result<Vec<String>, sqlx::Error> {
        self.runtime.block_on(async {
            match self.kind {
                Kind::Postgres => {
                    let mut conn = PgConnection::connect_with(&PgConnectOptions::from_str(url)?).await?;
                    let rows = sqlx::query_scalar::<_, Option<String>>(AssertSqlSafe(text.to_owned()));
                    let rows = rows.persistent(false).fetch_all(&mut conn).await?;
                    conn.close().await?;
                    Ok(rows.into_iter().map(Option::unwrap_or_default).collect())
                }
                Kind::Sqlite => {
                    let options = SqliteConnectOptions::new().filename(url).busy_timeout(TIMEOUT);
                    let mut conn = SqliteConnection::connect_with(&options).await?;
                    let text = text.replace("ops.", "");
                    let rows = sqlx::query_scalar::<_, Option<String>>(AssertSqlSafe(text));
                    let rows = rows.fetch_all(&mut conn).await?;
                    conn.close().await?;
                    Ok(rows.into_iter().map(Option::unwrap_or_default).collect())
                }
            }
        })
    }

    /// Returns whether the SQLite file can be locked for writing within a time.
    pub(crate) fn is_writable(&self, within: Duration) -> bool {
        let options = SqliteConnectOptions::new().filename(&self.url).busy_timeout(within);
        self.block(async {
            let mut file = SqliteConnection::connect_with(&options).await.expect("the file opens");
            let locked = sqlx::query("BEGIN IMMEDIATE; ROLLBACK").execute(&mut file).await;
            file.close().await.expect("the file closes");
            locked.is_ok()
        })
    }

    /// All rows of all tables. Two dumps are equal if nothing was written between them.
    pub(crate) fn dump(&self) -> Vec<String> {
        let tables = match self.kind {
            Kind::Postgres => {
                "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relkind = 'r' \
                 AND c.relnamespace = to_regnamespace('ops') ORDER BY 1"
            }
            Kind::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1",
        };
        let mut rows = Vec::new();
        for table in self.sql(tables).expect("the tables are listed") {
            let text = match self.kind {
                Kind::Postgres => format!("SELECT t::text FROM {table} t ORDER BY 1"),
                Kind::Sqlite => {
                    let columns = format!("SELECT name FROM pragma_table_info('{table}')");
                    let columns = self.sql(&columns).expect("the columns are listed");
                    let quoted: Vec<String> =
                        columns.iter().map(|name| format!("quote(\"{name}\")")).collect();
                    format!("SELECT {} FROM {table} ORDER BY 1", quoted.join(" || ',' || "))
                }
            };
            let found = self.sql(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            rows.extend(found.into_iter().map(|row| format!("{table}: {row}")));
        }
        rows
    }

    /// Processes of this fixture that have not ended.
    pub(crate) fn processes(&self) -> Vec<i32> {
        marked_processes(self.directory.path())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let started = Instant::now();
        while started.elapsed() < TIMEOUT && !self.processes().is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left: Vec<String> = self.processes().into_iter().map(kill).collect();
        // A panic during a panic would abort all tests.
        assert!(left.is_empty() || std::thread::panicking(), "the test left processes: {left:?}");
    }
}

/// Kills a process, and returns its command line.
fn kill(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
    format!("{pid} {}", String::from_utf8_lossy(&words).replace('\0', " "))
}

/// Processes whose environment contains the mark of this directory.
fn marked_processes(directory: &Path) -> Vec<i32> {
    let mark = format!("{MARK_VARIABLE}={}", directory.display()).into_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    })
    .collect()
}

/// Waits until `read` returns a value, and returns it.
pub(crate) fn wait_until<T>(what: &str, read: impl FnMut() -> Option<T>) -> T {
    wait_until_within(what, TIMEOUT, read)
}

/// Waits until `read` returns a value, as long as there is progress within the time limit.
///
/// `read` returns a measure of the progress, and the value.
pub(crate) fn wait_while_progressing<P: PartialEq, T>(
    what: &str,
    mut read: impl FnMut() -> (P, Option<T>),
) -> T {
    let (mut started, mut mark) = (Instant::now(), None);
    loop {
        let (now, found) = read();
        if let Some(found) = found {
            return found;
        }
        if mark.as_ref() != Some(&now) {
            (started, mark) = (Instant::now(), Some(now));
        }
        assert!(started.elapsed() < TIMEOUT, "{what}: no progress within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until `read` returns a value, with a time limit.
pub(crate) fn wait_until_within<T>(what: &str, longest: Duration, mut read: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = read() {
            return found;
        }
        assert!(started.elapsed() < longest, "timeout after {longest:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
