//! Page of one run: state and reason, timeline, events, tries, artifacts and actions.

mod actions;
mod events;
mod timeline;

use crate::error_page::ErrorPage;
use crate::forms;
use crate::graph;
use crate::json_view;
use crate::layout::{Page, Section, Stream};
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::sync;
use crate::text::{clip, line, safe};
use crate::time::{ago, ago_or_none, rough_secs, took};
use crate::widgets::{count, label, run_link, state, subject};
use axum::extract::Path;
use axum::response::Response;
use events::EventFilter;
use maud::{Markup, html};
use tidemill_core::RunId;
use tidemill_core::artifact::Artifact;
use tidemill_core::run::{Lane, Run, RunState};
use tidemill_core::shell::command;
use tidemill_wire::runs::{ListEvents, RunDetail};

/// Maximum number of tries that are compared.
const TRIES_MAX: usize = 5;
/// Maximum number of artifacts shown.
const ARTIFACTS_MAX: usize = 50;
/// Number of first events that contain the first state changes.
const FIRST_EVENTS: u16 = 20;

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/runs/{run}", page)
        .get("/runs/{run}/tail", events::tail)
        .post("/runs/{run}/cancel", actions::cancel)
        .post("/runs/{run}/fail", actions::fail)
        .post("/runs/{run}/retry", actions::retry)
}

/// Parses a run id from a path.
fn id(text: &str) -> Result<RunId, ErrorPage> {
    text.parse().map_err(|_| ErrorPage::not_found(format!("`{text}` is not a run id")))
}

async fn page(context: PageContext, Path(run): Path<String>) -> Result<Response, ErrorPage> {
    let run = id(&run)?;
    let filter = EventFilter::from_uri(&context.uri);
    let first = ListEvents { after: None, limit: Some(FIRST_EVENTS) };
    let client = &context.client;
    let (detail, tail, first) =
        tokio::try_join!(client.run_detail(&run), filter.read(client, &run), client.events(&run, &first))?;
    let sync_view = match (detail.run.lane, detail.tries.first()) {
        (Lane::Sync, Some(first)) => sync::read(&context, first).await?,
        (Lane::Ops | Lane::Graph | Lane::Sync, _) => None,
    };
    let graph = if detail.run.lane == Lane::Graph { graph::read(&context, &run).await? } else { None };
    let last = tail.items.last().map_or(0, |event| event.seq);
    let changes = timeline::changes(&first.items, &tail.items);
    let body = html! {
        div #head data-live { (head(&context, &detail, sync_view.as_ref(), graph.as_ref())) }
        @if let Some(graph) = &graph { div #lane data-live { (graph::panel(&context, graph)) } }
        div.panel {
            header { h2 { "Timeline" } }
            div.in.picture #life data-live { (timeline::chart(&detail, &changes, context.now)) }
        }
        // The element exists before the sync is planned, so that a live update can fill it.
        @if detail.run.lane == Lane::Sync {
            div #lane data-live { @if let Some(sync_view) = &sync_view { (sync::panel(&context, sync_view)) } }
        }
        div.split {
            div { (events::panel(&run, &filter, &tail)) }
            div {
                div #facts data-live { (details_panel(&context, &detail.run)) (tries(&context, &detail))
                    (artifacts(&detail)) }
            }
        }
    };
    let planned = sync_view.as_ref().map(|sync_view| sync_view.status.sync.state.is_live());
    let live = planned.unwrap_or(detail.run.lane == Lane::Sync && !detail.run.status.is_terminal())
        || graph.as_ref().is_some_and(graph::GraphView::is_live);
    let stream = Stream { url: format!("/v1/runs/{}/stream", run.in_path()), after: Some(last.to_string()) };
    let page = Page::new(&context, Section::Runs, run.to_string()).with_stream(stream);
    // Pages of a sync and changes of jobs create no events.
    Ok(if live { page.refresh_every(1) } else { page }.show(&body))
}

/// The try after this one.
fn successor(detail: &RunDetail) -> Option<&Run> {
    detail.tries.iter().find(|other| other.retry_of.as_ref() == Some(&detail.run.run_id))
}

