//! The jobs of a graph, one by one: narrowed by state, a page at a time, and chosen to be stopped or run again.

use super::look::{Look, code, words};
use super::{Told, WHOLE};
use crate::act;
use crate::text::{line, says};
use crate::time::took;
use crate::visitor::Visitor;
use crate::words::count;
use http::Uri;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::graph::record::JobRecord;
use tidemill_core::job::{JobState, StatusCode};
use tidemill_wire::graphs::ListJobs;

/// Rows of a page.
const ROWS: usize = 50;

/// Which jobs to show.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    state: Option<JobState>,
    /// After this place in the graph.
    from: Option<i32>,
}

impl Wanted {
    /// As the address says.
    pub(super) fn of(uri: &Uri) -> Self {
        let mut wanted = Self::default();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "state" => wanted.state = value.parse().ok(),
                "from" => wanted.from = value.parse().ok().filter(|from| *from >= 0),
                _ => {}
            }
        }
        wanted
    }

    /// The jobs, of all that there are, and whether more follow.
    pub(super) fn choose(&self, jobs: &[JobRecord]) -> (Vec<JobRecord>, bool) {
        let after = self.from.unwrap_or(-1);
        let fits =
            |job: &&JobRecord| job.position > after && self.state.is_none_or(|state| job.state == state);
        let mut rows: Vec<JobRecord> = jobs.iter().filter(fits).take(ROWS + 1).cloned().collect();
        let more = rows.len() > ROWS;
        rows.truncate(ROWS);
        (rows, more)
    }

    /// The jobs, of a graph that is too large to be read whole.
    pub(super) async fn ask(&self, client: &Client, run: &RunId) -> Result<(Vec<JobRecord>, bool), Error> {
        let limit = u16::try_from(ROWS).unwrap_or(WHOLE);
        let asked =
            ListJobs { after: self.from, state: self.state, limit: Some(limit), ..ListJobs::default() };
        let page = client.jobs(run, &asked).await?;
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

/// The panel.
pub(super) fn panel(visitor: &Visitor, told: &Told) -> Markup {
    let (run, wanted) = (&told.record.run_id, &told.wanted);
    let acts = visitor.may_operate();
    html! {
        section.panel #jobs {
            header {
                h2 { "Jobs" }
                form.inline.filters.bare method="get" action={ "/runs/" (run.in_path()) "#jobs" } {
                    select name="state" aria-label="State" {
                        option value="" { "every state" }
                        @for state in JobState::ALL {
                            option value=(state) selected[wanted.state == Some(*state)] { (state) }
                        }
                    }
                    button type="submit" { "Show" }
                }
                @if acts && !told.rows.is_empty() { (chosen(visitor, told)) }
            }
            @if told.rows.is_empty() {
                p.empty { "No job is " (wanted.state.map_or("here", JobState::as_str)) ". "
                    a href={ "/runs/" (run.in_path()) "#jobs" } { "Show all jobs" } }
            } @else {
                div.scroll { table {
                    thead { tr {
                        @if acts { th.check { input type="checkbox" data-all="job" aria-label="Select all"; } }
                        th { "Job" } th { "Code" } th.wide { "Agent" } th.num { "Try" } th.num { "Took" }
                            th.wide { "Why" }
                    } }
                    tbody { @for job in &told.rows { (row(visitor, told, job, acts)) } }
                } }
                nav.pages aria-label="Pages of jobs" {
                    @if wanted.from.is_some() { a.button href=(wanted.link(run, None)) { "First" } }
                    @if let Some(last) = told.rows.last().filter(|_| told.more) {
                        a.button rel="next" href=(wanted.link(run, Some(last.position))) { "Next" }
                    }
                }
            }
        }
    }
}

/// What can be done to the jobs that are ticked.
fn chosen(visitor: &Visitor, told: &Told) -> Markup {
    html! {
        form #chosen.inline.more method="post" action={ "/graphs/" (told.record.run_id) "/jobs" } {
            (act::hidden(visitor))
            @if told.is_live() {
                button type="submit" name="act" value="cancel" { "Cancel the selected" }
            } @else {
                button type="submit" name="act" value="retry" title="Another try of the graph: the selected jobs run \
                    again, with everything after them" { "Run the selected again" }
            }
        }
    }
}

fn row(visitor: &Visitor, told: &Told, job: &JobRecord, acts: bool) -> Markup {
    html! {
        tr data-key=(job.job_id) {
            @if acts {
                td.check { input type="checkbox" form="chosen" name="job" value=(job.name)
                    aria-label={ "Select " (crate::text::visible(&job.name)) }; }
            }
            td { a href={ "/jobs/" (job.job_id) } { (says(&job.name)) } }
            td { (code(job)) }
            td.wide { (told.agents.show(job.agent_id)) }
            td.num { @if job.tasks > 0 { (count(i64::from(job.tasks))) } @else { span.dim { "–" } } }
            td.num { @if let Some(took) = took(job.started_at, job.ended_at, visitor.now) { (took) }
                @else { span.dim { "–" } } }
            td.wide { @if let Some(why) = why(job) { (line(&why)) } @else { span.dim { "–" } } }
        }
    }
}

/// Why a job is where it is, as far as it says so itself. All of it is on its own page.
pub(super) fn why(job: &JobRecord) -> Option<String> {
    if let Some(message) = job.message.as_ref().filter(|message| !message.is_empty()) {
        return Some(message.clone());
    }
    match (Look::of(job), job.code) {
        (Look::Reused, _) => Some("an earlier run of this workspace did it".to_owned()),
        (Look::Succeeded | Look::Running, _) => None,
        (_, StatusCode::NonzeroExit) => {
            Some(job.exit_code.map_or_else(|| words(job.code), |code| format!("exit code {code}")))
        }
        (_, StatusCode::CancelledByUser) => {
            Some(job.cancelled_by.as_ref().map_or_else(|| words(job.code), |by| format!("stopped by {by}")))
        }
        (Look::Waiting | Look::Held | Look::Failed | Look::Skipped | Look::Cancelled, code) => {
            Some(words(code))
        }
    }
}
