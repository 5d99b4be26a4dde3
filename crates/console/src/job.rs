//! Page of one job: status and reason, timeline, attempts with their output, files and actions.

mod attempts;
mod log;
mod outputs;

use crate::chart::{Bars, Row, Span};
use crate::error_page::ErrorPage;
use crate::forms::{self, Form, FormOutcome, redirect_with_message};
use crate::graph::{AgentNames, JobStatus, code, code_text};
use crate::json_view;
use crate::layout::{Page, Section, Stream};
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::text::{line, safe};
use crate::time::{ago, ago_or_none, rough_secs, took};
use crate::widgets::{count, run_link, state};
use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::Timestamp;
use tidemill_core::graph::definition::{Command, OnAgentLost};
use tidemill_core::graph::record::{GraphRecord, JobDetail, JobRecord};
use tidemill_core::job::StatusCode;
use tidemill_core::shell::command;
use tidemill_core::task::job_id;
use tidemill_wire::graphs::{CancelGraph, JobWhy, ListJobs, ListNeeds};

/// Number of jobs that are searched for dependents: the page size limit of the API.
const JOBS_SEARCHED: u16 = 1_000;
/// Maximum number of links to other jobs.
const LINKS_MAX: usize = 60;
/// Maximum number of state changes in the timeline; the last ones are shown.
const CHANGES_MAX: usize = 200;

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/jobs/{job}", page)
        .get("/jobs/{job}/tail", log::tail)
        .post("/jobs/{job}/cancel", cancel)
        .post("/jobs/{job}/retry", retry)
}

/// Data of the page.
struct JobView {
    detail: JobDetail,
    why: JobWhy,
    graph: GraphRecord,
    agents: AgentNames,
    /// Jobs around this one, and those that depend on it.
    nearby: Vec<JobRecord>,
    dependents: Vec<JobRecord>,
}

async fn read(client: &Client, job: &str) -> Result<JobView, Error> {
    let (detail, why, agents) = tokio::try_join!(client.job(job), client.why_job(job), client.agents())?;
    let graph = client.graph(&detail.job.run_id).await?;
    // Dependents have higher positions than the job.
    let after = (graph.counts.total > i64::from(JOBS_SEARCHED)).then_some(detail.job.position);
    let (job_params, need_params) = (
        ListJobs { after, limit: Some(JOBS_SEARCHED), ..ListJobs::default() },
        ListNeeds { after, limit: Some(JOBS_SEARCHED) },
    );
    let run = &detail.job.run_id;
    let (nearby, needs) = tokio::try_join!(client.jobs(run, &job_params), client.needs(run, &need_params))?;
    let depends_on_job = |job: &&JobRecord| {
        let own = needs.items.iter().find(|line| line.position == job.position);
        own.is_some_and(|line| line.needs.contains(&detail.job.position))
    };
    let dependents = nearby.items.iter().filter(depends_on_job).cloned().collect();
    Ok(JobView {
        detail,
        why,
        graph,
        agents: AgentNames::new(agents.items),
        nearby: nearby.items,
        dependents,
    })
}

async fn page(context: PageContext, Path(job): Path<String>) -> Result<Response, ErrorPage> {
    let view = read(&context.client, &job).await?;
    let record = &view.detail.job;
    let log = log::LogSelection::from_uri(&context.uri, record.tasks);
    let read = log.read(&context.client, record).await?;
    let body = html! {
        div #head data-live { (head(&context, &view)) }
        div.panel {
            header { h2 { "Timeline" } }
            div.in.picture #life data-live { (timeline(&view.detail, context.now)) }
        }
        div.split {
            div {
                (log::panel(record, &log, &read))
                div #left data-live { (outputs::panel(&view.detail.outputs, record)) }
            }
            div {
                div #around data-live {
                    (attempts::panel(&context, &view.detail, &view.agents, log.attempt))
                    (dependencies_panel(&view)) (details_panel(&context, &view))
                }
            }
        }
    };
    let stream = Stream { url: format!("/v1/runs/{}/stream", record.run_id.in_path()), after: None };
    let title = format!("{} of {}", record.name, record.run_id);
    let page = Page::new(&context, Section::Runs, title).with_stream(stream);
    // State changes of jobs create no events of the run.
    let live =
        !record.code.is_terminal() || record.stopping || view.detail.tasks.iter().any(|task| task.active);
    Ok(if live { page.refresh_every(1) } else { page }.show(&body))
}