fn head(
    context: &PageContext,
    detail: &RunDetail,
    sync_view: Option<&sync::SyncView>,
    graph: Option<&graph::GraphView>,
) -> Markup {
    let run = &detail.run;
    // A planned sync is cancelled and retried as a whole, and a graph has its own actions.
    let has_own_actions = context.may_operate() && sync_view.is_none() && graph.is_none();
    let can_cancel = has_own_actions && !run.status.is_terminal();
    let can_fail = has_own_actions && is_stalled(run);
    let can_retry = has_own_actions
        && matches!(run.status, RunState::Failed | RunState::Cancelled)
        && successor(detail).is_none();
    let verb = |verb| command(["run", verb, run.run_id.as_str()]);
    let mut commands = vec![verb("show"), verb("why")];
    commands.extend(can_cancel.then(|| verb("cancel")));
    commands.extend(can_fail.then(|| verb("fail")));
    commands.extend(can_retry.then(|| verb("retry")));
    commands.extend(sync_view.into_iter().flat_map(|sync_view| sync::commands(context, sync_view, run)));
    let next = successor(detail).is_some();
    commands.extend(graph.into_iter().flat_map(|graph| graph::commands(context, graph, next)));
    html! {
        div.head {
            h1.mono { (run.run_id) }
            (state(run.status))
            @if is_stalled(run) { (label("stalled")) }
            div.acts {
                @if can_fail { (fail(context, run)) }
                @if can_cancel { (cancel(context, run)) }
                @if let Some(sync_view) = sync_view { (sync::acts(context, sync_view, run)) }
                @if let Some(graph) = graph { (graph::acts(context, graph, next)) }
                @if can_retry {
                    (forms::button(context, &format!("/runs/{}/retry", run.run_id.in_path()), &[], "Retry", "main"))
                }
            }
            p.sub { (subject(run)) " · try " (run.attempt)
                @if let Some(took) = took(run.started_at, run.finished_at, context.now) { " · " (took) }
                " · queued " (ago(run.queued_at, context.now)) }
        }
        div class={ "note " @if run.status == RunState::Failed { "bad" } @else if
            run.status == RunState::Cancelled || is_stalled(run) { "warn" } } {
            (line(&detail.why.sentence))
            @if let Some(next) = successor(detail) { " " a href={ "/runs/" (next.run_id.in_path()) } {
                "Go to the retry" } }
            @else if let Some(hint) = detail.why.hint.as_ref().filter(|_| sync_view.is_none()) {
                " " code { (safe(hint)) } }
            (forms::commands(&commands))
        }
    }
}

fn cancel(context: &PageContext, run: &Run) -> Markup {
    let held = run.status.is_held();
    html! {
        details.drop open[forms::reason_was_given(context)] {
            summary { "Cancel…" }
            div {
                form.form method="post" action={ "/runs/" (run.run_id.in_path()) "/cancel" } {
                    (forms::hidden(context))
                    p { @if held { "Its worker is asked to stop and has a grace period to confirm." }
                        @else { "The run is waiting and ends at once." } }
                    (forms::reason(context))
                    div { button.risk type="submit" { "Cancel run" } }
                }
            }
        }
    }
}

/// Whether a run is stalled. An ended run keeps the time at which it stalled.
fn is_stalled(run: &Run) -> bool {
    run.stalled_at.is_some() && !run.status.is_terminal()
}

fn fail(context: &PageContext, run: &Run) -> Markup {
    html! {
        details.drop open[forms::reason_was_given(context)] {
            summary { "Fail…" }
            div {
                form.form method="post" action={ "/runs/" (run.run_id) "/fail" } {
                    (forms::hidden(context))
                    p { "Its worker sends no heartbeats and did not promise any. Make sure that the worker is \
                        gone: if it is still working, the run may be executed twice." }
                    (forms::reason(context))
                    div {
                        button.risk type="submit" { "Fail run" }
                        " "
                        button.risk type="submit" name="retry" value="yes" { "Fail and retry" }
                    }
                }
            }
        }
    }
}

fn details_panel(context: &PageContext, run: &Run) -> Markup {
    let now = context.now;
    html! {
        div.panel {
            header { h2 { "Details" } }
            div.in {
                dl.facts {
                    dt { "Project" } dd { (safe(run.env_id.as_str())) }
                    dt { "Lane" } dd { (run.lane) }
                    @if !run.kind.is_empty() { dt { "Kind" } dd { (line(&run.kind)) } }
                    @if let Some(worker) = &run.claimed_by { dt { "Worker" } dd { (safe(worker)) } }
                    @if let Some(git_ref) = &run.git_ref { dt { "Branch or tag" } dd { (line(git_ref)) } }
                    @if let Some(sha) = &run.git_sha { dt { "Commit" } dd { code { (clip(sha, 64)) } } }
                    dt { "Priority" } dd { (run.priority) }
                    @if !run.labels.is_empty() {
                        dt { "Required labels" } dd { @for label in &run.labels { span.chip { (safe(label)) } " " } }
                    }
                    @if let Some(key) = &run.concurrency_key { dt { "Concurrency key" } dd { (line(key)) } }
                    @if let Some(key) = &run.idempotency_key { dt { "Idempotency key" } dd { (line(key)) } }
                    dt { "Failures" } dd { (run.failures) " before, of " (run.max_attempts) }
                    dt { "Losses" } dd { (run.losses) " before, of " (run.max_losses) }
                    @if let Some(secs) = run.timeout_secs { dt { "Timeout" }
                        dd { (rough_secs(f64::from(secs))) } }
                    dt { "Queued" } dd { (ago(run.queued_at, now)) }
                    @if let Some(at) = run.available_at { dt { "Not before" } dd { (ago(at, now)) } }
                    @if let Some(at) = run.expires_at { dt { "Expires" } dd { (ago(at, now)) } }
                    dt { "Claimed" } dd { (ago_or_none(run.started_at, now)) }
                    @if let Some(at) = run.lease_until.filter(|_| run.status.is_held()) { dt { "Lease" }
                        dd { (ago(at, now)) } }
                    @if let Some(at) = run.deadline_at.filter(|_| run.status.is_held()) { dt { "Deadline" }
                        dd { (ago(at, now)) } }
                    @if let Some(at) = run.stalled_at { dt { "Stalled" } dd { (ago(at, now)) } }
                    @if let Some(at) = run.cancel_requested_at {
                        dt { "Cancel requested" } dd { (ago(at, now))
                            @if let Some(by) = &run.cancel_requested_by { " by " (safe(by)) }
                            @if let Some(reason) = &run.cancel_reason { ": " (line(reason)) } }
                    }
                    dt { "Ended" } dd { (ago_or_none(run.finished_at, now))
                        @if let Some(cause) = run.end_cause { " " span.chip { (cause) } } }
                }
                @if !json_view::is_empty(&run.metadata) {
                    (json_view::json("Metadata", &run.metadata, Some(&format!("/v1/runs/{}", run.run_id.in_path()))))
                }
            }
        }
    }
}

