//! A graph on the page of its run: the picture with live states, how many jobs are where, the jobs one by one,
//! and what can be done to them.

mod drawing;
mod lanes;
mod layers;
mod look;
mod table;
mod verbs;

pub(crate) use look::{Look, code, words};

use crate::Console;
use crate::act;
use crate::text::says;
use crate::visitor::Visitor;
use crate::words::{bar, count};
use axum::Router;
use axum::routing::post;
use drawing::{Bar, draw, draw_bars};
use maud::{Markup, html};
use std::collections::HashMap;
use table::Wanted;
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

/// Jobs of a graph that are read whole: what one answer of the door has.
const WHOLE: u16 = 1_000;
/// Graphs of a list whose jobs are counted.
const COUNTED: usize = 20;

pub(crate) fn routes() -> Router<Console> {
    Router::new()
        .route("/graphs/{run}/cancel", post(verbs::cancel))
        .route("/graphs/{run}/retry", post(verbs::retry))
        .route("/graphs/{run}/jobs", post(verbs::some))
}

/// A graph, and as much of it as its page shows.
pub(crate) struct Told {
    record: GraphRecord,
    /// All jobs and what they need, where one page of each holds them.
    whole: Option<(Vec<JobRecord>, Vec<Vec<usize>>)>,
    wanted: Wanted,
    /// The jobs of the table, and whether there are more.
    rows: Vec<JobRecord>,
    more: bool,
    agents: Names,
}

impl Told {
    /// Whether anything of it may still change.
    pub(crate) fn is_live(&self) -> bool {
        !self.record.status.is_terminal()
    }

    /// Whether another try of it can be asked for. `next` says that one follows it already.
    fn can_retry(&self, next: bool) -> bool {
        matches!(self.record.status, RunState::Failed | RunState::Cancelled) && !next
    }
}

/// Agents by their names.
pub(crate) struct Names(HashMap<Uuid, String>);

impl Names {
    pub(crate) fn of(agents: Vec<Agent>) -> Self {
        Self(agents.into_iter().map(|agent| (agent.agent_id, agent.name)).collect())
    }

    /// An agent by its name; by the beginning of its id where the reader does not see it, or it was forgotten.
    pub(crate) fn show(&self, agent: Option<Uuid>) -> Markup {
        html! {
            @match agent {
                None => span.dim { "–" },
                Some(id) => @match self.0.get(&id) {
                    Some(name) => (says(name)),
                    None => code.dim title=(id) { (id.to_string().split('-').next().unwrap_or_default()) },
                },
            }
        }
    }
}

/// The graph of a run.
pub(crate) async fn of(visitor: &Visitor, run: &RunId) -> Result<Option<Told>, Error> {
    let client = &visitor.client;
    let record = match client.graph(run).await {
        Ok(record) => record,
        Err(Error::Refused { status, .. }) if status.as_u16() == 404 => return Ok(None),
        Err(error) => return Err(error),
    };
    let wanted = Wanted::of(&visitor.uri);
    let agents = Names::of(client.agents().await?.items);
    if record.counts.total > i64::from(WHOLE) {
        let (rows, more) = wanted.ask(client, run).await?;
        return Ok(Some(Told { record, whole: None, wanted, rows, more, agents }));
    }
    let (asked_jobs, asked_needs) = (
        ListJobs { limit: Some(WHOLE), ..ListJobs::default() },
        ListNeeds { limit: Some(WHOLE), ..ListNeeds::default() },
    );
    let (jobs, needs) = tokio::try_join!(client.jobs(run, &asked_jobs), client.needs(run, &asked_needs))?;
    let (rows, more) = wanted.choose(&jobs.items);
    let needs = places(&jobs.items, &needs.items);
    Ok(Some(Told { record, whole: Some((jobs.items, needs)), wanted, rows, more, agents }))
}

/// What each job needs, by places in the list of jobs.
fn places(jobs: &[JobRecord], needs: &[JobNeeds]) -> Vec<Vec<usize>> {
    let place_of: HashMap<i32, usize> =
        jobs.iter().enumerate().map(|(place, job)| (job.position, place)).collect();
    let mut places = vec![Vec::new(); jobs.len()];
    for line in needs {
        if let Some(own) = place_of.get(&line.position).and_then(|place| places.get_mut(*place)) {
            own.extend(line.needs.iter().filter_map(|need| place_of.get(need)).copied());
        }
    }
    places
}

