//! The configuration of the server, and of what is watched from outside.

use crate::config::{Config, Key, number, quoted, span};
use crate::times;
use std::net::SocketAddr;
use std::time::Duration;
use tidemill_api::server::Limits;

/// What can be configured about the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) connections: u32,
    pub(crate) requests: u32,
    pub(crate) body_kilobytes: u32,
    pub(crate) request_time: Duration,
    pub(crate) grace: Duration,
    pub(crate) otlp_endpoint: String,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let limits = Limits::default();
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7171)),
            connections: small(limits.connections),
            requests: small(limits.requests),
            body_kilobytes: small(limits.body_bytes / 1024),
            request_time: limits.request_time,
            grace: limits.grace,
            otlp_endpoint: String::new(),
        }
    }
}

impl ServerConfig {
    /// What the server takes at most.
    pub(crate) fn limits(&self) -> Limits {
        let body_bytes = self.body_kilobytes as usize * 1024;
        let usual = Limits::default();
        Limits {
            connections: self.connections as usize,
            requests: self.requests as usize,
            body_bytes,
            bodies_bytes: usual.bodies_bytes.max(body_bytes),
            request_time: self.request_time,
            grace: self.grace,
            ..usual
        }
    }
}

/// The keys of the server.
pub(crate) const KEYS: &[Key] = &[
    Key {
        path: "server.listen",
        doc: "Where the server listens.",
        show: |config| quoted(&config.server.listen.to_string()),
        set: |config, text| {
            let problem = "it must be an address with a port, such as 127.0.0.1:7171";
            config.server.listen = text.parse().map_err(|_| problem.to_owned())?;
            Ok(())
        },
    },
    Key {
        path: "server.connections",
        doc: "Connections of callers at once.",
        show: |config| config.server.connections.to_string(),
        set: |config, text| number(text, 1, 1_000_000).map(|value| config.server.connections = value),
    },
    Key {
        path: "server.requests",
        doc: "Requests that are carried out at once, but for those that wait for something to happen.",
        show: |config| config.server.requests.to_string(),
        set: |config, text| number(text, 1, 100_000).map(|value| config.server.requests = value),
    },
    Key {
        path: "server.body-kilobytes",
        doc: "The largest body of a request.",
        show: |config| config.server.body_kilobytes.to_string(),
        set: |config, text| number(text, 1, 65_536).map(|value| config.server.body_kilobytes = value),
    },
    Key {
        path: "server.request-time",
        doc: "How long a request may take, on top of what it asks to wait.",
        show: |config| quoted(&times::written(config.server.request_time)),
        set: |config, text| span(text, "1s", "1h").map(|value| config.server.request_time = value),
    },
    Key {
        path: "server.grace",
        doc: "How long requests may take to end when the server is told to.",
        show: |config| quoted(&times::written(config.server.grace)),
        set: |config, text| span(text, "0s", "1h").map(|value| config.server.grace = value),
    },
    Key {
        path: "observe.otlp-endpoint",
        doc: "Where traces go, over OTLP/HTTP, such as http://localhost:4318; empty for nowhere.",
        show: |config| quoted(&config.server.otlp_endpoint),
        set: otlp_endpoint,
    },
];

/// Traces go over HTTP, or nowhere.
fn otlp_endpoint(config: &mut Config, text: &str) -> Result<(), String> {
    if !text.is_empty() && !text.starts_with("http://") && !text.starts_with("https://") {
        return Err("it must begin with http:// or https://".to_owned());
    }
    text.clone_into(&mut config.server.otlp_endpoint);
    Ok(())
}
