//! Log output and OpenTelemetry traces.

mod spans;

use crate::args::{Command, Global, LogFormat};
use crate::config::Config;
use crate::{environment, out};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanProcessor as _};
use spans::SpanLayer;
use std::sync::Arc;
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the last spans when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends the last spans when it is dropped.
pub(crate) struct TraceGuard(Option<Arc<BatchSpanProcessor>>);

impl Drop for TraceGuard {
    fn drop(&mut self) {
        if let Some(spans) = &self.0
            && let Err(error) = spans.shutdown_with_timeout(FLUSH_TIMEOUT)
        {
            tracing::warn!("could not send the last spans: {error}");
        }
    }
}

/// Starts the log, and traces if they are configured. Called once, outside the runtime.
pub(crate) fn start(global: &Global, command: &Command, config: &Config) -> TraceGuard {
    let endpoint = Some(config.server.otlp_endpoint.clone()).filter(|endpoint| !endpoint.is_empty());
    let endpoint = endpoint.or_else(environment::otlp_endpoint);
    let exporter = endpoint.map(|endpoint| build_exporter(&endpoint));
    let (spans, error) = match exporter {
        Some(Ok(spans)) => (Some(Arc::new(spans)), None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let run_spans = Targets::new().with_target(tidemill_engine::trace::TARGET, LevelFilter::TRACE);
    let layer = spans.clone().map(|spans| SpanLayer::new(spans, role_name(command)).with_filter(run_spans));
    tracing_subscriber::registry().with(log_layer(global, command)).with(layer).init();
    if let Some(error) = error {
        tracing::warn!("traces are not exported: {error}");
    }
    TraceGuard(spans)
}

/// The log on standard error. Services log more than single commands.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other command is short")]
fn log_layer(global: &Global, command: &Command) -> Box<dyn Layer<Registry> + Send + Sync> {
    let is_service = matches!(
        command,
        Command::Work(_)
            | Command::Agent { .. }
            | Command::Controller(_)
            | Command::Scheduler(_)
            | Command::Worker(_)
            | Command::Consolidator(_)
            | Command::Sweep(_)
            | Command::Server(_)
    );
    let verbose = "tidemill=info,tidemill_engine=info,tidemill_api=info,tidemill_agent=info,sqlx=error,warn";
    // A command prints its own errors, so the log of the in-process API would repeat them.
    let default = match command {
        // The agent logs every task, so only its warnings are shown here.
        Command::Up(_) => "tidemill=info,tidemill_engine=info,tidemill_api=info,sqlx=error,warn",
        _ if is_service => verbose,
        _ => "error,tidemill_api=off",
    };
    let filter = environment::log_filter().unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new(default));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    match global.log {
        LogFormat::Human => lines.with_ansi(out::has_colours(&std::io::stderr())).with_filter(filter).boxed(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_filter(filter).boxed()
        }
    }
}

/// Sends spans in batches from its own thread, and drops spans beyond its limits.
fn build_exporter(endpoint: &str) -> Result<BatchSpanProcessor, String> {
    // The second installation in a process fails, which is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let base = endpoint.trim_end_matches('/');
    let address = if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") };
    let authorities = tidemill_client::bundled_authorities().map_err(|error| error.to_string())?;
    let client = reqwest::blocking::Client::builder().timeout(EXPORT_TIMEOUT).tls_certs_merge(authorities);
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client.build().map_err(|error| error.to_string())?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(address)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|error| error.to_string())?;
    let mut spans = BatchSpanProcessor::builder(exporter).build();
    spans.set_resource(&Resource::builder().with_service_name("tidemill").build());
    Ok(spans)
}

/// Role of this process in its spans.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other command has no role")]
fn role_name(command: &Command) -> &'static str {
    match command {
        Command::Server(_) => "server",
        Command::Scheduler(_) => "scheduler",
        Command::Worker(_) => "worker",
        Command::Consolidator(_) => "consolidator",
        Command::Up(_) => "up",
        Command::Work(_) => "work",
        Command::Agent { .. } => "agent",
        Command::Controller(_) => "controller",
        Command::Sweep(_) => "upkeep",
        _ => "command",
    }
}
