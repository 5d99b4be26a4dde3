//! Access over SQL: each role with each function, table and column, and the time that a caller may choose.
#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

#[path = "sql_access/audit.rs"]
mod audit;
#[path = "sql_access/clock.rs"]
mod clock;
#[path = "sql_access/matrix.rs"]
mod matrix;
#[path = "sql_access/scaling.rs"]
mod scaling;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use tidemill_store::Roles;
use tidemill_testkit::interface::{Fixture, Kind, PlainSql, TestRoles};

/// A database with the project `shop`, the roles of the product, and a way to make logins.
struct Access {
    fixture: Fixture,
    /// Dropped after the database, which holds objects of these roles.
    roles: TestRoles,
    names: Roles,
    superuser: PgConnectOptions,
}

impl Access {
    async fn open() -> Self {
        let fixture = Fixture::open_bare(Kind::Postgres).await;
        fixture.store.create_project("shop", vec!["staging".to_owned()], None).await.unwrap();
        let mut roles = TestRoles::new(&fixture.url);
        let names = roles.create_roles(&fixture.store).await;
        let PlainSql::Postgres(pool) = &fixture.plain else { panic!("these tests are about PostgreSQL") };
        let superuser = pool.connect_options().as_ref().clone();
        Self { fixture, roles, names, superuser }
    }

    /// Connects as the superuser that created the database.
    async fn superuser(&self) -> Session {
        Session::connect(&self.superuser).await
    }

    /// Connects as a new login that is a member of these roles.
    async fn login(&mut self, name: &str, roles: &[&str]) -> Session {
        let login = self.roles.login(name, roles, &self.superuser);
        Session::connect(&login).await
    }

    async fn worker(&mut self) -> Session {
        let role = self.names.worker.clone();
        self.login("builder", &[&role]).await
    }
}

/// One connection of one login.
struct Session {
    connection: PgConnection,
    login: String,
}

impl Session {
    async fn connect(options: &PgConnectOptions) -> Self {
        let connection = PgConnection::connect_with(options).await.unwrap();
        Self { connection, login: options.get_username().to_owned() }
    }

    async fn rows(&mut self, text: &str) -> Vec<PgRow> {
        let call = sqlx::query(AssertSqlSafe(text.to_owned())).persistent(false);
        call.fetch_all(&mut self.connection).await.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Returns the first column of every row as text.
    async fn texts(&mut self, text: &str) -> Vec<String> {
        let rows = self.rows(&format!("SELECT (q.x)::text FROM ({text}) q (x)")).await;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Returns the only value of a statement.
    async fn text(&mut self, text: &str) -> String {
        let mut found = self.texts(text).await;
        assert_eq!(found.len(), 1, "{text}");
        found.remove(0)
    }

    /// Returns the SQLSTATE and the message with which a statement is refused.
    async fn refusal(&mut self, text: &str) -> (String, String) {
        match sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut self.connection).await {
            Ok(_) => panic!("accepted from {}: {text}", self.login),
            Err(error) => {
                let found = error.as_database_error().unwrap_or_else(|| panic!("{text}: {error}"));
                (found.code().unwrap_or_default().into_owned(), found.message().to_owned())
            }
        }
    }
}
