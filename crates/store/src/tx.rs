//! One transaction on either database, and the one way to run a statement in it.

use crate::Schema;
use crate::catalog::{Catalog, Statement};
use crate::record::Line;
use crate::schema::Pooler;
use sqlx::{PgConnection, SqliteConnection};
use std::sync::Arc;

/// A step in progress. Everything done through it is committed together, or not at all.
pub struct Tx<'c> {
    pub(crate) conn: Conn<'c>,
    pub(crate) context: &'c Context,
    /// The line of the record that is committed with this step.
    pub(crate) line: Option<Line>,
}

/// The connection that a step runs on.
pub(crate) enum Conn<'c> {
    Postgres(&'c mut PgConnection),
    Sqlite(&'c mut SqliteConnection),
}

/// What a step knows besides its connection.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) schema: Schema,
    pub(crate) catalog: Catalog,
    pub(crate) clock: crate::Clock,
    /// Whether statements may keep a name on the server.
    pub(crate) named: bool,
}

impl Context {
    pub(crate) fn new(schema: Schema, clock: crate::Clock, pooler: Pooler) -> Self {
        let catalog = Catalog::new(&schema);
        Self { schema, catalog, clock, named: pooler == Pooler::Session }
    }
}

impl Tx<'_> {
    /// The text of a statement for this database.
    pub(crate) fn sql(&self, statement: Statement) -> sqlx::AssertSqlSafe<Arc<str>> {
        sqlx::AssertSqlSafe(self.context.catalog.text(statement))
    }

    /// The time of this step where the database's own clock is not asked.
    pub(crate) fn moment(&self, now: Option<tidemill_core::Timestamp>) -> tidemill_core::Timestamp {
        tidemill_core::request::micros(now.unwrap_or_else(self.context.clock))
    }
}

/// Builds one query for whichever database the transaction belongs to, and runs it.
///
/// `on!(tx, STATEMENT, [bind, …], fetch_all)`: one text of SQL, one list of values, both databases.
macro_rules! on {
    ($tx:expr, $statement:expr, [$($bind:expr),* $(,)?], $run:ident, $action:literal) => {{
        let sql = $tx.sql($statement);
        let named = $tx.context.named;
        match &mut $tx.conn {
            $crate::tx::Conn::Postgres(conn) => sqlx::query(sql)$(.bind($bind))*.persistent(named)
                .$run(&mut **conn).await.map($crate::tx::Of::Postgres),
            $crate::tx::Conn::Sqlite(conn) => sqlx::query(sql)$(.bind($bind))*
                .$run(&mut **conn).await.map($crate::tx::Of::Sqlite),
        }.map_err(|source| $crate::Error::database($action, source))
    }};
}
pub(crate) use on;

/// What a statement gave, from either database.
pub(crate) enum Of<P, S> {
    Postgres(P),
    Sqlite(S),
}

/// The rows of a statement.
pub(crate) type Rows = Of<Vec<sqlx::postgres::PgRow>, Vec<sqlx::sqlite::SqliteRow>>;

impl Of<sqlx::postgres::PgQueryResult, sqlx::sqlite::SqliteQueryResult> {
    /// How many rows the statement changed.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Postgres(result) => result.rows_affected(),
            Self::Sqlite(result) => result.rows_affected(),
        }
    }
}

/// Reads a record out of a row of either database.
pub(crate) trait FromColumns: Sized {
    /// Reads the columns.
    fn read(row: &impl crate::codec::Columns) -> sqlx::Result<Self>;
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Postgres(rows) => rows.len(),
            Self::Sqlite(rows) => rows.len(),
        }
    }

    /// A text of the last row.
    pub(crate) fn last_text(&self, column: &str) -> Option<String> {
        use crate::codec::Columns as _;
        match self {
            Self::Postgres(rows) => rows.last()?.text(column).ok(),
            Self::Sqlite(rows) => rows.last()?.text(column).ok(),
        }
    }

    /// Every row as a record. A row that cannot be read fails all of them: see [`crate::unreadable`] for lists.
    pub(crate) fn records<T: FromColumns>(self, action: &'static str) -> Result<Vec<T>, crate::Error> {
        match self {
            Self::Postgres(rows) => rows.into_iter().map(|row| T::read(&row)).collect::<sqlx::Result<_>>(),
            Self::Sqlite(rows) => rows.into_iter().map(|row| T::read(&row)).collect::<sqlx::Result<_>>(),
        }
        .map_err(|source| crate::Error::database(action, source))
    }
}

