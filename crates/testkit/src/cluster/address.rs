//! The parts of a PostgreSQL URL that the testkit needs.

use anyhow::{Context as _, Result};

/// Address and login of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// User and password as in the URL, without the `@`.
    pub credentials: String,
    pub user: String,
    pub password: Option<String>,
    pub host: String,
    pub port: u16,
}

impl Address {
    /// Parses a URL such as `postgres://user:password@host:port/database`.
    pub fn parse(url: &str) -> Result<Self> {
        let (authority, _, _) =
            split(url).with_context(|| format!("not a PostgreSQL URL: {}", shown(url)))?;
        let (credentials, host) = authority.rsplit_once('@').unwrap_or(("postgres", authority));
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password))),
            None => (credentials, None),
        };
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) => {
                (host, port.parse().context("the port of the PostgreSQL URL is no number")?)
            }
            None => (host, 5432),
        };
        anyhow::ensure!(
            !host.is_empty(),
            "the PostgreSQL URL names no host; write postgres://user@host:port/"
        );
        Ok(Self {
            credentials: credentials.to_owned(),
            user: decoded(user),
            password,
            host: host.to_owned(),
            port,
        })
    }
}

/// Returns the same URL for another database.
pub fn with_database(url: &str, database: &str) -> Result<String> {
    let (authority, _, query) =
        split(url).with_context(|| format!("not a PostgreSQL URL: {}", shown(url)))?;
    Ok(format!("postgres://{authority}/{database}{query}"))
}

/// Splits a URL into authority, database, and the query with its question mark.
fn split(url: &str) -> Option<(&str, &str, &str)> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))?;
    let (rest, query) = rest.find('?').map_or((rest, ""), |at| rest.split_at(at));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    Some((authority, database, query))
}

/// Returns a URL without its password, for messages.
fn shown(url: &str) -> &str {
    url.rsplit_once('@').map_or(url, |(_, tail)| tail)
}

/// Resolves `%41`-like sequences; malformed ones stay unchanged.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let pair = tail.get(..2).filter(|_| first == b'%').and_then(|pair| std::str::from_utf8(pair).ok());
        let escaped = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let address = Address::parse("postgres://me:p%40ss@db.test:6000/x?sslmode=disable").unwrap();
        assert_eq!(address.user, "me");
        assert_eq!(address.password.as_deref(), Some("p@ss"));
        assert_eq!((address.host.as_str(), address.port), ("db.test", 6000));
        assert_eq!(Address::parse("postgresql://localhost").unwrap().port, 5432);
        assert!(Address::parse("mysql://localhost/x").is_err());
        assert!(Address::parse("postgres:///x?host=/tmp").is_err());
    }

    #[test]
    fn only_the_database_of_a_url_changes() {
        let url = with_database("postgresql://me@host:1/old?application_name=a", "new").unwrap();
        assert_eq!(url, "postgres://me@host:1/new?application_name=a");
        assert_eq!(with_database("postgres://host", "new").unwrap(), "postgres://host/new");
    }

    #[test]
    fn a_password_is_not_in_the_message() {
        let error = Address::parse("mysql://me:secret@host/x").unwrap_err();
        assert_eq!(error.to_string(), "not a PostgreSQL URL: host/x");
    }
}
