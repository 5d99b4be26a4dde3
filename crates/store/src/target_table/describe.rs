//! Reads a user's table from the catalog of the database.

use super::{FeedTables, TargetColumn, TargetTable, names, unusable};
use crate::codec::Columns as _;
use crate::tx::Conn;
use crate::{Error, Schema, Store, Tx};
use sqlx::{PgConnection, SqliteConnection};
use std::collections::BTreeMap;
use tidemill_core::feed_definition::target::{TableName, Target};
use tidemill_core::table_claim::TableClaim;

/// Columns with the type to which a text is cast. A cast to a domain, or to a type with a length, would cut the text,
/// so it is the base type without a length. `format_type` adds the schema of types outside of `pg_catalog`.
const POSTGRES_COLUMNS: &str = "
WITH RECURSIVE base (attnum, oid) AS (
    SELECT a.attnum, a.atttypid FROM pg_attribute a
     WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT b.attnum, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd')
SELECT a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS database_type,
       format_type(b.oid, -1) AS cast_type, NOT a.attnotnull AS nullable,
       a.atthasdef OR a.attidentity <> '' AS has_default,
       a.attgenerated <> '' OR a.attidentity = 'a' AS is_generated
  FROM pg_attribute a JOIN base b ON b.attnum = a.attnum JOIN pg_type t ON t.oid = b.oid AND t.typtype <> 'd'
 WHERE a.attrelid = $1::oid
 ORDER BY a.attnum";

/// Columns of each unique index that can be the target of a conflict.
const POSTGRES_KEYS: &str = "
SELECT i.indexrelid::bigint AS index, a.attname::text AS name
  FROM pg_index i
 CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
 WHERE i.indrelid = $1::oid AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
   AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
 ORDER BY i.indisprimary DESC, i.indexrelid, k.place";

const SQLITE_COLUMNS: &str = "
SELECT name, type, \"notnull\" AS not_null, dflt_value IS NOT NULL AS has_default, pk, hidden
  FROM pragma_table_xinfo($1, 'main') ORDER BY cid";

const SQLITE_KEYS: &str = "
SELECT l.seq AS number, c.name AS name
  FROM pragma_index_list($1, 'main') l, pragma_index_info(l.name, 'main') c
 WHERE l.\"unique\" AND NOT l.partial ORDER BY l.seq, c.seqno";

/// Tables with a deferred foreign key that belong to a table or refer to it.
const SQLITE_DEFERRED: &str = "
SELECT m.name FROM main.sqlite_master m
 WHERE m.type = 'table' AND m.sql LIKE '%INITIALLY DEFERRED%'
   AND (m.name = $1 COLLATE NOCASE
        OR EXISTS (SELECT 1 FROM pragma_foreign_key_list(m.name) k WHERE k.\"table\" = $1 COLLATE NOCASE))
 LIMIT 1";

/// Columns that refer to a table.
const SQLITE_REFERENCES: &str = "
SELECT m.name || '.' || k.\"from\"
  FROM main.sqlite_master m, pragma_foreign_key_list(m.name) k
 WHERE m.type = 'table' AND k.\"table\" = $1 COLLATE NOCASE ORDER BY 1";

/// Error code of SQLite for a violated foreign key.
const SQLITE_FOREIGN_KEY: &str = "787";

impl Tx<'_> {
    /// Describes why the table of a feed refused a change. SQLite does not say which foreign key is violated, so the
    /// columns that refer to the table are added.
    pub async fn describe_refusal(&mut self, tables: &FeedTables, error: &Error) -> Result<String, Error> {
        let reason = error.reason();
        let (Conn::Sqlite(conn), Some(table)) = (&mut self.conn, &tables.target) else { return Ok(reason) };
        let Error::Database { source, .. } = error else { return Ok(reason) };
        let code = source.as_database_error().and_then(sqlx::error::DatabaseError::code);
        if code.as_deref() != Some(SQLITE_FOREIGN_KEY) {
            return Ok(reason);
        }
        let columns: Vec<String> = sqlx::query_scalar(SQLITE_REFERENCES)
            .bind(&table.name.table)
            .fetch_all(&mut **conn)
            .await
            .map_err(failed)?;
        Ok(format!("{reason}: `{}` is referenced by {}", table.name, columns.join(", ")))
    }
}

impl Store {
    /// Reads the table of a definition from the catalog. `None`: the table does not exist.
    pub async fn target_table(&self, into: &Target) -> Result<Option<TargetTable>, Error> {
        let into = into.clone();
        self.read(move |mut tx| Box::pin(async move { tx.target_table(&into).await })).await
    }
}

/// Description of a table in the catalog.
struct TableDescription {
    columns: Vec<TargetColumn>,
    unique_keys: Vec<Vec<String>>,
}

impl Tx<'_> {
    pub(super) async fn target_table(&mut self, into: &Target) -> Result<Option<TargetTable>, Error> {
        let schema: &Schema = &self.context.schema;
        if let Some(problem) = names::forbidden(schema, &into.table) {
            return Err(unusable(problem));
        }
        let described = match &mut self.conn {
            Conn::Postgres(conn) => postgres(conn, &into.table).await?,
            Conn::Sqlite(conn) => sqlite(conn, &into.table).await?,
        };
        Ok(described.map(|TableDescription { columns, unique_keys }| TargetTable {
            name: into.table.clone(),
            columns,
            write: into.write_disposition,
            primary_key: into.primary_key.clone(),
            deleted_at: into.deleted_at.clone(),
            unique_keys,
            claim: TableClaim::of(into),
        }))
    }

    /// Returns whether a schema exists. On SQLite there is one.
    pub(super) async fn schema_exists(&mut self, schema: &str) -> Result<bool, Error> {
        let Conn::Postgres(conn) = &mut self.conn else { return Ok(true) };
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)")
            .bind(schema)
            .persistent(false)
            .fetch_one(&mut **conn)
            .await
            .map_err(failed)
    }
}

