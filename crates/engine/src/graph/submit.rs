//! Submitting a graph: every fault at once, and everything of it in one commit.

use super::Graphs;
use super::reuse::Reach;
use chrono::TimeDelta;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tidemill_core::digest::sha256_hex;
use tidemill_core::event::Level;
use tidemill_core::graph::share::{self, Shape};
use tidemill_core::graph::{Graph, GraphFault, JobSpec, parse, plan};
use tidemill_core::job::StatusCode;
use tidemill_core::limits::{AGENT_MEMORY_DAYS, GRAPH_BYTES_MAX};
use tidemill_core::run::QueueRun;
use tidemill_core::task::job_id;
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{Error, LatestJob, NewGraph, NewJob, Refusal, RefusalCode, Tx};

/// Faults that are told at once, where they are not in the text.
const TOLD_MAX: usize = 20;

/// What somebody submits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitGraph {
    /// The project.
    pub project: String,
    /// The environment, by its name within the project.
    pub env: String,
    /// The definition, as text.
    pub text: String,
    /// The jobs that are asked for; all of them where it is empty.
    pub only: Vec<String>,
    /// Whose outputs are shared, if not those that the definition names.
    pub workspace: Option<String>,
    /// Whether jobs that are only needed run again although they have succeeded before.
    pub rerun_needed: bool,
    /// Larger is first, in lists.
    pub priority: i32,
    /// Makes asking twice the same as asking once.
    pub idempotency_key: Option<String>,
    /// The commit that it is about.
    pub git_sha: Option<String>,
    /// The branch or tag that it is about.
    pub git_ref: Option<String>,
    /// Who submits it.
    pub by: String,
}

impl SubmitGraph {
    /// A submission with every default.
    pub fn new(
        project: impl Into<String>,
        env: impl Into<String>,
        text: impl Into<String>,
        by: impl Into<String>,
    ) -> Self {
        Self {
            project: project.into(),
            env: env.into(),
            text: text.into(),
            only: Vec::new(),
            workspace: None,
            rerun_needed: false,
            priority: 0,
            idempotency_key: None,
            git_sha: None,
            git_ref: None,
            by: by.into(),
        }
    }
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The run.
    pub run_id: RunId,
    /// Whether this call made it.
    pub created: bool,
    /// Jobs that it has.
    pub jobs: usize,
    /// Jobs whose results were taken over.
    pub reused: usize,
}

