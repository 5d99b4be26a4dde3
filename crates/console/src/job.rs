//! One job of a graph: where it is and why, how it got there, its tries with what they wrote, what it left, and
//! what can be done.

mod attempts;
mod log;
mod outputs;

use crate::Console;
use crate::act::{self, Done, Form, go_to};
use crate::fold;
use crate::graph::{Look, Names, code, words};
use crate::layout::{Page, Place, Stream};
use crate::oops::Oops;
use crate::picture::{Bars, Row, Span};
use crate::text::{line, says};
use crate::time::{ago, ago_or_none, rough_secs, took};
use crate::visitor::Visitor;
use crate::words::{count, run_link, state};
use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::Timestamp;
use tidemill_core::graph::definition::{Command, OnAgentLost};
use tidemill_core::graph::record::{GraphRecord, JobDetail, JobRecord};
use tidemill_core::job::StatusCode;
use tidemill_core::shell::command;
use tidemill_core::task::job_id;
use tidemill_wire::graphs::{CancelGraph, JobWhy, ListJobs, ListNeeds};

/// Places of a graph among which those are looked for that need a job: what one answer of the door has.
const NEAR: u16 = 1_000;
/// Links to other jobs of one kind.
const LINKS: usize = 60;
/// Changes that are drawn: the last ones.
const CHANGES: usize = 200;

pub(crate) fn routes() -> Router<Console> {
    Router::new()
        .route("/jobs/{job}", get(page))
        .route("/jobs/{job}/tail", get(log::tail))
        .route("/jobs/{job}/cancel", post(cancel))
        .route("/jobs/{job}/retry", post(retry))
}

/// Everything that the page shows.
struct Told {
    detail: JobDetail,
    why: JobWhy,
    graph: GraphRecord,
    agents: Names,
    /// The jobs around it, and those of them that need it.
    near: Vec<JobRecord>,
    dependents: Vec<JobRecord>,
}

async fn read(client: &Client, job: &str) -> Result<Told, Error> {
    let (detail, why, agents) = tokio::try_join!(client.job(job), client.why_job(job), client.agents())?;
    let graph = client.graph(&detail.job.run_id).await?;
    // Who needs a job stands after it.
    let after = (graph.counts.total > i64::from(NEAR)).then_some(detail.job.position);
    let (asked_jobs, asked_needs) = (
        ListJobs { after, limit: Some(NEAR), ..ListJobs::default() },
        ListNeeds { after, limit: Some(NEAR) },
    );
    let run = &detail.job.run_id;
    let (near, needs) = tokio::try_join!(client.jobs(run, &asked_jobs), client.needs(run, &asked_needs))?;
    let needing = |job: &&JobRecord| {
        let own = needs.items.iter().find(|line| line.position == job.position);
        own.is_some_and(|line| line.needs.contains(&detail.job.position))
    };
    let dependents = near.items.iter().filter(needing).cloned().collect();
    Ok(Told { detail, why, graph, agents: Names::of(agents.items), near: near.items, dependents })
}

async fn page(visitor: Visitor, Path(job): Path<String>) -> Result<Response, Oops> {
    let told = read(&visitor.client, &job).await?;
    let record = &told.detail.job;
    let log = log::Wanted::of(&visitor.uri, record.tasks);
    let read = log.read(&visitor.client, record).await?;
    let body = html! {
        div #head data-live { (head(&visitor, &told)) }
        div.panel {
            header { h2 { "How it got here" } }
            div.in.picture #life data-live { (timeline(&told.detail, visitor.now)) }
        }
        div.split {
            div {
                (log::panel(record, &log, &read))
                div #left data-live { (outputs::panel(&told.detail.outputs, record)) }
            }
            div {
                div #around data-live {
                    (attempts::panel(&visitor, &told.detail, &told.agents, log.attempt))
                    (others(&told)) (facts(&visitor, &told))
                }
            }
        }
    };
    let stream = Stream { url: format!("/v1/runs/{}/stream", record.run_id.in_path()), after: None };
    let title = format!("{} of {}", record.name, record.run_id);
    let page = Page::new(&visitor, Place::Runs, title).follows(stream);
    // Changes of jobs are no events of their run.
    let live =
        !record.code.is_terminal() || record.stopping || told.detail.tasks.iter().any(|task| task.active);
    Ok(if live { page.every(1) } else { page }.show(&body))
}