fn head(context: &PageContext, view: &JobView) -> Markup {
    let (job, graph) = (&view.detail.job, &view.graph);
    let ended = job.code.is_terminal();
    let (can_cancel, can_retry) =
        (context.may_operate() && !ended, context.may_operate() && graph.status.is_terminal());
    let name = format!("{}/{}", job.run_id, job.name);
    let run = job.run_id.as_str();
    let mut commands = vec![
        command(["job", "show", &name]),
        command(["job", "why", &name]),
        command(["graph", "logs", run, &job.name, "--follow"]),
    ];
    commands.extend(can_cancel.then(|| command(["graph", "cancel", run, "--job", &job.name])));
    commands.extend(can_retry.then(|| command(["job", "retry", &name])));
    let status = JobStatus::from_job(job);
    html! {
        div.head {
            h1 { (safe(&job.name)) }
            (code(job))
            div.acts {
                @if can_cancel { (cancel_form(context, job)) }
                @if can_retry {
                    (forms::button(context, &format!("/jobs/{}/retry", job.job_id), &[],
                        "Retry with all dependent jobs", if status == JobStatus::Failed { "main" } else { "" }))
                }
            }
            p.sub { "Job of " (run_link(&job.run_id)) " "
                @if let Some(name) = &graph.name { (safe(name)) " " } (state(graph.status))
                @if job.tasks > 0 { " · attempt " (job.tasks) }
                @if let Some(took) = took(job.started_at, job.ended_at, context.now) { " · " (took) }
                @if job.agent_id.is_some() { " · on " (view.agents.show(job.agent_id)) } }
        }
        div class={ "note " @if status == JobStatus::Failed { "bad" } @else if matches!(status, JobStatus::Cancelled |
            JobStatus::Skipped | JobStatus::Held) { "warn" } } {
            (line(&view.why.sentence))
            @if let Some(message) = job.message.as_ref().filter(|message| !view.why.sentence.contains(*message)) {
                " " (line(message)) }
            @if let Some(hint) = &view.why.hint { " " code { (safe(hint)) } }
            (forms::commands(&commands))
        }
    }
}

fn cancel_form(context: &PageContext, job: &JobRecord) -> Markup {
    html! {
        details.drop open[forms::reason_was_given(context)] {
            summary { "Cancel…" }
            div {
                form.form method="post" action={ "/jobs/" (job.job_id) "/cancel" } {
                    (forms::hidden(context))
                    p { "The job is cancelled at once"
                        @if job.task_id.is_some() { "; its agent stops the command and confirms it" }
                        ". Jobs that depend on it cannot run." }
                    (forms::reason(context))
                    div { button.risk type="submit" { "Cancel job" } }
                }
            }
        }
    }
}

/// Timeline of status codes: one row per code, in order of first occurrence.
fn timeline(detail: &JobDetail, now: Timestamp) -> Markup {
    let (job, changes) = (&detail.job, &detail.changes);
    let skipped = changes.len().saturating_sub(CHANGES_MAX);
    let shown = changes.get(skipped..).unwrap_or_default();
    let first = shown.first().map_or(job.code, |change| change.from_code);
    let started =
        if skipped == 0 { job.created_at } else { shown.first().map_or(job.created_at, |change| change.at) };
    let mut steps: Vec<(StatusCode, Timestamp)> = vec![(first, started)];
    steps.extend(shown.iter().map(|change| (change.to_code, change.at)));
    let last = if job.code.is_terminal() { job.ended_at.unwrap_or(job.updated_at) } else { now };
    let mut rows: Vec<(StatusCode, Vec<Span>)> = Vec::new();
    for (index, (code, from)) in steps.iter().enumerate() {
        let to = steps.get(index + 1).map_or(last, |(_, at)| *at).max(*from);
        let status = JobStatus::from_code(*code);
        let waiting = matches!(status, JobStatus::Waiting | JobStatus::Held);
        let span = Span { from: *from, to, state: status.label(), waiting };
        match rows.iter_mut().find(|(known, _)| known == code) {
            Some((_, spans)) => spans.push(span),
            None => rows.push((*code, vec![span])),
        }
    }
    let rows = rows.into_iter().map(|(code, spans)| Row { name: short(code), spans });
    html! {
        (Bars { title: "Status of the job over time".to_owned(), rows: rows.collect() }.draw())
        @if skipped > 0 { p.dim.small { "The last " (CHANGES_MAX) " of " (count(i64::try_from(changes.len())
            .unwrap_or(i64::MAX))) " changes." } }
    }
}

/// Status code shortened for the margin of the drawing.
fn short(code: StatusCode) -> String {
    code_text(code)
        .replace("waiting on dependencies", "waiting on deps")
        .replace("waiting db maintenance", "maintenance")
}

