//! Graphs through a server, a controller and an agent: no-op jobs beside the same commands without any of them, and the
//! time between a dependency's end and its dependent's start.

use crate::Plan;
use crate::agent_floor::{self, AT_ONCE};
use crate::ground::{ENVIRONMENT, Ground, PROJECT, folder, open};
use crate::http::serve;
use crate::report::{Line, Pairs, Report, median, percentile, say};
use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidemill_agent::{Commands, Ending, Settings};
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

/// Connections to the database.
const CONNECTIONS: u32 = 8;
/// Jobs that live beside the chain.
const LIVE: usize = 100;
/// How long a graph may take.
const PATIENCE: Duration = Duration::from_mins(5);

/// Everything that graphs need, on a database of its own.
struct Site {
    engine: Engine,
    client: Client,
    stop: watch::Sender<bool>,
    roles: JoinSet<()>,
    _database: Database,
    dir: tempfile::TempDir,
}

impl Site {
    async fn start(ground: &Ground) -> Result<Self> {
        let database = ground.fresh().await?;
        let engine = open(&database.url, CONNECTIONS, Pooler::Session).await?;
        let (_, client) = serve(engine.clone()).await?;
        let (stop, told) = watch::channel(false);
        let dir = folder()?;
        let mut roles = JoinSet::new();
        let graphs = Graphs::new(engine.clone(), GraphSettings::default());
        let identity = Identity { name: "bench".to_owned(), host: "bench".to_owned(), labels: Vec::new() };
        let controlled = told.clone();
        roles.spawn(async move {
            if let Err(error) = graphs.control(identity, controlled).await {
                say(&format!("the controller ended: {error}"));
            }
        });
        let (settings, speaks) = (settings(dir.path())?, client.clone());
        roles.spawn(async move {
            if let Err(error) = tidemill_agent::run(settings, speaks, told).await {
                say(&format!("the agent ended: {error}"));
            }
        });
        Ok(Self { engine, client, stop, roles, _database: database, dir })
    }

    /// Submits a graph; its run.
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
    async fn until_done(&self, run: &RunId) -> Result<()> {
        let begun = Instant::now();
        loop {
            let status = self.engine.run(run).await?.status;
            if status.is_terminal() {
                ensure!(status == RunState::Success, "the graph ended as {status}");
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "the graph did not end in time");
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
        capacity: i32::try_from(AT_ONCE).context("a number of slots")?,
        secrets: None,
        store: None,
        keep: tidemill_agent::Keep::default(),
        probe: None,
        ending: Ending::Never,
        commands: Commands::GoOn,
        grace: Duration::from_secs(10),
        supervisor: PathBuf::from("/proc/self/exe"),
        supervisor_args: vec!["supervise".to_owned(), "lasting".to_owned()],
    })
}

/// No-op jobs through one agent with eight slots, beside the same supervisors and commands in a loop.
pub(crate) async fn jobs(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    say("no-op jobs through one agent, beside their commands in a loop without a server");
    let site = Site::start(ground).await?;
    let warm = site.submit(no_ops(AT_ONCE)?).await?;
    site.until_done(&warm).await?;
    let mut pairs = Pairs::default();
    for _ in 0..plan.pairs {
        let floor = agent_floor::rate(AT_ONCE, plan.time()).await?;
        // As many as the floor would do in half the time, so that both sides take about as long.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let count = ((floor * plan.time().as_secs_f64() / 2.0) as usize).max(AT_ONCE * 4);
        let run = site.submit(no_ops(count)?).await?;
        let begun = Instant::now();
        site.until_done(&run).await?;
        let count = f64::from(u32::try_from(count).context("a number of jobs")?);
        pairs.add(floor, count / begun.elapsed().as_secs_f64());
    }
    report.add(pairs.line(
        "no-op jobs, one agent with 8 slots, of its commands without a server",
        40.0,
        None,
    ));
    site.end().await;
    Ok(())
}

fn no_ops(count: usize) -> Result<String> {
    let mut text = "version: 1\njobs:\n".to_owned();
    for number in 0..count {
        writeln!(text, "  job-{number}: {{run: ':'}}")?;
    }
    Ok(text)
}

/// From the last thing that a command does to the first thing of the command that needed it, while a hundred other jobs
/// wait.
pub(crate) async fn chain(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    say("from a dependency's end to the dependent's start, with 100 live jobs");
    let site = Site::start(ground).await?;
    let mut waiting = "version: 1\njobs:\n".to_owned();
    for number in 0..LIVE {
        writeln!(waiting, "  live-{number}: {{run: ':', labels: [nobody]}}")?;
    }
    site.submit(waiting).await?;
    let times = site.dir.path().join("times");
    let length = if plan.quick { 20 } else { 100 };
    let mut text = format!("version: 1\nenv: {{TIMES: \"{}\"}}\njobs:\n", times.display());
    for number in 0..length {
        let needs = if number > 0 { format!("needs: link-{}, ", number - 1) } else { String::new() };
        let run = "date +\\\"begin %s%N\\\" >> $TIMES; date +\\\"end %s%N\\\" >> $TIMES";
        writeln!(text, "  link-{number}: {{{needs}run: \"{run}\"}}")?;
    }
    let run = site.submit(text).await?;
    site.until_done(&run).await?;
    let gaps = gaps(&std::fs::read_to_string(&times)?)?;
    ensure!(gaps.len() + 1 == length, "{} of {length} links told their times", gaps.len() + 1);
    let (middle, most) = (median(&gaps), percentile(&gaps, 100));
    let (least, late) = (percentile(&gaps, 0), percentile(&gaps, 95));
    report.add(Line {
        what: format!("dependency's end to dependent's start, {LIVE} live jobs, {length} links"),
        ours: format!("p50 {middle:.0} ms"),
        figure: format!("p95 {late:.0} ms, {least:.0} to {most:.0} ms"),
        values: [middle, least, most],
        target: "p50 < 100 ms".to_owned(),
        met: Some(middle < 100.0),
        ..Line::default()
    });
    site.end().await;
    Ok(())
}

/// Milliseconds between each end and the next beginning.
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
