//! Unique keys of a user's table besides the primary key of the definition. Their values can move between rows: while
//! one row still has a value, the database refuses the row that gets it.
//!
//! Before such rows are written together, their values are released: a deferrable constraint is checked after all rows
//! were written, and a nullable column is set to NULL. Rows are never deleted for it, because that would delete the
//! rows that refer to them.

use super::describe::grouped;
use super::names::{columns_sql, table_sql};
use super::rows::{Key, keyed, table_columns, target_of};
use super::statements::write_error;
use super::{FeedTables, TargetColumn, TargetRow, TargetTable};
use crate::codec::Columns as _;
use crate::schema::quoted;
use crate::tx::Conn;
use crate::{Error, Tx};
use sqlx::{AssertSqlSafe, PgConnection, SqliteConnection};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Unique indexes with their columns, including those inside expressions.
const POSTGRES_UNIQUE: &str = "
SELECT i.indexrelid::bigint AS index, c.relname::text AS index_name, coalesce(k.condeferrable, false) AS can_defer,
       k.contype::text AS contype, i.indnullsnotdistinct AS has_one_null, a.attname::text AS name
  FROM pg_index i
  JOIN pg_class c ON c.oid = i.indexrelid
  JOIN pg_class t ON t.oid = i.indrelid
  JOIN pg_namespace n ON n.oid = t.relnamespace
  LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.contype IN ('p', 'u')
 CROSS JOIN LATERAL (
    SELECT u.attnum FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS u (attnum, place)
     WHERE u.place <= i.indnkeyatts AND u.attnum > 0
     UNION
    SELECT d.refobjsubid FROM pg_depend d
     WHERE i.indexprs IS NOT NULL AND d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
       AND d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid AND d.refobjsubid > 0) p
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = p.attnum
 WHERE n.nspname = $1 AND t.relname = $2 AND i.indisunique AND i.indisvalid
 ORDER BY i.indexrelid, a.attnum";

/// Columns whose change the database passes on to rows of other tables. NULL would reach them and stay there.
const POSTGRES_CASCADES: &str = "
SELECT a.attname::text
  FROM pg_constraint k
  JOIN pg_class t ON t.oid = k.confrelid
  JOIN pg_namespace n ON n.oid = t.relnamespace
  JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = ANY (k.confkey)
 WHERE n.nspname = $1 AND t.relname = $2 AND k.contype = 'f' AND k.confupdtype IN ('c', 'n', 'd')";

const SQLITE_UNIQUE: &str = "
SELECT l.seq AS number, l.name AS index_name, c.name AS name
  FROM pragma_index_list($1, 'main') l, pragma_index_info(l.name, 'main') c
 WHERE l.\"unique\" AND c.name IS NOT NULL ORDER BY l.seq, c.seqno";

const SQLITE_CASCADES: &str = "
SELECT k.\"to\" FROM main.sqlite_master m, pragma_foreign_key_list(m.name) k
 WHERE m.type = 'table' AND k.\"table\" = $1 COLLATE NOCASE AND k.\"to\" IS NOT NULL
   AND k.on_update IN ('CASCADE', 'SET NULL', 'SET DEFAULT')";

/// How the values of the unique keys of a table are released.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UniqueKeys {
    /// Deferrable constraints, with their columns.
    deferred: BTreeMap<String, Vec<String>>,
    /// Columns that are set to NULL.
    emptied: BTreeSet<String>,
    /// Statements that help with keys whose values cannot be released.
    advice: Vec<String>,
}

impl UniqueKeys {
    /// Returns what a user can do so that values can move between rows.
    pub fn advice(&self) -> Option<String> {
        (!self.advice.is_empty()).then(|| self.advice.join("; "))
    }
}

/// A unique index as the catalog describes it.
struct Index {
    name: String,
    columns: Vec<String>,
    can_defer: bool,
    /// Kind of the constraint to which the index belongs, on PostgreSQL.
    constraint: Option<&'static str>,
    /// Whether NULL is a value that only one row has.
    has_one_null: bool,
}

