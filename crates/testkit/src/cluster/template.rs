//! A migrated template for test databases: copying it takes half as long as migrating, and a test run creates a
//! thousand databases.

use std::thread;

use anyhow::{Result, anyhow};
use tidemill_core::Timestamp;
use tidemill_engine::clock::host_now;
use tidemill_store::{Options, Store};

use super::SERVER_URL_VARIABLE;
use super::database::Database;

/// Environment variable with the name of the template on the test server.
pub const TEMPLATE_VARIABLE: &str = "TIDEMILL_TEST_TEMPLATE";

/// A migrated database without connections. Dropping the value drops the database.
#[derive(Debug)]
pub struct Template(Database);

impl Template {
    /// Creates a template on a server.
    pub fn create(server_url: &str, now: Timestamp) -> Result<Self> {
        let database = Database::create(server_url)?;
        let options = Options::new(&database.url, host_now);
        let work = thread::spawn(move || -> Result<()> {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
                let store = Store::open(&options).await?;
                store.migrate(Some(now)).await?;
                store.close().await;
                Ok(())
            })
        });
        work.join().map_err(|_| anyhow!("the thread that migrates the template panicked"))??;
        Ok(Self(database))
    }

    /// Returns the database name, for [`TEMPLATE_VARIABLE`].
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// Returns the template, if it is on this server.
pub(super) fn on_server(server_url: &str) -> Option<String> {
    let is_it = std::env::var(SERVER_URL_VARIABLE).is_ok_and(|url| url == server_url);
    std::env::var(TEMPLATE_VARIABLE).ok().filter(|_| is_it)
}