fn dependencies_panel(view: &JobView) -> Markup {
    let job = &view.detail.job;
    let needs = &view.detail.spec.needs;
    let known = |name: &String| view.nearby.iter().find(|other| other.name == *name);
    let rest =
        |count: usize| html! { @if count > LINKS_MAX { span.dim { "and " (count - LINKS_MAX) " more" } } };
    let is_partial = view.graph.counts.total > i64::from(job.position) + 1 + i64::from(JOBS_SEARCHED)
        && view.graph.counts.total > i64::from(JOBS_SEARCHED);
    html! {
        section.panel #others {
            header { h2 { "Dependencies" } }
            div.in { dl.facts {
                dt { "Depends on" } dd.links {
                    @if needs.is_empty() { span.dim { "none" } }
                    @for name in needs.iter().take(LINKS_MAX) { span {
                        a href={ "/jobs/" (job_id(&job.run_id, name)) } { (safe(name)) }
                        @if let Some(other) = known(name) { " " (code(other)) }
                    } }
                    (rest(needs.len()))
                }
                dt { "Required by" } dd.links {
                    @if view.dependents.is_empty() { span.dim { "none" } }
                    @for other in view.dependents.iter().take(LINKS_MAX) { span {
                        a href={ "/jobs/" (other.job_id) } { (safe(&other.name)) } " " (code(other)) } }
                    (rest(view.dependents.len()))
                    @if is_partial { span.dim { " of the next " (count(i64::from(JOBS_SEARCHED))) " jobs" } }
                }
            } }
        }
    }
}

fn details_panel(context: &PageContext, view: &JobView) -> Markup {
    let (job, spec, now) = (&view.detail.job, &view.detail.spec, context.now);
    let command = match &spec.run {
        Command::Shell(text) => text.clone(),
        Command::Words(words) => words.join(" "),
    };
    let lost = match spec.on_agent_lost {
        OnAgentLost::Wait => "the job waits for it".to_owned(),
        OnAgentLost::RerunAfter(secs) => {
            format!("another agent runs it after {}", rough_secs(f64::from(secs)))
        }
    };
    html! {
        section.panel #facts {
            header { h2 { "Details" } }
            div.in {
                dl.facts {
                    dt { "Command" } dd { code { (line(&command)) } }
                    dt { "Weight" } dd { (job.weight) }
                    @if let Some(pool) = &job.pool { dt { "Pool" } dd { a href="/agents#pools" { (safe(pool)) } } }
                    @if !spec.labels.is_empty() { dt { "Required labels" }
                        dd { @for label in &spec.labels { span.chip { (safe(label)) } " " } } }
                    @if let Some(secs) = spec.timeout_secs { dt { "Timeout" }
                        dd { (rough_secs(f64::from(secs))) } }
                    @let limits = spec.limits.describe();
                    @if !limits.is_empty() { dt { "Limits" } dd { (limits.join(", ")) } }
                    dt { "Failures" } dd { (job.failures) " of " (spec.retries + 1) " attempts" }
                    @if job.errors > 0 { dt { "Errors" } dd { (job.errors) " not caused by the job" } }
                    dt { "If the agent is lost" } dd { (lost) }
                    @if let Some(from) = &job.reused_from { dt { "Reused from" }
                        dd { a.mono href={ "/jobs/" (from) } { (safe(from)) } } }
                    @if let Some(at) = job.not_before { dt { "Not before" } dd { (ago(at, now)) } }
                    @if let Some(at) = job.cancelled_at { dt { "Cancel requested" } dd { (ago(at, now))
                        @if let Some(by) = &job.cancelled_by { " by " (safe(by)) } } }
                    dt { "Created" } dd { (ago(job.created_at, now)) }
                    dt { "Ended" } dd { (ago_or_none(job.ended_at, now)) }
                    dt { "Id" } dd { code { (job.job_id) } }
                }
                @if let Ok(spec) = serde_json::to_value(spec) {
                    (json_view::json("Definition", &spec, Some(&format!("/v1/jobs/{}", job.job_id)))) }
            }
        }
    }
}

async fn cancel(Path(job): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let found = form.client.job(&job).await?.job;
    let request = CancelGraph { jobs: vec![found.name], reason: form.field("reason").map(str::to_owned) };
    let response = form.client.cancel_graph(&found.run_id, &request).await?;
    Ok(form.back(FormOutcome::Message(if response.jobs > 0 { "job-cancelled" } else { "job-late" })))
}

async fn retry(Path(job): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let response = form.client.retry_job(&job).await?;
    let done = if response.created { FormOutcome::Retried } else { FormOutcome::RetriedBefore };
    Ok(redirect_with_message(&format!("/runs/{}", response.run_id.in_path()), done))
}
