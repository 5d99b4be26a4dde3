//! The plan of a migration: the changes that `migrate` would make, and the locks that it would take.

use super::bookkeeping::{Bookkeeping as _, CodeChange};
use super::locks::{self, LockMode};
use super::presence::{presence_postgres, presence_sqlite};
use super::{MIGRATIONS, Migration, code, failed, is_outdated};
use crate::store::Backend;
use crate::{Error, Schema, Store};
use sqlx::{Connection as _, PgConnection};
use std::collections::{BTreeMap, HashMap};

/// The changes that `migrate` would make.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MigrationPlan {
    /// The newest applied migration; 0 in a database without Tidemill's tables.
    pub installed: i32,
    /// The newest migration of this binary.
    pub newest: i32,
    /// The migrations to apply, as `0002_name`.
    pub migrations: Vec<String>,
    /// Whether functions and triggers would be replaced.
    pub replaces_code: bool,
    /// The newer version of Tidemill whose functions and triggers would be left unchanged.
    pub newer_code: Option<String>,
    /// Locks on existing tables of PostgreSQL. SQLite locks the whole file for writers.
    pub locks: Vec<TableLock>,
    /// Statements whose locks are not known.
    pub unknown: Vec<String>,
}

/// The strongest lock that a migration takes on a table. It is held until the end of the migration.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TableLock {
    pub table: String,
    pub mode: LockMode,
}

/// The relations of our schemas. The second name is that of the table, also for an index.
const RELATIONS: &str = "
SELECT n.nspname || '.' || c.relname, n.nspname || '.' || coalesce(t.relname, c.relname)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = i.indrelid
 WHERE n.nspname IN ($1, $2)";

impl MigrationPlan {
    /// Whether `migrate` would change nothing.
    pub fn is_empty(&self) -> bool {
        self.migrations.is_empty() && !self.replaces_code
    }

    fn new(migrations: &[Migration], installed: i32, code: CodeChange) -> Self {
        let pending = migrations.iter().filter(|migration| migration.version > installed);
        Self {
            installed,
            newest: migrations.last().map_or(0, |migration| migration.version),
            migrations: pending.map(Migration::label).collect(),
            replaces_code: code == CodeChange::Replace,
            newer_code: code.newer(),
            locks: Vec::new(),
            unknown: Vec::new(),
        }
    }
}

impl Store {
    /// Describes what [`Store::migrate`] would do. Changes nothing, and takes no lock that others wait for.
    pub async fn plan_migration(&self) -> Result<MigrationPlan, Error> {
        self.plan_migration_with(MIGRATIONS).await
    }

    /// Plans other migrations than those of this binary. For tests of the mechanism.
    #[doc(hidden)]
    pub async fn plan_migration_with(
        &self,
        migrations: &'static [Migration],
    ) -> Result<MigrationPlan, Error> {
        match &self.backend {
            Backend::Postgres(postgres) => {
                let mut conn = postgres.acquire().await.map_err(failed)?;
                let mut transaction = conn.begin_with("BEGIN READ ONLY").await.map_err(failed)?;
                let plan = plan_postgres(&mut transaction, &self.context.schema, migrations).await;
                if transaction.rollback().await.is_ok() {
                    conn.cache();
                }
                plan
            }
            Backend::Sqlite(sqlite) => {
                let schema = &self.context.schema;
                let mut conn = sqlite.readers().acquire().await.map_err(failed)?;
                let presence = presence_sqlite(&mut conn, schema, migrations).await?;
                let installed = presence.installed("this file")?.version();
                if installed == 0 {
                    return Ok(MigrationPlan::new(migrations, 0, CodeChange::Replace));
                }
                let outdated = is_outdated(migrations, installed);
                let change = conn.code_change(schema, &code::sqlite(schema), outdated).await?;
                Ok(MigrationPlan::new(migrations, installed, change))
            }
        }
    }
}

async fn plan_postgres(
    conn: &mut PgConnection,
    schema: &Schema,
    migrations: &[Migration],
) -> Result<MigrationPlan, Error> {
    let presence = presence_postgres(conn, schema, migrations).await?;
    let installed = presence.installed(schema.name())?.version();
    if installed == 0 {
        return Ok(MigrationPlan::new(migrations, 0, CodeChange::Replace));
    }
    let code = code::postgres(schema);
    let change = conn.code_change(schema, &code, is_outdated(migrations, installed)).await?;
    let mut plan = MigrationPlan::new(migrations, installed, change);
    let pending = migrations.iter().filter(|migration| migration.version > installed);
    let mut texts: Vec<String> = pending.map(|migration| schema.render(migration.postgres)).collect();
    if plan.replaces_code {
        texts.push(code);
    }
    let relations: Vec<(String, String)> = sqlx::query_as(RELATIONS)
        .bind(schema.name())
        .bind(schema.sync_name())
        .persistent(false)
        .fetch_all(conn)
        .await
        .map_err(failed)?;
    let tables: HashMap<String, String> = relations.into_iter().collect();
    let mut strongest: BTreeMap<&str, LockMode> = BTreeMap::new();
    for text in &texts {
        let taken = locks::of(text);
        plan.unknown.extend(taken.unknown);
        for (name, mode) in taken.tables {
            // A table that does not exist yet is created by the migration, so no other session waits for it.
            let Some(table) = tables.get(&name) else { continue };
            let known = strongest.entry(table).or_insert(mode);
            *known = mode.max(*known);
        }
    }
    let lock = |(table, mode): (&str, LockMode)| TableLock { table: table.to_owned(), mode };
    plan.locks = strongest.into_iter().map(lock).collect();
    Ok(plan)
}
