//! Plain SQL on either database, as an operator would type it, and table contents for comparisons.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection as _};
use tidemill_core::Json;
use tidemill_store::Error;

/// Every table of the product with every row, in an order that does not depend on the order of writes.
///
/// Times are microseconds and booleans are 0 or 1 on both databases, so that the two can be compared.
pub type Tables = BTreeMap<String, Vec<Json>>;

/// The tables that the run operations write.
const KERNEL: [&str; 12] = [
    "artifacts",
    "concurrency_keys",
    "environments",
    "flags",
    "projects",
    "run_events",
    "run_lookup",
    "runs",
    "schedule_fires",
    "schedules",
    "label_sets",
    "workers",
];

/// Columns that SQLite stores as JSON text.
const DOCUMENTS: [&str; 6] = ["metadata", "input", "request", "payload", "config", "labels"];

/// A connection for plain SQL.
#[derive(Debug, Clone)]
pub enum PlainSql {
    /// Connected as the owner of the tables.
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

fn failed(source: sqlx::Error) -> Error {
    Error::database("run a plain statement", source)
}

impl PlainSql {
    /// Connects to PostgreSQL for plain SQL.
    pub(super) fn postgres(options: PgConnectOptions) -> Self {
        Self::Postgres(PgPoolOptions::new().max_connections(2).connect_lazy_with(options))
    }

    /// Opens a SQLite file like the `sqlite3` program does.
    pub(super) fn sqlite(file: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_mins(1));
        Self::Sqlite(SqlitePoolOptions::new().max_connections(2).connect_lazy_with(options))
    }

    /// Replaces `{ops}.` by the schema.
    fn rendered(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self {
            Self::Postgres(_) => text.replace("{ops}.", "ops."),
            Self::Sqlite(_) => text.replace("{ops}.", ""),
        })
    }

    pub async fn close(&self) {
        match self {
            Self::Postgres(pool) => pool.close().await,
            Self::Sqlite(pool) => pool.close().await,
        }
    }

    /// Runs one statement; returns the number of changed rows.
    pub async fn execute(&self, text: &str) -> Result<u64, Error> {
        let text = self.rendered(text);
        match self {
            Self::Postgres(pool) => {
                let mut session = pool.acquire().await.map_err(failed)?;
                let done = sqlx::query(text).persistent(false).execute(&mut *session).await;
                if done.is_err() {
                    // PostgreSQL reports an error before it releases its locks; the ping waits for the release.
                    session.ping().await.map_err(failed)?;
                }
                Ok(done.map_err(failed)?.rows_affected())
            }
            Self::Sqlite(pool) => Ok(sqlx::query(text).execute(pool).await.map_err(failed)?.rows_affected()),
        }
    }

    /// Runs several statements in one call.
    pub async fn script(&self, text: &str) -> Result<(), Error> {
        let text = self.rendered(text);
        match self {
            Self::Postgres(pool) => sqlx::raw_sql(text).execute(pool).await.map(|_| ()).map_err(failed),
            Self::Sqlite(pool) => sqlx::raw_sql(text).execute(pool).await.map(|_| ()).map_err(failed),
        }
    }

    /// Returns the number that a query selects.
    pub async fn number(&self, text: &str) -> Result<i64, Error> {
        let text = self.rendered(text);
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(text).persistent(false).fetch_one(pool).await,
            Self::Sqlite(pool) => sqlx::query_scalar(text).fetch_one(pool).await,
        }
        .map_err(failed)
    }

    /// Returns the texts of a query's first column.
    pub async fn texts(&self, text: &str) -> Result<Vec<String>, Error> {
        let text = self.rendered(text);
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(text).persistent(false).fetch_all(pool).await,
            Self::Sqlite(pool) => sqlx::query_scalar(text).fetch_all(pool).await,
        }
        .map_err(failed)
    }

    /// Reads all kernel tables except the log of migrations.
    pub async fn tables(&self) -> Result<Tables, Error> {
        let mut tables = Tables::new();
        for (table, columns) in self.columns().await? {
            if !KERNEL.contains(&table.as_str()) {
                continue;
            }
            // Transaction ids of events differ between databases.
            let fields: Vec<String> = columns
                .iter()
                .filter(|(column, _)| column != "xact")
                .map(|(column, kind)| format!("'{column}', {}", self.shown(column, kind)))
                .collect();
            let build = if matches!(self, Self::Postgres(_)) { "jsonb_build_object" } else { "json_object" };
            let text = format!("SELECT CAST({build}({}) AS text) FROM {{ops}}.{table}", fields.join(", "));
            let mut rows = self.texts(&text).await?;
            rows.sort();
            let read =
                |row: &String| serde_json::from_str(row).map_err(|bad| sqlx::Error::Decode(Box::new(bad)));
            let rows = rows.iter().map(read).collect::<sqlx::Result<Vec<Json>>>().map_err(failed)?;
            tables.insert(table, rows);
        }
        Ok(tables)
    }

    /// Returns the expression that formats a column for comparison.
    fn shown(&self, column: &str, kind: &str) -> String {
        match self {
            Self::Postgres(_) if kind == "timestamp with time zone" => {
                format!("(extract(epoch FROM {column}) * 1000000)::bigint")
            }
            Self::Postgres(_) if kind == "boolean" => format!("{column}::integer"),
            Self::Sqlite(_) if DOCUMENTS.contains(&column) => format!("json({column})"),
            Self::Postgres(_) | Self::Sqlite(_) => column.to_owned(),
        }
    }

    /// Returns our tables with their columns and types.
    pub async fn columns(&self) -> Result<BTreeMap<String, BTreeSet<(String, String)>>, Error> {
        let text = match self {
            Self::Postgres(_) => {
                "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns \
                 WHERE table_schema IN ('ops', 'public')"
            }
            Self::Sqlite(_) => {
                "SELECT m.name, c.name, lower(c.type) FROM sqlite_master m, pragma_table_xinfo(m.name) c \
                 WHERE m.type = 'table'"
            }
        };
        let rows: Vec<(String, String, String)> = match self {
            Self::Postgres(pool) => sqlx::query_as(text).persistent(false).fetch_all(pool).await,
            Self::Sqlite(pool) => sqlx::query_as(text).fetch_all(pool).await,
        }
        .map_err(failed)?;
        let mut tables: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
        for (table, column, kind) in rows {
            if !table.starts_with("tidemill_") && !table.starts_with("sqlite_") {
                tables.entry(table).or_default().insert((column, kind));
            }
        }
        Ok(tables)
    }
}