/// Why a submission was refused.
#[derive(Debug, thiserror::Error)]
pub enum SubmitFault {
    /// The definition is not sound.
    #[error("the graph has {} faults", .0.len())]
    Faults(Vec<GraphFault>),
    /// Something else.
    #[error(transparent)]
    Store(#[from] Error),
}

/// A submission that was read and found to be sound.
struct Prepared {
    ask: SubmitGraph,
    graph: Graph,
    workspace: String,
    digest: String,
    request: QueueRun,
}

impl Graphs {
    /// Submits a graph. The same key and the same request give the run that exists.
    pub async fn submit(&self, ask: SubmitGraph) -> Result<Submitted, SubmitFault> {
        let prepared = Arc::new(prepare(ask)?);
        let run_id = self.engine.clock().run_id();
        let submitted = self
            .engine
            .patience
            .settle("submit a graph", || {
                let (prepared, run_id, now) = (prepared.clone(), run_id.clone(), self.now());
                self.engine.store().write(move |mut tx| {
                    Box::pin(async move { submit(&mut tx, &prepared, &run_id, now).await })
                })
            })
            .await?;
        self.bells().ring_controller();
        // An answer that was lost and asked again says "not created"; our own id says otherwise.
        let created = submitted.created || submitted.run_id == run_id;
        Ok(Submitted { created, ..submitted })
    }
}

fn prepare(ask: SubmitGraph) -> Result<Prepared, SubmitFault> {
    if ask.text.len() > GRAPH_BYTES_MAX {
        let message = format!("the graph has {} bytes; {GRAPH_BYTES_MAX} are allowed", ask.text.len());
        return Err(Error::refused(RefusalCode::TooLarge, message).into());
    }
    let graph = parse(&ask.text).map_err(SubmitFault::Faults)?;
    let names: BTreeSet<&str> = graph.jobs.iter().map(|job| job.name.as_str()).collect();
    let strange: Vec<&str> =
        ask.only.iter().map(String::as_str).filter(|name| !names.contains(name)).collect();
    if !strange.is_empty() {
        let message = format!("the graph has no job {}", quoted(&strange));
        return Err(Error::refused(RefusalCode::BadValue, message).into());
    }
    let shared = ask.workspace.clone().or_else(|| graph.workspace.clone()).or_else(|| graph.name.clone());
    let workspace = shared.unwrap_or_else(|| "default".to_owned());
    let digest = sha256_hex(ask.text.as_bytes());
    let mut request = QueueRun::new(&ask.project, &ask.env);
    request.metadata = serde_json::json!({"graph": {
        "name": graph.name,
        "workspace": workspace,
        "digest": digest,
        "only": ask.only,
        "rerun_needed": ask.rerun_needed,
    }});
    request.idempotency_key.clone_from(&ask.idempotency_key);
    request.git_sha.clone_from(&ask.git_sha);
    request.git_ref.clone_from(&ask.git_ref);
    request.priority = ask.priority;
    request.check().map_err(Error::from)?;
    let request = request.normal();
    Ok(Prepared { ask, graph, workspace, digest, request })
}

async fn submit(
    tx: &mut Tx<'_>,
    prepared: &Prepared,
    run_id: &RunId,
    now: Option<Timestamp>,
) -> Result<Submitted, Error> {
    let Prepared { ask, graph, workspace, digest, request } = prepared;
    let moment = tx.database_now(now).await?;
    let queued = tx.queue_run(request, run_id, now).await?;
    if !queued.created {
        let known = tx.graph(&queued.run_id).await?;
        let counts = known.map(|known| known.counts).unwrap_or_default();
        let count = |count: i64| usize::try_from(count).unwrap_or(0);
        let (jobs, reused) = (count(counts.total), count(counts.reused));
        return Ok(Submitted { run_id: queued.run_id, created: false, jobs, reused });
    }
    tx.mark_graph_run(run_id).await?;
    let jobs = choose(tx, prepared, run_id).await?;
    check_room(tx, &jobs, &ask.project, moment).await?;
    let new = NewGraph {
        run_id: run_id.clone(),
        project_id: ask.project.clone(),
        name: graph.name.clone(),
        workspace: workspace.clone(),
        digest: digest.clone(),
        only: ask.only.clone(),
        rerun_needed: ask.rerun_needed,
        submitted_by: ask.by.clone(),
    };
    let reused = jobs.iter().filter(|job| job.reused.is_some()).count();
    keep(tx, &new, &jobs, moment).await?;
    let told = format!("{} submitted a graph of {} jobs; {reused} of them are reused", ask.by, jobs.len());
    tx.note_request(run_id, Level::Info, &told, now).await?;
    Ok(Submitted { run_id: run_id.clone(), created: true, jobs: jobs.len(), reused })
}

/// Writes a graph with its jobs, and names it to the controller.
pub(super) async fn keep(
    tx: &mut Tx<'_>,
    graph: &NewGraph,
    jobs: &[NewJob],
    now: Timestamp,
) -> Result<(), Error> {
    tx.add_graph(graph, Some(now)).await?;
    tx.add_jobs(&graph.run_id, &graph.project_id, &graph.workspace, jobs, now).await?;
    tx.note_change(graph.run_id.as_str()).await
}

/// The jobs of the run: what was asked for, and what that needs, reused where it has succeeded before.
async fn choose(tx: &mut Tx<'_>, prepared: &Prepared, run_id: &RunId) -> Result<Vec<NewJob>, Error> {
    let Prepared { ask, graph, workspace, .. } = prepared;
    let specs = &graph.jobs;
    let only: BTreeSet<&str> = ask.only.iter().map(String::as_str).collect();
    let requested = |spec: &JobSpec| only.is_empty() || only.contains(spec.name.as_str());
    let mut latest = if only.is_empty() || ask.rerun_needed {
        HashMap::new()
    } else {
        let names = specs.iter().filter(|spec| !requested(spec)).map(|spec| spec.name.clone()).collect();
        let latest = tx.latest_jobs(&ask.project, workspace, names).await?;
        let good = latest.into_iter().filter(|last| last.code == StatusCode::Succeeded);
        good.map(|last| (last.name.clone(), last)).collect::<HashMap<String, LatestJob>>()
    };
    let reach = Reach::read(tx, latest.values()).await?;
    // From the end to the beginning: a job is needed by jobs that stand after it.
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    for spec in specs.iter().rev() {
        let asked = requested(spec);
        if asked || (wanted.contains(spec.name.as_str()) && !latest.contains_key(&spec.name)) {
            wanted.extend(spec.needs.iter().map(String::as_str));
            let reused = spec.needs.iter().filter(|need| latest.contains_key(*need));
            for need in reach.lacking(reused) {
                latest.remove(&need);
            }
        }
        if asked {
            wanted.insert(&spec.name);
        }
    }
    let chosen = specs.iter().filter(|spec| wanted.contains(spec.name.as_str()));
    let jobs = chosen.zip(0_i32..).map(|(spec, position)| {
        let requested = requested(spec);
        let reused = if requested { None } else { latest.get(&spec.name).cloned() };
        new_job(run_id, spec, position, requested, reused)
    });
    Ok(jobs.collect())
}

/// A job of a run. One whose result is taken over needs nothing any more.
pub(super) fn new_job(
    run_id: &RunId,
    spec: &JobSpec,
    position: i32,
    requested: bool,
    reused: Option<LatestJob>,
) -> NewJob {
    let needs = if reused.is_some() { &[][..] } else { &spec.needs[..] };
    NewJob {
        job_id: job_id(run_id, &spec.name),
        position,
        spec: spec.clone(),
        requested,
        needs: needs.iter().map(|name| job_id(run_id, name)).collect(),
        reused,
    }
}

/// Refuses jobs that can never run: their pool does not exist, or they are wider than it, or than every agent that
/// could take them.
pub(super) async fn check_room(
    tx: &mut Tx<'_>,
    jobs: &[NewJob],
    project: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let sizes: BTreeMap<String, i32> = tx.pool_sizes().await?.into_iter().collect();
    let known = tx.live_agents(now - TimeDelta::days(AGENT_MEMORY_DAYS)).await?;
    let agents: Vec<share::Agent> = known
        .into_iter()
        .filter(|known| known.forgotten_at.is_none())
        .map(|known| share::Agent {
            id: known.agent.agent_id,
            labels: known.agent.labels,
            project: known.agent.project_id,
            capacity: known.agent.capacity,
            free: known.agent.capacity,
            away: false,
        })
        .collect();
    let mut faults = Vec::new();
    let mut hint = None;
    for job in jobs.iter().filter(|job| job.reused.is_none()) {
        let spec = &job.spec;
        let pool = spec.pool.as_ref().map(|name| (name, sizes.get(name)));
        let fault = match pool {
            Some((name, None)) => {
                hint = Some(format!("tidemill pool set {name} SIZE"));
                format!("pool `{name}` of job `{}` does not exist", spec.name)
            }
            Some((name, Some(size))) if *size < spec.weight => {
                hint = Some(format!("tidemill pool set {name} SIZE"));
                let weight = spec.weight;
                format!("job `{}` has weight {weight}, and pool `{name}` has size {size}", spec.name)
            }
            _ if share::room(&shape_of(spec, project), &agents, &BTreeMap::new()) == plan::Room::Never => {
                let weight = spec.weight;
                format!(
                    "job `{}` has weight {weight}: more than any agent carries that could take it",
                    spec.name
                )
            }
            _ => continue,
        };
        if faults.len() < TOLD_MAX {
            faults.push(fault);
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(Error::Refused(Refusal { code: RefusalCode::BadValue, message: faults.join("; "), hint }))
}

fn shape_of(spec: &JobSpec, project: &str) -> Shape {
    Shape {
        project: project.to_owned(),
        uses_database: spec.uses_database(),
        weight: spec.weight,
        pool: None,
        labels: spec.labels.clone(),
        on: None,
        failed_on: Vec::new(),
    }
}

/// Names in a sentence.
pub(super) fn quoted(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(TOLD_MAX).map(|name| format!("`{name}`")).collect();
    shown.join(", ")
}
