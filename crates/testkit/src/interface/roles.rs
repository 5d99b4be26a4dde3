//! Roles of PostgreSQL for one test, and logins that are members of them. Roles are global to the server.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a role that cannot be made must end the test"
)]

use std::thread;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tidemill_store::{Roles, Store};
use uuid::Uuid;

use crate::cluster::with_database;

/// The roles and logins of one test. Dropping the value drops them; drop the database with their objects first.
#[derive(Debug)]
pub struct TestRoles {
    prefix: String,
    created: Vec<String>,
    maintenance_url: String,
}

impl TestRoles {
    /// Prepares names that no other test uses.
    pub fn new(server: &str) -> Self {
        let maintenance_url = with_database(server, "postgres").expect("the address is one");
        Self { prefix: format!("tm_{}", Uuid::new_v4().simple()), created: Vec::new(), maintenance_url }
    }

    /// Creates the roles of the product.
    pub async fn create_roles(&mut self, owner: &Store) -> Roles {
        let made = owner.create_roles(&self.prefix).await.expect("the roles are made");
        // All tests share the clock role, so it is not dropped with this test.
        self.created.extend([made.owner.clone(), made.worker.clone(), made.reader.clone()]);
        made
    }

    /// Creates a login that is a member of these roles, and returns the options to connect with it to this database.
    pub fn login(&mut self, name: &str, roles: &[&str], database: &PgConnectOptions) -> PgConnectOptions {
        let (login, password) = (format!("{}_{name}", self.prefix), Uuid::new_v4().to_string());
        let member_of =
            if roles.is_empty() { String::new() } else { format!(" IN ROLE {}", roles.join(", ")) };
        self.execute(format!("CREATE ROLE {login} LOGIN PASSWORD '{password}'{member_of}"))
            .expect("the login is made");
        self.created.insert(0, login.clone());
        database.clone().username(&login).password(&password)
    }

    /// Runs one statement as the superuser of the server, in a thread of its own so that `drop` can wait for it.
    pub fn execute(&self, statement: String) -> anyhow::Result<()> {
        let options: PgConnectOptions = self.maintenance_url.parse()?;
        let work = thread::spawn(move || -> anyhow::Result<()> {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
                let mut connection = options.connect().await?;
                sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
                Ok(connection.close().await?)
            })
        });
        work.join().map_err(|_| anyhow::anyhow!("the thread that talks to PostgreSQL panicked"))?
    }
}

impl Drop for TestRoles {
    fn drop(&mut self) {
        // The database with their objects is already dropped; a throwaway server is removed with its roles.
        if !self.created.is_empty() {
            let _ = self.execute(format!("DROP ROLE IF EXISTS {}", self.created.join(", ")));
        }
    }
}
