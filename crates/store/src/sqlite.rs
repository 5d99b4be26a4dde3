//! The SQLite side: readers beside one writer that commits the steps of many callers together.
//!
//! A commit on SQLite is one wait for the disk, whatever it holds. The writer takes the steps that are there, runs
//! each in a savepoint of its own, and commits them as a group: a step that fails is undone alone, and nobody is
//! answered before the commit. Between groups it lets other processes at the file.

use crate::{Class, Error, LoopError, LoopOptions, Next, Resource, TaskMonitor, catch_panic};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection, SqlitePool};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Steps that are committed together, at most.
const GROUP_STEPS_MAX: usize = 128;
/// Time for which a group takes further steps.
const GROUP_TIME_MAX: Duration = Duration::from_millis(10);
/// Time for which one process writes without a pause.
const TURN: Duration = Duration::from_millis(50);
/// The pause in which another process can begin to write. It looks every millisecond or two.
const PAUSE: Duration = Duration::from_millis(3);
/// How long to wait for other processes before giving up.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// A future that owns its borrow of the connection.
pub(crate) type Boxed<'c, T> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

/// Answers a caller once the fate of its group is known.
type Reply = Box<dyn FnOnce(Result<(), Error>) + Send>;
/// One caller's step: whether to keep what it did, and how to answer. It gets a connection that is in a transaction,
/// or the reason why there is none.
type Job =
    Box<dyn for<'c> FnOnce(Result<&'c mut SqliteConnection, Error>) -> Boxed<'c, (bool, Reply)> + Send>;

/// An open SQLite file.
#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    readers: SqlitePool,
    steps: mpsc::Sender<Job>,
    /// Tells readers in this process that something was committed.
    pub(crate) committed: watch::Sender<u64>,
    /// A connection that watches for writes of other processes.
    watcher: tokio::sync::Mutex<SqliteConnection>,
}

