//! Wake-ups: hints that there is something to claim. Nothing depends on them; they only save waiting.
//!
//! On PostgreSQL a waiting worker listens, declares that it waits, and looks once more; who makes a run ready
//! notifies after its commit, at most every few milliseconds, and only while somebody has declared to wait. NOTIFY
//! serialises commits, so under load none is sent. On SQLite the writer signals its own process, and other processes
//! watch the file's version.

use crate::postgres::Postgres;
use crate::store::Backend;
use crate::{Error, LoopError, LoopOptions, Next, Pooler, Store, TaskMonitor};
use sqlx::postgres::PgListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidemill_core::WorkerId;
use tokio::sync::watch;

/// At most one wake-up in this time.
const COALESCE: Duration = Duration::from_millis(5);
/// How often another process's writes to a SQLite file are looked for.
const FILE_POLL: Duration = Duration::from_millis(100);

/// Remembers that something became ready, until somebody has been told.
#[derive(Debug, Default)]
pub(crate) struct Hint {
    pending: AtomicBool,
    stir: tokio::sync::Notify,
}

impl Hint {
    pub(crate) fn raise(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.stir.notify_one();
        }
    }
}

/// Longest pause of the relay after a wake-up that could not be sent.
const RELAY_BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How often the relay looks whether the store is still open.
const RELAY_LOOK: Duration = Duration::from_secs(1);

/// Starts the loop that tells waiting workers soon after a hint, for as long as the store is open.
pub(crate) fn spawn_relay(monitor: &TaskMonitor, hint: &Arc<Hint>, postgres: &Arc<Postgres>, text: Arc<str>) {
    let (hint, postgres) = (Arc::downgrade(hint), Arc::downgrade(postgres));
    let options = LoopOptions::new("wake_relay").backoff_max(RELAY_BACKOFF_MAX);
    monitor.spawn(options, move || relay(hint.clone(), postgres.clone(), text.clone()));
}

/// Waits for a hint and tells waiting workers once.
async fn relay(hint: Weak<Hint>, postgres: Weak<Postgres>, text: Arc<str>) -> Result<Next, LoopError> {
    let Some(hint) = hint.upgrade() else { return Ok(Next::End) };
    let stirred = tokio::time::timeout(RELAY_LOOK, hint.stir.notified()).await.is_ok();
    if !stirred || !hint.pending.swap(false, Ordering::AcqRel) {
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
    conn.keep();
    Ok(())
}

impl Store {
    /// Hints that something became ready. Costs nothing: somebody else tells, soon.
    pub fn wake_soon(&self) {
        self.hint.raise();
    }

    /// Tells now what was only hinted so far, for a process that is about to end.
    pub(crate) async fn wake_now(&self) {
        if let Backend::Postgres(postgres) = &self.backend
            && self.hint.pending.swap(false, Ordering::AcqRel)
        {
            let _ = wake(postgres, &self.context.schema.render("SELECT {ops}.wake()")).await;
        }
    }

    /// A way for a worker to wait for something to claim.
    pub async fn waiter(&self, worker: WorkerId) -> Result<Waiter, Error> {
        let source = match &self.backend {
            Backend::Postgres(postgres) if postgres.pooler == Pooler::Transaction => Source::Poll,
            Backend::Postgres(postgres) => {
                let failed = |source| Error::database("listen", source);
                // A pool of its own: a listener keeps its connection for ever.
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

/// Waits for something to claim.
pub struct Waiter {
    store: Store,
    worker: WorkerId,
    source: Source,
    armed: bool,
}

enum Source {
    /// PostgreSQL tells.
    Listen(Box<PgListener>),
    /// This process tells, or the file's version does.
    File { commits: watch::Receiver<u64>, version: i64, sqlite: Arc<crate::sqlite::Sqlite> },
    /// Nobody tells: look again after a while.
    Poll,
}

/// How long to wait where nobody tells.
const POLL: Duration = Duration::from_millis(250);

impl Waiter {
    /// Declares that the worker waits. After this, and before [`Self::wait`], look once more.
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

    /// Waits until something may have become ready, at most `longest`.
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
                    let seen = sqlite.file_version().await?;
                    if seen != *version || tokio::time::Instant::now() >= deadline {
                        *version = seen;
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
