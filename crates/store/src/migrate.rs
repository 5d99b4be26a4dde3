//! Migrations: embedded, forward only, with the same numbers and names on both databases.
//!
//! Tables change by numbered migrations. Functions and triggers are code: they are made anew, in the same
//! transaction, whenever their text has changed, so that exactly one overload of each exists. Every migration says
//! which binary can still live with it, so that two releases can share a database during an upgrade.

mod foreign;
pub(crate) mod functions;
#[cfg(test)]
mod renewal;

use crate::store::Backend;
use crate::{Error, Schema, Store};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tidemill_core::Timestamp;

/// One numbered change of the tables.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Its number.
    pub version: i32,
    /// Its name.
    pub name: &'static str,
    /// The oldest binary that can live with the schema after it.
    pub oldest_binary: &'static str,
    postgres: &'static str,
    sqlite: &'static str,
}

/// The migration that makes the tables of syncs, which may be in a schema of their own.
const SYNC_VERSION: i32 = 3;

/// Every migration, in order.
const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "kernel",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0001_kernel.sql"),
        sqlite: include_str!("../migrations/sqlite/0001_kernel.sql"),
    },
    Migration {
        version: 2,
        name: "queue",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0002_queue.sql"),
        sqlite: include_str!("../migrations/sqlite/0002_queue.sql"),
    },
    Migration {
        version: SYNC_VERSION,
        name: "sync",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0003_sync.sql"),
        sqlite: include_str!("../migrations/sqlite/0003_sync.sql"),
    },
    Migration {
        version: 4,
        name: "access",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0004_access.sql"),
        sqlite: include_str!("../migrations/sqlite/0004_access.sql"),
    },
    Migration {
        version: 5,
        name: "lists",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0005_lists.sql"),
        sqlite: include_str!("../migrations/sqlite/0005_lists.sql"),
    },
    Migration {
        version: 6,
        name: "alerts",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0006_alerts.sql"),
        sqlite: include_str!("../migrations/sqlite/0006_alerts.sql"),
    },
    Migration {
        version: 7,
        name: "live",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0007_live.sql"),
        sqlite: include_str!("../migrations/sqlite/0007_live.sql"),
    },
    Migration {
        version: 8,
        name: "checks",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0008_checks.sql"),
        sqlite: include_str!("../migrations/sqlite/0008_checks.sql"),
    },
    Migration {
        version: 9,
        name: "graph",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0009_graph.sql"),
        sqlite: include_str!("../migrations/sqlite/0009_graph.sql"),
    },
    Migration {
        version: 10,
        name: "steps",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0010_steps.sql"),
        sqlite: include_str!("../migrations/sqlite/0010_steps.sql"),
    },
    Migration {
        version: 11,
        name: "homes",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0011_homes.sql"),
        sqlite: include_str!("../migrations/sqlite/0011_homes.sql"),
    },
    Migration {
        version: 12,
        name: "drain",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0012_drain.sql"),
        sqlite: include_str!("../migrations/sqlite/0012_drain.sql"),
    },
    Migration {
        version: 13,
        name: "names",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0013_names.sql"),
        sqlite: include_str!("../migrations/sqlite/0013_names.sql"),
    },
    Migration {
        version: 14,
        name: "marks",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0014_marks.sql"),
        sqlite: include_str!("../migrations/sqlite/0014_marks.sql"),
    },
    Migration {
        version: 15,
        name: "isolation",
        oldest_binary: "0.1.0",
        postgres: include_str!("../migrations/postgres/0015_isolation.sql"),
        sqlite: include_str!("../migrations/sqlite/0015_isolation.sql"),
    },
];

