//! Agents, a line each.

use crate::agents::{lives, room};
use crate::text::says;
use crate::visitor::Visitor;
use maud::{Markup, html};
use tidemill_core::agent::Agent;
use tidemill_core::graph::record::JobRecord;

/// Agents that are shown.
const ROWS: usize = 8;

/// Who carries out jobs. Where there was never an agent, nobody misses one.
pub(super) fn agents(visitor: &Visitor, agents: &[Agent], jobs: &[JobRecord]) -> Markup {
    let alive: Vec<&Agent> = agents.iter().filter(|agent| lives(agent, visitor.now)).collect();
    html! {
        @if !agents.is_empty() {
            section.panel #agents {
                header { h2 { "Agents" } a.more href="/agents" { "All" } }
                @if alive.is_empty() {
                    p.empty { "No agent is alive. Start one: " code { "tidemill agent run" } }
                } @else {
                    div.scroll { table { tbody { @for agent in alive.iter().take(ROWS) {
                        tr data-key=(agent.agent_id) {
                            td { (says(&agent.name)) @if agent.draining { " " span.chip { "draining" } } }
                            td.num { (room(agent, jobs)) }
                        }
                    } } } }
                    @if alive.len() > ROWS { p.empty.small { "and " (alive.len() - ROWS) " more" } }
                }
            }
        }
    }
}
