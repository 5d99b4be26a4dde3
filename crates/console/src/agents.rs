//! Agents: who lives, with what they are busy and how much room they have; pools; and the restart of the machines.

mod pools;
mod reboot;
mod verbs;

use crate::Console;
use crate::act;
use crate::layout::{Page, Place};
use crate::oops::Oops;
use crate::text::{line, says};
use crate::time::ago;
use crate::visitor::Visitor;
use crate::words::{bar, count};
use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use maud::{Markup, html};
use tidemill_client::Error;
use tidemill_core::Timestamp;
use tidemill_core::agent::Agent;
use tidemill_core::graph::record::JobRecord;
use tidemill_core::limits::AGENT_SILENT_SECS;
use tidemill_core::project::{Flag, SITE_SCOPE};
use tidemill_core::shell::command;

/// Jobs that are shown of one agent.
const JOBS: usize = 4;
/// Seconds after which the page is looked at again: a sign of life is no event.
const EVERY: u16 = 3;

pub(crate) fn routes() -> Router<Console> {
    Router::new()
        .route("/agents", get(page))
        .route("/agents/{agent}/drain", post(verbs::drain))
        .route("/agents/{agent}/forget", post(verbs::forget))
        .route("/pools", post(verbs::put_pool))
        .route("/pools/remove", post(verbs::remove_pool))
        .route("/reboot", post(verbs::prepare))
        .route("/reboot/over", post(verbs::over))
}

/// Whether an agent lives, as far as it says.
pub(crate) fn lives(agent: &Agent, now: Timestamp) -> bool {
    let silent = (now - agent.seen_at).num_seconds();
    agent.left_at.is_none() && silent < i64::try_from(AGENT_SILENT_SECS).unwrap_or(i64::MAX)
}

/// How much of an agent's room is taken.
pub(crate) fn room(agent: &Agent, jobs: &[JobRecord]) -> Markup {
    let used: i64 = jobs_of(agent, jobs).map(|job| i64::from(job.weight)).sum();
    let capacity = i64::from(agent.capacity);
    html! { span.nowrap { (count(used)) " of " (count(capacity)) } " "
    span.slim { (bar(used, capacity, "Room taken", "")) } }
}

fn jobs_of<'a>(agent: &'a Agent, jobs: &'a [JobRecord]) -> impl Iterator<Item = &'a JobRecord> {
    jobs.iter().filter(|job| job.agent_id == Some(agent.agent_id))
}

async fn page(visitor: Visitor) -> Result<Response, Oops> {
    let client = &visitor.client;
    let (agents, jobs, pools, flags) =
        tokio::try_join!(client.agents(), client.held_jobs(), client.pools(), client.flags())?;
    // What every project shares is not for a reader of one.
    let reboot = match client.reboot_status().await {
        Ok(status) => Some(status),
        Err(Error::Refused { status, .. }) if status.as_u16() == 403 => None,
        Err(error) => return Err(error.into()),
    };
    let held = flags.items.iter().filter(|flag| flag.scope == SITE_SCOPE && flag.is_on(visitor.now));
    let held: Vec<&Flag> = held.collect();
    let (alive, others): (Vec<&Agent>, Vec<&Agent>) =
        agents.items.iter().partition(|agent| lives(agent, visitor.now));
    let body = html! {
        div.head { h1 { "Agents" }
            p.sub { "An agent carries out jobs of graphs where it runs. When it is killed its commands go on, and its \
                next process takes them up." } }
        div #held data-live { @if !held.is_empty() { (holds(&visitor, &held)) } }
        div #agents data-live {
            section.panel {
                header { h2 { "Alive" } }
                @if alive.is_empty() {
                    p.empty { "No agent is alive. Start one: "
                        code { "tidemill agent run --server URL --dir DIR" } ", or " code { "tidemill up" }
                        " for this machine." }
                } @else { (table(&visitor, &alive, &jobs.items)) }
            }
            @if !others.is_empty() {
                section.panel { header { h2 { "Silent, or left" } } (table(&visitor, &others, &jobs.items)) }
            }
        }
        div.split {
            (pools::panel(&visitor, &pools.items))
            @if let Some(reboot) = &reboot { (reboot::panel(&visitor, reboot)) }
        }
    };
    Ok(Page::new(&visitor, Place::Agents, "Agents").live().every(EVERY).show(&body))
}