/// The graph's part of the page.
pub(crate) fn part(visitor: &Visitor, told: &Told) -> Markup {
    let record = &told.record;
    html! {
        section.panel #graph {
            header {
                h2 { @if let Some(name) = &record.name { (says(name)) } @else { "Graph" } }
                (progress(&record.counts))
                span.dim.small { "workspace " (says(&record.workspace)) }
                (chips(&record.run_id, &record.counts))
            }
            @match &told.whole {
                Some((jobs, _)) if jobs.is_empty() => p.empty { "It has no jobs." },
                Some((jobs, needs)) => {
                    @let alone = jobs.len() <= drawing::JOBS_MAX;
                    div.in.drawing[alone].picture[!alone] { (draw(jobs, needs, visitor.now)) }
                },
                None => div.in.picture {
                    (draw_bars("Jobs by state", &[Bar { name: "all jobs".to_owned(), counts:
                        look::of_counts(&record.counts) }]))
                },
            }
        }
        (table::panel(visitor, told))
    }
}

/// How far a graph is, in words and as a bar.
pub(crate) fn progress(counts: &JobCounts) -> Markup {
    let done = counts.succeeded + counts.reused + counts.failed;
    html! {
        span.nowrap { (count(done)) " of " (count(counts.total)) " jobs done" }
        " " span.slim { (bar(done, counts.total, "Jobs done", if counts.failed > 0 { "failed" }
            else if done == counts.total { "done" } else { "" })) }
        @if counts.failed > 0 { " " span.bad { (count(counts.failed)) " failed" } }
    }
}

/// How many jobs are in each state; each leads to them.
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

/// What can be done to a graph as a whole. `next` says that another try follows it already.
pub(crate) fn acts(visitor: &Visitor, told: &Told, next: bool) -> Markup {
    if !visitor.may_operate() {
        return html! {};
    }
    let record = &told.record;
    let path = |verb: &str| format!("/graphs/{}/{verb}", record.run_id.in_path());
    html! {
        @if told.is_live() { (cancel(visitor, &path("cancel"), record)) }
        @if told.can_retry(next) { (act::button(visitor, &path("retry"), &[], "Retry what did not succeed", "main")) }
    }
}

fn cancel(visitor: &Visitor, path: &str, record: &GraphRecord) -> Markup {
    let left = record.counts.pending + record.counts.running;
    html! {
        details.drop open[act::is_given(visitor)] {
            summary { "Cancel…" }
            div {
                form.form method="post" action=(path) {
                    (act::hidden(visitor))
                    p { "The " (crate::words::counted(left, "job", "jobs")) " that have not ended are cancelled. \
                        Agents stop what runs, and have a grace period for it. What succeeded stays." }
                    (act::reason(visitor))
                    div { button.risk type="submit" { "Cancel the graph" } }
                }
            }
        }
    }
}

/// Commands that do the same. Those of a single job are on its own page.
pub(crate) fn commands(visitor: &Visitor, told: &Told, next: bool) -> Vec<String> {
    let verb = |verb| command(["graph", verb, told.record.run_id.as_str()]);
    let mut commands = vec![verb("show"), verb("logs")];
    commands.extend(told.is_live().then(|| verb("watch")));
    if visitor.may_operate() {
        commands.extend(told.is_live().then(|| verb("cancel")));
        commands.extend(told.can_retry(next).then(|| verb("retry")));
    }
    commands
}

/// How far the graphs among these runs are that have not ended; the first of them, where they are many.
pub(crate) async fn far(client: &Client, runs: &[Run]) -> Result<HashMap<RunId, GraphRecord>, Error> {
    let live = runs.iter().filter(|run| run.lane == Lane::Graph && !run.status.is_terminal());
    let mut asked: JoinSet<Result<Option<GraphRecord>, Error>> = JoinSet::new();
    for run in live.take(COUNTED) {
        let (client, run) = (client.clone(), run.run_id.clone());
        asked.spawn(async move {
            match client.graph(&run).await {
                Ok(record) => Ok(Some(record)),
                // It was pruned since the list was made.
                Err(Error::Refused { status, .. }) if status.as_u16() == 404 => Ok(None),
                Err(error) => Err(error),
            }
        });
    }
    let mut far = HashMap::new();
    while let Some(answer) = asked.join_next().await {
        let answer = answer.map_err(|error| Error::Unreadable(error.to_string()))?;
        far.extend(answer?.map(|record| (record.run_id.clone(), record)));
    }
    Ok(far)
}
