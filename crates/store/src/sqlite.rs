//! SQLite access: read connections, and one writer that commits the transactions of many callers together.
//!
//! A commit on SQLite costs one disk sync, regardless of its size. The writer takes the waiting transactions, runs each
//! in a savepoint, and commits them as a group. A transaction that fails is rolled back alone. Callers are answered
//! after the commit. Between groups the writer lets other processes write.

use crate::{Class, Error, LockHolder, LoopError, LoopOptions, Next, Resource, TaskMonitor, catch_panic};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection, SqlitePool};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Maximum number of transactions per group.
const GROUP_STEPS_MAX: usize = 128;
/// Time for which a group accepts further transactions.
const GROUP_TIME_MAX: Duration = Duration::from_millis(10);
/// Time for which one process writes without a pause.
const TURN: Duration = Duration::from_millis(50);
/// Pause in which another process can start to write. Waiting processes try every millisecond or two.
const PAUSE: Duration = Duration::from_millis(3);
/// Time limit for waiting for other processes.
const BUSY_MAX: Duration = Duration::from_secs(30);
/// Time after which a wait for another process is logged.
const BUSY_LOGGED: Duration = Duration::from_secs(5);

/// A boxed future that borrows the connection.
pub(crate) type BoxFuture<'c, T> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

/// Answers a caller once its group is committed or rolled back.
type Reply = Box<dyn FnOnce(Result<(), Error>) + Send>;
/// The transaction of one caller. It gets an open connection, or the error why there is none. It returns whether to
/// keep its changes, and the reply.
type QueuedStep =
    Box<dyn for<'c> FnOnce(Result<&'c mut SqliteConnection, Error>) -> BoxFuture<'c, (bool, Reply)> + Send>;

/// An open SQLite file with its writer.
#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    readers: SqlitePool,
    steps: mpsc::Sender<QueuedStep>,
    /// Notifies readers in this process of commits.
    pub(crate) committed: watch::Sender<u64>,
    /// Connection that detects writes of other processes.
    watcher: tokio::sync::Mutex<SqliteConnection>,
}

impl Sqlite {
    /// Opens the file, and creates it if it does not exist.
    pub(crate) async fn open(path: &Path, clock: crate::Clock, monitor: &TaskMonitor) -> Result<Self, Error> {
        // If this fails, so does SQLite, unless the file exists.
        let _ = create_private(path);
        // A connection must not create a missing or deleted file: the umask would decide who can read it.
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(false)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(10));
        let opened = |source| open_error(path, source);
        let writer = connect_writer(&options).await.map_err(opened)?;
        let watcher = SqliteConnection::connect_with(&options).await.map_err(opened)?;
        let reopen = options.clone();
        let readers = SqlitePoolOptions::new()
            .max_connections(tidemill_core::limits::POOL_CONNECTIONS)
            .test_before_acquire(false)
            .connect_lazy_with(options.pragma("query_only", "ON"));
        let (steps, inbox) = mpsc::channel(GROUP_STEPS_MAX * 4);
        let committed = watch::Sender::new(0);
        Writer::new(writer, reopen, inbox, committed.clone(), clock).spawn(monitor);
        let watcher = tokio::sync::Mutex::new(watcher);
        Ok(Self { path: path.to_owned(), readers, steps, committed, watcher })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file, its write-ahead log and the index of the log.
    pub(crate) fn files(&self) -> [PathBuf; 3] {
        let beside = |suffix: &str| {
            let mut name = self.path.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        [self.path.clone(), beside("-wal"), beside("-shm")]
    }

    /// Returns a number that changes with every commit to the file, of any process.
    pub(crate) async fn file_version(&self) -> Result<i64, Error> {
        let mut watcher = self.watcher.lock().await;
        sqlx::query_scalar("PRAGMA data_version")
            .fetch_one(&mut *watcher)
            .await
            .map_err(|source| Error::database("read the file version", source))
    }

    /// Returns the read-only connections.
    pub(crate) fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    /// Runs a transaction in the next group, and returns once the group is on disk.
    pub(crate) async fn write<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, Error>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: QueuedStep = Box::new(move |conn| {
            Box::pin(async move {
                let result = match conn {
                    // A transaction that panics is rolled back alone. The writer and the other transactions continue.
                    Ok(conn) => catch_panic(async { step(conn).await })
                        .await
                        .unwrap_or_else(|panic| Err(Error::Panicked { panic })),
                    Err(error) => Err(error),
                };
                let keep = result.is_ok();
                let reply: Reply = Box::new(move |committed| {
                    let _ = answer.send(match committed {
                        Ok(()) => result,
                        Err(error) => Err(error),
                    });
                });
                (keep, reply)
            })
        });
        let closed = || Error::database("write", sqlx::Error::PoolClosed);
        self.steps.send(job).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

/// Creates an empty database file that only its owner can read. SQLite would create it with the permissions of the
/// umask; the log and its index get the permissions of the file.
///
/// An existing file is not opened: closing it would release the locks that SQLite holds in this process.
pub(crate) fn create_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(|_| ())
}

/// Longest pause of the writer after a failure, and between attempts to reopen its connection.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Opens the connection of the writer.
async fn connect_writer(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let mut writer = SqliteConnection::connect_with(options).await?;
    // The first read of the file: it fails here if the file is not a database.
    sqlx::query("SELECT count(*) FROM sqlite_master").fetch_one(&mut writer).await?;
    sqlx::query("PRAGMA busy_timeout = 0").execute(&mut writer).await?;
    Ok(writer)
}

struct Writer {
    conn: SqliteConnection,
    /// Options for reopening the connection.
    options: SqliteConnectOptions,
    /// Whether the connection must be reopened.
    is_broken: bool,
    inbox: mpsc::Receiver<QueuedStep>,
    committed: watch::Sender<u64>,
    clock: crate::Clock,
    /// Last time that the process paused or was idle.
    turn_began: Instant,
}

impl Writer {
    fn new(
        conn: SqliteConnection,
        options: SqliteConnectOptions,
        inbox: mpsc::Receiver<QueuedStep>,
        committed: watch::Sender<u64>,
        clock: crate::Clock,
    ) -> Self {
        Self { conn, options, is_broken: false, inbox, committed, clock, turn_began: Instant::now() }
    }

