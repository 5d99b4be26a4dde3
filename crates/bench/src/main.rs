//! Benchmarks: each figure is measured together with its floor, because machines are noisy.
//!
//! `cargo xtask bench runs|queue|sync|http|console|graph|peers [--pairs N] [--seconds S] [--only a,b] [--quick]
//! [--json]`, and `cargo xtask bench instructions` for figures that do not depend on the load of the machine.
//! A benchmark is not a test: it measures, reports which targets are met, and exits with 0. docs/benchmarks.md
//! describes the method.

mod agent_floor;
mod bench_cluster;
mod callgrind;
mod compare;
mod console;
mod console_data;
mod cpu_time;
mod floor;
mod graph;
mod graph_lane;
mod hot_path;
mod http;
mod instructions;
mod latency;
mod lifecycle;
mod live;
mod messages;
mod peers;
mod pgbench;
mod queue;
mod report;
mod sqlite;
mod sync;
mod sync_processes;
mod sync_rest;
mod wal;

use anyhow::{Context as _, Result, bail};
use report::Report;
use std::num::{NonZeroU64, NonZeroUsize};
use std::process::ExitCode;
use std::time::Duration;

/// Duration and number of measurements.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Pairs of floor and Tidemill. The median of their ratios counts.
    pub(crate) pairs: usize,
    /// Time for each side of a pair, if `--seconds` is given.
    time: Option<Duration>,
    /// Names of the measurements; empty for all.
    only: Vec<String>,
    /// Smaller tables and shorter times.
    pub(crate) quick: bool,
    json: bool,
}

/// Names that `--only` accepts.
const MEASUREMENTS: [&str; 29] = [
    "floor",
    "batch",
    "claim",
    "lifecycle",
    "queue",
    "many",
    "keyed",
    "sqlite",
    "latency",
    "notify",
    "flat",
    "pinned",
    "whole",
    "workers",
    "settings",
    "batches",
    "sizes",
    "send",
    "cycles",
    "lists",
    "streams",
    "controller",
    "jobs",
    "chain",
    "insert",
    "bulk",
    "drain",
    "rates",
    "memory",
];

const USAGE: &str =
    "usage: runs|queue|sync|http|console|graph|peers [--pairs N] [--seconds S] [--only a,b] [--quick] [--json]
  --pairs N     pairs of floor and Tidemill for each ratio, or rounds of all queues; the
                default is 7 for runs and peers, otherwise 5
  --seconds S   whole seconds for each side of a pair; the default is 10 for peers and for
                batch, claim, lifecycle, queue, many, keyed and sqlite, otherwise 4
  --only a,b    http: cycles, lists, streams; graph: floor, controller, jobs, chain
                runs: batch, claim, lifecycle, queue, many, keyed, sqlite, latency, notify,
                flat, pinned
                sync: whole, workers, settings; queue: batches, sizes, send
                peers: insert, bulk, drain
                sync --feed rest: rates, memory
  --feed F      feed of a sync: nivoda, or rest beside dlt; the default is nivoda
  --stones N    records of a sync; the default is 500000, for rest 100000
  --quick       short measurements on a tenth of the rows, about a minute
  --json        print the table as JSON";

impl Plan {
    /// Time for each side of a pair.
    pub(crate) fn time(&self) -> Duration {
        self.time_or(4)
    }

    /// Time for each side of a pair, with another default: a queue is faster for some seconds after a vacuum.
    pub(crate) fn time_or(&self, secs: u64) -> Duration {
        self.time.unwrap_or(Duration::from_secs(secs))
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }
}

fn main() -> Result<ExitCode> {
    // Supervisors fork, so they must run before any thread is started.
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("supervise") {
        return Ok(match arguments.next().as_deref() {
            Some("lasting") => tidemill_supervisor::supervise_detached(&["supervise", "launch"]),
            Some(_) | None => tidemill_supervisor::launch(),
        });
    }
    measure().map(|()| ExitCode::SUCCESS)
}

fn measure() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next();
    match what.as_deref() {
        Some("runs" | "queue" | "sync" | "http" | "console" | "graph" | "peers") => {}
        Some("instructions") => {
            return tokio::runtime::Runtime::new()?.block_on(instructions::all(arguments));
        }
        // The second process of a measurement across processes.
        Some("worker") => {
            let file = arguments.next().context("the argument FILE is missing")?;
            return tokio::runtime::Runtime::new()?.block_on(latency::other_process(&file));
        }
        Some("streams") => {
            let address = arguments.next().context("the argument ADDRESS is missing")?;
            let path = arguments.next().context("the argument PATH is missing")?;
            return tokio::runtime::Runtime::new()?.block_on(live::other_process(&address, &path));
        }
        Some(_) | None => bail!("{USAGE}\n{}", instructions::USAGE),
    }
    let (mut stones, mut feed) = (None, SyncFeed::Nivoda);
    let pairs = match what.as_deref() {
        Some("runs" | "peers") => 7,
        Some(_) | None => 5,
    };
    let mut plan = Plan { pairs, time: None, only: Vec::new(), quick: false, json: false };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--pairs" => {
                plan.pairs =
                    value()?.parse::<NonZeroUsize>().context("--pairs must be a positive number")?.get();
            }
            "--stones" => stones = Some(value()?.parse::<u32>().context("--stones must be a number")?),
            "--feed" => {
                feed = match value()?.as_str() {
                    "nivoda" => SyncFeed::Nivoda,
                    "rest" => SyncFeed::Rest,
                    other => bail!("unknown feed `{other}`; use nivoda or rest"),
                }
            }
            "--seconds" => {
                let seconds =
                    value()?.parse::<NonZeroU64>().context("--seconds must be a positive number")?;
                plan.time = Some(Duration::from_secs(seconds.get()));
            }
            "--only" => {
                plan.only = value()?.split(',').map(str::to_owned).collect();
                if let Some(name) = plan.only.iter().find(|name| !MEASUREMENTS.contains(&name.as_str())) {
                    bail!("unknown measurement `{name}`; use one of {}", MEASUREMENTS.join(", "));
                }
            }
            "--quick" => {
                plan.quick = true;
                plan.pairs = 2;
                plan.time = Some(Duration::from_secs(1));
            }
            "--json" => plan.json = true,
            other => bail!("unknown option {other}\n{USAGE}"),
        }
    }
    let runtime = tokio::runtime::Runtime::new()?;
    match what.as_deref() {
        Some("queue") => runtime.block_on(queues(&plan)),
        Some("peers") => runtime.block_on(peers::all(&plan)),
        Some("sync") => runtime.block_on(syncs(&plan, feed, feed.records(&plan, stones))),
        Some("http") => runtime.block_on(https(&plan)),
        Some("console") => runtime.block_on(consoles(&plan)),
        Some("graph") => runtime.block_on(graphs(&plan)),
        Some(_) | None => runtime.block_on(runs(&plan)),
    }
}

