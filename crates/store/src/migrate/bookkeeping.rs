//! The two tables in which `migrate` records what it did, on either database.

use super::presence::is_older;
use super::{BINARY, Migration, failed};
use crate::{Error, Schema};
use sqlx::{AssertSqlSafe, PgConnection, SqliteConnection};

/// The same text on both databases.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS {ops}.tidemill_migrations (
    version integer PRIMARY KEY, name text NOT NULL, oldest_binary text NOT NULL, applied_by text NOT NULL,
    applied_at text NOT NULL);
CREATE TABLE IF NOT EXISTS {ops}.tidemill_settings (setting text PRIMARY KEY, value text NOT NULL);";

/// Statements of `migrate` that are the same on both databases.
pub(super) trait Bookkeeping: Send + Sized {
    /// Runs a text of several statements.
    async fn script(&mut self, text: String) -> Result<(), Error>;
    /// Runs one statement with these parameters.
    async fn put(&mut self, text: String, values: &[&str]) -> Result<(), Error>;
    /// Runs a query for one value.
    async fn value(&mut self, text: String, key: &str) -> Result<Option<String>, Error>;

    async fn create_tables(&mut self, schema: &Schema) -> Result<(), Error> {
        self.script(schema.render(TABLES)).await
    }

    async fn setting(&mut self, schema: &Schema, name: &str) -> Result<Option<String>, Error> {
        self.value(schema.render("SELECT value FROM {ops}.tidemill_settings WHERE setting = $1"), name).await
    }

    async fn set(&mut self, schema: &Schema, name: &str, value: &str) -> Result<(), Error> {
        let text = schema.render(
            "INSERT INTO {ops}.tidemill_settings (setting, value) VALUES ($1, $2) \
             ON CONFLICT (setting) DO UPDATE SET value = excluded.value",
        );
        self.put(text, &[name, value]).await
    }

    async fn record_migration(
        &mut self,
        schema: &Schema,
        migration: &Migration,
        stamp: &str,
    ) -> Result<(), Error> {
        let Migration { version, name, oldest_binary, .. } = migration;
        let text = format!(
            "INSERT INTO {{ops}}.tidemill_migrations (version, name, oldest_binary, applied_by, applied_at) \
             VALUES ({version}, $1, $2, $3, $4)"
        );
        self.put(schema.render(&text), &[name, oldest_binary, BINARY, stamp]).await?;
        self.set(schema, &format!("migration_{version}"), &migration.checksum()).await
    }

    /// Compares the functions and triggers of this binary with the recorded ones.
    async fn code_change(
        &mut self,
        schema: &Schema,
        code: &str,
        is_outdated: bool,
    ) -> Result<CodeChange, Error> {
        let digest = tidemill_core::digest::sha256_hex(code.as_bytes());
        let recorded = self.setting(schema, "code").await?;
        if recorded.as_deref() == Some(digest.as_str()) {
            return Ok(CodeChange::UpToDate);
        }
        let version = self.setting(schema, "code_version").await?;
        Ok(match version {
            Some(version) if is_outdated || is_older(BINARY, &version) => CodeChange::Newer(version),
            Some(_) | None => CodeChange::Replace,
        })
    }

    /// Records the functions and triggers if they must be created. `is_outdated`: the database has a migration that
    /// this binary does not know.
    async fn record_code(
        &mut self,
        schema: &Schema,
        code: &str,
        is_outdated: bool,
    ) -> Result<CodeChange, Error> {
        let change = self.code_change(schema, code, is_outdated).await?;
        if change == CodeChange::Replace {
            let digest = tidemill_core::digest::sha256_hex(code.as_bytes());
            self.set(schema, "code", &digest).await?;
            self.set(schema, "code_version", BINARY).await?;
        }
        Ok(change)
    }
}

/// How the functions and triggers of this binary compare with those of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CodeChange {
    UpToDate,
    Replace,
    /// A newer binary, of this version, created those of the database.
    Newer(String),
}

impl CodeChange {
    /// The version of the newer binary.
    pub(super) fn newer(self) -> Option<String> {
        match self {
            Self::Newer(version) => Some(version),
            Self::UpToDate | Self::Replace => None,
        }
    }
}

macro_rules! bookkeeping {
    ($conn:ty) => {
        impl Bookkeeping for $conn {
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
bookkeeping!(PgConnection);
bookkeeping!(SqliteConnection);
