//! The agents on the overview page.

use crate::agents::capacity_usage;
use crate::page_context::PageContext;
use crate::text::safe;
use maud::{Markup, html};
use tidemill_core::agent::Agent;
use tidemill_core::graph::record::JobRecord;

/// Maximum number of agents shown.
const ROWS: usize = 8;

/// Renders the panel; nothing if there has never been an agent.
pub(super) fn agents(context: &PageContext, agents: &[Agent], jobs: &[JobRecord]) -> Markup {
    let alive: Vec<&Agent> = agents.iter().filter(|agent| agent.is_alive(context.now)).collect();
    html! {
        @if !agents.is_empty() {
            section.panel #agents {
                header { h2 { "Agents" } a.more href="/agents" { "All" } }
                @if alive.is_empty() {
                    p.empty { "No agent is alive. Start one: " code { "tidemill agent run" } }
                } @else {
                    div.scroll { table { tbody { @for agent in alive.iter().take(ROWS) {
                        tr data-key=(agent.agent_id) {
                            td { (safe(&agent.name)) @if agent.draining { " " span.chip { "draining" } } }
                            td.num { (capacity_usage(agent, jobs)) }
                        }
                    } } } }
                    @if alive.len() > ROWS { p.empty.small { "and " (alive.len() - ROWS) " more" } }
                }
            }
        }
    }
}
