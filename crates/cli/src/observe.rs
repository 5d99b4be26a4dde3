//! What can be watched from outside: the log, and traces.

mod spans;

use crate::args::{Command, Global};
use crate::args_server::LogFormat;
use crate::config::Config;
use crate::{environment, out};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanProcessor as _};
use spans::Spans;
use std::sync::Arc;
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// How long a batch of spans may take to be taken.
const EXPORT_TIME: Duration = Duration::from_secs(5);
/// How long the last spans may take when the process ends.
const FLUSH_TIME: Duration = Duration::from_secs(2);

/// Sends the last spans when it is dropped.
pub(crate) struct Watched(Option<Arc<BatchSpanProcessor>>);

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(spans) = &self.0
            && let Err(fault) = spans.shutdown_with_timeout(FLUSH_TIME)
        {
            tracing::warn!("the last spans were not sent: {fault}");
        }
    }
}

/// Starts the log, and traces where they are configured. Called once, outside the runtime.
pub(crate) fn start(global: &Global, command: &Command, config: &Config) -> Watched {
    let endpoint = Some(config.server.otlp_endpoint.clone()).filter(|endpoint| !endpoint.is_empty());
    let endpoint = endpoint.or_else(environment::otlp_endpoint);
    let exporter = endpoint.map(|endpoint| exporter(&endpoint));
    let (spans, fault) = match exporter {
        Some(Ok(spans)) => (Some(Arc::new(spans)), None),
        Some(Err(fault)) => (None, Some(fault)),
        None => (None, None),
    };
    let wanted = Targets::new().with_target(tidemill_engine::trace::TARGET, LevelFilter::TRACE);
    let layer = spans.clone().map(|spans| Spans::new(spans, role(command)).with_filter(wanted));
    tracing_subscriber::registry().with(log(global, command)).with(layer).init();
    if let Some(fault) = fault {
        tracing::warn!("traces go nowhere: {fault}");
    }
    Watched(spans)
}

/// Logs go to standard error; a loop says more than a single command.
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever is no loop is a command")]
fn log(global: &Global, command: &Command) -> Box<dyn Layer<Registry> + Send + Sync> {
    let is_loop = matches!(
        command,
        Command::Work(_)
            | Command::Agent { .. }
            | Command::Controller(_)
            | Command::Scheduler { .. }
            | Command::Worker(_)
            | Command::Consolidator { .. }
            | Command::Sweep { .. }
            | Command::Server(_)
    );
    let loud = "tidemill=info,tidemill_engine=info,tidemill_api=info,tidemill_agent=info,sqlx=error,warn";
    // A command that refuses says so itself: what the door within it logs would say it twice.
    let default = match command {
        // Of the agent beside all roles only what goes wrong: it says something of every task.
        Command::Up(_) => "tidemill=info,tidemill_engine=info,tidemill_api=info,sqlx=error,warn",
        _ if is_loop => loud,
        _ => "error,tidemill_api=off",
    };
    let filter = environment::log_filter().unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new(default));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    match global.log {
        LogFormat::Human => lines.with_ansi(out::is_terminal(&std::io::stderr())).with_filter(filter).boxed(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_filter(filter).boxed()
        }
    }
}

/// Sends spans in batches, from a thread of its own; what does not fit its bounds is dropped.
fn exporter(endpoint: &str) -> Result<BatchSpanProcessor, String> {
    // Installed once per process; a second time changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let base = endpoint.trim_end_matches('/');
    let address = if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(address)
        .with_timeout(EXPORT_TIME)
        .build()
        .map_err(|fault| fault.to_string())?;
    let mut spans = BatchSpanProcessor::builder(exporter).build();
    spans.set_resource(&Resource::builder().with_service_name("tidemill").build());
    Ok(spans)
}

/// What this process is in a trace.
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever is no role is a command")]
fn role(command: &Command) -> &'static str {
    match command {
        Command::Server(_) => "server",
        Command::Scheduler { .. } => "scheduler",
        Command::Worker(_) => "worker",
        Command::Consolidator { .. } => "consolidator",
        Command::Up(_) => "up",
        Command::Work(_) => "work",
        Command::Agent { .. } => "agent",
        Command::Controller(_) => "controller",
        Command::Sweep { .. } => "upkeep",
        _ => "command",
    }
}
