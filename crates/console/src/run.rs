//! One run: where it is and why, its life as a picture, its record, its tries, and what can be done.

mod events;
mod life;
mod verbs;

use crate::Console;
use crate::act;
use crate::fold;
use crate::graph;
use crate::layout::{Page, Place, Stream};
use crate::oops::Oops;
use crate::sync;
use crate::text::{line, line_of, says};
use crate::time::{ago, ago_or_none, rough_secs, took};
use crate::visitor::Visitor;
use crate::words::{count, label, run_link, state, subject};
use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use events::Wanted;
use maud::{Markup, html};
use tidemill_core::RunId;
use tidemill_core::artifact::Artifact;
use tidemill_core::run::{Lane, Run, RunState};
use tidemill_core::shell::command;
use tidemill_wire::runs::{ListEvents, RunDetail};

/// Tries that are shown side by side.
const TRIES: usize = 5;
/// Artifacts that are shown.
const ARTIFACTS: usize = 50;
/// Events from the beginning of a record among which its first changes of state are.
const FIRST_EVENTS: u16 = 20;

pub(crate) fn routes() -> Router<Console> {
    Router::new()
        .route("/runs/{run}", get(page))
        .route("/runs/{run}/tail", get(events::tail))
        .route("/runs/{run}/cancel", post(verbs::cancel))
        .route("/runs/{run}/fail", post(verbs::fail))
        .route("/runs/{run}/retry", post(verbs::retry))
}

/// The run that a path names.
fn id(text: &str) -> Result<RunId, Oops> {
    text.parse().map_err(|_| Oops::nothing("this is not the id of a run"))
}

async fn page(visitor: Visitor, Path(run): Path<String>) -> Result<Response, Oops> {
    let run = id(&run)?;
    let wanted = Wanted::of(&visitor.uri);
    let first = ListEvents { after: None, limit: Some(FIRST_EVENTS) };
    let client = &visitor.client;
    let (detail, tail, first) =
        tokio::try_join!(client.run_detail(&run), wanted.read(client, &run), client.events(&run, &first))?;
    let told = match (detail.run.lane, detail.tries.first()) {
        (Lane::Sync, Some(first)) => sync::of(&visitor, first).await?,
        (Lane::Ops | Lane::Graph | Lane::Sync, _) => None,
    };
    let graph = if detail.run.lane == Lane::Graph { graph::of(&visitor, &run).await? } else { None };
    let last = tail.items.last().map_or(0, |event| event.seq);
    let changes = life::changes(&first.items, &tail.items);
    let body = html! {
        div #head data-live { (head(&visitor, &detail, told.as_ref(), graph.as_ref())) }
        @if let Some(graph) = &graph { div #lane data-live { (graph::part(&visitor, graph)) } }
        div.panel {
            header { h2 { "Life" } }
            div.in.picture #life data-live { (life::picture(&detail, &changes, visitor.now)) }
        }
        // It is there before the sync is planned: what comes into being while somebody looks needs a place.
        @if detail.run.lane == Lane::Sync {
            div #lane data-live { @if let Some(told) = &told { (sync::part(&visitor, told)) } }
        }
        div.split {
            div { (events::panel(&run, &wanted, &tail)) }
            div {
                div #facts data-live { (facts(&visitor, &detail.run)) (tries(&visitor, &detail))
                    (artifacts(&detail)) }
            }
        }
    };
    let planned = told.as_ref().map(|told| told.status.sync.state.is_live());
    let live = planned.unwrap_or(detail.run.lane == Lane::Sync && !detail.run.status.is_terminal())
        || graph.as_ref().is_some_and(graph::Told::is_live);
    let stream = Stream { url: format!("/v1/runs/{}/stream", run.in_path()), after: Some(last.to_string()) };
    let page = Page::new(&visitor, Place::Runs, run.to_string()).follows(stream);
    // Pages of a sync are stored without an event each, and so do jobs change.
    Ok(if live { page.every(1) } else { page }.show(&body))
}

/// The try that came after this one.
fn successor(detail: &RunDetail) -> Option<&Run> {
    detail.tries.iter().find(|other| other.retry_of.as_ref() == Some(&detail.run.run_id))
}

