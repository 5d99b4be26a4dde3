//! Form for flags of the whole site.

use super::note_and_duration;
use crate::form_return::previous_value;
use crate::forms;
use crate::page_context::PageContext;
use maud::{Markup, html};
use tidemill_core::project::{FlagName, SITE_SCOPE};
use tidemill_core::shell::command;

/// Effect of each flag.
const EFFECTS: [(FlagName, &str); 4] = [
    (FlagName::Maintenance, "jobs of the pool database are stopped and start again afterwards"),
    (FlagName::Reboot, "all jobs are stopped and start again afterwards"),
    (FlagName::ProbeOff, "results of agent probes are ignored"),
    (FlagName::Paused, "no runs or jobs start; running ones are completed"),
];

pub(super) fn form(context: &PageContext) -> Markup {
    html! {
        section.panel #site {
            header { h2 { "Whole site" } span.dim.small { "all projects" } }
            form.filters method="post" action="/flags" {
                (forms::hidden(context))
                input type="hidden" name="scope" value=(SITE_SCOPE);
                label.field { "Flag" select name="flag" required {
                    @for (flag, effect) in EFFECTS { option value=(flag)
                        selected[previous_value(context, "flag").as_deref() == Some(flag.as_str())] {
                            (flag) ": " (effect) } } } }
                (note_and_duration(context))
                button.main type="submit" { "Set flag" }
            }
            div.in { (forms::commands(&EFFECTS.map(|(flag, _)| command(["flag", "set", flag.as_str()])))) }
        }
    }
}
