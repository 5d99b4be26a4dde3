//! Panel that compares the attempts of a job.

use crate::graph::AgentNames;
use crate::page_context::PageContext;
use crate::text::line;
use crate::time::{ago, took};
use crate::widgets::count;
use maud::{Markup, html};
use tidemill_core::graph::record::{JobDetail, TaskRecord};
use tidemill_core::task::{TaskKind, TaskResult};

/// Maximum number of attempts shown; the last ones.
const ATTEMPTS_MAX: usize = 5;

/// Renders the panel. `shown` is the attempt whose output is on the page.
pub(super) fn panel(context: &PageContext, detail: &JobDetail, agents: &AgentNames, shown: i32) -> Markup {
    let all: Vec<&TaskRecord> = detail.tasks.iter().filter(|task| task.kind == TaskKind::RunJob).collect();
    let skipped = all.len().saturating_sub(ATTEMPTS_MAX);
    let attempts: Vec<&TaskRecord> = all.iter().copied().skip(skipped).collect();
    let stop_of = |task: &TaskRecord| {
        detail.tasks.iter().find(|order| order.cancels.as_deref() == Some(task.task_id.as_str()))
    };
    let fact = |name: &str, value: &dyn Fn(&TaskRecord) -> Markup| {
        html! { tr { th scope="row" { (name) } @for task in &attempts { td { (value(task)) } } } }
    };
    let job = &detail.job;
    html! {
        section.panel #tries {
            header { h2 { "Attempts" } @if skipped > 0 {
                span.dim.small { "the last " (ATTEMPTS_MAX) " of " (all.len()) } } }
            @if attempts.is_empty() {
                p.empty { @if job.reused_from.is_some() { "Not executed: the result of an earlier run was reused." }
                    @else { "No attempts yet." } }
            } @else {
                div.scroll { table {
                    thead { tr { th {} @for task in &attempts { th scope="col" { "attempt " (task.number) } } } }
                    tbody {
                        (fact("Agent", &|task| agents.show(Some(task.agent_id))))
                        (fact("Result", &|task| html! { (result(task)) }))
                        (fact("Stage", &|task| html! { @if let Some(stage) = task.stage { (stage) }
                            @else { "not started" } }))
                        (fact("Created", &|task| ago(task.created_at, context.now)))
                        (fact("Duration", &|task| html! { (took(Some(task.created_at), task.ended_at,
                            context.now).unwrap_or_default()) }))
                        @if attempts.iter().any(|task| stop_of(task).is_some()) {
                            (fact("Stop", &|task| html! { @match stop_of(task) {
                                Some(order) if order.active => "requested",
                                Some(_) => "confirmed",
                                None => "–",
                            } }))
                        }
                        @if attempts.iter().any(|task| !task.unknown.is_empty()) {
                            (fact("Unknown fields", &|task| html! { (line(&task.unknown.join(", "))) }))
                        }
                        (fact("Output", &|task| html! {
                            @if task.number == shown { "shown, " }
                            @else { a href={ "/jobs/" (job.job_id) "?attempt=" (task.number) "#log" } { "show" } ", " }
                            (count(task.log_bytes)) " bytes" }))
                    }
                } }
            }
        }
    }
}

fn result(task: &TaskRecord) -> Markup {
    html! {
        @match &task.result {
            Some(TaskResult::Ended { exit_code, unmatched, hint, message }) => {
                span.bad[*exit_code != 0] { "exit code " (exit_code) }
                @if let Some(message) = message { span.why { (line(message)) } }
                @if !unmatched.is_empty() {
                    span.why.bad { "no file matches " (line(&unmatched.join(", "))) }
                    @if !hint.is_empty() { span.why { "existing files: " (line(&hint.join(", "))) } }
                }
            },
            Some(TaskResult::Failed { fatal, elsewhere, message }) => {
                span.bad { (line(message)) }
                @if *elsewhere { span.why { "another agent may succeed" } }
                @else if !fatal { span.why { "another attempt may succeed" } }
            },
            Some(TaskResult::Stopped) => "stopped",
            None => @match task.end {
                Some(end) => (end),
                None => span.dim { "none yet" },
            },
        }
    }
}
