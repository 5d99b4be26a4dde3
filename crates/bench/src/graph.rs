//! The graph controller: time of a full pass, and time of the change of one job.

use crate::Plan;
use crate::bench_cluster::{BenchCluster, ENVIRONMENT, PROJECT, open};
use crate::report::{Line, Report, log, median, percentile};
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tidemill_core::agent::NewAgent;
use tidemill_core::project_set::ProjectSet;
use tidemill_core::task::Stage;
use tidemill_engine::graph::{AgentIdentity, Controller, GraphSettings, Graphs, SubmitGraph};
use tidemill_store::Pooler;
use uuid::Uuid;

const CONNECTIONS: u32 = 4;
/// Capacity of the agent: jobs that run while all others wait.
const CAPACITY: i32 = 100;
/// Time limit of a pass over the middle size.
const PASS_MS: f64 = 250.0;
/// Number of jobs of the targets.
const MIDDLE: usize = 10_000;

/// A database with live jobs and an agent.
struct GraphDatabase {
    graphs: Graphs,
    identity: AgentIdentity,
    tasks: Vec<String>,
    live: usize,
    // Dropped last.
    _database: tidemill_testkit::cluster::Database,
}

impl GraphDatabase {
    async fn new(cluster: &BenchCluster, jobs: usize) -> Result<Self> {
        let database = cluster.migrated_database().await?;
        let engine = open(&database.url, CONNECTIONS, Pooler::Session).await?;
        let graphs = Graphs::new(engine, GraphSettings::default());
        let agent = NewAgent {
            agent_id: Uuid::new_v4(),
            name: "bench".to_owned(),
            host: "here".to_owned(),
            labels: Vec::new(),
            capacity: CAPACITY,
            version: "bench".to_owned(),
            projects: ProjectSet::All,
            token_id: None,
            boot_id: Uuid::new_v4(),
            secret_hash: "0".repeat(64),
            next_secret_hash: "0".repeat(64),
            dir_lock: None,
            isolation: None,
        };
        let identity = AgentIdentity { agent_id: agent.agent_id, boot_id: agent.boot_id, token_id: None };
        graphs.register(agent).await?;
        let submitted =
            graphs.submit(SubmitGraph::new(PROJECT, ENVIRONMENT, definition(jobs), "bench")).await?;
        ensure!(submitted.jobs == jobs, "{} jobs were submitted", submitted.jobs);
        let mut field = Self { graphs, identity, tasks: Vec::new(), live: jobs, _database: database };
        let mut controller = field.graphs.controller("filling");
        settle(&mut controller).await?;
        controller.release().await;
        while field.tasks.len() < usize::try_from(CAPACITY)? {
            let orders = field.graphs.poll(&field.identity, &field.tasks, Duration::ZERO).await?;
            ensure!(!orders.is_empty(), "only {} jobs are running", field.tasks.len());
            field.tasks.extend(orders.into_iter().map(|order| order.task_id));
        }
        Ok(field)
    }

    /// Milliseconds of full passes without changes.
    async fn passes(&self, times: usize) -> Result<Vec<f64>> {
        let settings = GraphSettings { pass: Duration::ZERO, ..GraphSettings::default() };
        let graphs = Graphs::new(self.graphs.engine().clone(), settings);
        let mut controller = graphs.controller("passes");
        controller.tick().await?;
        let mut taken = Vec::new();
        for _ in 0..times {
            self.graphs.heartbeat(&self.identity, &[]).await?;
            let started = Instant::now();
            let pass = controller.tick().await?;
            taken.push(started.elapsed().as_secs_f64() * 1e3);
            ensure!(pass.full && pass.changed == 0 && pass.live == self.live, "{pass:?}");
        }
        controller.release().await;
        Ok(taken)
    }

    /// Milliseconds from the report of one job to its change.
    async fn changes(&self) -> Result<Vec<f64>> {
        let mut controller = self.graphs.controller("changes");
        settle(&mut controller).await?;
        let mut taken = Vec::new();
        for stage in [Stage::Preparing, Stage::Prepared, Stage::Executing] {
            for task in &self.tasks {
                self.graphs.report_stage(&self.identity, task, stage.as_str()).await?;
                let started = Instant::now();
                let pass = controller.tick().await?;
                taken.push(started.elapsed().as_secs_f64() * 1e3);
                ensure!(!pass.full && pass.changed == 1, "{pass:?}");
            }
            self.graphs.heartbeat(&self.identity, &[]).await?;
        }
        controller.release().await;
        Ok(taken)
    }
}

/// Text of a graph in which a tenth of the jobs can start, and the others depend on them.
pub(crate) fn definition(jobs: usize) -> String {
    let roots = (jobs / 10).max(1);
    let mut text = String::from("version: 1\njobs:\n");
    for number in 0..jobs {
        let _ = write!(text, "  j{number}:\n    run: work\n");
        if number >= roots {
            let (one, other) = (number % roots, (number * 7) % roots);
            let more = if one == other { String::new() } else { format!(", j{other}") };
            let _ = writeln!(text, "    needs: [j{one}{more}]");
        }
    }
    text
}

pub(crate) async fn settle(controller: &mut Controller) -> Result<()> {
    while controller.tick().await?.more {}
    Ok(())
}

/// Measures passes over increasing numbers of live jobs, and the change of one of them.
pub(crate) async fn controller(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    let sizes: &[usize] = if plan.quick { &[1_000, MIDDLE] } else { &[1_000, MIDDLE, 50_000] };
    let mut per_job = Vec::new();
    let mut changes = Vec::new();
    for &size in sizes {
        log(&format!("{size} live jobs"));
        let field = GraphDatabase::new(cluster, size).await.with_context(|| format!("{size} live jobs"))?;
        let passes = field.passes(plan.pairs.max(3) * 2).await?;
        let middle = median(&passes);
        per_job.push(middle / f64::from(u32::try_from(size)?));
        let is_target = size == MIDDLE;
        report.add(Line {
            what: format!("a pass over {size} live jobs"),
            ours: format!("{middle:.1} ms"),
            figure: format!("{middle:.1} ms ({:.1}–{:.1})", percentile(&passes, 0), percentile(&passes, 100)),
            values: [middle, percentile(&passes, 0), percentile(&passes, 100)],
            target: if is_target { format!("< {PASS_MS:.0} ms") } else { String::new() },
            met: is_target.then_some(middle < PASS_MS),
            ..Line::default()
        });
        let taken = field.changes().await?;
        let middle = median(&taken);
        changes.push(middle);
        report.add(Line {
            what: format!("the change of one job among {size}, without a pass"),
            ours: format!("{middle:.2} ms"),
            figure: format!("{middle:.2} ms (p99 {:.2})", percentile(&taken, 99)),
            values: [middle, percentile(&taken, 0), percentile(&taken, 100)],
            ..Line::default()
        });
    }
    if let (Some(&small), Some(&large)) = (per_job.first(), per_job.last()) {
        // At most linear: the time per job must not grow with the number of jobs.
        let growth = large / small;
        report.add(Line {
            what: format!("time per job, {} live jobs compared with {}", sizes[sizes.len() - 1], sizes[0]),
            ours: format!("{:.1} µs", large * 1e3),
            floor: format!("{:.1} µs", small * 1e3),
            figure: format!("{growth:.2} times"),
            values: [growth, growth, growth],
            target: "≤ 1.2 times".to_owned(),
            met: Some(growth <= 1.2),
            ..Line::default()
        });
    }
    Ok(())
}
