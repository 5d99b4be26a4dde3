//! Finds tables with the names of ours that Tidemill did not create, and compares them with ours.

use super::bookkeeping::Bookkeeping as _;
use super::{failed, sync_tables_of};
use crate::{Error, Schema};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use std::collections::BTreeMap;

/// Number of differences that an error lists at most.
const LISTED_MAX: usize = 12;

/// Tables, each with its columns and their types.
type Tables = BTreeMap<String, BTreeMap<String, String>>;

/// Lists how tables with our names differ from ours. Empty if the schema holds none.
///
/// Creates our tables in two other schemas, compares, and drops them again. The caller does not commit the transaction,
/// so that no other session ever sees them.
pub(super) async fn differences_postgres(
    conn: &mut PgConnection,
    schema: &Schema,
    migration: &str,
) -> Result<Vec<String>, Error> {
    let theirs = tables_postgres(conn, schema.name()).await?;
    if theirs.is_empty() {
        return Ok(Vec::new());
    }
    let probe = Schema::postgres("tidemill_probe_of_tables")?.with_sync("tidemill_probe_of_syncs")?;
    let (name, sync) = (probe.name(), probe.sync_name());
    conn.script(format!("CREATE SCHEMA {name}; CREATE SCHEMA {sync}; {}", probe.render(migration))).await?;
    let ours = tables_postgres(conn, name).await?;
    conn.script(format!("DROP SCHEMA {sync} CASCADE; DROP SCHEMA {name} CASCADE")).await?;
    Ok(compare(&ours, &theirs))
}

/// Lists how the tables in the schema of the sync tables differ from ours. Empty if it holds none with these names.
pub(super) async fn differences_of_syncs(
    conn: &mut PgConnection,
    schema: &Schema,
    migration: &str,
) -> Result<Vec<String>, Error> {
    let theirs = tables_postgres(conn, schema.sync_name()).await?;
    if !sync_tables_of(migration).any(|name| theirs.contains_key(name)) {
        return Ok(Vec::new());
    }
    let probe = "tidemill_probe_of_syncs";
    let text = Schema::postgres(schema.name())?.with_sync(probe)?.render(migration);
    // The other tables are created in their own schema, and rolled back with the rest.
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

/// Lists how tables of a SQLite file differ from ours, which are created in memory.
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

/// Lists the columns of ours that their tables of the same name lack, or have with another type.
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