impl Tx<'_> {
    /// Reads the unique keys of a feed's table, and decides how the values of these rows are released.
    pub async fn unique_keys(
        &mut self,
        tables: &FeedTables,
        rows: &[TargetRow],
    ) -> Result<UniqueKeys, Error> {
        let table = target_of(tables)?;
        // A column that a row leaves as it is would stay NULL.
        let mut written: BTreeSet<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        for row in rows {
            let columns = row.values.iter().filter_map(|(name, _)| table.column(name));
            let columns: BTreeSet<&str> = columns.map(|column| column.name.as_str()).collect();
            written.retain(|name| columns.contains(name));
        }
        let (indexes, cascades) = match &mut self.conn {
            Conn::Postgres(conn) => postgres(conn, &table).await?,
            Conn::Sqlite(conn) => sqlite(conn, &table).await?,
        };
        let primary = table_columns(&table, table.primary_key.iter().map(String::as_str))?;
        let primary: BTreeSet<&str> = primary.iter().map(|column| column.name.as_str()).collect();
        let mut keys = UniqueKeys::default();
        for index in indexes {
            let columns: BTreeSet<&str> = index.columns.iter().map(String::as_str).collect();
            if columns == primary || columns.is_disjoint(&written) {
                continue;
            }
            let is_free = |name: &&String| {
                let column = table.column(name);
                column.is_some_and(|column| column.nullable && !column.is_generated)
                    && written.contains(name.as_str())
                    && !primary.contains(name.as_str())
                    && !cascades.contains(*name)
                    && !index.has_one_null
            };
            if index.can_defer {
                keys.deferred.insert(index.name, index.columns);
            } else if let Some(column) = index.columns.iter().find(is_free) {
                keys.emptied.insert(column.clone());
            } else {
                let is_passed_on = index.columns.iter().any(|name| cascades.contains(name));
                keys.advice.extend((!is_passed_on).then(|| self.advice(&table, &index)));
            }
        }
        Ok(keys)
    }

    /// Returns the statement with which the values of an index can move.
    fn advice(&self, table: &TargetTable, index: &Index) -> String {
        let columns = columns_sql(index.columns.iter().map(String::as_str));
        if self.context.schema.is_sqlite() {
            return format!(
                "values of ({columns}) can move between rows of `{}` if one of these columns allows NULL; create the \
                 table again without NOT NULL",
                table.name
            );
        }
        let (name, index_name) = (table_sql(&self.context.schema, &table.name), quoted(&index.name));
        let change = if let Some(kind) = index.constraint {
            format!("DROP CONSTRAINT {index_name}, ADD CONSTRAINT {index_name} {kind} ({columns}) DEFERRABLE")
        } else {
            let first = quoted(index.columns.first().map_or("", String::as_str));
            format!("ALTER COLUMN {first} DROP NOT NULL")
        };
        format!("values of ({columns}) can move between rows after: ALTER TABLE {name} {change}")
    }

    /// Releases the unique values of rows that are written next in this transaction.
    pub async fn release_unique(
        &mut self,
        tables: &FeedTables,
        keys: &UniqueKeys,
        rows: &[TargetRow],
    ) -> Result<(), Error> {
        let table = target_of(tables)?;
        self.defer_unique(&table, keys).await?;
        if keys.emptied.is_empty() {
            return Ok(());
        }
        let found = self.row_keys(&table, rows)?;
        let parts = table_columns(&table, table.primary_key.iter().map(String::as_str))?;
        let changes: Vec<String> =
            keys.emptied.iter().map(|column| format!("{} = NULL", quoted(column))).collect();
        let name = table_sql(&self.context.schema, &table.name);
        let failed = |error| write_error(&table.name, error);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let (source, is_row) = arrays("t", &parts);
                let text = format!("UPDATE {name} t SET {} FROM {source} WHERE {is_row}", changes.join(", "));
                let query = bind_keys(sqlx::query(AssertSqlSafe(text)), &found, parts.len());
                query.persistent(false).execute(&mut **conn).await.map_err(failed)?;
            }
            Conn::Sqlite(conn) => {
                let is_row: Vec<String> = parts
                    .iter()
                    .enumerate()
                    .map(|(index, part)| format!("{} = ?{}", quoted(&part.name), index + 1))
                    .collect();
                let text: Arc<str> = Arc::from(format!(
                    "UPDATE {name} SET {} WHERE {}",
                    changes.join(", "),
                    is_row.join(" AND ")
                ));
                for key in &found {
                    let mut query = sqlx::query(AssertSqlSafe(text.clone()));
                    for part in key {
                        query = query.bind(part.as_str());
                    }
                    query.execute(&mut **conn).await.map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    async fn defer_unique(&mut self, table: &TargetTable, keys: &UniqueKeys) -> Result<(), Error> {
        let Conn::Postgres(conn) = &mut self.conn else { return Ok(()) };
        if keys.deferred.is_empty() {
            return Ok(());
        }
        let schema = quoted(&table.name.schema);
        let names: Vec<String> =
            keys.deferred.keys().map(|name| format!("{schema}.{}", quoted(name))).collect();
        let text = AssertSqlSafe(format!("SET CONSTRAINTS {} DEFERRED", names.join(", ")));
        let done = sqlx::raw_sql(text).execute(&mut **conn).await;
        done.map(|_| ()).map_err(|error| write_error(&table.name, error))
    }

    /// Checks the deferred constraints. Returns the rows of these that violate one, as positions.
    pub async fn check_deferred(
        &mut self,
        tables: &FeedTables,
        keys: &UniqueKeys,
        rows: &[TargetRow],
    ) -> Result<BTreeSet<usize>, Error> {
        let table = target_of(tables)?;
        let found = self.row_keys(&table, rows)?;
        let parts = table_columns(&table, table.primary_key.iter().map(String::as_str))?;
        let name = table_sql(&self.context.schema, &table.name);
        let Conn::Postgres(conn) = &mut self.conn else { return Ok(BTreeSet::new()) };
        let failed = |error| write_error(&table.name, error);
        let mut violating = BTreeSet::new();
        for columns in keys.deferred.values() {
            let (source, is_row) = arrays("t", &parts);
            let equal: Vec<String> = columns
                .iter()
                .map(|name| quoted(name))
                .map(|column| format!("o.{column} = t.{column}"))
                .collect();
            let differs: Vec<String> = parts
                .iter()
                .map(|part| quoted(&part.name))
                .map(|part| format!("o.{part} IS DISTINCT FROM t.{part}"))
                .collect();
            let text = format!(
                "SELECT DISTINCT g.place FROM {source} JOIN {name} t ON {is_row} JOIN {name} o ON {} AND ({})",
                equal.join(" AND "),
                differs.join(" OR ")
            );
            let mut query = sqlx::query_scalar::<_, i64>(AssertSqlSafe(text));
            for index in 0..parts.len() {
                query = query.bind(column_of(&found, index));
            }
            let places = query.persistent(false).fetch_all(&mut **conn).await.map_err(failed)?;
            violating.extend(places.into_iter().filter_map(|place| usize::try_from(place - 1).ok()));
        }
        if violating.is_empty() && !keys.deferred.is_empty() {
            let text = "SET CONSTRAINTS ALL IMMEDIATE";
            sqlx::raw_sql(text).execute(&mut **conn).await.map_err(failed)?;
        }
        Ok(violating)
    }

    /// Returns the primary keys of rows, in their order.
    fn row_keys(&self, table: &TargetTable, rows: &[TargetRow]) -> Result<Vec<Key>, Error> {
        let is_sqlite = self.context.schema.is_sqlite();
        let keys = rows.iter().map(|row| Ok(keyed(table, row, is_sqlite)?.key.unwrap_or_default()));
        keys.collect()
    }
}

/// Returns the source `g` of primary keys from arrays of texts, and the condition that selects the row of one.
fn arrays(row: &str, parts: &[&TargetColumn]) -> (String, String) {
    let arrays: Vec<String> = (1..=parts.len()).map(|place| format!("${place}::text[]")).collect();
    let names: Vec<String> = (0..parts.len()).map(|index| format!("c{index}")).collect();
    let equal: Vec<String> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| format!("{row}.{} = g.c{index}::{}", quoted(&part.name), part.cast_type))
        .collect();
    let source = format!(
        "ROWS FROM (unnest({})) WITH ORDINALITY AS g ({}, place)",
        arrays.join(", "),
        names.join(", ")
    );
    (source, equal.join(" AND "))
}

