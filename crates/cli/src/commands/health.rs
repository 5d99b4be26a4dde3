//! `tidemill health`: one probe of a server or of another role, for containers and monitors.
//!
//! It needs no database, no token and no home directory, and sends one request without a retry.

use super::server::browsable;
use crate::args::Global;
use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use crate::{remote, times};
use clap::Args;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_client::{Client, Probe};

/// Gauge of a failing background loop; its label is the name of the loop.
const FAILING_LOOP: &str = "tidemill_loops_failing{loop=\"";
/// Gauge that every process of Tidemill serves.
const BUILD: &str = "tidemill_build_info{";

/// The process to probe
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tidemill health\n  tidemill health --metrics 127.0.0.1:9171")]
pub(crate) struct HealthArgs {
    /// Check only that the server process answers, and not its database
    #[arg(long, conflicts_with = "metrics")]
    pub(crate) live: bool,
    /// Probe the role whose --metrics-listen is this address, instead of a server
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Time limit for the response
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = times::parse_duration)]
    pub(crate) timeout: Duration,
}

/// The result of a probe that succeeded.
struct ProbeResult {
    status: String,
    address: String,
    failing_loops: Vec<String>,
}

/// Probes the server of `--server`, the one at the configured address, or a role.
pub(super) async fn health(
    global: &Global,
    config: &Config,
    args: HealthArgs,
    out: Out,
) -> Result<ExitCode, Failure> {
    let healthy = match args.metrics {
        Some(address) => check_role(address, global, args.timeout).await?,
        None => check_server(global, config, &args).await?,
    };
    if out.is_json() {
        out.print_json(&serde_json::json!({
            "status": healthy.status, "address": healthy.address, "failing_loops": healthy.failing_loops,
        }));
    } else {
        out.print(healthy.sentence());
    }
    Ok(ExitCode::SUCCESS)
}

async fn check_server(global: &Global, config: &Config, args: &HealthArgs) -> Result<ProbeResult, Failure> {
    let default = || format!("http://{}", browsable(config.server.listen));
    let address = global.server.clone().unwrap_or_else(default);
    let client = Client::new(remote::probe_transport(&address, global)?);
    let probe = if args.live { Probe::Liveness } else { Probe::Readiness };
    let health = client.health(probe, args.timeout).await?;
    let failing_loops = health.loops.into_iter().map(|state| state.name).collect();
    Ok(ProbeResult { status: health.status, address, failing_loops })
}

/// Checks that a process of Tidemill serves its metrics. Its database is not checked: a role retries until it answers.
async fn check_role(address: SocketAddr, global: &Global, timeout: Duration) -> Result<ProbeResult, Failure> {
    let address = format!("http://{}", browsable(address));
    let client = Client::new(remote::probe_transport(&address, global)?);
    let metrics = client.metrics(timeout).await?;
    if !metrics.lines().any(|line| line.starts_with(BUILD)) {
        let message = format!("{address}/metrics is not served by Tidemill");
        return Err(Failure::outage(message).with_code("no_server"));
    }
    let failing_loops = failing_loops(&metrics);
    let status = if failing_loops.is_empty() { "lives" } else { "degraded" };
    Ok(ProbeResult { status: status.to_owned(), address, failing_loops })
}

/// Returns the names of the loops that fail, from the metrics of their process.
fn failing_loops(metrics: &str) -> Vec<String> {
    let gauges = metrics.lines().filter_map(|line| line.strip_prefix(FAILING_LOOP)?.split_once("\"} "));
    gauges.filter(|(_, value)| *value != "0").map(|(name, _)| name.to_owned()).collect()
}

impl ProbeResult {
    fn sentence(&self) -> String {
        let address = &self.address;
        match self.status.as_str() {
            "lives" => format!("the process at {address} answers"),
            "ready" => format!("the server at {address} is ready"),
            "degraded" => {
                let loops = self.failing_loops.join(", ");
                format!("the process at {address} answers, but these background loops fail: {loops}")
            }
            status => format!("the server at {address} is {status}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loops_that_fail_are_named() {
        let metrics = "# TYPE tidemill_loops_failing gauge\ntidemill_loops_failing{loop=\"sweep\"} 0\n\
                       tidemill_loops_failing{loop=\"prune\"} 1\ntidemill_build_info{version=\"1\"} 1\n";
        assert_eq!(failing_loops(metrics), ["prune"]);
        assert_eq!(failing_loops(""), Vec::<String>::new());
    }
}
