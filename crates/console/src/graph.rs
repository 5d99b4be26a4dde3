//! The graph part of a run's page: drawing with live states, job counts, job table and actions.

mod actions;
mod drawing;
mod job_status;
mod layers;
mod row_placement;
mod table;

pub(crate) use job_status::{JobStatus, code, code_text};

use crate::forms;
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::text::safe;
use crate::widgets::{bar, count};
use drawing::{Bar, draw, draw_bars};
use maud::{Markup, html};
use std::collections::HashMap;
use table::JobFilter;
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::agent::Agent;
use tidemill_core::graph::record::{GraphRecord, JobCounts, JobNeeds, JobRecord};
use tidemill_core::job::JobState;
use tidemill_core::run::{Lane, Run, RunState};
use tidemill_core::shell::command;
use tidemill_wire::graphs::{ListJobs, ListNeeds};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Largest number of jobs that are read completely: the page size limit of the API.
const JOBS_READ_MAX: u16 = 1_000;
/// Maximum number of graphs in a list whose jobs are counted.
const GRAPHS_READ_MAX: usize = 20;

pub(crate) fn routes() -> Routes {
    Routes::new()
        .post("/graphs/{run}/cancel", actions::cancel)
        .post("/graphs/{run}/retry", actions::retry)
        .post("/graphs/{run}/jobs", actions::selected_jobs)
}

/// A graph with the jobs that its page shows.
pub(crate) struct GraphView {
    record: GraphRecord,
    /// All jobs and their dependencies, if the graph is small enough.
    all_jobs: Option<(Vec<JobRecord>, Vec<Vec<usize>>)>,
    filter: JobFilter,
    /// The jobs of the table, and whether there are more.
    rows: Vec<JobRecord>,
    more: bool,
    agents: AgentNames,
}

impl GraphView {
    /// Whether the graph may still change.
    pub(crate) fn is_live(&self) -> bool {
        !self.record.status.is_terminal()
    }

    /// Whether the graph can be retried. `next` says that a retry already exists.
    fn can_retry(&self, next: bool) -> bool {
        matches!(self.record.status, RunState::Failed | RunState::Cancelled) && !next
    }
}

/// Names of agents by id.
pub(crate) struct AgentNames(HashMap<Uuid, String>);

impl AgentNames {
    pub(crate) fn new(agents: Vec<Agent>) -> Self {
        Self(agents.into_iter().map(|agent| (agent.agent_id, agent.name)).collect())
    }

    /// Renders an agent's name; for an agent that is not visible or was forgotten, the first part of its id.
    pub(crate) fn show(&self, agent: Option<Uuid>) -> Markup {
        html! {
            @match agent {
                None => span.dim { "–" },
                Some(id) => @match self.0.get(&id) {
                    Some(name) => (safe(name)),
                    None => code.dim title=(id) { (id.to_string().split('-').next().unwrap_or_default()) },
                },
            }
        }
    }
}

/// Reads the graph of a run.
pub(crate) async fn read(context: &PageContext, run: &RunId) -> Result<Option<GraphView>, Error> {
    let client = &context.client;
    let record = match client.graph(run).await {
        Ok(record) => record,
        Err(Error::Refused { status, .. }) if status.as_u16() == 404 => return Ok(None),
        Err(error) => return Err(error),
    };
    let filter = JobFilter::from_uri(&context.uri);
    let agents = AgentNames::new(client.agents().await?.items);
    if record.counts.total > i64::from(JOBS_READ_MAX) {
        let (rows, more) = filter.read(client, run).await?;
        return Ok(Some(GraphView { record, all_jobs: None, filter, rows, more, agents }));
    }
    let (job_params, need_params) = (
        ListJobs { limit: Some(JOBS_READ_MAX), ..ListJobs::default() },
        ListNeeds { limit: Some(JOBS_READ_MAX), ..ListNeeds::default() },
    );
    let (jobs, needs) = tokio::try_join!(client.jobs(run, &job_params), client.needs(run, &need_params))?;
    let (rows, more) = filter.select(&jobs.items);
    let needs = dependency_indexes(&jobs.items, &needs.items);
    Ok(Some(GraphView { record, all_jobs: Some((jobs.items, needs)), filter, rows, more, agents }))
}

/// Converts dependencies to indexes into the list of jobs.
fn dependency_indexes(jobs: &[JobRecord], needs: &[JobNeeds]) -> Vec<Vec<usize>> {
    let index_of: HashMap<i32, usize> =
        jobs.iter().enumerate().map(|(index, job)| (job.position, index)).collect();
    let mut indexes = vec![Vec::new(); jobs.len()];
    for line in needs {
        if let Some(own) = index_of.get(&line.position).and_then(|index| indexes.get_mut(*index)) {
            own.extend(line.needs.iter().filter_map(|need| index_of.get(need)).copied());
        }
    }
    indexes
}

