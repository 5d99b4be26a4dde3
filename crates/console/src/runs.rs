//! List of runs: filters in the address, live rows, and actions on several runs.

mod bulk;
mod filter;

use crate::error_page::{ErrorPage, sentence};
use crate::forms;
use crate::graph;
use crate::layout::{Page, Section};
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::text::{clip, line, safe};
use crate::time::{ago, took};
use crate::widgets::{end_reason, run_link, state, subject};
use axum::response::Response;
use filter::Filter;
use http::StatusCode;
use maud::{Markup, html};
use std::collections::HashMap;
use tidemill_client::Error;
use tidemill_core::RunId;
use tidemill_core::graph::record::GraphRecord;
use tidemill_core::project::Project;
use tidemill_core::run::{Run, RunState};
use tidemill_wire::{Page as Slice, Problem};

const ROWS: u16 = 50;

pub(crate) fn routes() -> Routes {
    Routes::new().get("/runs", page).post("/runs/bulk", bulk::bulk)
}

/// Reads the runs, or the problem with the filter.
async fn read_runs(
    context: &PageContext,
    filter: &Filter,
) -> Result<Result<Slice<Run>, Box<Problem>>, ErrorPage> {
    let request = match filter.to_request(context.now, ROWS) {
        Ok(request) => request,
        Err(problem) => return Ok(Err(Box::new(problem))),
    };
    match context.client.runs(&request).await {
        Ok(slice) => Ok(Ok(slice)),
        // An invalid filter is shown on the page instead of an error page.
        Err(Error::Refused { status: StatusCode::UNPROCESSABLE_ENTITY | StatusCode::NOT_FOUND, problem }) => {
            Ok(Err(problem))
        }
        Err(error) => Err(error.into()),
    }
}

async fn page(context: PageContext) -> Result<Response, ErrorPage> {
    let filter = Filter::from_uri(&context.uri);
    let found = read_runs(&context, &filter).await?;
    let projects = context.client.projects().await?.items;
    let runs = found.as_ref().map_or(&[][..], |slice| &slice.items);
    let progress = graph::progress_of(&context.client, runs).await?;
    let body = html! {
        div.head { h1 { "Runs" } }
        div.panel { (filter.form(&projects)) }
        div.panel #runs data-live {
            @match &found {
                Ok(slice) => (list(&context, &filter, slice, &projects, &progress)),
                Err(problem) => p.empty role="alert" {
                    (safe(&sentence(&problem.message)))
                    @if let Some(hint) = &problem.hint { " " (safe(hint)) }
                },
            }
        }
    };
    Ok(Page::new(&context, Section::Runs, "Runs").live().show(&body))
}

fn list(
    context: &PageContext,
    filter: &Filter,
    slice: &Slice<Run>,
    projects: &[Project],
    progress: &HashMap<RunId, GraphRecord>,
) -> Markup {
    if slice.items.is_empty() {
        return nothing(filter, projects);
    }
    let acts = context.may_operate();
    html! {
        @if acts {
            form #bulk.filters method="post" action="/runs/bulk" {
                (forms::hidden(context))
                button type="submit" name="act" value="cancel" { "Cancel selected" }
                button type="submit" name="act" value="retry" { "Retry selected" }
            }
        }
        div.scroll {
            table {
                thead { tr {
                    @if acts { th.check { input type="checkbox" data-all="run" aria-label="Select all"; } }
                    th { "State" } th { "Run" } th { "Subject" } th.wide { "Worker" } th { "Queued" }
                        th.num { "Duration" }
                } }
                tbody { @for run in &slice.items { (row(context, run, acts, progress.get(&run.run_id))) } }
            }
        }
        nav.pages aria-label="Pages" {
            @if filter.is_further() { a.button href=(filter.first()) { "Newest" } }
            @if let Some(next) = &slice.next { a.button href=(filter.older(next)) rel="next" { "Older" } }
        }
    }
}

fn row(context: &PageContext, run: &Run, acts: bool, graph: Option<&GraphRecord>) -> Markup {
    let now = context.now;
    html! {
        tr data-key=(run.run_id) {
            @if acts {
                td.check { input type="checkbox" form="bulk" name="run" value=(run.run_id)
                    aria-label={ "Select " (run.run_id) }; }
            }
            td { (state(run.status)) }
            td.nowrap { (run_link(&run.run_id)) @if run.attempt > 1 { " " span.dim { "try " (run.attempt) } }
                }
            td { (subject(run)) @if let Some(why) = reason(run, now) { span.why { (line(&why)) } }
                @if let Some(graph) = graph { span.why { (graph::progress(&graph.counts)) } } }
            td.wide { @if let Some(worker) = &run.claimed_by { (clip(worker, 32)) } @else { span.dim { "–" } } }
            td.nowrap { (ago(run.queued_at, now)) }
            td.num { @if let Some(took) = took(run.started_at, run.finished_at, now) { (took) }
                @else { span.dim { "–" } } }
        }
    }
}

/// Reason shown in the list, for runs that did not succeed.
fn reason(run: &Run, now: tidemill_core::Timestamp) -> Option<String> {
    match run.status {
        RunState::Failed | RunState::Cancelled => Some(end_reason(run, now)),
        RunState::Queued | RunState::Claimed | RunState::Running | RunState::Success => None,
    }
}

fn nothing(filter: &Filter, projects: &[Project]) -> Markup {
    html! {
        @if filter.is_narrow() {
            p.empty { "No runs match this filter. " a href="/runs" { "Show all runs" } }
        } @else if let Some(project) = projects.first() {
            p.empty { "There are no runs yet. Queue one: "
                code { "tidemill run queue --project " (project.project_id) " --env "
                    (project.environments.first().map_or("staging", String::as_str)) } }
        } @else {
            p.empty { "There are no projects yet. Create one: "
                code { "tidemill project create shop --env staging" } }
        }
    }
}
