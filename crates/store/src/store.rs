//! The store: opens a database and runs transactions on it.

use crate::audit_entry::{AuditEntry, EntryDraft, TakenEntry};
use crate::postgres::{PooledConnection, Postgres};
use crate::run_to_completion::run_to_completion;
use crate::sqlite::{BoxFuture, Sqlite};
use crate::tx::{Conn, Context};
use crate::{Error, LockHolder, Pooler, Schema, TaskMonitor, Tx, catch_panic};
use sqlx::Connection as _;
use std::path::Path;
use std::sync::Arc;
use tidemill_core::Timestamp;

/// Source of the current time where the database has no clock of its own (SQLite).
pub type Clock = fn() -> Timestamp;

/// Options for opening a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// `postgres://…`, `sqlite://path`, or a path.
    pub url: String,
    /// Schema of the tables on PostgreSQL.
    pub schema: String,
    /// Schema of the sync tables on PostgreSQL.
    pub sync_schema: String,
    /// Connection pooler between this process and PostgreSQL.
    pub pooler: Pooler,
    /// Maximum number of connections to PostgreSQL.
    pub connections: u32,
    pub clock: Clock,
}

impl Options {
    /// Returns options with default values.
    pub fn new(url: impl Into<String>, clock: Clock) -> Self {
        Self {
            url: url.into(),
            schema: "ops".to_owned(),
            sync_schema: crate::schema::SYNC_SCHEMA.to_owned(),
            pooler: Pooler::Session,
            connections: tidemill_core::limits::POOL_CONNECTIONS,
            clock,
        }
    }
}

impl Options {
    /// Returns the path of the SQLite file, if the URL names one.
    pub fn sqlite_path(&self) -> Option<&Path> {
        let url = self.url.as_str();
        match url.split_once("://") {
            Some(("sqlite", path)) => Some(Path::new(path)),
            Some(_) => None,
            None => Some(Path::new(url.strip_prefix("sqlite:").unwrap_or(url))),
        }
    }
}

/// An open database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) backend: Backend,
    pub(crate) context: Arc<Context>,
    pub(crate) hint: Arc<crate::wake::Hint>,
    pub(crate) monitor: TaskMonitor,
    /// Audit entry of the call that this store belongs to.
    pub(crate) audit: Option<Arc<AuditEntry>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Backend {
    Postgres(Arc<Postgres>),
    Sqlite(Arc<Sqlite>),
}