/// What holds jobs everywhere.
fn holds(visitor: &Visitor, flags: &[&Flag]) -> Markup {
    html! {
        div.note.warn {
            @for flag in flags {
                p { span.state.s-paused { (flag.flag) } " since " (ago(flag.since, visitor.now))
                    @if let Some(by) = &flag.set_by { " by " (says(by)) }
                    @if let Some(until) = flag.until_at { ", ends " (ago(until, visitor.now)) }
                    @if let Some(note) = &flag.note { ": " (line(note)) } }
            }
            a href="/flags" { "All flags" }
        }
    }
}

fn table(visitor: &Visitor, agents: &[&Agent], jobs: &[JobRecord]) -> Markup {
    let acts = visitor.may(Method::POST, "/v1/agents/{agent}/drain");
    html! {
        div.scroll { table {
            thead { tr { th { "Agent" } th { "Busy with" } th { "Room taken" } th { "Last heard of" }
                th.wide { "Host" } th.wide { "Offers" } th.wide { "Version" } @if acts { th {} } } }
            tbody { @for agent in agents {
                tr data-key=(agent.agent_id) {
                    td { (says(&agent.name)) @if agent.draining { " " span.chip { "draining" } }
                        @if let Some(project) = &agent.project_id { span.why { "for " (says(project)) } } }
                    td { (busy(agent, jobs)) }
                    td { (room(agent, jobs)) }
                    td.nowrap { @if let Some(left) = agent.left_at { "left " (ago(left, visitor.now)) }
                        @else { (ago(agent.seen_at, visitor.now)) } }
                    td.wide { (says(&agent.host)) }
                    td.wide { @for label in &agent.labels { span.chip { (says(label)) } " " }
                        @if agent.labels.is_empty() { span.dim { "–" } } }
                    td.wide { (says(&agent.version)) }
                    @if acts { td.acts { (agent_acts(visitor, agent, jobs)) } }
                }
            } }
        } }
    }
}

fn busy(agent: &Agent, jobs: &[JobRecord]) -> Markup {
    let own: Vec<&JobRecord> = jobs_of(agent, jobs).collect();
    html! {
        @if own.is_empty() { span.dim { "nothing" } }
        @for job in own.iter().take(JOBS) {
            div { a href={ "/jobs/" (job.job_id) } { (says(&job.name)) } " " (crate::graph::code(job)) }
        }
        @if own.len() > JOBS { span.dim { "and " (own.len() - JOBS) " more" } }
    }
}

fn agent_acts(visitor: &Visitor, agent: &Agent, jobs: &[JobRecord]) -> Markup {
    let path = |verb: &str| format!("/agents/{}/{verb}", agent.agent_id);
    let held = jobs_of(agent, jobs).count();
    let (id, undo) = (agent.agent_id.to_string(), agent.draining.then_some("--undo"));
    html! {
        @if agent.draining {
            (act::button(visitor, &path("drain"), &[("draining", "no")], "Give it tasks again", ""))
        } @else {
            (act::button(visitor, &path("drain"), &[("draining", "yes")], "Drain", ""))
        }
        details.ask {
            summary { "Forget…" }
            form.form method="post" action=(path("forget")) {
                (act::hidden(visitor))
                p { "Say this only if the machine is gone, or nothing of this agent runs there any more: its "
                    (crate::words::counted(i64::try_from(held).unwrap_or(0), "job goes", "jobs go"))
                    " to other agents at once, and a command that still ran would run twice." }
                label.tick { input type="checkbox" name="sure" value="yes" required;
                    " Nothing of it runs any more" }
                label.tick { input type="checkbox" name="force" value="yes";
                    " Even if it was heard just now" }
                div { button.risk type="submit" { "Forget the agent" } }
            }
        }
        (act::commands(&[command(["agent", "drain", &id].into_iter().chain(undo)), command(["agent", "forget", &id]),
            command(["agent", "forget", &id, "--force"])]))
    }
}