impl Sqlite {
    /// Opens the file, making it where it does not exist.
    pub(crate) async fn open(path: &Path, clock: crate::Clock, monitor: &TaskMonitor) -> Result<Self, Error> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(10));
        let opened = |source| open_error(path, source);
        let writer = connect_writer(&options).await.map_err(opened)?;
        let watcher = SqliteConnection::connect_with(&options).await.map_err(opened)?;
        // A file that is gone is not made again by a connection that is opened later.
        let reopen = options.clone().create_if_missing(false);
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

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A number that changes when anybody commits to the file.
    pub(crate) async fn file_version(&self) -> Result<i64, Error> {
        let mut watcher = self.watcher.lock().await;
        sqlx::query_scalar("PRAGMA data_version")
            .fetch_one(&mut *watcher)
            .await
            .map_err(|source| Error::database("watch the file", source))
    }

    /// Connections that only read.
    pub(crate) fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    /// Runs one step in the next group, and answers when the group is on disk.
    pub(crate) async fn write<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> Boxed<'c, Result<T, Error>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |conn| {
            Box::pin(async move {
                let result = match conn {
                    // A step that panics is rolled back alone: the writer and the other steps go on.
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
        let gone = || Error::database("write", sqlx::Error::PoolClosed);
        self.steps.send(job).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

/// Longest pause of the writer after a failure of its own, and between two attempts to open its connection again.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Opens a connection that writes.
async fn connect_writer(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let mut writer = SqliteConnection::connect_with(options).await?;
    // Nothing is read before this: a file that is not a database is found out here.
    sqlx::query("SELECT count(*) FROM sqlite_master").fetch_one(&mut writer).await?;
    sqlx::query("PRAGMA busy_timeout = 0").execute(&mut writer).await?;
    Ok(writer)
}

struct Writer {
    conn: SqliteConnection,
    /// How to open the connection again.
    options: SqliteConnectOptions,
    /// Whether the connection could not begin a transaction, and must be opened again.
    is_broken: bool,
    inbox: mpsc::Receiver<Job>,
    committed: watch::Sender<u64>,
    clock: crate::Clock,
    /// When the process last let others at the file, or was idle.
    turn_began: Instant,
}

impl Writer {
    fn new(
        conn: SqliteConnection,
        options: SqliteConnectOptions,
        inbox: mpsc::Receiver<Job>,
        committed: watch::Sender<u64>,
        clock: crate::Clock,
    ) -> Self {
        Self { conn, options, is_broken: false, inbox, committed, clock, turn_began: Instant::now() }
    }

    /// Starts the loop that writes, until the store is dropped.
    fn spawn(self, monitor: &TaskMonitor) {
        let writer = Arc::new(tokio::sync::Mutex::new(self));
        let options = LoopOptions::new("sqlite_writer").backoff_max(BACKOFF_MAX);
        monitor.spawn(options, move || {
            let writer = writer.clone();
            // One pass at a time: nobody else locks it.
            async move { writer.lock().await.pass().await }
        });
    }

    /// Writes one group. Where the connection is broken, opens it again first.
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
        // Until the group has ended well: a panic in the middle of it leaves a transaction open.
        self.is_broken = true;
        self.is_broken = !self.group(first).await;
        Ok(Next::After(Duration::ZERO))
    }

    /// Opens the connection again. Callers that wait meanwhile are told that the database does not answer.
    async fn reopen(&mut self) -> Result<(), LoopError> {
        match connect_writer(&self.options).await {
            Ok(conn) => {
                // The old connection may not answer: its thread ends by itself.
                self.conn = conn;
                self.is_broken = false;
                tracing::warn!("the connection that writes to the SQLite file was opened again");
                Ok(())
            }
            Err(error) => {
                while let Ok(job) = self.inbox.try_recv() {
                    let (_, reply) = job(Err(Error::shared("open the file again", &error))).await;
                    reply(Ok(()));
                }
                Err(Error::database("open the file again", error).into())
            }
        }
    }

    /// Runs and commits one group, and answers its callers. False: the connection cannot begin a transaction.
    async fn group(&mut self, first: Job) -> bool {
        if let Err(error) = self.begin().await {
            // Where it had begun after all.
            let _ = sqlx::query("ROLLBACK").execute(&mut self.conn).await;
            let is_usable = is_busy(&error);
            let (_, reply) = first(Err(Error::database("begin to write", error))).await;
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

    /// Runs the steps of a group, each in a savepoint, and commits them. An error here means that all of them are lost.
    ///
    /// A call to SQLite is a visit to its thread and back, which takes longer than most statements: what follows upon
    /// each other is one call.
    async fn steps(&mut self, first: Job, replies: &mut Vec<Reply>) -> Result<(), sqlx::Error> {
        let began = Instant::now();
        let mut job = first;
        loop {
            let (keep, reply) = job(Ok(&mut self.conn)).await;
            replies.push(reply);
            if !keep {
                // The savepoint stays, for the next step.
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
        // The last savepoint goes with it.
        sqlx::query("COMMIT").execute(&mut self.conn).await?;
        Ok(())
    }

    /// Begins to write, and the first step, waiting for other processes that write.
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        let began = Instant::now();
        loop {
            match sqlx::query("BEGIN IMMEDIATE; SAVEPOINT step").execute(&mut self.conn).await {
                Ok(_) => return Ok(()),
                Err(error) if is_busy(&error) && began.elapsed() < BUSY_MAX => {
                    // Not in step with others that wait too: the clock's last digits differ between processes.
                    let jitter = (self.clock)().timestamp_subsec_micros() % 1_000;
                    tokio::time::sleep(Duration::from_micros(500 + u64::from(jitter))).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
    code.and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| matches!(code & 0xff, 5 | 6))
}

/// Says what is wrong with a file, and what to do.
fn open_error(path: &Path, source: sqlx::Error) -> Error {
    let code = source.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
    let code = code.and_then(|code| code.parse::<u32>().ok());
    // Without room for the index of its log, SQLite speaks of an i/o error.
    let is_full = code.and_then(Resource::of_sqlite) == Some(Resource::Disk);
    let primary = if is_full { Some(13) } else { code.map(|code| code & 0xff) };
    let (problem, hint) = match primary {
        Some(26 | 11) => ("it is not a SQLite database", Some("name another file, or move this one away")),
        Some(8) => {
            ("it can only be read, and Tidemill has to write", Some("check who owns the file and its folder"))
        }
        Some(13) => ("the disk is full", Some(Resource::Disk.hint())),
        Some(14) => {
            ("the file cannot be opened or made", Some("check that its folder exists and can be written"))
        }
        Some(5 | 6) => ("another process is writing to it and does not stop", None),
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