async fn postgres(conn: &mut PgConnection, name: &TableName) -> Result<Option<TableDescription>, Error> {
    let found: Option<(i64, String)> = sqlx::query_as(
        "SELECT c.oid::bigint, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = $2",
    )
    .bind(&name.schema)
    .bind(&name.table)
    .persistent(false)
    .fetch_optional(&mut *conn)
    .await
    .map_err(failed)?;
    let Some((oid, kind)) = found else { return Ok(None) };
    // Ordinary and partitioned tables.
    if !matches!(kind.as_str(), "r" | "p") {
        return Err(unusable(format!("`{name}` is not a table; write the name of a table in `into.table`")));
    }
    // `format_type` omits the schema of types on the search path, which another session may not have.
    sqlx::query("SELECT set_config('search_path', 'pg_catalog', true)")
        .persistent(false)
        .execute(&mut *conn)
        .await
        .map_err(failed)?;
    let rows = sqlx::query(POSTGRES_COLUMNS)
        .bind(oid)
        .persistent(false)
        .fetch_all(&mut *conn)
        .await
        .map_err(failed)?;
    let columns = rows.iter().map(|row| {
        Ok(TargetColumn {
            name: row.text("name")?,
            database_type: row.text("database_type")?,
            nullable: row.truth("nullable")?,
            has_default: row.truth("has_default")?,
            is_generated: row.truth("is_generated")?,
            cast_type: row.text("cast_type")?,
        })
    });
    let columns = columns.collect::<sqlx::Result<Vec<_>>>().map_err(failed)?;
    let rows =
        sqlx::query(POSTGRES_KEYS).bind(oid).persistent(false).fetch_all(&mut *conn).await.map_err(failed)?;
    let keys = rows.iter().map(|row| Ok((row.long("index")?, row.text("name")?)));
    Ok(Some(TableDescription { columns, unique_keys: grouped(keys)? }))
}

async fn sqlite(conn: &mut SqliteConnection, name: &TableName) -> Result<Option<TableDescription>, Error> {
    let kind: Option<String> = sqlx::query_scalar(
        "SELECT type FROM main.sqlite_master WHERE name = $1 COLLATE NOCASE AND type IN ('table', 'view')",
    )
    .bind(&name.table)
    .fetch_optional(&mut *conn)
    .await
    .map_err(failed)?;
    match kind.as_deref() {
        None => return Ok(None),
        Some("table") => check_constraints(conn, name).await?,
        Some(_) => {
            return Err(unusable(format!(
                "`{name}` is not a table; write the name of a table in `into.table`"
            )));
        }
    }
    let rows = sqlx::query(SQLITE_COLUMNS).bind(&name.table).fetch_all(&mut *conn).await.map_err(failed)?;
    let (mut columns, mut primary) = (Vec::new(), BTreeMap::new());
    for row in &rows {
        let column_name = row.text("name").map_err(failed)?;
        let (not_null, place) = (row.long("not_null"), row.long("pk"));
        let (not_null, place) = (not_null.map_err(failed)? != 0, place.map_err(failed)?);
        let database_type = row.text("type").map_err(failed)?;
        if place > 0 {
            primary.insert(place, column_name.clone());
        }
        columns.push(TargetColumn {
            name: column_name,
            nullable: !not_null,
            has_default: row.long("has_default").map_err(failed)? != 0,
            is_generated: row.long("hidden").map_err(failed)? > 1,
            database_type,
            cast_type: String::new(),
        });
    }
    let rows = sqlx::query(SQLITE_KEYS).bind(&name.table).fetch_all(&mut *conn).await.map_err(failed)?;
    let mut unique_keys = grouped(rows.iter().map(|row| Ok((row.long("number")?, row.text("name")?))))?;
    // An integer primary key is the row id, and has no index. SQLite assigns it.
    let primary: Vec<String> = primary.into_values().collect();
    if let [only] = primary.as_slice()
        && let Some(column) = columns.iter_mut().find(|column| column.name == *only)
    {
        column.has_default |= column.database_type.eq_ignore_ascii_case("integer");
    }
    if !primary.is_empty() && !unique_keys.contains(&primary) {
        unique_keys.insert(0, primary);
    }
    Ok(Some(TableDescription { columns, unique_keys }))
}

/// Refuses a table whose constraints are checked by the commit: SQLite commits the transactions of many callers
/// together, and one row would fail all of them.
async fn check_constraints(conn: &mut SqliteConnection, name: &TableName) -> Result<(), Error> {
    let deferred: Option<String> =
        sqlx::query_scalar(SQLITE_DEFERRED).bind(&name.table).fetch_optional(conn).await.map_err(failed)?;
    let Some(table) = deferred else { return Ok(()) };
    Err(unusable(format!(
        "`{table}` has a deferred foreign key, so rows of `{name}` cannot be checked one by one"
    )))
}

/// Groups the columns of indexes, which are sorted by index.
pub(super) fn grouped(
    columns: impl Iterator<Item = sqlx::Result<(i64, String)>>,
) -> Result<Vec<Vec<String>>, Error> {
    let mut groups: Vec<(i64, Vec<String>)> = Vec::new();
    for column in columns {
        let (index, name) = column.map_err(failed)?;
        match groups.last_mut() {
            Some((last, names)) if *last == index => names.push(name),
            Some(_) | None => groups.push((index, vec![name])),
        }
    }
    Ok(groups.into_iter().map(|(_, names)| names).collect())
}

fn failed(source: sqlx::Error) -> Error {
    Error::database("read the table of a feed", source)
}