fn column_of(keys: &[Key], index: usize) -> Vec<Option<&str>> {
    keys.iter().map(|key| key.get(index).map(String::as_str)).collect()
}

type PgQuery<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

fn bind_keys<'q>(mut query: PgQuery<'q>, keys: &'q [Key], parts: usize) -> PgQuery<'q> {
    for index in 0..parts {
        query = query.bind(column_of(keys, index));
    }
    query
}

async fn postgres(
    conn: &mut PgConnection,
    table: &TargetTable,
) -> Result<(Vec<Index>, BTreeSet<String>), Error> {
    let name = &table.name;
    let query = sqlx::query(POSTGRES_UNIQUE).bind(&name.schema).bind(&name.table);
    let rows = query.persistent(false).fetch_all(&mut *conn).await.map_err(failed)?;
    let columns = grouped(rows.iter().map(|row| Ok((row.long("index")?, row.text("name")?))))?;
    let mut firsts = BTreeMap::new();
    for row in &rows {
        let number = row.long("index").map_err(failed)?;
        firsts.entry(number).or_insert(row);
    }
    let describe = |(row, columns): (&sqlx::postgres::PgRow, Vec<String>)| {
        Ok(Index {
            name: row.text("index_name")?,
            columns,
            can_defer: row.truth("can_defer")?,
            constraint: match row.text_or_null("contype")?.as_deref() {
                Some("p") => Some("PRIMARY KEY"),
                Some("u") => Some("UNIQUE"),
                Some(_) | None => None,
            },
            has_one_null: row.truth("has_one_null")?,
        })
    };
    let indexes =
        firsts.into_values().zip(columns).map(describe).collect::<sqlx::Result<_>>().map_err(failed)?;
    let query = sqlx::query_scalar(POSTGRES_CASCADES).bind(&name.schema).bind(&name.table);
    let cascades: Vec<String> = query.persistent(false).fetch_all(conn).await.map_err(failed)?;
    Ok((indexes, cascades.into_iter().collect()))
}

async fn sqlite(
    conn: &mut SqliteConnection,
    table: &TargetTable,
) -> Result<(Vec<Index>, BTreeSet<String>), Error> {
    let name = &table.name.table;
    let rows = sqlx::query(SQLITE_UNIQUE).bind(name).fetch_all(&mut *conn).await.map_err(failed)?;
    let columns = grouped(rows.iter().map(|row| Ok((row.long("number")?, row.text("name")?))))?;
    let mut names = BTreeMap::new();
    for row in &rows {
        names.insert(row.long("number").map_err(failed)?, row.text("index_name").map_err(failed)?);
    }
    let index =
        |(name, columns)| Index { name, columns, can_defer: false, constraint: None, has_one_null: false };
    let indexes = names.into_values().zip(columns).map(index).collect();
    let cascades: Vec<String> =
        sqlx::query_scalar(SQLITE_CASCADES).bind(name).fetch_all(conn).await.map_err(failed)?;
    let spelled = |name: String| table.column(&name).map_or(name, |column| column.name.clone());
    Ok((indexes, cascades.into_iter().map(spelled).collect()))
}

fn failed(source: sqlx::Error) -> Error {
    Error::database("read the unique keys of a table", source)
}