fn head(visitor: &Visitor, told: &Told) -> Markup {
    let (job, graph) = (&told.detail.job, &told.graph);
    let ended = job.code.is_terminal();
    let (can_cancel, can_retry) =
        (visitor.may_operate() && !ended, visitor.may_operate() && graph.status.is_terminal());
    let name = format!("{}/{}", job.run_id, job.name);
    let run = job.run_id.as_str();
    let mut commands = vec![
        command(["job", "show", &name]),
        command(["job", "why", &name]),
        command(["graph", "logs", run, &job.name, "--follow"]),
    ];
    commands.extend(can_cancel.then(|| command(["graph", "cancel", run, "--job", &job.name])));
    commands.extend(can_retry.then(|| command(["job", "retry", &name])));
    let look = Look::of(job);
    html! {
        div.head {
            h1 { (says(&job.name)) }
            (code(job))
            div.acts {
                @if can_cancel { (cancel_form(visitor, job)) }
                @if can_retry {
                    (act::button(visitor, &format!("/jobs/{}/retry", job.job_id), &[],
                        "Run it again, with all after it", if look == Look::Failed { "main" } else { "" }))
                }
            }
            p.sub { "Job of " (run_link(&job.run_id)) " "
                @if let Some(name) = &graph.name { (says(name)) " " } (state(graph.status))
                @if job.tasks > 0 { " · try " (job.tasks) }
                @if let Some(took) = took(job.started_at, job.ended_at, visitor.now) { " · " (took) }
                @if job.agent_id.is_some() { " · on " (told.agents.show(job.agent_id)) } }
        }
        div class={ "note " @if look == Look::Failed { "bad" } @else if matches!(look, Look::Cancelled |
            Look::Skipped | Look::Held) { "warn" } } {
            (line(&told.why.sentence))
            @if let Some(message) = job.message.as_ref().filter(|message| !told.why.sentence.contains(*message)) {
                " " (line(message)) }
            @if let Some(hint) = &told.why.hint { " " code { (says(hint)) } }
            (act::commands(&commands))
        }
    }
}

fn cancel_form(visitor: &Visitor, job: &JobRecord) -> Markup {
    html! {
        details.drop open[act::is_given(visitor)] {
            summary { "Cancel…" }
            div {
                form.form method="post" action={ "/jobs/" (job.job_id) "/cancel" } {
                    (act::hidden(visitor))
                    p { "It is cancelled at once"
                        @if job.task_id.is_some() { "; its agent stops what runs, and confirms it" }
                        ". Jobs that need it cannot run." }
                    (act::reason(visitor))
                    div { button.risk type="submit" { "Cancel the job" } }
                }
            }
        }
    }
}

/// When it had which code: a row for each, in the order in which they first came.
fn timeline(detail: &JobDetail, now: Timestamp) -> Markup {
    let (job, changes) = (&detail.job, &detail.changes);
    let skipped = changes.len().saturating_sub(CHANGES);
    let shown = changes.get(skipped..).unwrap_or_default();
    let first = shown.first().map_or(job.code, |change| change.from_code);
    let began =
        if skipped == 0 { job.created_at } else { shown.first().map_or(job.created_at, |change| change.at) };
    let mut steps: Vec<(StatusCode, Timestamp)> = vec![(first, began)];
    steps.extend(shown.iter().map(|change| (change.to_code, change.at)));
    let last = if job.code.is_terminal() { job.ended_at.unwrap_or(job.updated_at) } else { now };
    let mut rows: Vec<(StatusCode, Vec<Span>)> = Vec::new();
    for (place, (code, from)) in steps.iter().enumerate() {
        let to = steps.get(place + 1).map_or(last, |(_, at)| *at).max(*from);
        let look = Look::of_code(*code);
        let waiting = matches!(look, Look::Waiting | Look::Held);
        let span = Span { from: *from, to, state: look.word(), waiting };
        match rows.iter_mut().find(|(known, _)| known == code) {
            Some((_, spans)) => spans.push(span),
            None => rows.push((*code, vec![span])),
        }
    }
    let rows = rows.into_iter().map(|(code, spans)| Row { name: short(code), spans });
    html! {
        (Bars { title: "When the job had which code".to_owned(), rows: rows.collect() }.draw())
        @if skipped > 0 { p.dim.small { "The last " (CHANGES) " of " (count(i64::try_from(changes.len())
            .unwrap_or(i64::MAX))) " changes." } }
    }
}

/// A code that fits the margin of the picture.
fn short(code: StatusCode) -> String {
    words(code)
        .replace("waiting on dependencies", "waiting on needs")
        .replace("waiting db maintenance", "maintenance")
}

