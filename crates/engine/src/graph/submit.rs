//! Submission of a graph: reports all errors of the definition at once, and writes everything in one commit.

use super::Graphs;
use super::reuse::OutputLocations;
use chrono::TimeDelta;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tidemill_core::digest::sha256_hex;
use tidemill_core::event::Level;
use tidemill_core::graph::assignment::{self, Requirements};
use tidemill_core::graph::{DefinitionError, Graph, JobSpec, parse, plan};
use tidemill_core::job::StatusCode;
use tidemill_core::limits::{AGENT_MEMORY_DAYS, GRAPH_BYTES_MAX};
use tidemill_core::run::QueueRun;
use tidemill_core::task::job_id;
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{Error, LatestJob, NewGraph, NewJob, Refusal, RefusalCode, Tx};

/// Most errors or names that one message lists.
const LISTED_MAX: usize = 20;

/// Request to submit a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitGraph {
    pub project: String,
    /// Name of the environment within the project.
    pub env: String,
    pub text: String,
    /// Names of the requested jobs; empty for all.
    pub only: Vec<String>,
    /// Workspace whose outputs are shared; the default is the definition's.
    pub workspace: Option<String>,
    /// Runs needed jobs again even if an earlier result could be reused.
    pub rerun_needed: bool,
    /// Higher values come first in lists.
    pub priority: i32,
    /// A repeated request with the same key returns the first run.
    pub idempotency_key: Option<String>,
    pub git_sha: Option<String>,
    pub git_ref: Option<String>,
    /// The user that submits it.
    pub by: String,
}

impl SubmitGraph {
    /// Creates a submission with defaults.
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

/// Outcome of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitOutcome {
    pub run_id: RunId,
    /// Whether this call created the run.
    pub created: bool,
    /// Number of jobs of the run.
    pub jobs: usize,
    /// Number of jobs whose earlier result is reused.
    pub reused: usize,
}

/// Error of a submission.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error("the graph definition has {} errors", .0.len())]
    Definition(Vec<DefinitionError>),
    #[error(transparent)]
    Store(#[from] Error),
}

/// A parsed and validated submission.
struct Submission {
    input: SubmitGraph,
    graph: Graph,
    workspace: String,
    digest: String,
    request: QueueRun,
}

impl Graphs {
    /// Submits a graph. A repeated request with the same idempotency key returns the existing run.
    pub async fn submit(&self, input: SubmitGraph) -> Result<SubmitOutcome, SubmitError> {
        let prepared = Arc::new(prepare(input)?);
        let run_id = self.engine.clock().run_id();
        let submitted = self
            .engine
            .retry_policy
            .retry("submit a graph", || {
                let (prepared, run_id, now) = (prepared.clone(), run_id.clone(), self.now());
                self.engine.store().write(move |mut tx| {
                    Box::pin(async move { submit(&mut tx, &prepared, &run_id, now).await })
                })
            })
            .await?;
        self.notifiers().wake_controller();
        // If the first answer was lost, the retry returns `created: false`, but with our own id.
        let created = submitted.created || submitted.run_id == run_id;
        Ok(SubmitOutcome { created, ..submitted })
    }
}

fn prepare(input: SubmitGraph) -> Result<Submission, SubmitError> {
    if input.text.len() > GRAPH_BYTES_MAX {
        let message =
            format!("the graph has {} bytes, more than the limit of {GRAPH_BYTES_MAX}", input.text.len());
        return Err(Error::refused(RefusalCode::TooLarge, message).into());
    }
    let graph = parse(&input.text).map_err(SubmitError::Definition)?;
    let names: BTreeSet<&str> = graph.jobs.iter().map(|job| job.name.as_str()).collect();
    let unknown_names: Vec<&str> =
        input.only.iter().map(String::as_str).filter(|name| !names.contains(name)).collect();
    if !unknown_names.is_empty() {
        let message = format!("the graph has no job {}", quoted(&unknown_names));
        return Err(Error::refused(RefusalCode::BadValue, message).into());
    }
    let shared = input.workspace.clone().or_else(|| graph.workspace.clone()).or_else(|| graph.name.clone());
    let workspace = shared.unwrap_or_else(|| "default".to_owned());
    let digest = sha256_hex(input.text.as_bytes());
    let mut request = QueueRun::new(&input.project, &input.env);
    request.metadata = serde_json::json!({"graph": {
        "name": graph.name,
        "workspace": workspace,
        "digest": digest,
        "only": input.only,
        "rerun_needed": input.rerun_needed,
    }});
    request.idempotency_key.clone_from(&input.idempotency_key);
    request.git_sha.clone_from(&input.git_sha);
    request.git_ref.clone_from(&input.git_ref);
    request.priority = input.priority;
    request.check().map_err(Error::from)?;
    let request = request.normalized();
    Ok(Submission { input, graph, workspace, digest, request })
}