/// The functions and triggers of PostgreSQL, in the order in which they need each other.
const POSTGRES_CODE: &[&str] = &[
    include_str!("../sql/functions/00_new_run_id.sql"),
    include_str!("../sql/functions/00_readable.sql"),
    include_str!("../sql/functions/01_run_guards.sql"),
    include_str!("../sql/functions/02_run_by_hand.sql"),
    include_str!("../sql/functions/03_concurrency_keys.sql"),
    include_str!("../sql/functions/04_run_events.sql"),
    include_str!("../sql/functions/05_refusals.sql"),
    include_str!("../sql/functions/06_run_ends.sql"),
    include_str!("../sql/functions/07_run_marks.sql"),
    include_str!("../sql/functions/08_readable_tables.sql"),
    include_str!("../sql/functions/10_queue_run.sql"),
    include_str!("../sql/functions/11_claim_next_run.sql"),
    include_str!("../sql/functions/12_append_event.sql"),
    include_str!("../sql/functions/13_heartbeat.sql"),
    include_str!("../sql/functions/14_finish_run.sql"),
    include_str!("../sql/functions/15_cancel_run.sql"),
    include_str!("../sql/functions/16_sweep.sql"),
    include_str!("../sql/functions/17_work_left.sql"),
    include_str!("../sql/functions/18_fail_run.sql"),
    include_str!("../sql/functions/20_receive_messages.sql"),
    include_str!("../sql/functions/21_release_messages.sql"),
    include_str!("../sql/functions/22_sync_guards.sql"),
    include_str!("../sql/functions/23_store_page.sql"),
    include_str!("../sql/functions/24_audit_guard.sql"),
    include_str!("../sql/functions/26_job_guards.sql"),
];

/// The triggers of SQLite.
const SQLITE_CODE: &[&str] =
    &[include_str!("../sql/sqlite_triggers.sql"), include_str!("../sql/sqlite_job_triggers.sql")];

/// The two tables that migrations themselves need. The same text on both databases.
const BOOKS: &str = "
CREATE TABLE IF NOT EXISTS {ops}.tidemill_migrations (
    version integer PRIMARY KEY, name text NOT NULL, oldest_binary text NOT NULL, applied_by text NOT NULL,
    applied_at text NOT NULL);
CREATE TABLE IF NOT EXISTS {ops}.tidemill_settings (setting text PRIMARY KEY, value text NOT NULL);";

/// This binary's version.
const BINARY: &str = env!("CARGO_PKG_VERSION");

/// What is in the place where our tables would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// Nothing.
    Absent,
    /// Tables of our names that are not ours, and how they differ.
    Foreign(Vec<String>),
    /// Our tables.
    Ours {
        /// The last migration.
        version: i32,
        /// The oldest binary that can live with them.
        oldest_binary: String,
    },
}

/// What `migrate` did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Migrated {
    /// The migrations that were applied, as `0001_kernel`.
    pub applied: Vec<String>,
    /// Whether functions and triggers were made anew.
    pub code_renewed: bool,
}

impl Store {
    /// Brings the schema up to date. Migrators that run at the same time wait for each other.
    pub async fn migrate(&self, now: Option<Timestamp>) -> Result<Migrated, Error> {
        let stamp = now.unwrap_or_else(self.context.clock).to_rfc3339();
        match &self.backend {
            Backend::Postgres(postgres) => {
                let mut conn = postgres.acquire().await.map_err(failed)?;
                let mut transaction = conn.begin().await.map_err(failed)?;
                let migrated = migrate_postgres(&mut transaction, &self.context.schema, &stamp).await?;
                transaction.commit().await.map_err(failed)?;
                Ok(migrated)
            }
            Backend::Sqlite(sqlite) => {
                let schema = self.context.schema.clone();
                sqlite
                    .write(move |conn| Box::pin(async move { migrate_sqlite(conn, &schema, &stamp).await }))
                    .await
            }
        }
    }

    /// What is in the place where our tables would be.
    pub async fn presence(&self) -> Result<Presence, Error> {
        match &self.backend {
            Backend::Postgres(postgres) => {
                let mut conn = postgres.acquire().await.map_err(failed)?;
                let mut transaction = conn.begin().await.map_err(failed)?;
                let presence = presence_postgres(&mut transaction, &self.context.schema).await;
                if transaction.rollback().await.is_ok() {
                    conn.cache();
                }
                presence
            }
            Backend::Sqlite(sqlite) => {
                let mut conn = sqlite.readers().acquire().await.map_err(failed)?;
                presence_sqlite(&mut conn, &self.context.schema).await
            }
        }
    }