    /// Starts the write loop, which runs until the store is dropped.
    fn spawn(self, monitor: &TaskMonitor) {
        let writer = Arc::new(tokio::sync::Mutex::new(self));
        let options = LoopOptions::new("sqlite_writer").backoff_max(BACKOFF_MAX);
        monitor.spawn(options, move || {
            let writer = writer.clone();
            // Never contended: passes run one at a time.
            async move { writer.lock().await.pass().await }
        });
    }

    /// Writes one group, and reopens a broken connection first.
    async fn pass(&mut self) -> Result<Next, LoopError> {
        if self.is_broken {
            self.reopen().await?;
        }
        let first = if let Ok(job) = self.inbox.try_recv() {
            if self.turn_began.elapsed() > TURN {
                tokio::time::sleep(PAUSE).await;
                self.turn_began = Instant::now();
            }
            job
        } else {
            let Some(job) = self.inbox.recv().await else { return Ok(Next::End) };
            self.turn_began = Instant::now();
            job
        };
        // Reset only after the group has ended: a panic in the middle of it leaves a transaction open.
        self.is_broken = true;
        self.is_broken = !self.group(first).await;
        Ok(Next::After(Duration::ZERO))
    }

    /// Reopens the connection. Waiting callers get the error if that fails.
    async fn reopen(&mut self) -> Result<(), LoopError> {
        match connect_writer(&self.options).await {
            Ok(conn) => {
                // The old connection may hang; its thread ends by itself.
                self.conn = conn;
                self.is_broken = false;
                tracing::warn!("the write connection to the SQLite file was reopened");
                Ok(())
            }
            Err(error) => {
                while let Ok(job) = self.inbox.try_recv() {
                    let (_, reply) = job(Err(Error::shared("reopen the file", &error))).await;
                    reply(Ok(()));
                }
                Err(Error::database("reopen the file", error).into())
            }
        }
    }

    /// Runs and commits one group, and answers its callers. Returns false if the connection cannot begin a transaction.
    async fn group(&mut self, first: QueuedStep) -> bool {
        if let Err(error) = self.begin().await {
            // `BEGIN` may have succeeded although an error was returned.
            let _ = sqlx::query("ROLLBACK").execute(&mut self.conn).await;
            let is_usable = is_busy(&error);
            let (_, reply) = first(Err(self.begin_error(error))).await;
            reply(Ok(()));
            return is_usable;
        }
        let mut replies = Vec::new();
        if let Err(error) = self.steps(first, &mut replies).await {
            let _ = sqlx::query("ROLLBACK").execute(&mut self.conn).await;
            for reply in replies {
                reply(Err(Error::shared("commit", &error)));
            }
            return true;
        }
        for reply in replies {
            reply(Ok(()));
        }
        self.committed.send_modify(|commits| *commits += 1);
        true
    }

