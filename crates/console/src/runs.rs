//! The list of runs: every filter stands in the address, rows are live, and several can be acted on at once.

mod bulk;
mod filter;

use crate::Console;
use crate::act;
use crate::graph;
use crate::layout::{Page, Place};
use crate::oops::{Oops, sentence};
use crate::text::{line, line_of, says};
use crate::time::{ago, took};
use crate::visitor::Visitor;
use crate::words::{ending, run_link, state, subject};
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
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

/// Rows of a page.
const ROWS: u16 = 50;

pub(crate) fn routes() -> Router<Console> {
    Router::new().route("/runs", get(page)).route("/runs/bulk", post(bulk::bulk))
}

/// What the list has, or why it has nothing.
async fn found(visitor: &Visitor, filter: &Filter) -> Result<Result<Slice<Run>, Box<Problem>>, Oops> {
    let asked = match filter.asked(visitor.now, ROWS) {
        Ok(asked) => asked,
        Err(problem) => return Ok(Err(Box::new(problem))),
    };
    match visitor.client.runs(&asked).await {
        Ok(slice) => Ok(Ok(slice)),
        // A filter that fits nothing is not the end of the page.
        Err(Error::Refused { status: StatusCode::UNPROCESSABLE_ENTITY | StatusCode::NOT_FOUND, problem }) => {
            Ok(Err(problem))
        }
        Err(error) => Err(error.into()),
    }
}

async fn page(visitor: Visitor) -> Result<Response, Oops> {
    let filter = Filter::of(&visitor.uri);
    let found = found(&visitor, &filter).await?;
    let projects = visitor.client.projects().await?.items;
    let runs = found.as_ref().map_or(&[][..], |slice| &slice.items);
    let far = graph::far(&visitor.client, runs).await?;
    let body = html! {
        div.head { h1 { "Runs" } }
        div.panel { (filter.form(&projects)) }
        div.panel #runs data-live {
            @match &found {
                Ok(slice) => (list(&visitor, &filter, slice, &projects, &far)),
                Err(problem) => p.empty role="alert" {
                    (says(&sentence(&problem.message)))
                    @if let Some(hint) = &problem.hint { " " (says(hint)) }
                },
            }
        }
    };
    Ok(Page::new(&visitor, Place::Runs, "Runs").live().show(&body))
}

fn list(
    visitor: &Visitor,
    filter: &Filter,
    slice: &Slice<Run>,
    projects: &[Project],
    far: &HashMap<RunId, GraphRecord>,
) -> Markup {
    if slice.items.is_empty() {
        return nothing(filter, projects);
    }
    let acts = visitor.may_operate();
    html! {
        @if acts {
            form #bulk.filters method="post" action="/runs/bulk" {
                (act::hidden(visitor))
                button type="submit" name="act" value="cancel" { "Cancel the selected" }
                button type="submit" name="act" value="retry" { "Retry the selected" }
            }
        }
        div.scroll {
            table {
                thead { tr {
                    @if acts { th.check { input type="checkbox" data-all="run" aria-label="Select all"; } }
                    th { "State" } th { "Run" } th { "What" } th.wide { "Worker" } th { "Queued" }
                        th.num { "Took" }
                } }
                tbody { @for run in &slice.items { (row(visitor, run, acts, far.get(&run.run_id))) } }
            }
        }
        nav.pages aria-label="Pages" {
            @if filter.is_further() { a.button href=(filter.first()) { "Newest" } }
            @if let Some(next) = &slice.next { a.button href=(filter.older(next)) rel="next" { "Older" } }
        }
    }
}

fn row(visitor: &Visitor, run: &Run, acts: bool, graph: Option<&GraphRecord>) -> Markup {
    let now = visitor.now;
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
            td.wide { @if let Some(worker) = &run.claimed_by { (line_of(worker, 32)) } @else { span.dim { "–" } } }
            td.nowrap { (ago(run.queued_at, now)) }
            td.num { @if let Some(took) = took(run.started_at, run.finished_at, now) { (took) }
                @else { span.dim { "–" } } }
        }
    }
}

/// What is worth a line of its own in a list: why it did not end well.
fn reason(run: &Run, now: tidemill_core::Timestamp) -> Option<String> {
    match run.status {
        RunState::Failed | RunState::Cancelled => Some(ending(run, now)),
        RunState::Queued | RunState::Claimed | RunState::Running | RunState::Success => None,
    }
}

fn nothing(filter: &Filter, projects: &[Project]) -> Markup {
    html! {
        @if filter.is_narrow() {
            p.empty { "No run fits this filter. " a href="/runs" { "Show all runs" } }
        } @else if let Some(project) = projects.first() {
            p.empty { "No run was queued yet. Queue one: "
                code { "tidemill run queue --project " (project.project_id) " --env "
                    (project.environments.first().map_or("staging", String::as_str)) } }
        } @else {
            p.empty { "There is no project yet. Make one: "
                code { "tidemill project create shop --env staging" } }
        }
    }
}
