//! One transaction on either database, and the macro that runs a statement in it.

use crate::Schema;
use crate::audit_entry::EntryDraft;
use crate::catalog::{Catalog, RawTexts, SqlText};
use crate::schema::Pooler;
use sqlx::{PgConnection, SqliteConnection};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An open transaction. All of its changes are committed together, or none.
pub struct Tx<'c> {
    pub(crate) conn: Conn<'c>,
    pub(crate) context: &'c Context,
    /// Audit entry that is committed with this transaction.
    pub(crate) draft: Option<EntryDraft>,
}

pub(crate) enum Conn<'c> {
    Postgres(&'c mut PgConnection),
    Sqlite(&'c mut SqliteConnection),
}

/// Settings of a transaction besides its connection.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) schema: Schema,
    pub(crate) catalog: Catalog,
    pub(crate) raw_texts: RawTexts,
    pub(crate) clock: crate::Clock,
    /// Whether statements may be prepared under a name on the server.
    pub(crate) named: bool,
    /// Whether this role was found to have the right to write the audit log. Only the positive answer is kept: if the
    /// right is revoked, audited changes fail; if it is granted, entries are written from then on.
    pub(crate) may_audit: AtomicBool,
}

impl Context {
    pub(crate) fn new(schema: Schema, clock: crate::Clock, pooler: Pooler) -> Self {
        let catalog = Catalog::new(&schema);
        let (named, may_audit) = (pooler == Pooler::Session, AtomicBool::new(false));
        Self { schema, catalog, raw_texts: RawTexts::default(), clock, named, may_audit }
    }
}

impl Tx<'_> {
    /// Returns the text of a statement for this database.
    pub(crate) fn sql(&self, statement: impl SqlText) -> sqlx::AssertSqlSafe<Arc<str>> {
        sqlx::AssertSqlSafe(statement.text(self.context))
    }

    /// Returns the caller's time, or the host's without one.
    pub(crate) fn moment(&self, now: Option<tidemill_core::Timestamp>) -> tidemill_core::Timestamp {
        tidemill_core::request::micros(now.unwrap_or_else(self.context.clock))
    }
}

/// Builds one query for the database of the transaction, and runs it.
///
/// `on!(tx, STATEMENT, [bind, …], fetch_all)`: one SQL text and one list of values for both databases.
macro_rules! on {
    ($tx:expr, $statement:expr, [$($bind:expr),* $(,)?], $run:ident, $action:literal) => {{
        let sql = $tx.sql($statement);
        let named = $tx.context.named;
        match &mut $tx.conn {
            $crate::tx::Conn::Postgres(conn) => sqlx::query(sql)$(.bind($bind))*.persistent(named)
                .$run(&mut **conn).await.map($crate::tx::EitherDatabase::Postgres),
            $crate::tx::Conn::Sqlite(conn) => sqlx::query(sql)$(.bind($bind))*
                .$run(&mut **conn).await.map($crate::tx::EitherDatabase::Sqlite),
        }.map_err(|source| $crate::Error::database($action, source))
    }};
}
pub(crate) use on;

/// The result of a statement on either database.
pub(crate) enum EitherDatabase<P, S> {
    Postgres(P),
    Sqlite(S),
}

pub(crate) type Rows = EitherDatabase<Vec<sqlx::postgres::PgRow>, Vec<sqlx::sqlite::SqliteRow>>;

impl EitherDatabase<sqlx::postgres::PgQueryResult, sqlx::sqlite::SqliteQueryResult> {
    /// Returns the number of rows that the statement changed.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Postgres(result) => result.rows_affected(),
            Self::Sqlite(result) => result.rows_affected(),
        }
    }
}

