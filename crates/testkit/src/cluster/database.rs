//! A separate database for each test.

use std::thread;

use anyhow::{Context as _, Result, anyhow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, postgres::PgConnectOptions};
use uuid::Uuid;

use super::address::with_database;
use super::template;

/// A database. Dropping the value drops the database and ends its sessions.
#[derive(Debug)]
pub struct Database {
    pub url: String,
    pub name: String,
    /// URL of the database from which this one is dropped.
    maintenance_url: String,
}

impl Database {
    /// Creates an empty database on a server. The database in the URL is ignored.
    pub fn create(server_url: &str) -> Result<Self> {
        Self::make(server_url, None)
    }

    /// Creates a database to migrate: a copy of the server's template, which is nearly migrated, or an empty one
    /// without a template.
    pub fn create_for_store(server_url: &str) -> Result<Self> {
        Self::make(server_url, template::on_server(server_url))
    }

    /// Creates a copy of the database `template`, which must have no sessions.
    pub fn copy(server_url: &str, template: &str) -> Result<Self> {
        Self::make(server_url, Some(template.to_owned()))
    }

    fn make(server_url: &str, template: Option<String>) -> Result<Self> {
        let name = format!("tm_{}", Uuid::new_v4().simple());
        let maintenance_url = with_database(server_url, "postgres")?;
        let copied = template.map(|template| format!(" TEMPLATE \"{template}\"")).unwrap_or_default();
        execute(&maintenance_url, format!("CREATE DATABASE {name}{copied}"))
            .with_context(|| format!("could not create the test database {name}"))?;
        Ok(Self { url: with_database(server_url, &name)?, name, maintenance_url })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The server may be stopped on purpose; a throwaway server is removed with its databases.
        let _ = execute(&self.maintenance_url, format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// Runs one statement in a thread of its own, so that callers inside and outside a runtime can block on it.
fn execute(url: &str, statement: String) -> Result<()> {
    let options: PgConnectOptions = url.parse()?;
    let work = thread::spawn(move || -> Result<()> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let mut connection = options.connect().await?;
            connection.execute(AssertSqlSafe(statement)).await?;
            connection.close().await?;
            Ok(())
        })
    });
    work.join().map_err(|_| anyhow!("the thread that talks to PostgreSQL panicked"))?
}
