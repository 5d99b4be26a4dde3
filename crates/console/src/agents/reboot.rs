//! The restart of the machines: jobs are stopped first, and it is safe when nothing runs any more.

use crate::act;
use crate::visitor::Visitor;
use crate::way_back::kept;
use crate::words::counted;
use http::Method;
use maud::{Markup, html};
use tidemill_core::graph::record::RebootStatus;
use tidemill_core::shell::command;

/// The panel.
pub(super) fn panel(visitor: &Visitor, status: &RebootStatus) -> Markup {
    let acts = visitor.may(Method::POST, "/v1/reboot") && visitor.caller.project.is_none();
    html! {
        section.panel #reboot {
            header { h2 { "Restart of the machines" } }
            div.in {
                div #reboot-status data-live {
                    p { (said(status)) }
                    @if acts && status.preparing {
                        (act::button(visitor, "/reboot/over", &[], "It is over: let jobs go on", "main"))
                    }
                }
                @if acts && !status.preparing {
                    form.form method="post" action="/reboot" {
                        (act::hidden(visitor))
                        p.dim { "Every job is stopped, and begins again when the restart is over. No job begins \
                            meanwhile. It is safe to restart when this page says so." }
                        label.field { "Why, for the others" input type="text" name="note" maxlength="1024"
                            value=[kept(visitor, "note")]; }
                        div { button.risk type="submit" { "Prepare for a restart" } }
                    }
                }
                @if acts {
                    (act::commands(&[command(["prepare-for-reboot"]), command(["prepare-for-reboot", "--status"]),
                        command(["prepare-for-reboot", "--cancel"])]))
                }
            }
        }
    }
}

/// Whether it is safe, in words.
fn said(status: &RebootStatus) -> Markup {
    html! {
        @if !status.preparing {
            span.state { "not prepared" } " "
            @if status.running + status.stopping > 0 { (counted(status.running, "task runs", "tasks run")) "." }
            @else { "Nothing runs just now; something may begin." }
        } @else if status.safe {
            span.state.s-success { "safe" } " Nothing runs any more, and nothing begins."
        } @else {
            span.state.s-running { "not safe yet" } " "
            (counted(status.running, "task still runs", "tasks still run")) ", "
            (counted(status.stopping, "stop is", "stops are")) " not confirmed."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_safe_only_where_the_server_says_so_and_a_restart_is_prepared_for() {
        let said = |preparing, running, stopping, safe| {
            said(&RebootStatus { preparing, running, stopping, safe }).into_string()
        };
        assert!(said(true, 0, 0, true).contains(">safe<"));
        assert!(
            said(true, 1, 0, false).contains("not safe yet")
                && said(true, 1, 0, false).contains("1 task still")
        );
        assert!(said(true, 0, 2, false).contains("2 stops are not confirmed"));
        // Nothing runs by chance: it is not held, so the next moment something may begin.
        assert!(!said(false, 0, 0, true).contains(">safe<"));
    }
}
