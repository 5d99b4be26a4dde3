//! The store: opens a database, and runs steps on it.

use crate::postgres::{Lent, Postgres};
use crate::record::{Line, Record, Taken};
use crate::sqlite::{Boxed, Sqlite};
use crate::tx::{Conn, Context};
use crate::whole::whole;
use crate::{Error, Pooler, Schema, TaskMonitor, Tx, catch_panic};
use sqlx::Connection as _;
use std::path::Path;
use std::sync::Arc;
use tidemill_core::Timestamp;

/// Where the time comes from when the database's own clock is not asked: SQLite has none.
pub type Clock = fn() -> Timestamp;

/// How to open a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// `postgres://…`, `sqlite://path`, or a path.
    pub url: String,
    /// The schema on PostgreSQL.
    pub schema: String,
    /// The schema of the tables of syncs on PostgreSQL.
    pub sync_schema: String,
    /// What stands between us and PostgreSQL.
    pub pooler: Pooler,
    /// Connections to PostgreSQL.
    pub connections: u32,
    /// The host's clock.
    pub clock: Clock,
}

impl Options {
    /// Options with every default.
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
    /// The file, where the address names one.
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
}

#[derive(Debug, Clone)]
pub(crate) enum Backend {
    Postgres(Arc<Postgres>),
    Sqlite(Arc<Sqlite>),
}