/// A type that can be read from a row of either database.
pub(crate) trait FromColumns: Sized {
    fn read(row: &impl crate::codec::Columns) -> sqlx::Result<Self>;
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Postgres(rows) => rows.len(),
            Self::Sqlite(rows) => rows.len(),
        }
    }

    /// Returns a text and a time of the last row.
    pub(crate) fn last(&self, text: &str, time: &str) -> Option<(String, Option<tidemill_core::Timestamp>)> {
        use crate::codec::Columns as _;
        match self {
            Self::Postgres(rows) => rows.last().map(|row| (row.text(text).ok(), row.time(time).ok())),
            Self::Sqlite(rows) => rows.last().map(|row| (row.text(text).ok(), row.time(time).ok())),
        }
        .and_then(|(text, time)| Some((text?, time)))
    }

    /// Reads every row. One unreadable row fails all of them; see [`crate::unreadable`] for lists.
    pub(crate) fn records<T: FromColumns>(self, action: &'static str) -> Result<Vec<T>, crate::Error> {
        match self {
            Self::Postgres(rows) => rows.into_iter().map(|row| T::read(&row)).collect::<sqlx::Result<_>>(),
            Self::Sqlite(rows) => rows.into_iter().map(|row| T::read(&row)).collect::<sqlx::Result<_>>(),
        }
        .map_err(|source| crate::Error::database(action, source))
    }
}

impl EitherDatabase<Option<sqlx::postgres::PgRow>, Option<sqlx::sqlite::SqliteRow>> {
    /// Reads the row, if there is one.
    pub(crate) fn record<T: FromColumns>(&self, action: &'static str) -> Result<Option<T>, crate::Error> {
        match self {
            Self::Postgres(row) => row.as_ref().map(T::read).transpose(),
            Self::Sqlite(row) => row.as_ref().map(T::read).transpose(),
        }
        .map_err(|source| crate::Error::database(action, source))
    }
}

/// Implements [`FromColumns`] for a type that is read from one column named `value`.
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
    /// Returns the caller's time, or the database's clock (on SQLite the host's) without one.
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
                .map_err(|source| crate::Error::database("read the clock", source)),
            (Conn::Postgres(_) | Conn::Sqlite(_), _) => Ok(moment),
        }
    }
}

impl Tx<'_> {
    /// Sets a savepoint in the transaction.
    pub async fn savepoint(&mut self) -> Result<(), crate::Error> {
        self.plain("SAVEPOINT place").await
    }

    /// Rolls back to the savepoint and releases it.
    pub async fn rollback_to_savepoint(&mut self) -> Result<(), crate::Error> {
        self.plain("ROLLBACK TO SAVEPOINT place").await?;
        self.plain("RELEASE SAVEPOINT place").await
    }

    /// Releases the savepoint without rolling back.
    pub async fn release_savepoint(&mut self) -> Result<(), crate::Error> {
        self.plain("RELEASE SAVEPOINT place").await
    }

    /// Prepares a long transaction. PostgreSQL ends it after `secs` idle seconds, because a frozen process must not
    /// block others. JIT compilation is off, because it would take longer than the statements.
    pub async fn limit_idle(&mut self, secs: u32) -> Result<(), crate::Error> {
        match &self.conn {
            Conn::Postgres(_) => {
                let idle = format!("SET LOCAL idle_in_transaction_session_timeout = '{secs}s'");
                self.plain(format!("{idle}; SET LOCAL jit = off")).await
            }
            Conn::Sqlite(_) => Ok(()),
        }
    }

    /// Limits how long a statement of this transaction waits for a lock: a user may have locked the table of a feed.
    /// Constraints are checked by the statement that violates them, not by the commit: then its row can be found.
    pub async fn limit_locks(&mut self, secs: u32) -> Result<(), crate::Error> {
        match &self.conn {
            Conn::Postgres(_) => {
                let text = format!("SET LOCAL lock_timeout = '{secs}s'; SET CONSTRAINTS ALL IMMEDIATE");
                self.plain(text).await
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
        .map_err(|source| crate::Error::database("set a savepoint", source))
    }
}
