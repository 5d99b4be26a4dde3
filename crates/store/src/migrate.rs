//! Migrations: embedded and forward only, with the same numbers and names on both databases.
//!
//! Tables change by numbered migrations. Functions and triggers are code ([`code`]): `migrate` replaces all of them in
//! the same transaction whenever their text has changed. A binary leaves the functions of a newer one unchanged. Every
//! migration names the oldest binary that can work with it, so that two releases can share a database during an
//! upgrade.

mod bookkeeping;
mod code;
mod foreign;
pub(crate) mod functions;
mod locks;
mod plan;
mod presence;

#[cfg(test)]
pub(crate) use code::POSTGRES_CODE;
pub use locks::LockMode;
pub use plan::{MigrationPlan, TableLock};
pub use presence::Presence;

use crate::store::Backend;
use crate::{Error, Schema, Store};
use bookkeeping::{Bookkeeping as _, CodeChange};
use presence::{Installed, presence_postgres, presence_sqlite};
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use tidemill_core::Timestamp;

/// One numbered change of the tables.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub version: i32,
    pub name: &'static str,
    /// The oldest binary that can work with the schema after it.
    pub oldest_binary: &'static str,
    pub postgres: &'static str,
    pub sqlite: &'static str,
}

/// Every migration, in order. Once a release contains a migration, its SQL does not change any more.
const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "schema",
    oldest_binary: "0.1.0",
    postgres: include_str!("../migrations/postgres/0001_schema.sql"),
    sqlite: include_str!("../migrations/sqlite/0001_schema.sql"),
}];

/// This binary's version.
const BINARY: &str = env!("CARGO_PKG_VERSION");

/// The migrations and functions that `migrate` has applied.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MigrationReport {
    /// The migrations that were applied, as `0001_schema`.
    pub applied: Vec<String>,
    /// Whether functions and triggers were replaced.
    pub code_replaced: bool,
    /// The newer version of Tidemill whose functions and triggers were left unchanged.
    pub newer_code: Option<String>,
}

impl Migration {
    fn label(&self) -> String {
        format!("{:04}_{}", self.version, self.name)
    }

    /// SHA-256 of the SQL of both databases, without comments and line breaks.
    fn checksum(&self) -> String {
        let lines = self.postgres.lines().chain(self.sqlite.lines()).map(str::trim);
        let code: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("--")).collect();
        tidemill_core::digest::sha256_hex(code.join(" ").as_bytes())
    }

    fn creates_sync_tables(&self) -> bool {
        sync_tables_of(self.postgres).next().is_some()
    }
}

impl Store {
    /// The migrations of this binary.
    #[doc(hidden)]
    pub fn migrations() -> &'static [Migration] {
        MIGRATIONS
    }

    /// Brings the schema up to date. Concurrent migrators wait for each other.
    pub async fn migrate(&self, now: Option<Timestamp>) -> Result<MigrationReport, Error> {
        self.migrate_with(MIGRATIONS, now).await
    }

    /// Applies other migrations than those of this binary. For tests of the mechanism.
    #[doc(hidden)]
    pub async fn migrate_with(
        &self,
        migrations: &'static [Migration],
        now: Option<Timestamp>,
    ) -> Result<MigrationReport, Error> {
        let stamp = now.unwrap_or_else(self.context.clock).to_rfc3339();
        match &self.backend {
            Backend::Postgres(postgres) => {
                let mut conn = postgres.acquire().await.map_err(failed)?;
                let mut transaction = conn.begin().await.map_err(failed)?;
                let migrated =
                    migrate_postgres(&mut transaction, &self.context.schema, migrations, &stamp).await?;
                transaction.commit().await.map_err(failed)?;
                Ok(migrated)
            }
            Backend::Sqlite(sqlite) => {
                let schema = self.context.schema.clone();
                sqlite
                    .write(move |conn| {
                        Box::pin(async move { migrate_sqlite(conn, &schema, migrations, &stamp).await })
                    })
                    .await
            }
        }
    }

    /// Reads which tables the database holds under the names of ours.
    pub async fn presence(&self) -> Result<Presence, Error> {
        match &self.backend {
            Backend::Postgres(postgres) => {
                let mut conn = postgres.acquire().await.map_err(failed)?;
                let mut transaction = conn.begin().await.map_err(failed)?;
                let presence = presence_postgres(&mut transaction, &self.context.schema, MIGRATIONS).await;
                if transaction.rollback().await.is_ok() {
                    conn.cache();
                }
                presence
            }
            Backend::Sqlite(sqlite) => {
                let mut conn = sqlite.readers().acquire().await.map_err(failed)?;
                presence_sqlite(&mut conn, &self.context.schema, MIGRATIONS).await
            }
        }
    }

    /// Refuses a schema that this binary cannot work with, with a hint.
    pub async fn check_schema(&self) -> Result<(), Error> {
        let needed = MIGRATIONS.last().map_or(0, |migration| migration.version);
        let place = if self.is_postgres() { self.schema().to_owned() } else { self.location() };
        match self.presence().await?.installed(&place)? {
            Installed::Nothing => Err(Error::Schema {
                what: format!("there are no Tidemill tables in {}", self.location()),
                hint: "tidemill migrate".to_owned(),
            }),
            Installed::Version(version) if version < needed => Err(Error::Schema {
                what: format!("the schema is at migration {version}, and this binary needs {needed}"),
                hint: "tidemill migrate".to_owned(),
            }),
            Installed::Version(_) => Ok(()),
        }
    }
}

