//! Graphs with a server, a controller and an agent: empty jobs compared with the same commands without them, and the
//! time from the end of a dependency to the start of its dependent.

use crate::Plan;
use crate::agent_floor::{self, CONCURRENCY};
use crate::bench_cluster::{BenchCluster, ENVIRONMENT, PROJECT, directory, open};
use crate::http::serve;
use crate::report::{Line, Pairs, Report, log, median, percentile};
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidemill_agent::{CommandsOnExit, ExitPolicy, Settings};
use tidemill_client::Client;
use tidemill_core::RunId;
use tidemill_core::run::RunState;
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_engine::{Engine, Identity};
use tidemill_store::Pooler;
use tidemill_testkit::cluster::Database;
use tidemill_wire::graphs::NewGraph;
use tokio::sync::watch;
use tokio::task::JoinSet;

const CONNECTIONS: u32 = 8;
/// Waiting jobs during the measurement of the chain.
const LIVE: usize = 100;
/// Time limit of a graph.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Server, controller and agent on a database.
struct GraphServices {
    engine: Engine,
    client: Client,
    stop: watch::Sender<bool>,
    roles: JoinSet<()>,
    _database: Database,
    dir: tempfile::TempDir,
}

impl GraphServices {
    async fn start(cluster: &BenchCluster) -> Result<Self> {
        let database = cluster.migrated_database().await?;
        let engine = open(&database.url, CONNECTIONS, Pooler::Session).await?;
        let (_, client) = serve(engine.clone()).await?;
        let (stop, stop_signal) = watch::channel(false);
        let dir = directory()?;
        let mut roles = JoinSet::new();
        let graphs = Graphs::new(engine.clone(), GraphSettings::default());
        let identity = Identity { name: "bench".to_owned(), host: "bench".to_owned(), labels: Vec::new() };
        let controller_stop = stop_signal.clone();
        roles.spawn(async move {
            if let Err(error) = graphs.control(identity, controller_stop).await {
                log(&format!("the controller ended: {error}"));
            }
        });
        let (settings, agent_client) = (settings(dir.path())?, client.clone());
        roles.spawn(async move {
            if let Err(error) = tidemill_agent::run(settings, agent_client, stop_signal).await {
                log(&format!("the agent ended: {error}"));
            }
        });
        Ok(Self { engine, client, stop, roles, _database: database, dir })
    }

    /// Submits a graph, and returns its run.
    async fn submit(&self, text: String) -> Result<RunId> {
        let graph = NewGraph {
            project: PROJECT.to_owned(),
            env: ENVIRONMENT.to_owned(),
            text,
            only: Vec::new(),
            workspace: None,
            rerun_needed: false,
            priority: 0,
            git_sha: None,
            git_ref: None,
        };
        Ok(self.client.submit_graph(&graph, None).await?.run_id)
    }

