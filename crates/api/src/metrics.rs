//! `/metrics`, in the text format of Prometheus.
//!
//! What this process did is counted as it happens, by the [`Recorder`]. How things stand, whoever brought it about, is
//! read from the database when somebody asks, at most once a second. Every server of a database so says the same of it.

mod names;
mod recorder;

pub use recorder::{Recorder, install};

use crate::server::{Limits, accept};

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{Method, header};
use recorder::Families;
use std::sync::Arc;
use std::time::Duration;
use tidemill_store::Standing;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long what was read from the database is said again.
const KEPT: Duration = Duration::from_secs(1);

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/metrics", Allowed::Look, scrape)
            .says("server", "Say how things stand, for Prometheus")
            .text(200, "The text format of Prometheus", "text/plain"),
    ]
}

/// What the last look at the database gave, and when it was.
#[derive(Default)]
pub(crate) struct Scrape {
    last: Mutex<Option<(Instant, Arc<Standing>)>>,
}

impl Scrape {
    /// How things stand now, or stood a moment ago. However many ask, one look is taken.
    async fn standing(&self, app: &App) -> Result<Arc<Standing>, Fail> {
        let mut last = self.last.lock().await;
        if let Some((at, standing)) = &*last
            && at.elapsed() < KEPT
        {
            return Ok(standing.clone());
        }
        let (store, now) = (app.engine().store(), app.engine().clock().now());
        let standing = Arc::new(store.standing(now).await?);
        *last = Some((Instant::now(), standing.clone()));
        Ok(standing)
    }
}

async fn scrape(State(app): State<App>, caller: Caller) -> Result<Response, Fail> {
    // The numbers name feeds and queues of every project.
    caller.sees_all()?;
    let standing = app.scrape().standing(&app).await?;
    let mut families = recorder::installed().map(Recorder::families).unwrap_or_default();
    add_standing(&mut families, &standing);
    add_pool(&mut families, &app);
    add_process(&mut families);
    Ok(said(&families))
}

fn said(families: &Families) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, families.text()).into_response()
}

/// Scrapes at once of a process that says nothing but its metrics.
const SCRAPES_MAX: usize = 16;

/// Says at an address of its own, until the process ends, what this process counts: for one that is no server.
///
/// How things stand in the database is left to the servers. Nothing that is said is a secret, so nobody is asked who
/// they are.
pub async fn serve(listener: TcpListener) {
    let limits = Limits { connections: SCRAPES_MAX, ..Limits::default() };
    accept(listener, Router::new().route("/metrics", get(scrape_process)), limits, std::future::pending())
        .await;
}

async fn scrape_process() -> Response {
    let mut families = recorder::installed().map(Recorder::families).unwrap_or_default();
    add_process(&mut families);
    said(&families)
}

/// What was read from the database.
fn add_standing(families: &mut Families, standing: &Standing) {
    for line in &standing.lines {
        let (name, label) = match line.name.as_str() {
            "runs_queued" => ("tidemill_runs_queued", "gate"),
            "runs_held" => ("tidemill_runs_held", "state"),
            "queue_ready" => ("tidemill_queue_ready", "queue"),
            "queue_delayed" => ("tidemill_queue_delayed", "queue"),
            "queue_in_flight" => ("tidemill_queue_in_flight", "queue"),
            "queue_dead" => ("tidemill_queue_dead", "queue"),
            "partitions_stuck" => ("tidemill_partitions_stuck", "feed"),
            "sync_fetched" => ("tidemill_sync_fetched_stones", "feed"),
            "sync_consolidated" => ("tidemill_sync_consolidated_stones", "feed"),
            "feed_down" => ("tidemill_feed_down", "feed"),
            "workers" => ("tidemill_workers", ""),
            "watermark" => {
                if let Some(age) = standing.age(line) {
                    families.gauge("tidemill_watermark_age_seconds", &[("feed", &line.label)], age);
                }
                continue;
            }
            _ => continue,
        };
        let labels = [(label, line.label.as_str())];
        let labels = if label.is_empty() { &[][..] } else { &labels[..] };
        families.gauge(name, labels, whole(line.count));
        if let (Some(oldest), Some(age)) = (names::oldest(name), standing.age(line)) {
            families.gauge(oldest, labels, age);
        }
    }
}

/// How many connections to the database this process has.
fn add_pool(families: &mut Families, app: &App) {
    let pool = app.engine().store().pool();
    for (state, connections) in [("most", pool.most), ("open", pool.open), ("busy", pool.busy)] {
        families.gauge("tidemill_pool_connections", &[("state", state)], f64::from(connections));
    }
}

/// What this process is and uses.
fn add_process(families: &mut Families) {
    families.gauge("tidemill_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    if let Some(bytes) = resident_bytes() {
        families.gauge("process_resident_memory_bytes", &[], bytes);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        families.gauge("process_open_fds", &[], whole(i64::try_from(files.count()).unwrap_or(i64::MAX)));
    }
}

/// The memory that this process has, as far as the system tells.
fn resident_bytes() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0)
}

#[expect(clippy::cast_precision_loss, reason = "a count far below the point where a number loses digits")]
const fn whole(count: i64) -> f64 {
    count as f64
}