impl Of<Option<sqlx::postgres::PgRow>, Option<sqlx::sqlite::SqliteRow>> {
    /// The row as a record, if there is one.
    pub(crate) fn record<T: FromColumns>(&self, action: &'static str) -> Result<Option<T>, crate::Error> {
        match self {
            Self::Postgres(row) => row.as_ref().map(T::read).transpose(),
            Self::Sqlite(row) => row.as_ref().map(T::read).transpose(),
        }
        .map_err(|source| crate::Error::database(action, source))
    }
}

/// A record of one column called `value`.
macro_rules! single_column {
    ($type:ty, $read:ident) => {
        impl FromColumns for $type {
            fn read(row: &impl crate::codec::Columns) -> sqlx::Result<Self> {
                row.$read("value")
            }
        }
    };
}
single_column!(String, text);
single_column!(i64, long);
single_column!(bool, truth);

impl Tx<'_> {
    /// The time of this step: the caller's, or the database's own where it has a clock.
    pub async fn database_now(
        &mut self,
        now: Option<tidemill_core::Timestamp>,
    ) -> Result<tidemill_core::Timestamp, crate::Error> {
        let moment = self.moment(now);
        match (&mut self.conn, now) {
            (Conn::Postgres(conn), None) => sqlx::query_scalar("SELECT clock_timestamp()")
                .persistent(self.context.named)
                .fetch_one(&mut **conn)
                .await
                .map_err(|source| crate::Error::database("tell the time", source)),
            (Conn::Postgres(_) | Conn::Sqlite(_), _) => Ok(moment),
        }
    }
}

impl Tx<'_> {
    /// Marks a place within the step that can be gone back to.
    pub async fn savepoint(&mut self) -> Result<(), crate::Error> {
        self.plain("SAVEPOINT place").await
    }

    /// Goes back to the place, and forgets it.
    pub async fn rollback_to_savepoint(&mut self) -> Result<(), crate::Error> {
        self.plain("ROLLBACK TO SAVEPOINT place").await?;
        self.plain("RELEASE SAVEPOINT place").await
    }

    /// Forgets the place.
    pub async fn release_savepoint(&mut self) -> Result<(), crate::Error> {
        self.plain("RELEASE SAVEPOINT place").await
    }

    /// Prepares a long step: PostgreSQL ends it when it stands idle for so long, because a frozen process must not
    /// hold others up; and compiles nothing, which would take longer than all of its rows.
    pub async fn limit_idle(&mut self, secs: u32) -> Result<(), crate::Error> {
        match &self.conn {
            Conn::Postgres(_) => {
                let idle = format!("SET LOCAL idle_in_transaction_session_timeout = '{secs}s'");
                self.plain(format!("{idle}; SET LOCAL jit = off")).await
            }
            Conn::Sqlite(_) => Ok(()),
        }
    }

    async fn plain(&mut self, text: impl Into<String>) -> Result<(), crate::Error> {
        let text = sqlx::AssertSqlSafe(text.into());
        match &mut self.conn {
            Conn::Postgres(conn) => sqlx::raw_sql(text).execute(&mut **conn).await.map(|_| ()),
            Conn::Sqlite(conn) => sqlx::raw_sql(text).execute(&mut **conn).await.map(|_| ()),
        }
        .map_err(|source| crate::Error::database("mark a place", source))
    }
}
