//! The console on a large table: how long each page takes on the server, and how many bytes of it travel.

use crate::Plan;
use crate::ground::{Ground, Triggers, fill, listed, tidy};
use crate::lanes::{self, Paths};
use crate::lifecycle::request;
use crate::report::{Line, Report, median, percentile, say};
use anyhow::{Context as _, Result, ensure};
use std::time::Instant;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_api::server::Server;
use tidemill_core::limits::POOL_CONNECTIONS;
use tidemill_engine::Engine;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tokio::net::TcpListener;

/// Looks at each page.
const LOOKS: usize = 200;
/// What a page may take at most: milliseconds at the 99th percentile, and bytes on the wire.
const MILLIS_MAX: f64 = 200.0;
const BYTES_MAX: usize = 300 * 1024;

/// A server with the console, on loopback.
async fn serve(engine: Engine) -> Result<String> {
    let access = Access::Open { name: "bench".to_owned() };
    let app = App::new(Syncs::new(engine, SyncSettings::default()), access);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let base = format!("http://{}", listener.local_addr()?);
    let server = Server::new(app.clone()).beside(tidemill_console::router(app));
    tokio::spawn(server.serve(listener, std::future::pending()));
    Ok(base)
}

/// Every page, with 1,000,000 runs stored and one run with 1,000,000 events.
pub(crate) async fn pages(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    let rows = if plan.quick { 100_000 } else { 1_000_000 };
    say(&format!("pages of the console with {rows} runs stored, and {rows} events of one of them"));
    let (database, engine, mut conn) = listed(ground, POOL_CONNECTIONS, rows).await?;
    fill(&mut conn, include_str!("../sql/events_of_run.sql"), rows, Triggers::Off).await?;
    let long: String = sqlx::query_scalar("SELECT run_id FROM ops.runs ORDER BY run_id DESC LIMIT 1")
        .fetch_one(&mut conn)
        .await?;
    let mut queued = Vec::new();
    for _ in 0..200 {
        queued.push(engine.queue(request()).await?.run_id);
    }
    say("a sync and two graphs beside them");
    let (_supplier, mill) = lanes::feed(database)?;
    let mut looks = paths(&long, queued.last().context("a run")?.as_str());
    looks.extend(lanes::sync(&mill, &mut conn).await?);
    looks.extend(lanes::graphs(&engine, &mut conn).await?);
    tidy(&mut conn).await?;
    let base = serve(engine.clone()).await?;
    // Installed once per process; a second time changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().build().context("a client")?;
    for (name, path) in looks {
        let url = format!("{base}{path}");
        let mut millis = Vec::with_capacity(LOOKS);
        let mut bytes = 0;
        for _ in 0..LOOKS {
            let began = Instant::now();
            let answer = client.get(&url).header("accept-encoding", "gzip").send().await?;
            ensure!(answer.status().is_success(), "{path} is answered with {}", answer.status());
            bytes = answer.bytes().await?.len();
            millis.push(began.elapsed().as_secs_f64() * 1_000.0);
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
        ("runs that failed", "/runs?status=failed"),
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
    paths.push(("a run that waits", format!("/runs/{waiting}")));
    paths.push(("a run with a long record", format!("/runs/{long}")));
    paths.push(("its errors", format!("/runs/{long}?level=error")));
    paths.push(("a text that is not in it", format!("/runs/{long}?find=nowhere+to+be+found")));
    paths.push(("the middle of it", format!("/runs/{long}?before=50000")));
    paths.push(("its new rows", format!("/runs/{long}/tail?after=1000")));
    paths
}
