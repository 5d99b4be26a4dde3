//! Alert targets: the channel (mail or webhook), the alert kinds, and the interval.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tidemill_core::alert::AlertKind;
use tidemill_core::limits::ALERT_INTERVAL_SECS;

/// A receiver of alerts: a channel with its filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name by which the outbox identifies the target.
    pub name: String,
    /// Kinds of alerts to send; empty for all.
    pub kinds: Vec<AlertKind>,
    /// At most one message per group is sent in this time.
    pub interval: Duration,
    /// File with certificate authorities that are trusted in addition to those of the web.
    pub ca_file: Option<PathBuf>,
    pub channel: Channel,
}

impl Target {
    /// Creates a target for all kinds of alerts, with at most one message per group and hour.
    pub fn new(name: impl Into<String>, channel: Channel) -> Self {
        Self {
            name: name.into(),
            kinds: Vec::new(),
            interval: Duration::from_secs(ALERT_INTERVAL_SECS),
            ca_file: None,
            channel,
        }
    }

    /// Whether alerts of this kind are sent to the target.
    pub fn wants(&self, kind: AlertKind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }
}

/// Delivery channel of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    Mail(Mail),
    Webhook(Webhook),
}

/// Encryption of the connection to a mail server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// STARTTLS is required before anything else is sent.
    StartTls,
    /// TLS from the first byte.
    Tls,
    /// No encryption, for a server on this machine.
    None,
}

/// A mail server and the addresses of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    pub host: String,
    pub port: u16,
    pub security: Security,
    /// User name, if the server requires a login.
    pub username: Option<String>,
    /// Environment variable with the password.
    pub password_env: Option<String>,
    pub from: String,
    pub to: Vec<String>,
}

/// Format of a webhook's request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// `{"text": …}`, which Slack and compatible services accept.
    Slack,
    /// The alert as JSON, signed.
    Generic,
}

/// URL of a webhook. It may contain a token, so it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    Plain(String),
    /// The environment variable that contains the URL.
    Variable(String),
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A webhook that receives alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub address: Address,
    pub format: BodyFormat,
    /// Environment variable with the signing secret.
    pub secret_env: Option<String>,
}

/// Reads an environment variable.
pub(super) fn variable(name: &str) -> Result<String, String> {
    std::env::var(name)
        .ok()
        .filter(|value| !value.is_empty())
        .ok_or_else(|| format!("environment variable {name} is not set"))
}
