//! `/metrics`, in the Prometheus text format.
//!
//! The [`Recorder`] counts the actions of this process. Gauges about the whole system are read from the database on
//! request, at most once a second, so all servers of a database report the same values.

mod names;
mod recorder;

pub use recorder::{Recorder, install};

use crate::server::{Limits, serve_router};

use crate::access::Caller;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{Method, header};
use recorder::Families;
use std::sync::Arc;
use std::time::Duration;
use tidemill_store::Overview;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Time for which a database snapshot is reused.
const CACHE_TIME: Duration = Duration::from_secs(1);

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/metrics", Permission::Read, scrape)
            .describe("server", "Return metrics for Prometheus")
            .responds_text(200, "The Prometheus text format", "text/plain"),
    ]
}

/// The last database snapshot with its time.
#[derive(Default)]
pub(crate) struct ScrapeCache {
    last: Mutex<Option<(Instant, Arc<Overview>)>>,
}

impl ScrapeCache {
    /// Returns a snapshot that is at most [`CACHE_TIME`] old. Concurrent requests share one query.
    async fn overview(&self, app: &App) -> Result<Arc<Overview>, ApiError> {
        let mut last = self.last.lock().await;
        if let Some((at, overview)) = &*last
            && at.elapsed() < CACHE_TIME
        {
            return Ok(overview.clone());
        }
        let (store, now) = (app.engine().store(), app.engine().clock().now());
        let overview = Arc::new(store.overview(now).await?);
        *last = Some((Instant::now(), overview.clone()));
        Ok(overview)
    }
}

async fn scrape(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    // The metrics name feeds and queues of every project.
    caller.require_all_projects()?;
    let overview = app.scrape().overview(&app).await?;
    let mut families = recorder::installed().map(Recorder::families).unwrap_or_default();
    add_overview(&mut families, &overview);
    add_pool(&mut families, &app);
    add_process(&mut families);
    Ok(text_response(&families))
}

fn text_response(families: &Families) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, families.text()).into_response()
}

/// Maximum number of concurrent scrapes of a metrics-only process.
const SCRAPES_MAX: usize = 16;

/// Serves the counters of a process that is not an API server, on its own address, until the process ends.
///
/// Gauges from the database are left to the servers. The counters are not secret, so there is no authentication.
pub async fn serve(listener: TcpListener) {
    let limits = Limits { connections: SCRAPES_MAX, ..Limits::default() };
    serve_router(
        listener,
        Router::new().route("/metrics", get(scrape_process)),
        limits,
        std::future::pending(),
    )
    .await;
}

async fn scrape_process() -> Response {
    let mut families = recorder::installed().map(Recorder::families).unwrap_or_default();
    add_process(&mut families);
    text_response(&families)
}

/// Adds the gauges read from the database.
fn add_overview(families: &mut Families, overview: &Overview) {
    for line in &overview.lines {
        let (name, label) = match line.name.as_str() {
            "runs_queued" => ("tidemill_runs_queued", "gate"),
            "runs_held" => ("tidemill_runs_held", "state"),
            "queue_ready" => ("tidemill_queue_ready", "queue"),
            "queue_delayed" => ("tidemill_queue_delayed", "queue"),
            "queue_in_flight" => ("tidemill_queue_in_flight", "queue"),
            "queue_dead" => ("tidemill_queue_dead", "queue"),
            "partitions_stuck" => ("tidemill_partitions_stuck", "feed"),
            "sync_fetched" => ("tidemill_sync_fetched_records", "feed"),
            "sync_consolidated" => ("tidemill_sync_consolidated_records", "feed"),
            "feed_down" => ("tidemill_feed_down", "feed"),
            "workers" => ("tidemill_workers", ""),
            "audit_unsealed" => ("tidemill_audit_unsealed", ""),
            "watermark" => {
                if let Some(age) = overview.age(line) {
                    families.gauge("tidemill_watermark_age_seconds", &[("feed", &line.label)], age);
                }
                continue;
            }
            _ => continue,
        };
        let labels = [(label, line.label.as_str())];
        let labels = if label.is_empty() { &[][..] } else { &labels[..] };
        families.gauge(name, labels, to_f64(line.count));
        if let (Some(oldest), Some(age)) = (names::oldest(name), overview.age(line)) {
            families.gauge(oldest, labels, age);
        }
    }
}

/// Adds the connection pool's gauges.
fn add_pool(families: &mut Families, app: &App) {
    let pool = app.engine().store().pool();
    for (state, connections) in [("most", pool.max), ("open", pool.open), ("busy", pool.busy)] {
        families.gauge("tidemill_pool_connections", &[("state", state)], f64::from(connections));
    }
}

/// Adds version, memory and open files of this process.
fn add_process(families: &mut Families) {
    families.gauge("tidemill_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    if let Some(bytes) = resident_bytes() {
        families.gauge("process_resident_memory_bytes", &[], bytes);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        families.gauge("process_open_fds", &[], to_f64(i64::try_from(files.count()).unwrap_or(i64::MAX)));
    }
}

/// Resident memory of this process, if the system reports it.
fn resident_bytes() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below the precision limit of f64")]
const fn to_f64(count: i64) -> f64 {
    count as f64
}