/// What it needs, and what needs it.
fn others(told: &Told) -> Markup {
    let job = &told.detail.job;
    let needs = &told.detail.spec.needs;
    let known = |name: &String| told.near.iter().find(|other| other.name == *name);
    let rest = |count: usize| html! { @if count > LINKS { span.dim { "and " (count - LINKS) " more" } } };
    let far = told.graph.counts.total > i64::from(job.position) + 1 + i64::from(NEAR)
        && told.graph.counts.total > i64::from(NEAR);
    html! {
        section.panel #others {
            header { h2 { "Needs, and what needs it" } }
            div.in { dl.facts {
                dt { "Needs" } dd.links {
                    @if needs.is_empty() { span.dim { "nothing" } }
                    @for name in needs.iter().take(LINKS) { span {
                        a href={ "/jobs/" (job_id(&job.run_id, name)) } { (says(name)) }
                        @if let Some(other) = known(name) { " " (code(other)) }
                    } }
                    (rest(needs.len()))
                }
                dt { "Needed by" } dd.links {
                    @if told.dependents.is_empty() { span.dim { "nothing" } }
                    @for other in told.dependents.iter().take(LINKS) { span {
                        a href={ "/jobs/" (other.job_id) } { (says(&other.name)) } " " (code(other)) } }
                    (rest(told.dependents.len()))
                    @if far { span.dim { " among the next " (count(i64::from(NEAR))) " jobs" } }
                }
            } }
        }
    }
}

fn facts(visitor: &Visitor, told: &Told) -> Markup {
    let (job, spec, now) = (&told.detail.job, &told.detail.spec, visitor.now);
    let command = match &spec.run {
        Command::Shell(text) => text.clone(),
        Command::Words(words) => words.join(" "),
    };
    let lost = match spec.on_agent_lost {
        OnAgentLost::Wait => "it waits for it".to_owned(),
        OnAgentLost::RerunAfter(secs) => format!("another runs it after {}", rough_secs(f64::from(secs))),
    };
    html! {
        section.panel #facts {
            header { h2 { "Facts" } }
            div.in {
                dl.facts {
                    dt { "Command" } dd { code { (line(&command)) } }
                    dt { "Weight" } dd { (job.weight) }
                    @if let Some(pool) = &job.pool { dt { "Pool" } dd { a href="/agents#pools" { (says(pool)) } } }
                    @if !spec.labels.is_empty() { dt { "An agent with" }
                        dd { @for label in &spec.labels { span.chip { (says(label)) } " " } } }
                    @if let Some(secs) = spec.timeout_secs { dt { "Timeout" }
                        dd { (rough_secs(f64::from(secs))) } }
                    dt { "Failures" } dd { (job.failures) " of " (spec.retries + 1) " tries" }
                    @if job.errors > 0 { dt { "Errors" } dd { (job.errors) " that were not its fault" } }
                    dt { "Agent lost" } dd { (lost) }
                    @if let Some(from) = &job.reused_from { dt { "Reused from" }
                        dd { a.mono href={ "/jobs/" (from) } { (says(from)) } } }
                    @if let Some(at) = job.not_before { dt { "Not before" } dd { (ago(at, now)) } }
                    @if let Some(at) = job.cancelled_at { dt { "Asked to stop" } dd { (ago(at, now))
                        @if let Some(by) = &job.cancelled_by { " by " (says(by)) } } }
                    dt { "Made" } dd { (ago(job.created_at, now)) }
                    dt { "Ended" } dd { (ago_or_none(job.ended_at, now)) }
                    dt { "Id" } dd { code { (job.job_id) } }
                }
                @if let Ok(spec) = serde_json::to_value(spec) {
                    (fold::json("Definition", &spec, Some(&format!("/v1/jobs/{}", job.job_id)))) }
            }
        }
    }
}

async fn cancel(Path(job): Path<String>, form: Form) -> Result<Response, Oops> {
    let found = form.client.job(&job).await?.job;
    let wish = CancelGraph { jobs: vec![found.name], reason: form.field("reason").map(str::to_owned) };
    let answer = form.client.cancel_graph(&found.run_id, &wish).await?;
    Ok(form.back(Done::Plain(if answer.jobs > 0 { "job-cancelled" } else { "job-late" })))
}

async fn retry(Path(job): Path<String>, form: Form) -> Result<Response, Oops> {
    let answer = form.client.retry_job(&job).await?;
    let done = if answer.created { Done::Retried } else { Done::RetriedBefore };
    Ok(go_to(&format!("/runs/{}", answer.run_id.in_path()), done))
}