fn head(
    visitor: &Visitor,
    detail: &RunDetail,
    told: Option<&sync::Told>,
    graph: Option<&graph::Told>,
) -> Markup {
    let run = &detail.run;
    // A sync that is planned is stopped and tried again as a whole; a graph has words of its own.
    let alone = visitor.may_operate() && told.is_none() && graph.is_none();
    let can_cancel = alone && !run.status.is_terminal();
    let can_fail = alone && is_stalled(run);
    let can_retry =
        alone && matches!(run.status, RunState::Failed | RunState::Cancelled) && successor(detail).is_none();
    let verb = |verb| command(["run", verb, run.run_id.as_str()]);
    let mut commands = vec![verb("show"), verb("why")];
    commands.extend(can_cancel.then(|| verb("cancel")));
    commands.extend(can_fail.then(|| verb("fail")));
    commands.extend(can_retry.then(|| verb("retry")));
    commands.extend(told.into_iter().flat_map(|told| sync::commands(visitor, told, run)));
    let next = successor(detail).is_some();
    commands.extend(graph.into_iter().flat_map(|graph| graph::commands(visitor, graph, next)));
    html! {
        div.head {
            h1.mono { (run.run_id) }
            (state(run.status))
            @if is_stalled(run) { (label("stalled")) }
            div.acts {
                @if can_fail { (fail(visitor, run)) }
                @if can_cancel { (cancel(visitor, run)) }
                @if let Some(told) = told { (sync::acts(visitor, told, run)) }
                @if let Some(graph) = graph { (graph::acts(visitor, graph, next)) }
                @if can_retry {
                    (act::button(visitor, &format!("/runs/{}/retry", run.run_id.in_path()), &[], "Retry", "main"))
                }
            }
            p.sub { (subject(run)) " · try " (run.attempt)
                @if let Some(took) = took(run.started_at, run.finished_at, visitor.now) { " · " (took) }
                " · queued " (ago(run.queued_at, visitor.now)) }
        }
        div class={ "note " @if run.status == RunState::Failed { "bad" } @else if
            run.status == RunState::Cancelled || is_stalled(run) { "warn" } } {
            (line(&detail.why.sentence))
            @if let Some(next) = successor(detail) { " " a href={ "/runs/" (next.run_id.in_path()) } {
                "Go to the next try" } }
            @else if let Some(hint) = detail.why.hint.as_ref().filter(|_| told.is_none()) { " " code { (says(hint)) } }
            (act::commands(&commands))
        }
    }
}

fn cancel(visitor: &Visitor, run: &Run) -> Markup {
    let held = run.status.is_held();
    html! {
        details.drop open[act::is_given(visitor)] {
            summary { "Cancel…" }
            div {
                form.form method="post" action={ "/runs/" (run.run_id.in_path()) "/cancel" } {
                    (act::hidden(visitor))
                    p { @if held { "Its worker is asked to stop, and has a grace period to confirm." }
                        @else { "It waits, and ends at once." } }
                    (act::reason(visitor))
                    div { button.risk type="submit" { "Cancel the run" } }
                }
            }
        }
    }
}

/// A run that was stalled keeps the time after its end.
fn is_stalled(run: &Run) -> bool {
    run.stalled_at.is_some() && !run.status.is_terminal()
}

fn fail(visitor: &Visitor, run: &Run) -> Markup {
    html! {
        details.drop open[act::is_given(visitor)] {
            summary { "Fail…" }
            div {
                form.form method="post" action={ "/runs/" (run.run_id) "/fail" } {
                    (act::hidden(visitor))
                    p { "Its worker gives no sign of life and promised none. Check that the worker is gone: a run that \
                        is failed while its worker still works may be carried out twice." }
                    (act::reason(visitor))
                    div {
                        button.risk type="submit" { "Fail the run" }
                        " "
                        button.risk type="submit" name="retry" value="yes" { "Fail it and queue a successor" }
                    }
                }
            }
        }
    }
}