    /// Refuses a schema that this binary cannot work with, saying what to do.
    pub async fn check_schema(&self) -> Result<(), Error> {
        let needed = MIGRATIONS.last().map_or(0, |migration| migration.version);
        match self.presence().await? {
            Presence::Absent => Err(Error::Schema {
                what: format!("there are no Tidemill tables in {}", self.location()),
                hint: "tidemill migrate".to_owned(),
            }),
            Presence::Foreign(differences) => {
                Err(Error::Foreign { schema: self.place_of_tables(), differences })
            }
            Presence::Ours { oldest_binary, .. } if is_older(BINARY, &oldest_binary) => Err(Error::Schema {
                what: format!("the schema needs Tidemill {oldest_binary} or newer, and this is {BINARY}"),
                hint: format!("install Tidemill {oldest_binary} or newer"),
            }),
            Presence::Ours { version, .. } if version < needed => Err(Error::Schema {
                what: format!("the schema is at migration {version}, and this binary needs {needed}"),
                hint: "tidemill migrate".to_owned(),
            }),
            Presence::Ours { .. } => Ok(()),
        }
    }

    fn place_of_tables(&self) -> String {
        if self.is_postgres() { self.schema().to_owned() } else { self.location() }
    }
}

fn failed(source: sqlx::Error) -> Error {
    Error::database("migrate", source)
}

async fn migrate_postgres(conn: &mut PgConnection, schema: &Schema, stamp: &str) -> Result<Migrated, Error> {
    // Released at the end of the transaction, so that it works behind a pooler too.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtext('tidemill migrate ' || $1))")
        .bind(schema.name())
        .persistent(false)
        .execute(&mut *conn)
        .await
        .map_err(failed)?;
    let presence = presence_postgres(conn, schema).await?;
    let version = current(presence, schema.name())?;
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)")
        .bind(schema.name())
        .persistent(false)
        .fetch_one(&mut *conn)
        .await
        .map_err(failed)?;
    if !exists {
        conn.script(format!("CREATE SCHEMA {}", schema.name())).await?;
    }
    conn.script(schema.render(BOOKS)).await?;
    let mut applied = Vec::new();
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > version) {
        if migration.version == SYNC_VERSION {
            make_room_for_syncs(conn, schema, migration).await?;
        }
        conn.script(schema.render(migration.postgres)).await?;
        note(conn, schema, migration, stamp).await?;
        applied.push(migration.label());
    }
    let code = POSTGRES_CODE.iter().map(|text| schema.render(text)).collect::<Vec<_>>().join("\n");
    let code_renewed = code_is_new(conn, schema, &code).await?;
    if code_renewed {
        // In a database that has no tables of ours, no function is ours.
        let before = if version == 0 { Vec::new() } else { functions::ours(conn, schema).await? };
        functions::renew(conn, schema, POSTGRES_CODE, code, before).await?;
    }
    if code_renewed || !applied.is_empty() {
        crate::roles::grant_again(conn, schema).await?;
    }
    Ok(Migrated { applied, code_renewed })
}

/// Makes the schema of the tables of syncs, and refuses one that holds tables of these names.
async fn make_room_for_syncs(
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
    stamp: &str,
) -> Result<Migrated, Error> {
    let presence = presence_sqlite(conn, schema).await?;
    let version = current(presence, "this file")?;
    conn.script(schema.render(BOOKS)).await?;
    let mut applied = Vec::new();
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > version) {
        conn.script(schema.render(migration.sqlite)).await?;
        note(conn, schema, migration, stamp).await?;
        applied.push(migration.label());
    }
    let code = SQLITE_CODE.iter().map(|text| schema.render(text)).collect::<Vec<_>>().join("\n");
    let code_renewed = code_is_new(conn, schema, &code).await?;
    // A table that was made anew has lost its triggers.
    if code_renewed || !applied.is_empty() {
        conn.script(code).await?;
    }
    Ok(Migrated { applied, code_renewed })
}

