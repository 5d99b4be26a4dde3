//! Configuration keys of the server and of traces.

use crate::config::{Config, Key, parse_number, parse_span, quote};
use crate::times;
use std::net::SocketAddr;
use std::time::Duration;
use tidemill_api::server::{Limits, Network, TrustedProxies};

/// Configuration of the server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerConfig {
    pub(crate) listen: SocketAddr,
    /// Directory of the token files of local servers; empty for the state directory of the user.
    pub(crate) token_dir: String,
    pub(crate) connections: u32,
    pub(crate) connections_per_source: u32,
    pub(crate) requests: u32,
    pub(crate) waits_per_token: u32,
    pub(crate) body_kilobytes: u32,
    pub(crate) request_time: Duration,
    pub(crate) grace: Duration,
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) otlp_endpoint: String,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let limits = Limits::default();
        let to_u32 = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7171)),
            token_dir: String::new(),
            connections: to_u32(limits.connections),
            connections_per_source: to_u32(limits.connections_per_source),
            requests: to_u32(limits.requests),
            waits_per_token: to_u32(limits.waits_per_token),
            body_kilobytes: to_u32(limits.body_bytes / 1024),
            request_time: limits.request_time,
            grace: limits.grace,
            trusted_proxies: Vec::new(),
            otlp_endpoint: String::new(),
        }
    }
}

impl ServerConfig {
    pub(crate) fn limits(&self) -> Limits {
        let body_bytes = self.body_kilobytes as usize * 1024;
        let default = Limits::default();
        Limits {
            connections: self.connections as usize,
            connections_per_source: self.connections_per_source as usize,
            requests: self.requests as usize,
            waits_per_token: self.waits_per_token as usize,
            body_bytes,
            bodies_bytes: default.bodies_bytes.max(body_bytes),
            request_time: self.request_time,
            grace: self.grace,
            ..default
        }
    }

    pub(crate) fn proxies(&self) -> TrustedProxies {
        TrustedProxies::new(self.trusted_proxies.clone())
    }
}

pub(crate) const KEYS: &[Key] = &[
    Key {
        path: "server.listen",
        doc: "Address that the server listens on.",
        show: |config| quote(&config.server.listen.to_string()),
        set: |config, text| {
            let error = "it must be an address with a port, such as 127.0.0.1:7171";
            config.server.listen = text.parse().map_err(|_| error.to_owned())?;
            Ok(())
        },
    },
    Key {
        path: "server.token-dir",
        doc: "Directory of the token files of local servers; empty for tidemill in $XDG_STATE_HOME or ~/.local/state.",
        show: |config| quote(&config.server.token_dir),
        set: |config, text| {
            text.clone_into(&mut config.server.token_dir);
            Ok(())
        },
    },
    Key {
        path: "server.connections",
        doc: "Maximum number of client connections.",
        show: |config| config.server.connections.to_string(),
        set: |config, text| parse_number(text, 1, 1_000_000).map(|value| config.server.connections = value),
    },
    Key {
        path: "server.connections-per-source",
        doc: "Maximum number of connections of one source address without a valid token.",
        show: |config| config.server.connections_per_source.to_string(),
        set: |config, text| {
            parse_number(text, 1, 1_000_000).map(|value| config.server.connections_per_source = value)
        },
    },
    Key {
        path: "server.requests",
        doc: "Maximum number of requests that execute at once, without those that wait for an event.",
        show: |config| config.server.requests.to_string(),
        set: |config, text| parse_number(text, 1, 100_000).map(|value| config.server.requests = value),
    },
    Key {
        path: "server.waits-per-token",
        doc: "Maximum number of long polls and live streams of one viewer, operator or admin token.",
        show: |config| config.server.waits_per_token.to_string(),
        set: |config, text| {
            parse_number(text, 1, 1_000_000).map(|value| config.server.waits_per_token = value)
        },
    },
    Key {
        path: "server.trusted-proxies",
        doc: "Addresses or networks of reverse proxies whose X-Forwarded-For header names the client, separated by \
              spaces; empty trusts none.",
        show: |config| {
            let networks: Vec<String> =
                config.server.trusted_proxies.iter().map(Network::to_string).collect();
            quote(&networks.join(" "))
        },
        set: |config, text| {
            let networks = text.split_whitespace().map(|word| {
                word.parse::<Network>().map_err(|error| format!("`{word}` is not a network; {error}"))
            });
            config.server.trusted_proxies = networks.collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Key {
        path: "server.body-kilobytes",
        doc: "Maximum size of a request body in KiB.",
        show: |config| config.server.body_kilobytes.to_string(),
        set: |config, text| parse_number(text, 1, 65_536).map(|value| config.server.body_kilobytes = value),
    },
    Key {
        path: "server.request-time",
        doc: "Time limit of a request, in addition to its own wait time.",
        show: |config| quote(&times::format_exact(config.server.request_time)),
        set: |config, text| parse_span(text, "1s", "1h").map(|value| config.server.request_time = value),
    },
    Key {
        path: "server.grace",
        doc: "Time that requests have to end when the server shuts down.",
        show: |config| quote(&times::format_exact(config.server.grace)),
        set: |config, text| parse_span(text, "0s", "1h").map(|value| config.server.grace = value),
    },
    Key {
        path: "observe.otlp-endpoint",
        doc: "Destination of traces over OTLP/HTTP, such as http://localhost:4318; empty disables them.",
        show: |config| quote(&config.server.otlp_endpoint),
        set: set_otlp_endpoint,
    },
];

fn set_otlp_endpoint(config: &mut Config, text: &str) -> Result<(), String> {
    if !text.is_empty() && !text.starts_with("http://") && !text.starts_with("https://") {
        return Err("it must begin with http:// or https://".to_owned());
    }
    text.clone_into(&mut config.server.otlp_endpoint);
    Ok(())
}
