//! The tries of a job, side by side, with what came of each.

use crate::graph::Names;
use crate::text::line;
use crate::time::{ago, took};
use crate::visitor::Visitor;
use crate::words::count;
use maud::{Markup, html};
use tidemill_core::graph::record::{JobDetail, TaskRecord};
use tidemill_core::task::{TaskKind, TaskResult};

/// Tries that are shown: the last ones.
const TRIES: usize = 5;

/// The panel. `shown` is the try whose output is on the page.
pub(super) fn panel(visitor: &Visitor, detail: &JobDetail, agents: &Names, shown: i32) -> Markup {
    let all: Vec<&TaskRecord> = detail.tasks.iter().filter(|task| task.kind == TaskKind::RunJob).collect();
    let skipped = all.len().saturating_sub(TRIES);
    let tries: Vec<&TaskRecord> = all.iter().copied().skip(skipped).collect();
    let stop_of = |task: &TaskRecord| {
        detail.tasks.iter().find(|order| order.cancels.as_deref() == Some(task.task_id.as_str()))
    };
    let fact = |name: &str, value: &dyn Fn(&TaskRecord) -> Markup| {
        html! { tr { th scope="row" { (name) } @for task in &tries { td { (value(task)) } } } }
    };
    let job = &detail.job;
    html! {
        section.panel #tries {
            header { h2 { "Tries" } @if skipped > 0 { span.dim.small { "the last " (TRIES) " of " (all.len()) } } }
            @if tries.is_empty() {
                p.empty { @if job.reused_from.is_some() { "It did not run: an earlier run had its result." }
                    @else { "No agent had it yet." } }
            } @else {
                div.scroll { table {
                    thead { tr { th {} @for task in &tries { th scope="col" { "try " (task.number) } } } }
                    tbody {
                        (fact("Agent", &|task| agents.show(Some(task.agent_id))))
                        (fact("Result", &|task| html! { (result(task)) }))
                        (fact("How far", &|task| html! { @if let Some(stage) = task.stage { (stage) }
                            @else { "not begun" } }))
                        (fact("Made", &|task| ago(task.created_at, visitor.now)))
                        (fact("Took", &|task| html! { (took(Some(task.created_at), task.ended_at,
                            visitor.now).unwrap_or_default()) }))
                        @if tries.iter().any(|task| stop_of(task).is_some()) {
                            (fact("Stop", &|task| html! { @match stop_of(task) {
                                Some(order) if order.active => "asked for",
                                Some(_) => "confirmed",
                                None => "–",
                            } }))
                        }
                        @if tries.iter().any(|task| !task.unknown.is_empty()) {
                            (fact("Not understood", &|task| html! { (line(&task.unknown.join(", "))) }))
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
                    span.why.bad { "nothing matched " (line(&unmatched.join(", "))) }
                    @if !hint.is_empty() { span.why { "there is " (line(&hint.join(", "))) } }
                }
            },
            Some(TaskResult::Failed { fatal, elsewhere, message }) => {
                span.bad { (line(message)) }
                @if *elsewhere { span.why { "another agent may do better" } }
                @else if !fatal { span.why { "another try may do better" } }
            },
            Some(TaskResult::Stopped) => "stopped",
            None => @match task.end {
                Some(end) => (end),
                None => span.dim { "not yet" },
            },
        }
    }
}
