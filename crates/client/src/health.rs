//! Probes of a server, and of a role that serves its metrics.

use crate::{ApiRequest, ApiResponse, Client, Error, decode};
use http::Method;
use std::time::Duration;
use tidemill_wire::info::Health;

/// Condition that a probe of a server checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// The process of the server answers requests.
    Liveness,
    /// The process and its database answer, and the schema matches.
    Readiness,
}

impl Client {
    /// Returns the health of the server. A server that is not ready is an error.
    pub async fn health(&self, probe: Probe, timeout: Duration) -> Result<Health, Error> {
        let path = match probe {
            Probe::Liveness => "/healthz",
            Probe::Readiness => "/readyz",
        };
        decode(&self.fetch(path, timeout).await?)
    }

    /// Returns the metrics of a process in the text format of Prometheus.
    pub async fn metrics(&self, timeout: Duration) -> Result<String, Error> {
        let response = self.fetch("/metrics", timeout).await?;
        Ok(String::from_utf8_lossy(&response.body).into_owned())
    }

    async fn fetch(&self, path: &str, timeout: Duration) -> Result<ApiResponse, Error> {
        let path = path.to_owned();
        self.send(ApiRequest { method: Method::GET, path, idempotency_key: None, body: None, timeout }).await
    }
}