/// Compares the last tries of the request.
fn tries(context: &PageContext, detail: &RunDetail) -> Markup {
    if detail.tries.len() < 2 {
        return html! {};
    }
    let now = context.now;
    let skipped = detail.tries.len().saturating_sub(TRIES_MAX);
    let shown: Vec<&Run> = detail.tries.iter().skip(skipped).collect();
    let fact = |name: &str, value: &dyn Fn(&Run) -> Markup| {
        html! { tr { th scope="row" { (name) } @for run in &shown { td { (value(run)) } } } }
    };
    html! {
        div.panel {
            header { h2 { "Tries" } @if skipped > 0 { span.dim.small { "the last " (TRIES_MAX) " of "
                (detail.tries.len()) } } }
            div.scroll {
                table {
                    thead { tr { th {} @for run in &shown {
                        th scope="col" { @if run.run_id == detail.run.run_id { "this one: " } "try "
                            (run.attempt) }
                    } } }
                    tbody {
                        (fact("Run", &|run| run_link(&run.run_id)))
                        (fact("State", &|run| state(run.status)))
                        (fact("Worker", &|run| html! { @if let Some(worker) = &run.claimed_by { (safe(worker))
                            } @else { "–" } }))
                        (fact("Queued", &|run| ago(run.queued_at, now)))
                        (fact("Duration", &|run| html! {
                            (took(run.started_at, run.finished_at, now).unwrap_or_else(|| "–".to_owned())) }))
                        (fact("Ended", &|run| html! { @if let Some(cause) = run.end_cause { (cause) }
                            @else { "–" } }))
                    }
                }
            }
        }
    }
}

fn artifacts(detail: &RunDetail) -> Markup {
    let shown: &[Artifact] = detail.artifacts.get(..ARTIFACTS_MAX).unwrap_or(&detail.artifacts);
    html! {
        @if !shown.is_empty() {
            div.panel #artifacts {
                header { h2 { "Artifacts" } @if shown.len() < detail.artifacts.len() {
                    span.dim.small { "the first " (ARTIFACTS_MAX) "; complete list: "
                        code { "tidemill run artifact list " (detail.run.run_id) } } } }
                div.scroll {
                    table {
                        thead { tr { th { "Type" } th { "Location" } th.num { "Bytes" } } }
                        tbody {
                            @for artifact in shown {
                                tr {
                                    td { (safe(&artifact.artifact_type)) }
                                    td { (artifact_link(&artifact.url))
                                        @if let Some(digest) = &artifact.digest { span.why.mono {
                                            (clip(digest, 72)) } } }
                                    td.num { @if let Some(size) = artifact.size_bytes { (count(size)) }
                                        @else { "–" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Location of an artifact. Only http and https become links, because other schemes may execute code.
fn artifact_link(url: &str) -> Markup {
    let is_http = url.starts_with("https://") || url.starts_with("http://");
    html! {
        @if is_http { a href=(url) rel="noreferrer noopener" { (clip(url, 80)) } } @else { (clip(url, 80))
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_become_links() {
        assert!(
            artifact_link("https://store.example/a?b=\"c\"")
                .into_string()
                .contains("href=\"https://store.example/a?b=&quot;c&quot;\"")
        );
        for url in ["javascript:alert(1)", "data:text/html,<script>", "s3://bucket/key", " https://x"] {
            assert!(!artifact_link(url).into_string().contains("href"), "{url}");
        }
    }
}