    /// Waits until a graph has succeeded.
    async fn wait_for_success(&self, run: &RunId) -> Result<()> {
        let started = Instant::now();
        loop {
            let status = self.engine.run(run).await?.status;
            if status.is_terminal() {
                ensure!(status == RunState::Success, "the graph ended as {status}");
                return Ok(());
            }
            ensure!(started.elapsed() < TIMEOUT, "the graph did not end within the time limit");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(mut self) {
        self.stop.send_replace(true);
        while self.roles.join_next().await.is_some() {}
        self.engine.store().close().await;
    }
}

fn settings(dir: &Path) -> Result<Settings> {
    Ok(Settings {
        dir: dir.join("agent"),
        name: "bench".to_owned(),
        host: "bench".to_owned(),
        labels: Vec::new(),
        capacity: i32::try_from(CONCURRENCY).context("a number of slots")?,
        secrets: None,
        store: None,
        retention: tidemill_agent::RetentionPolicy::default(),
        probe: None,
        exit_policy: ExitPolicy::Never,
        commands_on_exit: CommandsOnExit::Continue,
        grace: Duration::from_secs(10),
        isolation: tidemill_agent::IsolationMode::Auto,
        task_users: tidemill_agent::UserRange::default(),
        hidden: Vec::new(),
        supervisor: PathBuf::from("/proc/self/exe"),
        supervisor_args: vec!["supervise".to_owned(), "lasting".to_owned()],
    })
}

/// Compares empty jobs on an agent of capacity 8 with the same commands in a loop.
pub(crate) async fn jobs(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    log("empty jobs of one agent, compared with their commands without a server");
    let services = GraphServices::start(cluster).await?;
    let warm = services.submit(no_ops(CONCURRENCY)?).await?;
    services.wait_for_success(&warm).await?;
    let mut pairs = Pairs::default();
    for _ in 0..plan.pairs {
        let floor = agent_floor::rate(CONCURRENCY, plan.time()).await?;
        // As many as the floor completes in half the time, so that both sides take about as long.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let count = ((floor * plan.time().as_secs_f64() / 2.0) as usize).max(CONCURRENCY * 4);
        let run = services.submit(no_ops(count)?).await?;
        let started = Instant::now();
        services.wait_for_success(&run).await?;
        let count = f64::from(u32::try_from(count).context("a number of jobs")?);
        pairs.add(floor, count / started.elapsed().as_secs_f64());
    }
    report.add(pairs.line("empty jobs, one agent of capacity 8, compared with its commands", 40.0, None));
    services.end().await;
    Ok(())
}

fn no_ops(count: usize) -> Result<String> {
    let mut text = "version: 1\njobs:\n".to_owned();
    for number in 0..count {
        writeln!(text, "  job-{number}: {{run: ':'}}")?;
    }
    Ok(text)
}

/// Measures the time from the end of a command to the start of its dependent, with a hundred waiting jobs.
pub(crate) async fn chain(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    log("end of a dependency to start of its dependent, with 100 live jobs");
    let services = GraphServices::start(cluster).await?;
    let mut waiting = "version: 1\njobs:\n".to_owned();
    for number in 0..LIVE {
        writeln!(waiting, "  live-{number}: {{run: ':', labels: [missing]}}")?;
    }
    services.submit(waiting).await?;
    let times = services.dir.path().join("times");
    let length = if plan.quick { 20 } else { 100 };
    let mut text = format!("version: 1\nenv: {{TIMES: \"{}\"}}\njobs:\n", times.display());
    for number in 0..length {
        let needs = if number > 0 { format!("needs: link-{}, ", number - 1) } else { String::new() };
        let run = "date +\\\"begin %s%N\\\" >> $TIMES; date +\\\"end %s%N\\\" >> $TIMES";
        writeln!(text, "  link-{number}: {{{needs}run: \"{run}\"}}")?;
    }
    let run = services.submit(text).await?;
    services.wait_for_success(&run).await?;
    let gaps = gaps(&std::fs::read_to_string(&times)?)?;
    ensure!(gaps.len() + 1 == length, "{} of {length} jobs wrote their times", gaps.len() + 1);
    let (middle, max) = (median(&gaps), percentile(&gaps, 100));
    let (min, late) = (percentile(&gaps, 0), percentile(&gaps, 95));
    report.add(Line {
        what: format!("end of a dependency to start of its dependent, {LIVE} live jobs, {length} links"),
        ours: format!("p50 {middle:.0} ms"),
        figure: format!("p95 {late:.0} ms, {min:.0} to {max:.0} ms"),
        values: [middle, min, max],
        target: "p50 < 100 ms".to_owned(),
        met: Some(middle < 100.0),
        ..Line::default()
    });
    services.end().await;
    Ok(())
}

/// Milliseconds between each end and the next start.
fn gaps(text: &str) -> Result<Vec<f64>> {
    let (mut ended, mut gaps) = (None, Vec::new());
    for line in text.lines() {
        let (what, nanos) = line.split_once(' ').context("a line has two words")?;
        let nanos: i64 = nanos.parse().context("a time")?;
        match (what, ended) {
            ("end", _) => ended = Some(nanos),
            (_, Some(before)) => {
                let micros = i32::try_from((nanos - before) / 1_000).context("a short time")?;
                gaps.push(f64::from(micros) / 1_000.0);
            }
            (_, None) => {}
        }
    }
    Ok(gaps)
}