async fn submit(
    tx: &mut Tx<'_>,
    prepared: &Submission,
    run_id: &RunId,
    now: Option<Timestamp>,
) -> Result<SubmitOutcome, Error> {
    let Submission { input, graph, workspace, digest, request } = prepared;
    let moment = tx.database_now(now).await?;
    let queued = tx.queue_run(request, run_id, now).await?;
    if !queued.created {
        let known = tx.graph(&queued.run_id).await?;
        let counts = known.map(|known| known.counts).unwrap_or_default();
        let count = |count: i64| usize::try_from(count).unwrap_or(0);
        let (jobs, reused) = (count(counts.total), count(counts.reused));
        return Ok(SubmitOutcome { run_id: queued.run_id, created: false, jobs, reused });
    }
    tx.mark_graph_run(run_id).await?;
    let jobs = choose(tx, prepared, run_id).await?;
    check_room(tx, &jobs, &input.project, moment).await?;
    let new = NewGraph {
        run_id: run_id.clone(),
        project_id: input.project.clone(),
        name: graph.name.clone(),
        workspace: workspace.clone(),
        digest: digest.clone(),
        only: input.only.clone(),
        rerun_needed: input.rerun_needed,
        submitted_by: input.by.clone(),
    };
    let reused = jobs.iter().filter(|job| job.reused.is_some()).count();
    keep(tx, &new, &jobs, moment).await?;
    let text = format!("{} submitted a graph of {} jobs; {reused} of them are reused", input.by, jobs.len());
    tx.record_request(run_id, Level::Info, &text, now).await?;
    Ok(SubmitOutcome { run_id: run_id.clone(), created: true, jobs: jobs.len(), reused })
}

/// Writes a graph with its jobs, and marks it as changed for the controller.
pub(super) async fn keep(
    tx: &mut Tx<'_>,
    graph: &NewGraph,
    jobs: &[NewJob],
    now: Timestamp,
) -> Result<(), Error> {
    tx.add_graph(graph).await?;
    tx.add_jobs(&graph.run_id, &graph.project_id, &graph.workspace, jobs, now).await?;
    tx.mark_changed(graph.run_id.as_str()).await
}

/// Selects the jobs of the run: the requested ones and their needs, reusing earlier results where possible.
async fn choose(tx: &mut Tx<'_>, prepared: &Submission, run_id: &RunId) -> Result<Vec<NewJob>, Error> {
    let Submission { input, graph, workspace, .. } = prepared;
    let specs = &graph.jobs;
    let only: BTreeSet<&str> = input.only.iter().map(String::as_str).collect();
    let requested = |spec: &JobSpec| only.is_empty() || only.contains(spec.name.as_str());
    let mut latest = if only.is_empty() || input.rerun_needed {
        HashMap::new()
    } else {
        let names = specs.iter().filter(|spec| !requested(spec)).map(|spec| spec.name.clone()).collect();
        let latest = tx.latest_jobs(&input.project, workspace, names).await?;
        let good = latest.into_iter().filter(|last| last.code == StatusCode::Succeeded);
        good.map(|last| (last.name.clone(), last)).collect::<HashMap<String, LatestJob>>()
    };
    let locations = OutputLocations::read(tx, latest.values()).await?;
    // Backwards: a job is only needed by jobs after it.
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    for spec in specs.iter().rev() {
        let is_requested = requested(spec);
        if is_requested || (wanted.contains(spec.name.as_str()) && !latest.contains_key(&spec.name)) {
            wanted.extend(spec.needs.iter().map(String::as_str));
            let reused = spec.needs.iter().filter(|need| latest.contains_key(*need));
            for need in locations.unreachable_needs(reused) {
                latest.remove(&need);
            }
        }
        if is_requested {
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

/// Creates a job of a run. A job with a reused result has no needs.
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

/// Refuses jobs that can never run: the pool does not exist, or their weight exceeds the pool or every agent that could
/// take them.
pub(super) async fn check_room(
    tx: &mut Tx<'_>,
    jobs: &[NewJob],
    project: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let sizes: BTreeMap<String, i32> = tx.pool_sizes().await?.into_iter().collect();
    let known = tx.live_agents(now - TimeDelta::days(AGENT_MEMORY_DAYS)).await?;
    let agents: Vec<assignment::AgentSlots> = known
        .into_iter()
        .filter(|known| known.forgotten_at.is_none())
        .map(|known| assignment::AgentSlots {
            id: known.agent.agent_id,
            labels: known.agent.labels,
            projects: known.agent.projects,
            capacity: known.agent.capacity,
            free: known.agent.capacity,
            away: false,
        })
        .collect();
    let mut errors = Vec::new();
    let mut hint = None;
    for job in jobs.iter().filter(|job| job.reused.is_none()) {
        let spec = &job.spec;
        let pool = spec.pool.as_ref().map(|name| (name, sizes.get(name)));
        let error = match pool {
            Some((name, None)) => {
                hint = Some(format!("tidemill pool set {name} SIZE"));
                format!("pool `{name}` of job `{}` does not exist", spec.name)
            }
            Some((name, Some(size))) if *size < spec.weight => {
                hint = Some(format!("tidemill pool set {name} SIZE"));
                let weight = spec.weight;
                format!("job `{}` has weight {weight}, but pool `{name}` has size {size}", spec.name)
            }
            _ if assignment::check_capacity(&requirements_of(spec, project), &agents, &BTreeMap::new())
                == plan::Capacity::Never =>
            {
                let weight = spec.weight;
                format!(
                    "job `{}` has weight {weight}, more than the capacity of every agent that could take it",
                    spec.name
                )
            }
            _ => continue,
        };
        if errors.len() < LISTED_MAX {
            errors.push(error);
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::Refused(Refusal { code: RefusalCode::BadValue, message: errors.join("; "), hint }))
}

fn requirements_of(spec: &JobSpec, project: &str) -> Requirements {
    Requirements {
        project: project.to_owned(),
        uses_database: spec.uses_database(),
        weight: spec.weight,
        pool: None,
        labels: spec.labels.clone(),
        on: None,
        failed_on: Vec::new(),
    }
}

/// Formats names for a message.
pub(super) fn quoted(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED_MAX).map(|name| format!("`{name}`")).collect();
    shown.join(", ")
}
