//! Panel for a restart of the machines: jobs are stopped first, and it is safe when none is running.

use crate::form_return::previous_value;
use crate::forms;
use crate::page_context::PageContext;
use crate::widgets::pluralize;
use http::Method;
use maud::{Markup, html};
use tidemill_core::graph::record::RebootStatus;
use tidemill_core::shell::command;

pub(super) fn panel(context: &PageContext, status: &RebootStatus) -> Markup {
    let acts = context.may(Method::POST, "/v1/reboot") && context.caller.sees_all_projects();
    html! {
        section.panel #reboot {
            header { h2 { "Restart machines" } }
            div.in {
                div #reboot-status data-live {
                    p { (status_text(status)) }
                    @if acts && status.preparing {
                        (forms::button(context, "/reboot/over", &[], "Restart is over: continue jobs", "main"))
                    }
                }
                @if acts && !status.preparing {
                    form.form method="post" action="/reboot" {
                        (forms::hidden(context))
                        p.dim { "All jobs are stopped and start again after the restart. No job starts \
                            meanwhile. Restart the machines when this page says that it is safe." }
                        label.field { "Reason" input type="text" name="note" maxlength="1024"
                            value=[previous_value(context, "note")]; }
                        div { button.risk type="submit" { "Prepare for a restart" } }
                    }
                }
                @if acts {
                    (forms::commands(&[command(["prepare-for-reboot"]), command(["prepare-for-reboot", "--status"]),
                        command(["prepare-for-reboot", "--cancel"])]))
                }
            }
        }
    }
}

fn status_text(status: &RebootStatus) -> Markup {
    html! {
        @if !status.preparing {
            span.state { "not prepared" } " "
            @if status.running + status.stopping > 0 { (pluralize(status.running, "task is", "tasks are")) " running." }
            @else { "No job is running now, but jobs may start." }
        } @else if status.safe {
            span.state.s-success { "safe" } " No job is running, and no job starts."
        } @else {
            span.state.s-running { "not safe yet" } " "
            (pluralize(status.running, "task is", "tasks are")) " still running, "
            (pluralize(status.stopping, "stop is", "stops are")) " not confirmed yet."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_safe_only_if_a_restart_is_prepared() {
        let text = |preparing, running, stopping, safe| {
            status_text(&RebootStatus { preparing, running, stopping, safe }).into_string()
        };
        assert!(text(true, 0, 0, true).contains(">safe<"));
        assert!(
            text(true, 1, 0, false).contains("not safe yet")
                && text(true, 1, 0, false).contains("1 task is still")
        );
        assert!(text(true, 0, 2, false).contains("2 stops are not confirmed yet"));
        // Without a prepared restart, a job may start at any moment.
        assert!(!text(false, 0, 0, true).contains(">safe<"));
    }
}