/// The feed of a measured sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncFeed {
    Nivoda,
    Rest,
}

impl SyncFeed {
    /// Returns the number of records of a sync.
    fn records(self, plan: &Plan, wanted: Option<u32>) -> u32 {
        let (quick, usual) = match self {
            Self::Nivoda => (50_000, 500_000),
            Self::Rest => (20_000, 100_000),
        };
        wanted.unwrap_or(if plan.quick { quick } else { usual })
    }
}

async fn syncs(plan: &Plan, feed: SyncFeed, stones: u32) -> Result<()> {
    let mut report = Report::default();
    // Measures the time in the function that stores a page.
    let cluster = bench_cluster::BenchCluster::start(&[("track_functions", "pl")])?;
    if feed == SyncFeed::Rest {
        sync_rest::all(&cluster, plan, stones, &mut report).await?;
        report.print(plan.json);
        return Ok(());
    }
    if plan.wants("whole") {
        sync::all(&cluster, plan, stones, &mut report).await?;
    }
    if plan.wants("workers") {
        compare::workers(&cluster, plan, stones, &mut report).await?;
    }
    if plan.wants("settings") {
        compare::settings(&cluster, plan, stones, &mut report).await?;
    }
    report.print(plan.json);
    Ok(())
}

async fn https(plan: &Plan) -> Result<()> {
    let mut report = Report::default();
    let cluster = bench_cluster::BenchCluster::start(&[])?;
    if plan.wants("cycles") {
        http::cycles(&cluster, plan, &mut report).await?;
    }
    if plan.wants("lists") {
        http::lists(&cluster, plan, &mut report).await?;
    }
    if plan.wants("streams") {
        live::all(&cluster, plan, &mut report).await?;
    }
    report.print(plan.json);
    Ok(())
}

async fn graphs(plan: &Plan) -> Result<()> {
    let mut report = Report::default();
    if plan.wants("floor") {
        agent_floor::all(plan, &mut report).await?;
    }
    let cluster = bench_cluster::BenchCluster::start(&[])?;
    if plan.wants("controller") {
        graph::controller(&cluster, plan, &mut report).await?;
    }
    if plan.wants("jobs") {
        graph_lane::jobs(&cluster, plan, &mut report).await?;
    }
    if plan.wants("chain") {
        graph_lane::chain(&cluster, plan, &mut report).await?;
    }
    report.print(plan.json);
    Ok(())
}

async fn consoles(plan: &Plan) -> Result<()> {
    let mut report = Report::default();
    let cluster = bench_cluster::BenchCluster::start(&[])?;
    console::pages(&cluster, plan, &mut report).await?;
    report.print(plan.json);
    Ok(())
}

async fn queues(plan: &Plan) -> Result<()> {
    let mut report = Report::default();
    let cluster = bench_cluster::BenchCluster::start(&[])?;
    if plan.wants("batches") {
        messages::batches(&cluster, plan, &mut report).await?;
    }
    if plan.wants("sizes") {
        messages::sizes(&cluster, plan, &mut report).await?;
    }
    if plan.wants("send") {
        messages::send_to_receive(&cluster, plan, &mut report).await?;
    }
    report.print(plan.json);
    Ok(())
}

async fn runs(plan: &Plan) -> Result<()> {
    let mut report = Report::default();
    hot_path::all(plan, &mut report).await?;
    if plan.wants("sqlite") {
        sqlite::lifecycle(plan, &mut report).await?;
    }
    if !["latency", "notify", "flat", "pinned"].iter().any(|name| plan.wants(name)) {
        report.print(plan.json);
        return Ok(());
    }
    let cluster = bench_cluster::BenchCluster::start(&[])?;
    if plan.wants("latency") {
        latency::all(&cluster, plan, &mut report).await?;
    }
    if plan.wants("notify") {
        latency::notifications(&cluster, plan, &mut report).await?;
    }
    if plan.wants("flat") {
        queue::flat(&cluster, plan, &mut report).await?;
    }
    if plan.wants("pinned") {
        queue::pinned(&cluster, plan, &mut report).await?;
    }
    report.print(plan.json);
    Ok(())
}
