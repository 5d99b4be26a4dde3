//! Who is told: by mail or by webhook, of which kinds, how often.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tidemill_core::alert::AlertKind;
use tidemill_core::limits::ALERT_INTERVAL_SECS;

/// Somebody who is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name, which the outbox knows it by.
    pub name: String,
    /// The kinds that it wants to hear of; none for all.
    pub kinds: Vec<AlertKind>,
    /// At most one message about a group in so long.
    pub interval: Duration,
    /// A file with certificates that are trusted beside those of the web.
    pub ca_file: Option<PathBuf>,
    /// How it is told.
    pub way: Way,
}

impl Target {
    /// A target that wants to hear of everything, once an hour.
    pub fn new(name: impl Into<String>, way: Way) -> Self {
        Self {
            name: name.into(),
            kinds: Vec::new(),
            interval: Duration::from_secs(ALERT_INTERVAL_SECS),
            ca_file: None,
            way,
        }
    }

    /// Whether it wants to hear of this kind.
    pub fn wants(&self, kind: AlertKind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }
}

/// How somebody is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// By mail.
    Mail(Mail),
    /// By a request to an address.
    Webhook(Webhook),
}

/// How the connection to a mail server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// It begins in the clear, and must become TLS before anything is said.
    StartTls,
    /// TLS from the first byte.
    Tls,
    /// Not at all: for a server on this machine.
    None,
}

/// A mail server, and whom it is to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The server's name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is protected.
    pub security: Security,
    /// Who signs in, where the server asks for it.
    pub username: Option<String>,
    /// The environment variable that holds the password.
    pub password_env: Option<String>,
    /// Who the mail is from.
    pub from: String,
    /// Who it is to.
    pub to: Vec<String>,
}

/// What the body of a request looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `{"text": …}`, as Slack and those who copy it take it.
    Slack,
    /// The alert itself, signed.
    Generic,
}

/// The address of a webhook. It may hold a token, so it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// As it stands.
    Plain(String),
    /// In this environment variable.
    Variable(String),
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address that is not shown")
    }
}

/// An address that takes requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Where.
    pub address: Address,
    /// What is sent.
    pub shape: Shape,
    /// The environment variable that holds the secret to sign with.
    pub secret_env: Option<String>,
}

/// What an environment variable of this process holds.
pub(super) fn variable(name: &str) -> Result<String, String> {
    std::env::var(name)
        .ok()
        .filter(|value| !value.is_empty())
        .ok_or_else(|| format!("the environment variable {name} is not set"))
}
