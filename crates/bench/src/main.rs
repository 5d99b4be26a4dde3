//! Benchmarks: each figure beside its floor, in the same run, because machines are noisy.
//!
//! `cargo xtask bench runs|queue|sync|http|console|graph [--pairs N] [--seconds S] [--only a,b] [--quick] [--json]`.
//! A benchmark is not a test: it measures, says which targets are met, and exits with 0. How it measures:
//! docs/benchmarks.md.

mod agent_floor;
mod compare;
mod console;
mod floor;
mod graph;
mod graph_lane;
mod ground;
mod http;
mod lanes;
mod latency;
mod lifecycle;
mod live;
mod messages;
mod mill;
mod queue;
mod report;
mod sqlite;
mod sync;

use anyhow::{Context as _, Result, bail};
use report::Report;
use std::num::{NonZeroU64, NonZeroUsize};
use std::process::ExitCode;
use std::time::Duration;

/// How long and how often to measure.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Pairs of floor and ours; the median of their ratios counts.
    pub(crate) pairs: usize,
    /// Time for each side of a pair, where somebody said so.
    time: Option<Duration>,
    /// Only these measurements, if any are named.
    only: Vec<String>,
    /// Smaller tables and shorter waits, for a first look.
    pub(crate) quick: bool,
    json: bool,
}

/// What can be named with `--only`.
const MEASUREMENTS: [&str; 21] = [
    "floor",
    "floors",
    "lifecycle",
    "batch",
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
];

const USAGE: &str =
    "usage: runs|queue|sync|http|console|graph [--pairs N] [--seconds S] [--only a,b] [--quick] [--json]
  --pairs N     pairs of floor and ours for each ratio, 5 unless told otherwise
  --seconds S   whole seconds for each side of a pair, 4 unless told otherwise, but 30 of a
                full lifecycle and 10 of batches of runs
  --only a,b    http: cycles, lists, streams; graph: floor, controller, jobs, chain
                runs: floors, lifecycle, batch, sqlite, latency, notify, flat, pinned
                sync: whole, workers, settings; queue: batches, sizes, send
  --stones N    stones of a sync, 500000 unless told otherwise
  --quick       a first look in about a minute: short, on tenths of the tables
  --json        the table as JSON";

impl Plan {
    /// Time for each side of a pair.
    pub(crate) fn time(&self) -> Duration {
        self.lasting(4)
    }

    /// The same where a rate has to last so long: a queue that was just tidied is fast for some seconds.
    pub(crate) fn lasting(&self, secs: u64) -> Duration {
        self.time.unwrap_or(Duration::from_secs(secs))
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }
}

fn main() -> Result<ExitCode> {
    // The steps between a measurement and its commands come first, with no threads.
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
        Some("runs" | "queue" | "sync" | "http" | "console" | "graph") => {}
        // The other process of a measurement across processes.
        Some("worker") => {
            let file = arguments.next().context("the file is missing")?;
            return tokio::runtime::Runtime::new()?.block_on(latency::other_process(&file));
        }
        Some("streams") => {
            let address = arguments.next().context("the address is missing")?;
            let path = arguments.next().context("the path is missing")?;
            return tokio::runtime::Runtime::new()?.block_on(live::other_process(&address, &path));
        }
        Some(_) | None => bail!(USAGE),
    }
    let mut stones = 500_000;
    let mut plan = Plan { pairs: 5, time: None, only: Vec::new(), quick: false, json: false };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--pairs" => plan.pairs = value()?.parse::<NonZeroUsize>().context("a number of pairs")?.get(),
            "--stones" => stones = value()?.parse::<u32>().context("a number of stones")?,
            "--seconds" => {
                let seconds = value()?.parse::<NonZeroU64>().context("whole seconds")?;
                plan.time = Some(Duration::from_secs(seconds.get()));
            }
            "--only" => {
                plan.only = value()?.split(',').map(str::to_owned).collect();
                if let Some(name) = plan.only.iter().find(|name| !MEASUREMENTS.contains(&name.as_str())) {
                    bail!("there is no measurement `{name}`; there are {}", MEASUREMENTS.join(", "));
                }
            }
            "--quick" => {
                plan.quick = true;
                plan.pairs = 2;
                plan.time = Some(Duration::from_secs(1));
            }
            "--json" => plan.json = true,
            other => bail!("there is no option {other}\n{USAGE}"),
        }
    }
    let runtime = tokio::runtime::Runtime::new()?;
    match what.as_deref() {
        Some("queue") => runtime.block_on(queues(&plan)),
        Some("sync") => runtime.block_on(syncs(&plan, if plan.quick { 50_000 } else { stones })),
        Some("http") => runtime.block_on(https(&plan)),
        Some("console") => runtime.block_on(consoles(&plan)),
        Some("graph") => runtime.block_on(graphs(&plan)),
        Some(_) | None => runtime.block_on(runs(&plan)),
    }
}