/// Renders the graph part of the page.
pub(crate) fn panel(context: &PageContext, view: &GraphView) -> Markup {
    let record = &view.record;
    html! {
        section.panel #graph {
            header {
                h2 { @if let Some(name) = &record.name { (safe(name)) } @else { "Graph" } }
                (progress(&record.counts))
                span.dim.small { "workspace " (safe(&record.workspace)) }
                (chips(&record.run_id, &record.counts))
            }
            @match &view.all_jobs {
                Some((jobs, _)) if jobs.is_empty() => p.empty { "This graph has no jobs." },
                Some((jobs, needs)) => {
                    @let alone = jobs.len() <= drawing::JOBS_MAX;
                    div.in.drawing[alone].picture[!alone] { (draw(jobs, needs, context.now)) }
                },
                None => div.in.picture {
                    (draw_bars("Jobs by state", &[Bar { name: "all jobs".to_owned(), counts:
                        job_status::count_by_status(&record.counts) }]))
                },
            }
        }
        (table::panel(context, view))
    }
}

/// Progress of a graph as text and bar.
pub(crate) fn progress(counts: &JobCounts) -> Markup {
    let done = counts.succeeded + counts.reused + counts.failed;
    html! {
        span.nowrap { (count(done)) " of " (count(counts.total)) " jobs done" }
        " " span.slim { (bar(done, counts.total, "Jobs done", if counts.failed > 0 { "failed" }
            else if done == counts.total { "done" } else { "" })) }
        @if counts.failed > 0 { " " span.bad { (count(counts.failed)) " failed" } }
    }
}

/// Job counts per state, each with a link to the jobs.
fn chips(run: &RunId, counts: &JobCounts) -> Markup {
    let numbers = [
        (JobState::Pending, counts.pending),
        (JobState::Running, counts.running),
        (JobState::Succeeded, counts.succeeded + counts.reused),
        (JobState::Failed, counts.failed),
    ];
    html! {
        span.chips {
            @for (state, jobs) in numbers {
                @if jobs > 0 {
                    a class={ "state s-" (state) } href={ "/runs/" (run.in_path()) "?state=" (state) "#jobs" } {
                        (count(jobs)) " " (state)
                        @if state == JobState::Succeeded && counts.reused > 0 {
                            ", " (count(counts.reused)) " reused" }
                    }
                }
            }
        }
    }
}

/// Actions on the whole graph. `next` says that a retry already exists.
pub(crate) fn acts(context: &PageContext, view: &GraphView, next: bool) -> Markup {
    if !context.may_operate() {
        return html! {};
    }
    let record = &view.record;
    let path = |verb: &str| format!("/graphs/{}/{verb}", record.run_id.in_path());
    html! {
        @if view.is_live() { (cancel(context, &path("cancel"), record)) }
        @if view.can_retry(next) { (forms::button(context, &path("retry"), &[], "Retry unsuccessful jobs", "main")) }
    }
}

fn cancel(context: &PageContext, path: &str, record: &GraphRecord) -> Markup {
    let left = record.counts.pending + record.counts.running;
    html! {
        details.drop open[forms::reason_was_given(context)] {
            summary { "Cancel…" }
            div {
                form.form method="post" action=(path) {
                    (forms::hidden(context))
                    p { "The " (crate::widgets::pluralize(left, "job", "jobs")) " that have not ended are cancelled. \
                        Agents stop running commands within a grace period. Successful jobs keep their results." }
                    (forms::reason(context))
                    div { button.risk type="submit" { "Cancel the graph" } }
                }
            }
        }
    }
}

/// Commands that do the same. The commands for single jobs are on their pages.
pub(crate) fn commands(context: &PageContext, view: &GraphView, next: bool) -> Vec<String> {
    let verb = |verb| command(["graph", verb, view.record.run_id.as_str()]);
    let mut commands = vec![verb("show"), verb("logs")];
    commands.extend(view.is_live().then(|| verb("watch")));
    if context.may_operate() {
        commands.extend(view.is_live().then(|| verb("cancel")));
        commands.extend(view.can_retry(next).then(|| verb("retry")));
    }
    commands
}

/// Reads the progress of the unfinished graphs among these runs, up to a maximum number.
pub(crate) async fn progress_of(client: &Client, runs: &[Run]) -> Result<HashMap<RunId, GraphRecord>, Error> {
    let live = runs.iter().filter(|run| run.lane == Lane::Graph && !run.status.is_terminal());
    let mut tasks: JoinSet<Result<Option<GraphRecord>, Error>> = JoinSet::new();
    for run in live.take(GRAPHS_READ_MAX) {
        let (client, run) = (client.clone(), run.run_id.clone());
        tasks.spawn(async move {
            match client.graph(&run).await {
                Ok(record) => Ok(Some(record)),
                // The run was pruned after the list was read.
                Err(Error::Refused { status, .. }) if status.as_u16() == 404 => Ok(None),
                Err(error) => Err(error),
            }
        });
    }
    let mut progress = HashMap::new();
    while let Some(result) = tasks.join_next().await {
        let result = result.map_err(|error| Error::InvalidResponse(error.to_string()))?;
        progress.extend(result?.map(|record| (record.run_id.clone(), record)));
    }
    Ok(progress)
}