impl Store {
    /// Opens the database that the options name. Makes a SQLite file where none exists.
    pub async fn open(options: &Options) -> Result<Self, Error> {
        let url = options.url.as_str();
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let schema = Schema::postgres(&options.schema)?.with_sync(&options.sync_schema)?;
            let postgres = Arc::new(Postgres::open(url, options.pooler, options.connections).await?);
            let context = Arc::new(Context::new(schema, options.clock, options.pooler));
            let hint = Arc::new(crate::wake::Hint::default());
            let (text, monitor) = (context.schema.render("SELECT {ops}.wake()"), TaskMonitor::default());
            crate::wake::spawn_relay(&monitor, &hint, &postgres, text.into());
            return Ok(Self { backend: Backend::Postgres(postgres), context, hint, monitor });
        }
        let Some(path) = options.sqlite_path() else {
            let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
            let problem = format!("there is no way to speak `{scheme}`");
            return Err(Error::BadUrl { url: crate::postgres::shown(url), problem });
        };
        if path.as_os_str().is_empty() {
            return Err(Error::BadUrl { url: url.to_owned(), problem: "it names no file".to_owned() });
        }
        let monitor = TaskMonitor::default();
        let sqlite = Sqlite::open(path, options.clock, &monitor).await?;
        let context = Arc::new(Context::new(Schema::sqlite(), options.clock, Pooler::Session));
        Ok(Self { backend: Backend::Sqlite(Arc::new(sqlite)), context, hint: Arc::default(), monitor })
    }

    /// The monitor of the background loops that work on this store.
    pub fn monitor(&self) -> &TaskMonitor {
        &self.monitor
    }

    /// Whether this is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        matches!(self.backend, Backend::Postgres(_))
    }

    /// The schema that the tables are in; empty on SQLite.
    pub fn schema(&self) -> &str {
        self.context.schema.name()
    }

    /// Where the data is, without a password, for people.
    pub fn place(&self) -> String {
        match &self.backend {
            Backend::Postgres(postgres) => {
                let options = &postgres.options;
                let database = options.get_database().unwrap_or_default();
                format!("postgres://{}:{}/{database}", options.get_host(), options.get_port())
            }
            Backend::Sqlite(sqlite) => sqlite.path().display().to_string(),
        }
    }

    /// Runs a step of one statement. On PostgreSQL it commits by itself: one round trip.
    pub async fn step<T, F>(&self, verb: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> Boxed<'c, Result<T, Error>> + Send + 'static,
    {
        match &self.backend {
            Backend::Postgres(postgres) if postgres.pooler == Pooler::Session && !Record::is_open() => {
                let conn = postgres.acquire().await.map_err(|source| Error::database("answer", source))?;
                self.alone(conn, verb).await
            }
            Backend::Postgres(_) | Backend::Sqlite(_) => self.write(verb).await,
        }
    }

    /// Runs the step that says that this process lives. It has a connection of its own, so that calls that wait for
    /// somebody else's transaction cannot keep it back.
    pub(crate) async fn beat<T, F>(&self, verb: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> Boxed<'c, Result<T, Error>> + Send + 'static,
    {
        match &self.backend {
            Backend::Postgres(postgres) if postgres.pooler == Pooler::Session => {
                let failed = |source| Error::database("answer", source);
                let conn = postgres.acquire_for_beat().await.map_err(failed)?;
                self.alone(conn, verb).await
            }
            Backend::Postgres(_) | Backend::Sqlite(_) => self.write(verb).await,
        }
    }

    /// Runs one statement that is a transaction by itself.
    async fn alone<T, F>(&self, mut conn: Lent, verb: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> Boxed<'c, Result<T, Error>> + Send + 'static,
    {
        let context = self.context.clone();
        whole(async move {
            let tx = Tx { conn: Conn::Postgres(&mut conn), context: &context, line: None };
            let result = verb(tx).await;
            if result.is_ok() {
                conn.keep();
            } else {
                conn.doubt();
            }
            result
        })
        .await
    }

    /// Runs a step of several statements in one transaction: all of it is committed, or nothing. Where what somebody
    /// does is to go on record, the line is committed with it: see [`Record`].
    pub async fn write<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> Boxed<'c, Result<T, Error>> + Send + 'static,
    {
        let mut taken = Record::take();
        let line = taken.as_ref().map(Taken::line);
        let result = match &self.backend {
            Backend::Postgres(postgres) => {
                let failed = |source| Error::database("begin or commit", source);
                let mut conn = postgres.acquire().await.map_err(failed)?;
                let (context, begin) = (self.context.clone(), postgres.begin());
                whole(async move {
                    let mut transaction = conn.begin_with(begin).await.map_err(failed)?;
                    let result = recorded(&mut *transaction, &context, step, line).await;
                    let over = match &result {
                        Ok(_) => transaction.commit().await,
                        Err(_) => transaction.rollback().await,
                    };
                    match (result, over) {
                        (Ok(_), Err(source)) => Err(failed(source)),
                        // The panic may have left the connection in the middle of an answer: it is closed.
                        (Err(error @ Error::Panicked { .. }), _) | (Err(error), Err(_)) => Err(error),
                        (result, Ok(())) => {
                            conn.keep();
                            result
                        }
                    }
                })
                .await
            }
            Backend::Sqlite(sqlite) => {
                let context = self.context.clone();
                sqlite
                    .write(move |conn| Box::pin(async move { recorded(conn, &context, step, line).await }))
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

    /// Runs a step to find out whether it would succeed. Nothing of it is ever committed.
    pub async fn attempt<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> Boxed<'c, Result<T, Error>> + Send + 'static,
    {
        let found = Arc::new(std::sync::Mutex::new(None));
        let note = found.clone();
        let undone = self
            .write(move |tx| {
                Box::pin(async move {
                    let result = step(tx).await;
                    if let Ok(mut found) = note.lock() {
                        *found = Some(result);
                    }
                    // Only an error takes a step back.
                    Err::<(), _>(Error::refused(crate::RefusalCode::BadValue, "this was only tried"))
                })
            })
            .await;
        let result = found.lock().ok().and_then(|mut found| found.take());
        match (result, undone) {
            (Some(result), _) => result,
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Err(Error::refused(crate::RefusalCode::BadValue, "nothing was tried")),
        }
    }

    /// Runs a step that only reads, from one snapshot.
    pub(crate) async fn read<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> Boxed<'c, Result<T, Error>> + Send + 'static,
    {
        let failed = |source| Error::database("begin to read", source);
        match &self.backend {
            Backend::Postgres(postgres) => {
                let mut conn = postgres.acquire().await.map_err(failed)?;
                let context = self.context.clone();
                whole(async move {
                    let mut transaction = conn
                        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                        .await
                        .map_err(failed)?;
                    let tx = Tx { conn: Conn::Postgres(&mut transaction), context: &context, line: None };
                    let result = step(tx).await;
                    if transaction.rollback().await.is_ok() {
                        conn.keep();
                    }
                    result
                })
                .await
            }
            Backend::Sqlite(sqlite) => {
                let mut transaction = Box::pin(sqlite.readers().begin()).await.map_err(failed)?;
                let tx = Tx { conn: Conn::Sqlite(&mut transaction), context: &self.context, line: None };
                let result = step(tx).await;
                let _ = transaction.rollback().await;
                result
            }
        }
    }

    /// Runs a step that only reads, from one snapshot: for use cases that decide from what they read.
    pub async fn snapshot<T, F>(&self, step: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> Boxed<'c, Result<T, Error>> + Send + 'static,
    {
        self.read(step).await
    }

    /// How often this process had to wait for a connection; never, where there is SQLite.
    pub fn waits(&self) -> crate::Waits {
        match &self.backend {
            Backend::Postgres(postgres) => postgres.waits(),
            Backend::Sqlite(_) => crate::Waits::default(),
        }
    }

    /// Runs one statement that only reads: one round trip on PostgreSQL.
    pub(crate) async fn glance<T, F>(&self, look: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(Tx<'c>) -> Boxed<'c, Result<T, Error>> + Send + 'static,
    {
        match &self.backend {
            Backend::Postgres(postgres) if postgres.pooler == Pooler::Session => {
                let conn = postgres.acquire().await.map_err(|source| Error::database("answer", source))?;
                self.alone(conn, look).await
            }
            Backend::Postgres(_) | Backend::Sqlite(_) => self.read(look).await,
        }
    }

    /// Groups of steps that this process has committed to its SQLite file; 0 on PostgreSQL.
    pub fn sqlite_commits(&self) -> u64 {
        match &self.backend {
            Backend::Postgres(_) => 0,
            Backend::Sqlite(sqlite) => *sqlite.committed.borrow(),
        }
    }

    /// Closes every connection.
    pub async fn close(&self) {
        self.wake_now().await;
        match &self.backend {
            Backend::Postgres(postgres) => postgres.close().await,
            Backend::Sqlite(sqlite) => sqlite.readers().close().await,
        }
    }
}

/// A connection of either database, as what a step runs on.
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

/// Runs a step, and then writes the line that is to be committed with it.
async fn recorded<T, F, C: AsConn>(
    conn: &mut C,
    context: &Context,
    step: F,
    line: Option<Line>,
) -> Result<T, Error>
where
    F: for<'c> FnOnce(Tx<'c>) -> Boxed<'c, Result<T, Error>>,
{
    // A panic costs this step alone: its caller gets an error, and the transaction is rolled back.
    let step = catch_panic(async { step(Tx { conn: conn.conn(), context, line: line.clone() }).await });
    let result = step.await.map_err(|panic| Error::Panicked { panic })??;
    if let Some(line) = line {
        let mut tx = Tx { conn: conn.conn(), context, line: None };
        line.write(&mut tx).await?;
    }
    Ok(result)
}