async fn syncs(plan: &Plan, stones: u32) -> Result<()> {
    let mut report = Report::default();
    // How long the function that stores a page takes.
    let ground = ground::Ground::prepare(&[("track_functions", "pl")])?;
    if plan.wants("whole") {
        sync::all(&ground, plan, stones, &mut report).await?;
    }
    if plan.wants("workers") {
        compare::workers(&ground, plan, stones, &mut report).await?;
    }
    if plan.wants("settings") {
        compare::settings(&ground, plan, stones, &mut report).await?;
    }
    report.print(plan.json);
    Ok(())
}

async fn https(plan: &Plan) -> Result<()> {
    let mut report = Report::default();
    let ground = ground::Ground::prepare(&[])?;
    if plan.wants("cycles") {
        http::cycles(&ground, plan, &mut report).await?;
    }
    if plan.wants("lists") {
        http::lists(&ground, plan, &mut report).await?;
    }
    if plan.wants("streams") {
        live::all(&ground, plan, &mut report).await?;
    }
    report.print(plan.json);
    Ok(())
}

async fn graphs(plan: &Plan) -> Result<()> {
    let mut report = Report::default();
    if plan.wants("floor") {
        agent_floor::all(plan, &mut report).await?;
    }
    let ground = ground::Ground::prepare(&[])?;
    if plan.wants("controller") {
        graph::controller(&ground, plan, &mut report).await?;
    }
    if plan.wants("jobs") {
        graph_lane::jobs(&ground, plan, &mut report).await?;
    }
    if plan.wants("chain") {
        graph_lane::chain(&ground, plan, &mut report).await?;
    }
    report.print(plan.json);
    Ok(())
}

async fn consoles(plan: &Plan) -> Result<()> {
    let mut report = Report::default();
    let ground = ground::Ground::prepare(&[])?;
    console::pages(&ground, plan, &mut report).await?;
    report.print(plan.json);
    Ok(())
}

async fn queues(plan: &Plan) -> Result<()> {
    let mut report = Report::default();
    let ground = ground::Ground::prepare(&[])?;
    if plan.wants("batches") {
        messages::batches(&ground, plan, &mut report).await?;
    }
    if plan.wants("sizes") {
        messages::sizes(&ground, plan, &mut report).await?;
    }
    if plan.wants("send") {
        messages::send_to_receive(&ground, plan, &mut report).await?;
    }
    report.print(plan.json);
    Ok(())
}

async fn runs(plan: &Plan) -> Result<()> {
    let mut report = Report::default();
    let ground = ground::Ground::prepare(&[])?;
    if plan.wants("floors") && !plan.quick {
        floor::all(&ground, plan, &mut report)?;
    }
    if plan.wants("lifecycle") {
        for connections in [8, 16] {
            lifecycle::single(&ground, plan, connections, &mut report).await?;
        }
    }
    if plan.wants("batch") {
        lifecycle::batched(&ground, plan, &mut report).await?;
    }
    if plan.wants("sqlite") {
        sqlite::lifecycle(plan, &mut report).await?;
    }
    if plan.wants("latency") {
        latency::all(&ground, plan, &mut report).await?;
    }
    if plan.wants("notify") {
        latency::notifications(&ground, plan, &mut report).await?;
    }
    if plan.wants("flat") {
        queue::flat(&ground, plan, &mut report).await?;
    }
    if plan.wants("pinned") {
        queue::pinned(&ground, plan, &mut report).await?;
    }
    report.print(plan.json);
    Ok(())
}
