//! A folder, a database and the ways to look at it. Nothing that was started on a stage outlives it.

use std::fs;
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
use tidemill_core::run::{QueueRun, Run, RunState};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::{Engine, Patience};
use tidemill_store::{EventPage, Options, RunFilter, Store};
use tidemill_testkit::cluster::{Database, server_url};
use tokio::runtime::Runtime;

use crate::process::{Ran, run};

/// How long anything may take on a machine that is busy with other things; reached only by a failure.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// The binary under test.
pub(crate) const TIDEMILL: &str = env!("CARGO_BIN_EXE_tidemill");
/// Names the stage in the environment of everything that is started on it.
const MARK: &str = "E2E_STAGE";

/// Quicker than the defaults, so that a death is noticed in seconds.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(2);
const HASTE: [(&str, &str); 5] = [
    ("TIDEMILL_WORKER_BEAT", "300ms"),
    ("TIDEMILL_WORKER_DEAD_AFTER", "2s"),
    ("TIDEMILL_UPKEEP_EVERY", "200ms"),
    ("TIDEMILL_UPKEEP_IDLE", "200ms"),
    // Any free port: tests run beside each other.
    ("TIDEMILL_SERVER_LISTEN", "127.0.0.1:0"),
];

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// Runs each of these functions on both stores, as tests of their own.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(&$crate::stage::Stage::new($crate::stage::Kind::Sqlite)); })*
        }
        mod postgres {
            $(#[test] fn $name() { super::$name(&$crate::stage::Stage::new($crate::stage::Kind::Postgres)); })*
        }
    };
}
pub(crate) use on_both;

/// One test's ground: a database with the project `shop` (`staging`, `production`), and a folder.
pub(crate) struct Stage {
    pub(crate) kind: Kind,
    /// Where the data is.
    pub(crate) url: String,
    folder: TempDir,
    pub(crate) engine: Engine,
    runtime: Runtime,
    /// Held for its drop.
    _database: Option<Database>,
}

impl Stage {
    /// A migrated database with one project.
    pub(crate) fn new(kind: Kind) -> Self {
        Self::on(kind, &server_url, Database::create_for_store).prepared()
    }

    /// A database in which nothing is.
    pub(crate) fn bare(kind: Kind) -> Self {
        Self::on(kind, &server_url, Database::create)
    }

    /// A database on a server of the test's own.
    pub(crate) fn on_server(server: &str) -> Self {
        Self::on(Kind::Postgres, &|| Ok(server.to_owned()), Database::create).prepared()
    }

    fn on(
        kind: Kind,
        server: &dyn Fn() -> anyhow::Result<String>,
        create: fn(&str) -> anyhow::Result<Database>,
    ) -> Self {
        let folder = tempfile::Builder::new().prefix("tidemill-e2e-").tempdir().expect("a folder is made");
        let (url, database) = match kind {
            Kind::Sqlite => (folder.path().join("tidemill.db").display().to_string(), None),
            Kind::Postgres => {
                let server = server().expect("there is a PostgreSQL server");
                let database = create(&server).expect("a database is made");
                (database.url.clone(), Some(database))
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime is made");
        let store = runtime.block_on(Store::open(&Options::new(&url, host_now))).expect("the database opens");
        let engine = Engine::new(store, Clock::Database, Patience::For(PATIENCE));
        Self { kind, url, folder, engine, runtime, _database: database }
    }

    fn prepared(self) -> Self {
        self.block(self.engine.store().migrate(None)).expect("the database is migrated");
        let names = ["staging", "production"].map(str::to_owned).to_vec();
        self.block(self.engine.store().create_project("shop", names, None)).expect("the project is made");
        self
    }

    /// Waits for a call of the product's own library.
    pub(crate) fn block<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// The store under test.
    pub(crate) fn store(&self) -> &Store {
        self.engine.store()
    }

    /// A file in the stage's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the stage's folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("the file is written");
        path
    }

    /// Marks a command as this stage's own, and keeps the caller's settings away from it.
    pub(crate) fn adopt(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("TIDEMILL_") || name.starts_with("PG") || name == "DATABASE_URL" {
                command.env_remove(name);
            }
        }
        command.env(MARK, self.folder.path()).env("USER", "ann").env_remove("NO_COLOR");
        command.current_dir(self.folder.path()).stdin(Stdio::null());
    }

