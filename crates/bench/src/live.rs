//! A thousand live streams of one server: memory, and latency until an event has reached all of them.
//!
//! The server is this process. A second process opens the streams, and prints when each event arrived. Events are
//! appended without the server, so that it is not notified directly.

use crate::Plan;
use crate::bench_cluster::{BenchCluster, ENVIRONMENT, PROJECT, open};
use crate::report::{Line, Report, log, median, percentile};
use anyhow::{Context as _, Result, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::collections::HashMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_api::server::Server;
use tidemill_core::RunId;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::run::{ClaimRuns, QueueRun};
use tidemill_engine::Engine;
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_store::{Holder, Pooler};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;

/// Number of open streams.
const STREAMS: usize = 1_000;

/// Raises the limit of open files to its maximum.
fn raise_file_limit() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("could not raise the limit of open files")
}

/// Resident memory of this process in megabytes.
fn memory() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let text = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: f64 = text.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes / 1_024.0)
}

/// Measures live streams of a run and of a project.
pub(crate) async fn all(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    raise_file_limit()?;
    let database = cluster.migrated_database().await?;
    let engine = open(&database.url, 4, Pooler::Session).await?;
    let writer = open(&database.url, 1, Pooler::Session).await?;
    let run = start_run(&writer).await?;
    let app =
        App::new(Syncs::new(engine, SyncSettings::default()), Access::Open { name: "bench".to_owned() });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(Server::new(app.clone()).serve(listener, std::future::pending()));
    let rounds = if plan.quick { 20 } else { 100 };
    for (what, path) in [
        ("one run's", format!("/v1/runs/{run}/stream")),
        ("a project's", format!("/v1/stream?project={PROJECT}")),
    ] {
        log(&format!("{STREAMS} streams of {what} events"));
        streams(what, &path, address, &writer, &run, rounds, report).await?;
    }
    app.close();
    Ok(())
}

/// Queues and claims a run.
async fn start_run(engine: &Engine) -> Result<RunId> {
    engine.queue(QueueRun::new(PROJECT, ENVIRONMENT)).await?;
    let claim = engine.claim(ClaimRuns::one("bench")).await?;
    Ok(claim.first().context("the run was not claimed")?.run_id.clone())
}

async fn streams(
    what: &str,
    path: &str,
    address: SocketAddr,
    writer: &Engine,
    run: &RunId,
    rounds: usize,
    report: &mut Report,
) -> Result<()> {
    let before = memory()?;
    let (mut child, mut lines) = readers(address, path)?;
    let ready = lines.next_line().await?.context("the readers ended")?;
    ensure!(ready == "ready", "the readers printed {ready}");
    let mut arrivals = Vec::new();
    let mut to_all = Vec::new();
    let mut peak = memory()?;
    for _ in 0..rounds {
        let event = NewEvent::new(Level::Info, host_now().timestamp_micros().to_string());
        writer.append(run, vec![event], &Holder::default()).await?;
        let line = lines.next_line().await?.context("the readers ended")?;
        let millis: Vec<f64> = serde_json::from_str(&line)?;
        to_all.push(percentile(&millis, 100));
        arrivals.extend(millis);
        peak = peak.max(memory()?);
        tokio::time::sleep(Duration::from_millis(37)).await;
    }
    child.kill().await?;
    let slowest = percentile(&to_all, 99);
    report.add(Line {
        what: format!("an event to {STREAMS} streams of {what} events"),
        ours: format!("p50 {:.0} ms, p99 {:.0} ms", median(&arrivals), percentile(&arrivals, 99)),
        figure: format!("all streams p50 {:.0} ms, p99 {slowest:.0} ms", median(&to_all)),
        values: [median(&to_all), percentile(&to_all, 0), percentile(&to_all, 100)],
        target: "≤ 250 ms at p99".to_owned(),
        met: Some(percentile(&arrivals, 99) <= 250.0),
        ..Line::default()
    });
    let grown = peak - before;
    report.add(Line {
        what: format!("memory of {STREAMS} streams of {what} events"),
        ours: format!("{before:.0} MB before, {peak:.0} MB peak"),
        figure: format!("{grown:.0} MB"),
        values: [grown; 3],
        target: "< 100 MB".to_owned(),
        met: Some(grown < 100.0),
        ..Line::default()
    });
    Ok(())
}

fn readers(address: SocketAddr, path: &str) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["streams", &address.to_string(), path])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    Ok((child, lines))
}

/// The second process: opens the streams, prints `ready`, and for each event its latencies.
pub(crate) async fn other_process(address: &str, path: &str) -> Result<()> {
    raise_file_limit()?;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    for _ in 0..STREAMS {
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
        let sender = sender.clone();
        tokio::spawn(async move {
            if let Err(error) = read(socket, &sender).await {
                let _ = sender.send(Err(error));
            }
        });
    }
    drop(sender);
    let mut out = std::io::stdout();
    let (mut started, mut arrivals) = (0, HashMap::<i64, Vec<f64>>::new());
    while let Some(arrival) = receiver.recv().await {
        let (sent, millis) = arrival?;
        if sent == 0 {
            started += 1;
            if started == STREAMS {
                writeln!(out, "ready")?;
                out.flush()?;
            }
            continue;
        }
        let times = arrivals.entry(sent).or_default();
        times.push(millis);
        if times.len() == STREAMS {
            writeln!(out, "{}", serde_json::json!(times))?;
            out.flush()?;
            arrivals.remove(&sent);
        }
    }
    Ok(())
}

/// Reads one stream: sends 0 at its start, and then the send time and the latency of each event.
async fn read(mut socket: TcpStream, sender: &mpsc::UnboundedSender<Result<(i64, f64)>>) -> Result<()> {
    let (mut text, mut started) = (String::new(), false);
    let mut bytes = vec![0; 4_096];
    loop {
        let count = socket.read(&mut bytes).await?;
        ensure!(count > 0, "a stream ended");
        text.push_str(std::str::from_utf8(&bytes[..count])?);
        ensure!(
            "HTTP/1.1 200".starts_with(&text[..text.len().min(12)]) || started,
            "the server responded {text}"
        );
        if !started && text.contains("retry: ") {
            started = true;
            sender.send(Ok((0, 0.0)))?;
        }
        while let Some(end) = text.find("\n\n") {
            let frame: String = text.drain(..end + 2).collect();
            let Some(sent) = frame.split_once("\"message\":\"").and_then(|(_, rest)| rest.split_once('"'))
            else {
                continue;
            };
            if let Ok(sent) = sent.0.parse::<i64>() {
                let micros = host_now().timestamp_micros() - sent;
                sender.send(Ok((sent, f64::from(i32::try_from(micros)?) / 1_000.0)))?;
            }
        }
    }
}
