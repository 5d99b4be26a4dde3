//! The HTTP API: its rate compared with the engine in the same process, and the time of lists on a large table.

use crate::Plan;
use crate::bench_cluster::{BenchCluster, ENVIRONMENT, PROJECT, database_with_runs, open, vacuum};
use crate::lifecycle::{Start, Throughput, one_cycle, request, total};
use crate::report::{Line, Pairs, Report, log, median, percentile};
use anyhow::{Context as _, Result};
use sqlx::{Connection as _, PgConnection};
use std::time::{Duration, Instant};
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_api::server::Server;
use tidemill_client::{Client, HttpOptions, HttpTransport};
use tidemill_core::run::{ChangeOutcome, FinalStatus};
use tidemill_engine::Engine;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_store::Pooler;
use tidemill_wire::claims::ClaimRequest;
use tidemill_wire::runs::{Finish, ListRuns};
use tokio::task::JoinSet;

/// Concurrent callers, and database connections.
const CALLERS: u32 = 8;
const LISTS: usize = 300;

/// Starts a server, and returns its address and a client.
pub(crate) async fn serve(engine: Engine) -> Result<(String, Client)> {
    let access = Access::Open { name: "bench".to_owned() };
    let app = App::new(Syncs::new(engine, SyncSettings::default()), access);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}", listener.local_addr()?);
    tokio::spawn(Server::new(app).serve(listener, std::future::pending()));
    let options = HttpOptions { server: server.clone(), token: None, authorities: Vec::new() };
    Ok((server, Client::new(HttpTransport::new(options)?)))
}

/// Compares claim and finish over HTTP with the engine, on filled queues.
pub(crate) async fn cycles(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    log("claim and finish over HTTP, compared with the engine in the same process");
    let database = cluster.migrated_database().await?;
    let engine = open(&database.url, CALLERS, Pooler::Session).await?;
    let (_, client) = serve(engine.clone()).await?;
    let mut conn = PgConnection::connect(&database.url).await?;
    let mut pairs = Pairs::default();
    for _ in 0..plan.pairs {
        fill_queue(&engine, plan).await?;
        vacuum(&mut conn).await?;
        let direct = through_engine(&engine, plan.time()).await?;
        fill_queue(&engine, plan).await?;
        vacuum(&mut conn).await?;
        let remote = through_http(&client, plan.time()).await?;
        pairs.add(direct.rate(), remote.rate());
    }
    report.add(pairs.line("claim and finish over HTTP, 8 callers, compared with the engine", 60.0, None));
    engine.store().close().await;
    Ok(())
}

