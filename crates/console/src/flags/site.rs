//! Flags of the site: what holds graphs everywhere.

use super::why_and_how_long;
use crate::act;
use crate::visitor::Visitor;
use crate::way_back::kept;
use maud::{Markup, html};
use tidemill_core::project::{FlagName, SITE_SCOPE};
use tidemill_core::shell::command;

/// What each flag means.
const MEANING: [(FlagName, &str); 4] = [
    (FlagName::Maintenance, "jobs of the pool database are stopped, and begin again afterwards"),
    (FlagName::Reboot, "every job is stopped, and begins again afterwards"),
    (FlagName::ProbeOff, "what probes of agents find counts for nothing"),
    (FlagName::Paused, "nothing begins, neither runs nor jobs; what runs goes on"),
];

/// A form that switches one on.
pub(super) fn form(visitor: &Visitor) -> Markup {
    html! {
        section.panel #site {
            header { h2 { "The whole site" } span.dim.small { "over all projects" } }
            form.filters method="post" action="/flags" {
                (act::hidden(visitor))
                input type="hidden" name="scope" value=(SITE_SCOPE);
                label.field { "Flag" select name="flag" required {
                    @for (flag, means) in MEANING { option value=(flag)
                        selected[kept(visitor, "flag").as_deref() == Some(flag.as_str())] { (flag) ": " (means) } } } }
                (why_and_how_long(visitor))
                button.main type="submit" { "Switch it on" }
            }
            div.in { (act::commands(&MEANING.map(|(flag, _)| command(["flag", "set", flag.as_str()])))) }
        }
    }
}
