//! Wake-ups: hints that a run may be claimable. They only shorten the wait; polling works without them.
//!
//! On PostgreSQL a waiting worker listens, declares that it waits, and tries to claim once more. A process that makes a
//! run ready sends NOTIFY after its commit, at most every few milliseconds, and only while a worker has declared that
//! it waits. NOTIFY serializes commits, so under load none is sent. On SQLite the writer signals its own process, and
//! other processes poll the file version.

use crate::postgres::Postgres;
use crate::store::Backend;
use crate::{Error, LoopError, LoopOptions, Next, Pooler, Store, TaskMonitor};
use sqlx::postgres::PgListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidemill_core::WorkerId;
use tokio::sync::watch;

/// Minimum time between two wake-ups.
const COALESCE: Duration = Duration::from_millis(5);
/// Interval of polling a SQLite file for writes of other processes.
const FILE_POLL: Duration = Duration::from_millis(100);

/// Remembers that a run became ready until waiting workers are notified.
#[derive(Debug, Default)]
pub(crate) struct Hint {
    pending: AtomicBool,
    signal: tokio::sync::Notify,
}

impl Hint {
    pub(crate) fn raise(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.signal.notify_one();
        }
    }
}

/// Longest back-off of the relay after a failed wake-up.
const RELAY_BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Interval at which the relay checks that the store is still open.
const RELAY_CHECK: Duration = Duration::from_secs(1);

/// Starts the loop that notifies waiting workers after a hint, for as long as the store is open.
pub(crate) fn spawn_relay(monitor: &TaskMonitor, hint: &Arc<Hint>, postgres: &Arc<Postgres>, text: Arc<str>) {
    let (hint, postgres) = (Arc::downgrade(hint), Arc::downgrade(postgres));
    let options = LoopOptions::new("wake_relay").backoff_max(RELAY_BACKOFF_MAX);
    monitor.spawn(options, move || relay(hint.clone(), postgres.clone(), text.clone()));
}

/// Waits for a hint and notifies waiting workers once.
async fn relay(hint: Weak<Hint>, postgres: Weak<Postgres>, text: Arc<str>) -> Result<Next, LoopError> {
    let Some(hint) = hint.upgrade() else { return Ok(Next::End) };
    let is_signalled = tokio::time::timeout(RELAY_CHECK, hint.signal.notified()).await.is_ok();
    if !is_signalled || !hint.pending.swap(false, Ordering::AcqRel) {
        return Ok(Next::After(Duration::ZERO));
    }
    let Some(postgres) = postgres.upgrade() else { return Ok(Next::End) };
    wake(&postgres, &text).await.map_err(|source| Error::database("send a wake-up", source))?;
    Ok(Next::After(COALESCE))
}

async fn wake(postgres: &Arc<Postgres>, text: &str) -> sqlx::Result<()> {
    let mut conn = postgres.acquire().await?;
    let text = sqlx::AssertSqlSafe(text);
    sqlx::query(text).persistent(postgres.pooler == Pooler::Session).execute(&mut *conn).await?;
    conn.cache();
    Ok(())
}

impl Store {
    /// Hints that a run became ready. Costs nothing here: the relay sends the notification soon.
    pub fn wake_soon(&self) {
        self.hint.raise();
    }

    /// Sends a pending wake-up at once, for a process that is about to end.
    pub(crate) async fn wake_now(&self) {
        if let Backend::Postgres(postgres) = &self.backend
            && self.hint.pending.swap(false, Ordering::AcqRel)
        {
            let _ = wake(postgres, &self.context.schema.render("SELECT {ops}.wake()")).await;
        }
    }

    /// Returns a waiter that wakes a worker when a run may be claimable.
    pub async fn waiter(&self, worker: WorkerId) -> Result<Waiter, Error> {
        let source = match &self.backend {
            Backend::Postgres(postgres) if postgres.pooler == Pooler::Transaction => Source::Poll,
            Backend::Postgres(postgres) => {
                let failed = |source| Error::database("listen", source);
                // A pool of its own, because a listener keeps its connection.
                let pool = sqlx::postgres::PgPoolOptions::new()
                    .max_connections(1)
                    .connect_lazy_with(postgres.options.clone());
                let mut listener = PgListener::connect_with(&pool).await.map_err(failed)?;
                listener.listen(&self.context.schema.channel()).await.map_err(failed)?;
                Source::Listen(Box::new(listener))
            }
            Backend::Sqlite(sqlite) => Source::File {
                commits: sqlite.committed.subscribe(),
                version: sqlite.file_version().await.unwrap_or(0),
                sqlite: sqlite.clone(),
            },
        };
        Ok(Waiter { store: self.clone(), worker, source, armed: false })
    }
}

/// Waits until a run may be claimable.
pub struct Waiter {
    store: Store,
    worker: WorkerId,
    source: Source,
    armed: bool,
}

enum Source {
    Listen(Box<PgListener>),
    /// Notified by this process, or by a new version of the file.
    File {
        commits: watch::Receiver<u64>,
        version: i64,
        sqlite: Arc<crate::sqlite::Sqlite>,
    },
    /// Not notified: polls.
    Poll,
}

/// Polling interval without notifications.
const POLL: Duration = Duration::from_millis(250);

impl Waiter {
    /// Declares that the worker waits. The caller must try to claim once more before it calls [`Self::wait`].
    pub async fn arm(&mut self) -> Result<(), Error> {
        match &mut self.source {
            Source::Listen(_) if self.armed => Ok(()),
            Source::Listen(_) => {
                self.store.declare_waiting(self.worker, true).await?;
                self.armed = true;
                Ok(())
            }
            Source::File { commits, version, sqlite } => {
                commits.mark_unchanged();
                *version = sqlite.file_version().await?;
                Ok(())
            }
            Source::Poll => Ok(()),
        }
    }

    /// Waits until a run may be claimable, at most `longest`.
    pub async fn wait(&mut self, longest: Duration) -> Result<(), Error> {
        match &mut self.source {
            Source::Listen(listener) => match tokio::time::timeout(longest, listener.try_recv()).await {
                Ok(Ok(_)) | Err(_) => Ok(()),
                Ok(Err(source)) => Err(Error::database("listen", source)),
            },
            Source::File { commits, version, sqlite } => {
                let deadline = tokio::time::Instant::now() + longest;
                loop {
                    let until = deadline.min(tokio::time::Instant::now() + FILE_POLL);
                    if tokio::time::timeout_at(until, commits.changed()).await.is_ok() {
                        return Ok(());
                    }
                    let current = sqlite.file_version().await?;
                    if current != *version || tokio::time::Instant::now() >= deadline {
                        *version = current;
                        return Ok(());
                    }
                }
            }
            Source::Poll => {
                tokio::time::sleep(longest.min(POLL)).await;
                Ok(())
            }
        }
    }

    /// Declares that the worker no longer waits.
    pub async fn disarm(&mut self) -> Result<(), Error> {
        if !self.armed {
            return Ok(());
        }
        self.armed = false;
        self.store.declare_waiting(self.worker, false).await
    }
}