    /// `tidemill` with these arguments, quick, on this stage's database.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(TIDEMILL);
        self.adopt(&mut command);
        command.args(args).envs(HASTE).env("TIDEMILL_DATABASE", &self.url);
        command
    }

    /// Runs `tidemill` to its end.
    pub(crate) fn tidemill(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    /// Runs `tidemill`, which must succeed; its standard output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        self.tidemill(args).ok()
    }

    /// Runs `tidemill --json`, which must succeed; its answer.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let text = self.ok(&[&["--json"], args].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// Queues a run with the command line; its id.
    pub(crate) fn queue(&self, args: &[&str]) -> RunId {
        let usual = ["run", "queue", "--project", "shop", "--env", "staging"];
        self.ok(&[&usual, args].concat()).trim().parse().expect("the answer is a run id")
    }

    /// Queues a request as the library takes it; its first run.
    pub(crate) fn request(&self, request: QueueRun) -> RunId {
        self.block(self.engine.queue(request)).expect("the run is queued").run_id
    }

    /// A run.
    pub(crate) fn run(&self, id: &RunId) -> Run {
        self.block(self.engine.run(id)).expect("the run exists")
    }

    /// All runs, the oldest first.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut all: Vec<Run> = Vec::new();
        loop {
            let filter = RunFilter {
                limit: 1_000,
                before: all.last().map(|run| run.run_id.clone()),
                ..RunFilter::default()
            };
            let read = || self.engine.store().runs(filter.clone());
            let page = self.block(Patience::For(PATIENCE).settle("read runs", read)).expect("runs are read");
            let is_last = page.len() < 1_000;
            all.extend(page);
            if is_last {
                all.reverse();
                return all;
            }
        }
    }

    /// The tries of a request, the first one first.
    pub(crate) fn tries(&self, id: &RunId) -> Vec<Run> {
        let read = || self.engine.store().tries(id.clone());
        self.block(Patience::For(PATIENCE).settle("read tries", read)).expect("the tries are read")
    }

    /// A run's record.
    pub(crate) fn events(&self, id: &RunId) -> Vec<Event> {
        let page = EventPage { after: 0, limit: 100_000 };
        let read = || self.engine.store().events(id.clone(), page);
        self.block(Patience::For(PATIENCE).settle("read events", read)).expect("the events are read")
    }

    /// The messages of one kind in a run's record.
    pub(crate) fn messages(&self, id: &RunId, kind: EventKind) -> Vec<String> {
        let events = self.events(id).into_iter().filter(|event| event.kind == kind);
        events.map(|event| event.message).collect()
    }

    /// Waits until a run is in this state.
    pub(crate) fn until(&self, id: &RunId, state: RunState) -> Run {
        until(&format!("run {id} is {state}"), || {
            let run = self.run(id);
            (run.status == state).then_some(run)
        })
    }

    /// Waits until a run has ended.
    pub(crate) fn until_ended(&self, id: &RunId) -> Run {
        until(&format!("run {id} ends"), || {
            let run = self.run(id);
            run.status.is_terminal().then_some(run)
        })
    }

    /// Runs plain SQL, as whoever owns the tables. `ops.` is left out on SQLite.
    pub(crate) fn sql(&self, text: &str) -> Result<Vec<String>, sqlx::Error> {
        self.sql_at(&self.url, text)
    }

    /// Runs plain SQL at another address; the first column of each row, as text.
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
                    let options = SqliteConnectOptions::new().filename(url).busy_timeout(PATIENCE);
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

    /// Everything that the database holds, row by row: equal when nothing was written.
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

    /// The processes that were started on this stage and have not ended.
    pub(crate) fn processes(&self) -> Vec<i32> {
        marked(self.folder.path())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && !self.processes().is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left: Vec<String> = self.processes().into_iter().map(end).collect();
        // A second panic would end all tests.
        assert!(left.is_empty() || std::thread::panicking(), "the test left processes running: {left:?}");
    }
}

/// Ends a process that has our mark; what it was.
fn end(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
    format!("{pid} {}", String::from_utf8_lossy(&words).replace('\0', " "))
}

/// The processes whose environment names this folder.
fn marked(folder: &Path) -> Vec<i32> {
    let mark = format!("{MARK}={}", folder.display()).into_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    })
    .collect()
}

/// Waits until something is there, and gives it.
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(what, PATIENCE, look)
}

/// Waits until something is there, for as long as there is progress: what changes nothing for so long has stopped.
///
/// `look` gives a mark of how far it is, and the thing.
pub(crate) fn until_moving<P: PartialEq, T>(what: &str, mut look: impl FnMut() -> (P, Option<T>)) -> T {
    let (mut begun, mut mark) = (Instant::now(), None);
    loop {
        let (now, found) = look();
        if let Some(found) = found {
            return found;
        }
        if mark.as_ref() != Some(&now) {
            (begun, mark) = (Instant::now(), Some(now));
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: nothing moves within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until something is there, for so long at most.
pub(crate) fn until_within<T>(what: &str, longest: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < longest, "{what}: not within {longest:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