fn failed(source: sqlx::Error) -> Error {
    Error::database("migrate", source)
}

async fn migrate_postgres(
    conn: &mut PgConnection,
    schema: &Schema,
    migrations: &[Migration],
    stamp: &str,
) -> Result<MigrationReport, Error> {
    // The lock ends with the transaction, so that it works behind a pooler too.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtext('tidemill migrate ' || $1))")
        .bind(schema.name())
        .persistent(false)
        .execute(&mut *conn)
        .await
        .map_err(failed)?;
    let presence = presence_postgres(conn, schema, migrations).await?;
    let version = presence.installed(schema.name())?.version();
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)")
        .bind(schema.name())
        .persistent(false)
        .fetch_one(&mut *conn)
        .await
        .map_err(failed)?;
    if !exists {
        conn.script(format!("CREATE SCHEMA {}", schema.name())).await?;
    }
    conn.create_tables(schema).await?;
    let mut applied = Vec::new();
    for migration in migrations.iter().filter(|migration| migration.version > version) {
        if migration.creates_sync_tables() {
            prepare_sync_schema(conn, schema, migration).await?;
        }
        conn.script(schema.render(migration.postgres)).await?;
        conn.record_migration(schema, migration, stamp).await?;
        applied.push(migration.label());
    }
    let code = code::postgres(schema);
    let change = conn.record_code(schema, &code, is_outdated(migrations, version)).await?;
    let code_replaced = change == CodeChange::Replace;
    if code_replaced {
        // In a database without our tables, no function is ours.
        let before = if version == 0 { Vec::new() } else { functions::ours(conn, schema).await? };
        functions::renew(conn, schema, code::POSTGRES_CODE, code, before).await?;
    }
    if code_replaced || !applied.is_empty() {
        crate::roles::grant_again(conn, schema).await?;
    }
    Ok(MigrationReport { applied, code_replaced, newer_code: change.newer() })
}

/// Whether the database has a migration that this binary does not know. Then a newer binary has migrated it.
fn is_outdated(migrations: &[Migration], installed: i32) -> bool {
    migrations.last().is_some_and(|newest| newest.version < installed)
}

/// Creates the schema of the sync tables, and refuses one that already holds tables with their names.
async fn prepare_sync_schema(
    conn: &mut PgConnection,
    schema: &Schema,
    migration: &Migration,
) -> Result<(), Error> {
    conn.script(format!("CREATE SCHEMA IF NOT EXISTS {}", schema.sync_name())).await?;
    let differences = foreign::differences_of_syncs(conn, schema, migration.postgres).await?;
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::Foreign { schema: schema.sync_name().to_owned(), differences })
}

async fn migrate_sqlite(
    conn: &mut SqliteConnection,
    schema: &Schema,
    migrations: &[Migration],
    stamp: &str,
) -> Result<MigrationReport, Error> {
    let presence = presence_sqlite(conn, schema, migrations).await?;
    let version = presence.installed("this file")?.version();
    conn.create_tables(schema).await?;
    let mut applied = Vec::new();
    for migration in migrations.iter().filter(|migration| migration.version > version) {
        conn.script(schema.render(migration.sqlite)).await?;
        conn.record_migration(schema, migration, stamp).await?;
        applied.push(migration.label());
    }
    let code = code::sqlite(schema);
    let change = conn.record_code(schema, &code, is_outdated(migrations, version)).await?;
    let code_replaced = change == CodeChange::Replace;
    // A migration that creates a table again has dropped its triggers.
    if code_replaced || (!applied.is_empty() && change == CodeChange::UpToDate) {
        conn.script(code).await?;
    }
    Ok(MigrationReport { applied, code_replaced, newer_code: change.newer() })
}

/// The sync tables, which may be in a schema that holds other tables too.
pub(crate) fn sync_tables() -> impl Iterator<Item = &'static str> {
    MIGRATIONS.iter().flat_map(|migration| sync_tables_of(migration.postgres))
}

/// The tables and views of a SQLite file.
pub(crate) fn sqlite_tables() -> impl Iterator<Item = &'static str> {
    let tables = MIGRATIONS.iter().map(|migration| migration.sqlite);
    let lines = tables.chain(code::sqlite_templates()).flat_map(str::lines);
    lines.filter_map(|line| {
        let name = line.strip_prefix("CREATE TABLE ").or_else(|| line.strip_prefix("CREATE VIEW "))?;
        name.split([' ', '(']).next()
    })
}

fn sync_tables_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| Some(line.strip_prefix("CREATE TABLE {sync}.")?.split_once(' ')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_tables_are_found_in_the_migrations() {
        let tables: Vec<&str> = sync_tables().collect();
        assert!(
            ["diamonds", "run_metadata", "pricing_rules"].iter().all(|name| tables.contains(name)),
            "{tables:?}"
        );
    }

    #[test]
    fn checksum_ignores_comments_and_indentation() {
        let migration = |postgres| Migration { postgres, ..MIGRATIONS[0] }.checksum();
        assert_eq!(
            migration("CREATE TABLE a (\n  b int)"),
            migration("-- Why.\nCREATE TABLE a (\n    b int)\n")
        );
        assert_ne!(migration("CREATE TABLE a (b int)"), migration("CREATE TABLE a (c int)"));
    }
}