fn facts(visitor: &Visitor, run: &Run) -> Markup {
    let now = visitor.now;
    html! {
        div.panel {
            header { h2 { "Facts" } }
            div.in {
                dl.facts {
                    dt { "Project" } dd { (says(run.env_id.as_str())) }
                    dt { "Lane" } dd { (run.lane) }
                    @if let Some(worker) = &run.claimed_by { dt { "Worker" } dd { (says(worker)) } }
                    @if let Some(git_ref) = &run.git_ref { dt { "Branch or tag" } dd { (line(git_ref)) } }
                    @if let Some(sha) = &run.git_sha { dt { "Commit" } dd { code { (line_of(sha, 64)) } } }
                    dt { "Priority" } dd { (run.priority) }
                    @if !run.labels.is_empty() {
                        dt { "Needs" } dd { @for label in &run.labels { span.chip { (says(label)) } " " } }
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
                        dt { "Asked to stop" } dd { (ago(at, now))
                            @if let Some(by) = &run.cancel_requested_by { " by " (says(by)) }
                            @if let Some(reason) = &run.cancel_reason { ": " (line(reason)) } }
                    }
                    dt { "Ended" } dd { (ago_or_none(run.finished_at, now))
                        @if let Some(cause) = run.end_cause { " " span.chip { (cause) } } }
                }
                @if !fold::is_nothing(&run.metadata) {
                    (fold::json("Metadata", &run.metadata, Some(&format!("/v1/runs/{}", run.run_id.in_path()))))
                }
            }
        }
    }
}

/// The tries of the request, side by side; the last ones, where they are many.
fn tries(visitor: &Visitor, detail: &RunDetail) -> Markup {
    if detail.tries.len() < 2 {
        return html! {};
    }
    let now = visitor.now;
    let skipped = detail.tries.len().saturating_sub(TRIES);
    let shown: Vec<&Run> = detail.tries.iter().skip(skipped).collect();
    let fact = |name: &str, value: &dyn Fn(&Run) -> Markup| {
        html! { tr { th scope="row" { (name) } @for run in &shown { td { (value(run)) } } } }
    };
    html! {
        div.panel {
            header { h2 { "Tries" } @if skipped > 0 { span.dim.small { "the last " (TRIES) " of "
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
                        (fact("Worker", &|run| html! { @if let Some(worker) = &run.claimed_by { (says(worker))
                            } @else { "–" } }))
                        (fact("Queued", &|run| ago(run.queued_at, now)))
                        (fact("Took", &|run| html! {
                            (took(run.started_at, run.finished_at, now).unwrap_or_else(|| "–".to_owned())) }))
                        (fact("Ended", &|run| html! { @if let Some(cause) = run.end_cause { (cause) }
                            @else { "–" } }))
                    }
                }
            }
        }
    }
}

/// What it left; the first ones, where they are many.
fn artifacts(detail: &RunDetail) -> Markup {
    let shown: &[Artifact] = detail.artifacts.get(..ARTIFACTS).unwrap_or(&detail.artifacts);
    html! {
        @if !shown.is_empty() {
            div.panel #artifacts {
                header { h2 { "Artifacts" } @if shown.len() < detail.artifacts.len() {
                    span.dim.small { "the first " (ARTIFACTS) "; all of them: "
                        code { "tidemill run artifact list " (detail.run.run_id) } } } }
                div.scroll {
                    table {
                        thead { tr { th { "What" } th { "Where" } th.num { "Bytes" } } }
                        tbody {
                            @for artifact in shown {
                                tr {
                                    td { (says(&artifact.artifact_type)) }
                                    td { (place(&artifact.url))
                                        @if let Some(digest) = &artifact.digest { span.why.mono {
                                            (line_of(digest, 72)) } } }
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

/// Where something is: a link, where a browser can go there and nothing is run by going.
fn place(url: &str) -> Markup {
    let safe = url.starts_with("https://") || url.starts_with("http://");
    html! {
        @if safe { a href=(url) rel="noreferrer noopener" { (line_of(url, 80)) } } @else { (line_of(url, 80))
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_run_nothing_are_links() {
        assert!(
            place("https://store.example/a?b=\"c\"")
                .into_string()
                .contains("href=\"https://store.example/a?b=&quot;c&quot;\"")
        );
        for url in ["javascript:alert(1)", "data:text/html,<script>", "s3://bucket/key", " https://x"] {
            assert!(!place(url).into_string().contains("href"), "{url}");
        }
    }
}