impl Store {
    /// Opens the database that the options name. Creates the SQLite file if it does not exist.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        let url = options.url.as_str();
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let schema = Schema::postgres(&options.schema)?.with_sync(&options.sync_schema)?;
            let postgres = Arc::new(Postgres::open(url, options.pooler, options.connections).await?);
            let context = Arc::new(Context::new(schema, options.clock, options.pooler));
            let hint = Arc::new(crate::wake::Hint::default());
            let (text, monitor) = (context.schema.render("SELECT {ops}.wake()"), TaskMonitor::default());
            crate::wake::spawn_relay(&monitor, &hint, &postgres, text.into());
            return Ok(Self { backend: Backend::Postgres(postgres), context, hint, monitor, audit: None });
        }
        let Some(path) = options.sqlite_path() else {
            let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
            let problem = format!("unsupported database scheme `{scheme}`; use postgres:// or sqlite://");
            return Err(Error::BadUrl { url: crate::postgres::redact_password(url), problem });
        };
        if path.as_os_str().is_empty() {
            return Err(Error::BadUrl { url: url.to_owned(), problem: "the path is empty".to_owned() });
        }
        let monitor = TaskMonitor::default();
        let sqlite = Sqlite::open(path, options.clock, &monitor).await?;
        let context = Arc::new(Context::new(Schema::sqlite(), options.clock, Pooler::Session));
        let backend = Backend::Sqlite(Arc::new(sqlite));
        Ok(Self { backend, context, hint: Arc::default(), monitor, audit: None })
    }

    /// Returns the monitor of the background loops that work on this store.
    pub fn monitor(&self) -> &TaskMonitor {
        &self.monitor
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.backend, Backend::Postgres(_))
    }

    /// Returns the schema of the tables; empty on SQLite.
    pub fn schema(&self) -> &str {
        self.context.schema.name()
    }

    /// Returns the address of the database for display, without the password.
    pub fn location(&self) -> String {
        match &self.backend {
            Backend::Postgres(postgres) => {
                let options = &postgres.options;
                let database = options.get_database().unwrap_or_default();
                format!("postgres://{}:{}/{database}", options.get_host(), options.get_port())
            }
            Backend::Sqlite(sqlite) => sqlite.path().display().to_string(),
        }
    }

    /// Returns the process that was stopped in a write to the SQLite file, so that all other writers wait for it.
    pub fn stopped_writer(&self) -> Option<LockHolder> {
        match &self.backend {
            Backend::Postgres(_) => None,
            Backend::Sqlite(sqlite) => LockHolder::of(sqlite.path()).filter(LockHolder::is_stopped),
        }
    }

    /// Runs a single statement. On PostgreSQL it commits by itself, in one round trip, unless this store belongs to a
    /// call whose audit entry is not written yet: then both are one transaction.
    pub async fn step<T, F>(&self, verb: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> BoxFuture<'c, Result<T, Error>> + Send + 'static,
    {
        let is_audited = self.audit.as_ref().is_some_and(|entry| entry.is_open());
        match &self.backend {
            Backend::Postgres(postgres) if postgres.pooler == Pooler::Session && !is_audited => {
                let conn =
                    postgres.acquire().await.map_err(|source| Error::database("get a connection", source))?;
                self.run_statement(conn, verb).await
            }
            Backend::Postgres(_) | Backend::Sqlite(_) => self.write(verb).await,
        }
    }

    /// Runs the heartbeat of this process. It has a connection of its own, so that calls that wait for a locked row
    /// cannot delay it.
    pub(crate) async fn run_heartbeat<T, F>(&self, verb: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> BoxFuture<'c, Result<T, Error>> + Send + 'static,
    {
        match &self.backend {
            Backend::Postgres(postgres) if postgres.pooler == Pooler::Session => {
                let failed = |source| Error::database("get a connection", source);
                let conn = postgres.acquire_for_heartbeat().await.map_err(failed)?;
                self.run_statement(conn, verb).await
            }
            Backend::Postgres(_) | Backend::Sqlite(_) => self.write(verb).await,
        }
    }

    /// Runs one statement that is a transaction by itself.
    async fn run_statement<T, F>(&self, mut conn: PooledConnection, verb: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> BoxFuture<'c, Result<T, Error>> + Send + 'static,
    {
        let context = self.context.clone();
        run_to_completion(async move {
            let tx = Tx { conn: Conn::Postgres(&mut conn), context: &context, draft: None };
            let result = verb(tx).await;
            if result.is_ok() {
                conn.cache();
            } else {
                conn.cache_after_error().await;
            }
            result
        })
        .await
    }

    /// Runs several statements in one transaction. The audit entry of the call, if it has one, is committed in the same
    /// transaction: see [`AuditEntry`].
    pub async fn write<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> BoxFuture<'c, Result<T, Error>> + Send + 'static,
    {
        let mut taken = self.audit.as_ref().and_then(AuditEntry::take);
        let draft = taken.as_ref().map(TakenEntry::draft);
        let result = match &self.backend {
            Backend::Postgres(postgres) => {
                let failed = |source| Error::database("begin or commit", source);
                let mut conn = postgres.acquire().await.map_err(failed)?;
                let (context, begin) = (self.context.clone(), postgres.begin());
                run_to_completion(async move {
                    let mut transaction = conn.begin_with(begin).await.map_err(failed)?;
                    let result = run_with_audit(&mut *transaction, &context, step, draft).await;
                    let over = match &result {
                        Ok(_) => transaction.commit().await,
                        Err(_) => transaction.rollback().await,
                    };
                    match (result, over) {
                        (Ok(_), Err(source)) => Err(failed(source)),
                        // The panic may have left the connection in the middle of a reply, so the connection is closed.
                        (Err(error @ Error::Panicked { .. }), _) | (Err(error), Err(_)) => Err(error),
                        (result, Ok(())) => {
                            conn.cache();
                            result
                        }
                    }
                })
                .await
            }
            Backend::Sqlite(sqlite) => {
                let context = self.context.clone();
                sqlite
                    .write(move |conn| {
                        Box::pin(async move { run_with_audit(conn, &context, step, draft).await })
                    })
                    .await
            }
        };
        if result.is_ok()
            && let Some(taken) = &mut taken
        {
            taken.committed();
        }
        result
    }

    /// Runs a transaction to find out whether it would succeed, and always rolls it back.
    pub async fn dry_run<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> BoxFuture<'c, Result<T, Error>> + Send + 'static,
    {
        let found = Arc::new(std::sync::Mutex::new(None));
        let result_slot = found.clone();
        let undone = self
            .write(move |tx| {
                Box::pin(async move {
                    let result = step(tx).await;
                    if let Ok(mut found) = result_slot.lock() {
                        *found = Some(result);
                    }
                    // Only an error rolls the transaction back.
                    Err::<(), _>(Error::refused(crate::RefusalCode::BadValue, "dry run"))
                })
            })
            .await;
        let result = found.lock().ok().and_then(|mut found| found.take());
        match (result, undone) {
            (Some(result), _) => result,
            (None, Err(error)) => Err(error),
            (None, Ok(())) => {
                Err(Error::refused(crate::RefusalCode::BadValue, "the dry run was not executed"))
            }
        }
    }

    /// Runs a read-only transaction on one snapshot.
    pub(crate) async fn read<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> BoxFuture<'c, Result<T, Error>> + Send + 'static,
    {
        let failed = |source| Error::database("begin to read", source);
        match &self.backend {
            Backend::Postgres(postgres) => {
                let mut conn = postgres.acquire().await.map_err(failed)?;
                let context = self.context.clone();
                run_to_completion(async move {
                    let mut transaction = conn
                        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                        .await
                        .map_err(failed)?;
                    let tx = Tx { conn: Conn::Postgres(&mut transaction), context: &context, draft: None };
                    let result = step(tx).await;
                    if transaction.rollback().await.is_ok() {
                        conn.cache();
                    }
                    result
                })
                .await
            }
            Backend::Sqlite(sqlite) => {
                let mut transaction = Box::pin(sqlite.readers().begin()).await.map_err(failed)?;
                let tx = Tx { conn: Conn::Sqlite(&mut transaction), context: &self.context, draft: None };
                let result = step(tx).await;
                let _ = transaction.rollback().await;
                result
            }
        }
    }

    /// Runs a read-only transaction on one snapshot, for callers that decide from several reads.
    pub async fn snapshot<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> BoxFuture<'c, Result<T, Error>> + Send + 'static,
    {
        self.read(step).await
    }

    /// Returns how often this process had to wait for a connection; always 0 on SQLite.
    pub fn waits(&self) -> crate::PoolWaits {
        match &self.backend {
            Backend::Postgres(postgres) => postgres.waits(),
            Backend::Sqlite(_) => crate::PoolWaits::default(),
        }
    }

    /// Runs one read-only statement, in one round trip on PostgreSQL.
    pub(crate) async fn read_one<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> BoxFuture<'c, Result<T, Error>> + Send + 'static,
    {
        match &self.backend {
            Backend::Postgres(postgres) if postgres.pooler == Pooler::Session => {
                let conn =
                    postgres.acquire().await.map_err(|source| Error::database("get a connection", source))?;
                self.run_statement(conn, step).await
            }
            Backend::Postgres(_) | Backend::Sqlite(_) => self.read(step).await,
        }
    }

    /// Returns the number of group commits that this process made to its SQLite file; 0 on PostgreSQL.
    pub fn sqlite_commits(&self) -> u64 {
        match &self.backend {
            Backend::Postgres(_) => 0,
            Backend::Sqlite(sqlite) => *sqlite.committed.borrow(),
        }
    }

    /// Sends a pending wake-up, then closes every connection.
    pub async fn close(&self) {
        self.wake_now().await;
        match &self.backend {
            Backend::Postgres(postgres) => postgres.close().await,
            Backend::Sqlite(sqlite) => sqlite.readers().close().await,
        }
    }
}

/// A connection of either database.
trait AsConn {
    fn conn(&mut self) -> Conn<'_>;
}

impl AsConn for sqlx::PgConnection {
    fn conn(&mut self) -> Conn<'_> {
        Conn::Postgres(self)
    }
}

impl AsConn for sqlx::SqliteConnection {
    fn conn(&mut self) -> Conn<'_> {
        Conn::Sqlite(self)
    }
}

/// Runs the transaction body, then writes the audit entry into the same transaction.
async fn run_with_audit<T, F, C: AsConn>(
    conn: &mut C,
    context: &Context,
    step: F,
    draft: Option<EntryDraft>,
) -> Result<T, Error>
where
    F: for<'c> FnOnce(Tx<'c>) -> BoxFuture<'c, Result<T, Error>>,
{
    // A panic fails this transaction only: its caller gets an error, and the transaction is rolled back.
    let step = catch_panic(async { step(Tx { conn: conn.conn(), context, draft: draft.clone() }).await });
    let result = step.await.map_err(|panic| Error::Panicked { panic })??;
    if let Some(draft) = draft {
        let mut tx = Tx { conn: conn.conn(), context, draft: None };
        draft.write(&mut tx).await?;
    }
    Ok(result)
}
