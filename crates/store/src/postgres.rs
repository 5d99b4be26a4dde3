//! The PostgreSQL side: a small pool, and where it points to, without the password.

use crate::{Class, Error, Pooler};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::str::FromStr;
use std::time::Duration;

/// Time to get a connection before a call fails as transient.
const ACQUIRE_MAX: Duration = Duration::from_secs(10);

/// An open connection to PostgreSQL.
#[derive(Debug)]
pub(crate) struct Postgres {
    pub(crate) pool: PgPool,
    pub(crate) pooler: Pooler,
    pub(crate) options: PgConnectOptions,
}

impl Postgres {
    /// Connects, so that a server that cannot be reached is found out at once.
    pub(crate) async fn open(url: &str, pooler: Pooler, connections: u32) -> Result<Self, Error> {
        let mut options = PgConnectOptions::from_str(url)
            .map_err(|source| Error::BadUrl { url: shown(url), problem: source.to_string() })?
            .application_name("tidemill");
        if pooler == Pooler::Transaction {
            options = options.statement_cache_capacity(0);
        }
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE_MAX)
            // A ping before each call would double the round trips; a dead connection is a transient error.
            .test_before_acquire(false)
            .connect_lazy_with(options.clone());
        let postgres = Self { pool, pooler, options };
        postgres.greet(url).await?;
        Ok(postgres)
    }

    async fn greet(&self, url: &str) -> Result<(), Error> {
        use sqlx::Connection as _;
        let connect = sqlx::PgConnection::connect_with(&self.options);
        match tokio::time::timeout(ACQUIRE_MAX, connect).await {
            Ok(Ok(conn)) => {
                let _ = conn.close().await;
                Ok(())
            }
            Ok(Err(source)) => Err(open_error(url, &source)),
            Err(_) => Err(Error::Open {
                what: shown(url),
                problem: format!("it did not answer within {} s", ACQUIRE_MAX.as_secs()),
                hint: Some("check the address, and that the server runs".to_owned()),
                class: Class::Transient,
            }),
        }
    }
}

fn open_error(url: &str, source: &sqlx::Error) -> Error {
    let database = source.as_database_error();
    let code = database.and_then(sqlx::error::DatabaseError::code).map(std::borrow::Cow::into_owned);
    let (hint, class) = match code.as_deref() {
        Some("28P01" | "28000") => ("check the user, and PGPASSFILE or PGPASSWORD", Class::Permanent),
        Some("3D000") => ("create the database first: createdb NAME", Class::Permanent),
        Some(_) => ("look into the server's log", Class::Transient),
        None => ("check the address, and that the server runs", Class::Transient),
    };
    let problem = database.map_or_else(|| source.to_string(), |error| error.message().to_owned());
    Error::Open { what: shown(url), problem, hint: Some(hint.to_owned()), class }
}

/// An address without its password.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split_once(':').map_or(user, |(name, _)| name);
            format!("{user}@{host}")
        }
        None => authority.to_owned(),
    };
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    format!("{scheme}://{authority}/{path}")
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn an_address_is_shown_without_its_password() {
        assert_eq!(shown("postgres://ann:s3cret@db:5432/shop?x=y"), "postgres://ann@db:5432/shop");
        assert_eq!(shown("postgres://db/shop?password=s3cret"), "postgres://db/shop");
        assert_eq!(shown("postgres://ann:p@ss@db/shop"), "postgres://ann@db/shop");
    }
}