/// Queues enough runs for one side of a pair.
async fn fill_queue(engine: &Engine, plan: &Plan) -> Result<()> {
    let wanted = 4_000 * plan.time().as_secs().max(1);
    let mut set = JoinSet::new();
    for _ in 0..CALLERS {
        let engine = engine.clone();
        set.spawn(async move {
            for _ in 0..wanted / u64::from(CALLERS) {
                engine.queue(request()?).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = set.join_next().await {
        done.context("a task panicked")??;
    }
    Ok(())
}

async fn through_engine(engine: &Engine, time: Duration) -> Result<Throughput> {
    let started = Instant::now();
    let mut set = JoinSet::new();
    for number in 0..CALLERS {
        let engine = engine.clone();
        set.spawn(async move {
            let (worker, mut done) = (format!("direct-{number}"), 0_u32);
            while started.elapsed() < time {
                done += u32::from(one_cycle(&engine, &worker, Start::Implicit).await?);
            }
            anyhow::Ok(done)
        });
    }
    total(set, started).await
}

async fn through_http(client: &Client, time: Duration) -> Result<Throughput> {
    let started = Instant::now();
    let mut set = JoinSet::new();
    for number in 0..CALLERS {
        let client = client.clone();
        set.spawn(async move {
            let (worker, mut done) = (format!("remote-{number}"), 0_u32);
            while started.elapsed() < time {
                let Some(claim) = client.claim(&ClaimRequest::one(&worker)).await?.runs.pop() else {
                    continue;
                };
                let finish = Finish {
                    status: FinalStatus::Success,
                    metadata: serde_json::json!({"exit_code": 0}),
                    worker: worker.clone(),
                    epoch: claim.epoch,
                };
                done += u32::from(client.finish_run(&claim.run_id, &finish).await? == ChangeOutcome::Applied);
            }
            anyhow::Ok(done)
        });
    }
    total(set, started).await
}

/// Measures `GET /v1/runs` on a large table with each filter.
pub(crate) async fn lists(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    let rows = if plan.quick { 100_000 } else { 1_000_000 };
    log(&format!("lists of runs with {rows} runs"));
    let (_database, engine, mut conn) = database_with_runs(cluster, CALLERS, rows).await?;
    for _ in 0..100 {
        engine.queue(request()?).await?;
    }
    vacuum(&mut conn).await?;
    let (_, client) = serve(engine.clone()).await?;
    for (name, filter) in filters(&mut conn).await? {
        let mut millis = Vec::with_capacity(LISTS);
        let mut found = 0;
        for _ in 0..LISTS {
            let started = Instant::now();
            found = client.runs(&filter).await?.items.len();
            millis.push(started.elapsed().as_secs_f64() * 1_000.0);
        }
        let values = [percentile(&millis, 99), median(&millis), percentile(&millis, 100)];
        report.add(Line {
            what: format!("GET /v1/runs by {name} ({found} rows)"),
            ours: format!("p50 {:.1} ms", values[1]),
            figure: format!("p99 {:.1} ms", values[0]),
            values,
            target: "p99 < 20 ms".to_owned(),
            met: Some(values[0] < 20.0),
            ..Line::default()
        });
    }
    engine.store().close().await;
    Ok(())
}

/// Each filter with a frequent value, and some with a rare one.
async fn filters(conn: &mut PgConnection) -> Result<Vec<(&'static str, ListRuns)>> {
    let some: String =
        sqlx::query_scalar("SELECT run_id FROM ops.runs ORDER BY created_at, run_id OFFSET 50000 LIMIT 1")
            .fetch_one(&mut *conn)
            .await?;
    let at: tidemill_core::Timestamp = sqlx::query_scalar("SELECT queued_at FROM ops.runs WHERE run_id = $1")
        .bind(&some)
        .fetch_one(conn)
        .await?;
    let none = ListRuns::default;
    let text = |text: &str| Some(text.to_owned());
    Ok(vec![
        ("no filter", none()),
        ("lane", ListRuns { lane: Some("sync".parse()?), ..none() }),
        ("kind", ListRuns { kind: text("common"), ..none() }),
        ("a rare kind", ListRuns { kind: text("rare"), ..none() }),
        (
            "kind and state failed",
            ListRuns { kind: text("common"), status: Some("failed".parse()?), ..none() },
        ),
        ("project", ListRuns { project: text(PROJECT), ..none() }),
        ("a rare project", ListRuns { project: text("rare"), ..none() }),
        ("environment", ListRuns { project: text(PROJECT), env: text(ENVIRONMENT), ..none() }),
        ("a rare environment", ListRuns { project: text(PROJECT), env: text("rare"), ..none() }),
        ("state failed", ListRuns { status: Some("failed".parse()?), ..none() }),
        ("state queued", ListRuns { status: Some("queued".parse()?), ..none() }),
        ("state success", ListRuns { status: Some("success".parse()?), ..none() }),
        ("feed", ListRuns { feed: text("stones"), ..none() }),
        ("time", ListRuns { until: Some(at), ..none() }),
        ("prefix of id", ListRuns { id_prefix: text(&some[..20]), ..none() }),
        ("prefix of sha", ListRuns { sha_prefix: text("00ab"), ..none() }),
        ("prefix of ref", ListRuns { ref_prefix: text("refs/heads/rare"), ..none() }),
        ("prefix of name", ListRuns { name_prefix: text("sto"), ..none() }),
    ])
}
