//! Tables of our names that somebody else made: found, compared, and left alone.

use super::{Books as _, failed};
use crate::{Error, Schema};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use std::collections::BTreeMap;

/// Differences that are listed, at most; the first few tell the story.
const LISTED_MAX: usize = 12;

/// Tables, each with its columns and their types.
type Tables = BTreeMap<String, BTreeMap<String, String>>;

/// How the tables of our names differ from ours. Empty: there are none.
///
/// Our own tables are made in a schema of another name and compared; the caller's transaction is not committed, and
/// the probe is dropped, so that nothing of this is ever seen.
pub(super) async fn differences_postgres(
    conn: &mut PgConnection,
    schema: &Schema,
    migration: &str,
) -> Result<Vec<String>, Error> {
    let theirs = tables_postgres(conn, schema.name()).await?;
    if theirs.is_empty() {
        return Ok(Vec::new());
    }
    let probe = Schema::postgres("tidemill_probe_of_tables")?;
    conn.script(format!("CREATE SCHEMA {0}; {1}", probe.name(), probe.render(migration))).await?;
    let ours = tables_postgres(conn, probe.name()).await?;
    conn.script(format!("DROP SCHEMA {} CASCADE", probe.name())).await?;
    Ok(compare(&ours, &theirs))
}

/// How the tables of syncs differ from what is in their schema. Empty: there are none of these names.
pub(super) async fn differences_of_syncs(
    conn: &mut PgConnection,
    schema: &Schema,
    migration: &str,
) -> Result<Vec<String>, Error> {
    let theirs = tables_postgres(conn, schema.sync_name()).await?;
    let tables = migration.lines().filter_map(|line| line.strip_prefix("CREATE TABLE {sync}."));
    let names: Vec<&str> = tables.filter_map(|line| line.split_whitespace().next()).collect();
    if !names.iter().any(|name| theirs.contains_key(*name)) {
        return Ok(Vec::new());
    }
    let probe = "tidemill_probe_of_syncs";
    let text = Schema::postgres(schema.name())?.with_sync(probe)?.render(migration);
    // What is not in the schema of syncs is made where it belongs in any case, and taken back with the rest.
    conn.script(format!("SAVEPOINT probe; CREATE SCHEMA {probe}; {text}")).await?;
    let ours = tables_postgres(conn, probe).await?;
    conn.script("ROLLBACK TO SAVEPOINT probe; RELEASE SAVEPOINT probe".to_owned()).await?;
    Ok(compare(&ours, &theirs))
}

async fn tables_postgres(conn: &mut PgConnection, schema: &str) -> Result<Tables, Error> {
    let rows: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns \
         WHERE table_schema = $1",
    )
    .bind(schema)
    .persistent(false)
    .fetch_all(conn)
    .await
    .map_err(failed)?;
    Ok(collect(rows))
}

/// The same for a SQLite file; ours are made in memory.
pub(super) async fn differences_sqlite(
    conn: &mut SqliteConnection,
    migration: String,
) -> Result<Vec<String>, Error> {
    let theirs = tables_sqlite(conn).await?;
    if theirs.is_empty() {
        return Ok(Vec::new());
    }
    let mut memory = SqliteConnection::connect("sqlite::memory:").await.map_err(failed)?;
    memory.script(migration).await?;
    let ours = tables_sqlite(&mut memory).await?;
    let _ = memory.close().await;
    Ok(compare(&ours, &theirs))
}

async fn tables_sqlite(conn: &mut SqliteConnection) -> Result<Tables, Error> {
    let rows: Vec<(String, String, String)> = sqlx::query_as(AssertSqlSafe(
        "SELECT m.name, c.name, c.type FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type = 'table'"
            .to_owned(),
    ))
    .fetch_all(conn)
    .await
    .map_err(failed)?;
    Ok(collect(rows))
}

fn collect(rows: Vec<(String, String, String)>) -> Tables {
    let mut tables = Tables::new();
    for (table, column, kind) in rows {
        tables.entry(table).or_default().insert(column, kind.to_lowercase());
    }
    tables
}

/// Names what tables of ours have that theirs of the same name lack, or have otherwise.
fn compare(ours: &Tables, theirs: &Tables) -> Vec<String> {
    let mut differences = Vec::new();
    for (table, columns) in ours {
        let Some(existing) = theirs.get(table) else { continue };
        let missing: Vec<_> =
            columns.keys().filter(|column| !existing.contains_key(*column)).cloned().collect();
        let mut clauses = Vec::new();
        if !missing.is_empty() {
            clauses.push(format!("lacks {}", missing.join(", ")));
        }
        for (column, kind) in columns {
            if let Some(other) = existing.get(column).filter(|other| *other != kind) {
                clauses.push(format!("has {column} as {other} instead of {kind}"));
            }
        }
        if clauses.is_empty() {
            clauses.push("has our columns, but no record of our migrations".to_owned());
        }
        differences.push(format!("table {table} {}", clauses.join(", ")));
    }
    differences.truncate(LISTED_MAX);
    differences
}