impl Migration {
    fn label(&self) -> String {
        format!("{:04}_{}", self.version, self.name)
    }
}

/// The version to go on from, or why we may not.
fn current(presence: Presence, place: &str) -> Result<i32, Error> {
    match presence {
        Presence::Absent => Ok(0),
        Presence::Foreign(differences) => Err(Error::Foreign { schema: place.to_owned(), differences }),
        Presence::Ours { oldest_binary, .. } if is_older(BINARY, &oldest_binary) => Err(Error::Schema {
            what: format!("the schema needs Tidemill {oldest_binary} or newer, and this is {BINARY}"),
            hint: format!("install Tidemill {oldest_binary} or newer"),
        }),
        Presence::Ours { version, .. } => Ok(version),
    }
}

/// The few statements that keep the books, on either database.
trait Books: Send {
    /// Runs a text of several statements.
    async fn script(&mut self, text: String) -> Result<(), Error>;
    /// Writes the values.
    async fn put(&mut self, text: String, values: &[&str]) -> Result<(), Error>;
    /// Reads the one value of a key.
    async fn value(&mut self, text: String, key: &str) -> Result<Option<String>, Error>;
}

macro_rules! books {
    ($conn:ty) => {
        impl Books for $conn {
            async fn script(&mut self, text: String) -> Result<(), Error> {
                sqlx::raw_sql(AssertSqlSafe(text)).execute(self).await.map_err(failed)?;
                Ok(())
            }
            async fn put(&mut self, text: String, values: &[&str]) -> Result<(), Error> {
                let mut query = sqlx::query(AssertSqlSafe(text)).persistent(false);
                for value in values {
                    query = query.bind(*value);
                }
                query.execute(self).await.map_err(failed)?;
                Ok(())
            }
            async fn value(&mut self, text: String, key: &str) -> Result<Option<String>, Error> {
                sqlx::query_scalar(AssertSqlSafe(text))
                    .bind(key)
                    .persistent(false)
                    .fetch_optional(self)
                    .await
                    .map_err(failed)
            }
        }
    };
}
books!(PgConnection);
books!(SqliteConnection);

/// Notes that a migration was applied.
async fn note<C: Books>(
    conn: &mut C,
    schema: &Schema,
    migration: &Migration,
    stamp: &str,
) -> Result<(), Error> {
    let text = format!(
        "INSERT INTO {{ops}}.tidemill_migrations (version, name, oldest_binary, applied_by, applied_at) \
         VALUES ({}, $1, $2, $3, $4)",
        migration.version
    );
    conn.put(schema.render(&text), &[migration.name, migration.oldest_binary, BINARY, stamp]).await
}

/// Whether functions and triggers are to be made anew: they differ, and no newer binary has made them. Notes it.
async fn code_is_new<C: Books>(conn: &mut C, schema: &Schema, code: &str) -> Result<bool, Error> {
    let digest = tidemill_core::digest::sha256_hex(code.as_bytes());
    let read = schema.render("SELECT value FROM {ops}.tidemill_settings WHERE setting = $1");
    if conn.value(read.clone(), "code").await?.as_deref() == Some(digest.as_str()) {
        return Ok(false);
    }
    if conn.value(read, "code_version").await?.is_some_and(|version| is_older(BINARY, &version)) {
        return Ok(false);
    }
    let text = schema.render(
        "INSERT INTO {ops}.tidemill_settings (setting, value) VALUES ($1, $2) \
         ON CONFLICT (setting) DO UPDATE SET value = excluded.value",
    );
    conn.put(text.clone(), &["code", &digest]).await?;
    conn.put(text, &["code_version", BINARY]).await?;
    Ok(true)
}

/// The tables of syncs, which may be in a schema that holds other tables too.
pub(crate) fn sync_tables() -> impl Iterator<Item = &'static str> {
    let lines = MIGRATIONS.iter().flat_map(|migration| migration.postgres.lines());
    lines.filter_map(|line| Some(line.strip_prefix("CREATE TABLE {sync}.")?.split_once(' ')?.0))
}