    /// Runs the transactions of a group, each in a savepoint, and commits them. An error here rolls all of them back.
    ///
    /// Each call to SQLite is a message to its thread and back, which takes longer than most statements. So adjacent
    /// statements are sent in one call.
    async fn steps(&mut self, first: QueuedStep, replies: &mut Vec<Reply>) -> Result<(), sqlx::Error> {
        let began = Instant::now();
        let mut job = first;
        loop {
            let (keep, reply) = job(Ok(&mut self.conn)).await;
            replies.push(reply);
            if !keep {
                // The savepoint stays for the next transaction.
                sqlx::query("ROLLBACK TO step").execute(&mut self.conn).await?;
            }
            let may_grow = replies.len() < GROUP_STEPS_MAX && began.elapsed() < GROUP_TIME_MAX;
            let Some(next) = may_grow.then(|| self.inbox.try_recv().ok()).flatten() else { break };
            job = next;
            if keep
                && let Err(error) = sqlx::query("RELEASE step; SAVEPOINT step").execute(&mut self.conn).await
            {
                replies.push(job(Err(Error::shared("begin to write", &error))).await.1);
                return Err(error);
            }
        }
        // Also releases the last savepoint.
        sqlx::query("COMMIT").execute(&mut self.conn).await?;
        Ok(())
    }

    /// Begins the group and its first savepoint, and waits for other processes that write.
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        let began = Instant::now();
        let mut is_logged = false;
        loop {
            match sqlx::query("BEGIN IMMEDIATE; SAVEPOINT step").execute(&mut self.conn).await {
                Ok(_) => return Ok(()),
                Err(error) if is_busy(&error) && began.elapsed() < BUSY_MAX => {
                    if !is_logged && began.elapsed() >= BUSY_LOGGED {
                        is_logged = true;
                        if let Some(holder) = LockHolder::of(self.options.get_filename()) {
                            tracing::warn!("waiting to write: {holder}; see {}", holder.hint());
                        }
                    }
                    // Jitter, so that waiting processes do not retry in step.
                    let jitter = (self.clock)().timestamp_subsec_micros() % 1_000;
                    tokio::time::sleep(Duration::from_micros(500 + u64::from(jitter))).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Describes why a group cannot begin, and names the process that holds the lock if the system tells.
    fn begin_error(&self, source: sqlx::Error) -> Error {
        let action = "begin to write";
        match is_busy(&source).then(|| LockHolder::of(self.options.get_filename())).flatten() {
            Some(holder) => Error::Locked { holder, action, source },
            None => Error::database(action, source),
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
    code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| matches!(code & 0xff, 5 | 6))
}

/// Describes why a file cannot be opened, with a hint.
fn open_error(path: &Path, source: sqlx::Error) -> Error {
    let code = source.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
    let code = code.and_then(|code| code.parse::<u32>().ok());
    // SQLite reports a full disk as an I/O error if it cannot allocate the index of its write-ahead log.
    let is_full = code.and_then(Resource::of_sqlite) == Some(Resource::Disk);
    let primary = if is_full { Some(13) } else { code.map(|code| code & 0xff) };
    let (problem, hint) = match primary {
        Some(26 | 11) => {
            ("the file is not a SQLite database", Some("choose another file, or move this one away"))
        }
        Some(8) => ("the file is read-only", Some("check the permissions of the file and its directory")),
        Some(13) => ("the disk is full", Some(Resource::Disk.hint())),
        Some(14) => {
            ("the file cannot be opened or created", Some("check that its directory exists and is writable"))
        }
        Some(5 | 6) => ("another process keeps it locked", None),
        Some(_) | None => return Error::database("open the file", source),
    };
    let class = if matches!(primary, Some(5 | 6 | 13)) { Class::Transient } else { Class::Permanent };
    Error::Open {
        what: format!("`{}`", path.display()),
        problem: problem.to_owned(),
        hint: hint.map(str::to_owned),
        class,
    }
}

#[cfg(test)]
mod tests;
