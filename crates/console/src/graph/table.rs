//! Table of a graph's jobs: filtered by state, in pages, with selection for cancel and retry.

use super::job_status::{JobStatus, code, code_text};
use super::{GraphView, JOBS_READ_MAX};
use crate::forms;
use crate::page_context::PageContext;
use crate::text::{line, safe};
use crate::time::took;
use crate::widgets::count;
use http::Uri;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::graph::record::JobRecord;
use tidemill_core::job::{JobState, StatusCode};
use tidemill_wire::graphs::ListJobs;

const ROWS: usize = 50;

/// Filter and page of the table.
#[derive(Debug, Default)]
pub(super) struct JobFilter {
    state: Option<JobState>,
    /// Position of the last job of the previous page.
    from: Option<i32>,
}

impl JobFilter {
    /// Reads the filter from the address.
    pub(super) fn from_uri(uri: &Uri) -> Self {
        let mut filter = Self::default();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "state" => filter.state = value.parse().ok(),
                "from" => filter.from = value.parse().ok().filter(|from| *from >= 0),
                _ => {}
            }
        }
        filter
    }

    /// Selects the page from all jobs. Returns whether more follow.
    pub(super) fn select(&self, jobs: &[JobRecord]) -> (Vec<JobRecord>, bool) {
        let after = self.from.unwrap_or(-1);
        let matches =
            |job: &&JobRecord| job.position > after && self.state.is_none_or(|state| job.state == state);
        let mut rows: Vec<JobRecord> = jobs.iter().filter(matches).take(ROWS + 1).cloned().collect();
        let more = rows.len() > ROWS;
        rows.truncate(ROWS);
        (rows, more)
    }

    /// Reads the page from the API, for graphs that are too large to be read completely.
    pub(super) async fn read(&self, client: &Client, run: &RunId) -> Result<(Vec<JobRecord>, bool), Error> {
        let limit = u16::try_from(ROWS).unwrap_or(JOBS_READ_MAX);
        let params =
            ListJobs { after: self.from, state: self.state, limit: Some(limit), ..ListJobs::default() };
        let page = client.jobs(run, &params).await?;
        Ok((page.items, page.next.is_some()))
    }

    fn link(&self, run: &RunId, from: Option<i32>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(state) = self.state {
            query.append_pair("state", state.as_str());
        }
        if let Some(from) = from {
            query.append_pair("from", &from.to_string());
        }
        let query = query.finish();
        let run = run.in_path();
        if query.is_empty() { format!("/runs/{run}#jobs") } else { format!("/runs/{run}?{query}#jobs") }
    }
}

pub(super) fn panel(context: &PageContext, view: &GraphView) -> Markup {
    let (run, filter) = (&view.record.run_id, &view.filter);
    let acts = context.may_operate();
    html! {
        section.panel #jobs {
            header {
                h2 { "Jobs" }
                form.inline.filters.bare method="get" action={ "/runs/" (run.in_path()) "#jobs" } {
                    select name="state" aria-label="State" {
                        option value="" { "all states" }
                        @for state in JobState::ALL {
                            option value=(state) selected[filter.state == Some(*state)] { (state) }
                        }
                    }
                    button type="submit" { "Filter" }
                }
                @if acts && !view.rows.is_empty() { (selection_form(context, view)) }
            }
            @if view.rows.is_empty() {
                p.empty { "There are no " (filter.state.map_or("", JobState::as_str)) " jobs here. "
                    a href={ "/runs/" (run.in_path()) "#jobs" } { "Show all jobs" } }
            } @else {
                div.scroll { table {
                    thead { tr {
                        @if acts { th.check { input type="checkbox" data-all="job" aria-label="Select all"; } }
                        th { "Job" } th { "Status" } th.wide { "Agent" } th.num { "Attempts" } th.num { "Duration" }
                            th.wide { "Reason" }
                    } }
                    tbody { @for job in &view.rows { (row(context, view, job, acts)) } }
                } }
                nav.pages aria-label="Pages of jobs" {
                    @if filter.from.is_some() { a.button href=(filter.link(run, None)) { "First" } }
                    @if let Some(last) = view.rows.last().filter(|_| view.more) {
                        a.button rel="next" href=(filter.link(run, Some(last.position))) { "Next" }
                    }
                }
            }
        }
    }
}

/// Actions on the selected jobs.
fn selection_form(context: &PageContext, view: &GraphView) -> Markup {
    html! {
        form #chosen.inline.more method="post" action={ "/graphs/" (view.record.run_id) "/jobs" } {
            (forms::hidden(context))
            @if view.is_live() {
                button type="submit" name="act" value="cancel" { "Cancel selected" }
            } @else {
                button type="submit" name="act" value="retry" title="Queues a retry of the graph that runs the \
                    selected jobs and all jobs that depend on them" { "Retry selected" }
            }
        }
    }
}

fn row(context: &PageContext, view: &GraphView, job: &JobRecord, acts: bool) -> Markup {
    html! {
        tr data-key=(job.job_id) {
            @if acts {
                td.check { input type="checkbox" form="chosen" name="job" value=(job.name)
                    aria-label={ "Select " (crate::text::visible(&job.name)) }; }
            }
            td { a href={ "/jobs/" (job.job_id) } { (safe(&job.name)) } }
            td { (code(job)) }
            td.wide { (view.agents.show(job.agent_id)) }
            td.num { @if job.tasks > 0 { (count(i64::from(job.tasks))) } @else { span.dim { "–" } } }
            td.num { @if let Some(took) = took(job.started_at, job.ended_at, context.now) { (took) }
                @else { span.dim { "–" } } }
            td.wide { @if let Some(why) = why(job) { (line(&why)) } @else { span.dim { "–" } } }
        }
    }
}

/// Reason for a job's state from its row alone. The job's page has the full explanation.
pub(super) fn why(job: &JobRecord) -> Option<String> {
    if let Some(message) = job.message.as_ref().filter(|message| !message.is_empty()) {
        return Some(message.clone());
    }
    match (JobStatus::from_job(job), job.code) {
        (JobStatus::Reused, _) => Some("result reused from an earlier run of this workspace".to_owned()),
        (JobStatus::Succeeded | JobStatus::Running, _) => None,
        (_, StatusCode::NonzeroExit) => {
            Some(job.exit_code.map_or_else(|| code_text(job.code), |code| format!("exit code {code}")))
        }
        (_, StatusCode::CancelledByUser) => Some(
            job.cancelled_by.as_ref().map_or_else(|| code_text(job.code), |by| format!("cancelled by {by}")),
        ),
        (
            JobStatus::Waiting
            | JobStatus::Held
            | JobStatus::Failed
            | JobStatus::Skipped
            | JobStatus::Cancelled,
            code,
        ) => Some(code_text(code)),
    }
}
