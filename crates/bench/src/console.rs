//! Pages of the console on large tables: time and transferred bytes.

use crate::Plan;
use crate::bench_cluster::{BenchCluster, Triggers, database_with_runs, fill, vacuum};
use crate::console_data::{self, Paths};
use crate::lifecycle::request;
use crate::report::{Line, Report, log, median, percentile};
use anyhow::{Context as _, Result, ensure};
use std::time::Instant;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_api::server::Server;
use tidemill_core::limits::POOL_CONNECTIONS;
use tidemill_engine::Engine;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tokio::net::TcpListener;

const REQUESTS: usize = 200;
/// Limits of a page: milliseconds at the 99th percentile, and transferred bytes.
const MILLIS_MAX: f64 = 200.0;
const BYTES_MAX: usize = 300 * 1024;

/// Starts a server with the console.
async fn serve(engine: Engine) -> Result<String> {
    let access = Access::Open { name: "bench".to_owned() };
    let app = App::new(Syncs::new(engine, SyncSettings::default()), access);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let base = format!("http://{}", listener.local_addr()?);
    let server = Server::new(app.clone()).extra_routes(tidemill_console::router(app));
    tokio::spawn(server.serve(listener, std::future::pending()));
    Ok(base)
}

/// Measures every page with 1,000,000 runs, one of which has 1,000,000 events.
pub(crate) async fn pages(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    let rows = if plan.quick { 100_000 } else { 1_000_000 };
    log(&format!("pages of the console with {rows} runs, and {rows} events of one of them"));
    let (database, engine, mut conn) = database_with_runs(cluster, POOL_CONNECTIONS, rows).await?;
    fill(&mut conn, include_str!("../sql/events_of_run.sql"), rows, Triggers::Off).await?;
    let long: String =
        sqlx::query_scalar("SELECT run_id FROM ops.runs ORDER BY created_at DESC, run_id DESC LIMIT 1")
            .fetch_one(&mut conn)
            .await?;
    let mut queued = Vec::new();
    for _ in 0..200 {
        queued.push(engine.queue(request()?).await?.run_id);
    }
    log("creating a sync and two graphs");
    let (_supplier, processes) = console_data::feed(database)?;
    let mut pages = paths(&long, queued.last().context("a queued run")?.as_str());
    pages.extend(console_data::sync(&processes, &mut conn).await?);
    pages.extend(console_data::graphs(&engine, &mut conn).await?);
    vacuum(&mut conn).await?;
    let base = serve(engine.clone()).await?;
    // The second installation in a process fails, which is harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().build().context("could not create a client")?;
    for (name, path) in pages {
        let url = format!("{base}{path}");
        let mut millis = Vec::with_capacity(REQUESTS);
        let mut bytes = 0;
        for _ in 0..REQUESTS {
            let started = Instant::now();
            let response = client.get(&url).header("accept-encoding", "gzip").send().await?;
            ensure!(response.status().is_success(), "the status of {path} is {}", response.status());
            bytes = response.bytes().await?.len();
            millis.push(started.elapsed().as_secs_f64() * 1_000.0);
        }
        let values = [percentile(&millis, 99), median(&millis), percentile(&millis, 100)];
        report.add(Line {
            what: format!("{name} ({:.1} KB)", f64::from(u32::try_from(bytes)?) / 1024.0),
            ours: format!("p50 {:.1} ms", values[1]),
            figure: format!("p99 {:.1} ms", values[0]),
            values,
            target: "p99 < 200 ms, < 300 KB".to_owned(),
            met: Some(values[0] < MILLIS_MAX && bytes < BYTES_MAX),
            ..Line::default()
        });
    }
    engine.store().close().await;
    Ok(())
}

fn paths(long: &str, waiting: &str) -> Paths {
    let fixed = [
        ("the overview", "/"),
        ("runs", "/runs"),
        ("failed runs", "/runs?status=failed"),
        ("runs of a rare branch", "/runs?find=refs%2Fheads%2Frare"),
        ("runs by lane", "/runs?lane=sync"),
        ("feeds", "/feeds"),
        ("queues", "/queues"),
        ("workers", "/workers"),
        ("agents", "/agents"),
        ("flags", "/flags"),
        ("schedules", "/schedules"),
        ("tokens", "/tokens"),
        ("audit", "/audit"),
    ];
    let mut paths: Paths = fixed.into_iter().map(|(name, path)| (name, path.to_owned())).collect();
    paths.push(("a waiting run", format!("/runs/{waiting}")));
    paths.push(("a run with many events", format!("/runs/{long}")));
    paths.push(("its errors", format!("/runs/{long}?level=error")));
    paths.push(("a search without matches", format!("/runs/{long}?find=nowhere+to+be+found")));
    paths.push(("the middle of its events", format!("/runs/{long}?before=50000")));
    paths.push(("its new events", format!("/runs/{long}/tail?after=1000")));
    paths
}