/// Refuses a database with another encoding: it can hold text that Rust cannot read.
fn check_encoding(encoding: &str) -> Result<(), Error> {
    if encoding == "UTF8" {
        return Ok(());
    }
    Err(Error::Schema {
        what: format!("the database has the encoding {encoding}, and Tidemill needs UTF8"),
        hint: "createdb --encoding UTF8 --template template0 NAME".to_owned(),
    })
}

async fn presence_postgres(conn: &mut PgConnection, schema: &Schema) -> Result<Presence, Error> {
    let (encoding, known): (String, bool) = sqlx::query_as(
        "SELECT current_setting('server_encoding'), EXISTS (SELECT FROM information_schema.tables \
         WHERE table_schema = $1 AND table_name = 'tidemill_migrations')",
    )
    .bind(schema.name())
    .persistent(false)
    .fetch_one(&mut *conn)
    .await
    .map_err(failed)?;
    check_encoding(&encoding)?;
    if !known {
        let differences = foreign::differences_postgres(conn, schema, MIGRATIONS[0].postgres).await?;
        return Ok(if differences.is_empty() { Presence::Absent } else { Presence::Foreign(differences) });
    }
    let rows: Vec<(i32, String)> = sqlx::query_as(AssertSqlSafe(
        schema.render("SELECT version, oldest_binary FROM {ops}.tidemill_migrations"),
    ))
    .persistent(false)
    .fetch_all(&mut *conn)
    .await
    .map_err(failed)?;
    Ok(ours(rows))
}

async fn presence_sqlite(conn: &mut SqliteConnection, schema: &Schema) -> Result<Presence, Error> {
    let known: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_master WHERE name = 'tidemill_migrations'")
            .fetch_one(&mut *conn)
            .await
            .map_err(failed)?;
    if known == 0 {
        let ours = schema.render(MIGRATIONS[0].sqlite);
        let differences = foreign::differences_sqlite(conn, ours).await?;
        return Ok(if differences.is_empty() { Presence::Absent } else { Presence::Foreign(differences) });
    }
    let rows: Vec<(i32, String)> = sqlx::query_as("SELECT version, oldest_binary FROM tidemill_migrations")
        .fetch_all(&mut *conn)
        .await
        .map_err(failed)?;
    Ok(ours(rows))
}

fn ours(rows: Vec<(i32, String)>) -> Presence {
    let mut newest = (0, "0.0.0".to_owned());
    for (version, oldest) in rows {
        newest.0 = newest.0.max(version);
        if is_older(&newest.1, &oldest) {
            newest.1 = oldest;
        }
    }
    Presence::Ours { version: newest.0, oldest_binary: newest.1 }
}

/// Whether version `a` is older than version `b`, number by number.
fn is_older(a: &str, b: &str) -> bool {
    let numbers =
        |text: &str| text.split('.').map(|part| part.parse::<u64>().unwrap_or(0)).collect::<Vec<_>>();
    numbers(a) < numbers(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(is_older("0.1.0", "0.10.0") && !is_older("1.0.0", "0.9.9") && !is_older("0.1.0", "0.1.0"));
    }

    #[test]
    fn the_tables_of_syncs_are_found() {
        let tables: Vec<&str> = sync_tables().collect();
        assert!(
            ["diamonds", "run_metadata", "pricing_rules"].iter().all(|name| tables.contains(name)),
            "{tables:?}"
        );
    }

    /// The second of two functions of one name would take the place of the first, in silence.
    #[test]
    fn no_two_functions_have_one_name() {
        let names = POSTGRES_CODE.iter().flat_map(|code| code.split("FUNCTION {ops}.").skip(1));
        let made = names.filter_map(|rest| rest.split_once('(')).filter(|(_, rest)| !rest.starts_with(");"));
        let mut seen = std::collections::HashSet::new();
        for (name, _) in made {
            assert!(seen.insert(name), "{name} is made twice");
        }
    }
}
