//! The agents page: agents with their jobs and capacity, pools, and the site restart.

mod actions;
mod pools;
mod reboot;

use crate::error_page::ErrorPage;
use crate::forms;
use crate::layout::{Page, Section};
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::text::{line, safe};
use crate::time::ago;
use crate::widgets::{bar, count};
use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use tidemill_client::Error;
use tidemill_core::agent::{Agent, IsolationLevel};
use tidemill_core::graph::record::JobRecord;
use tidemill_core::isolation::IsolationReport;
use tidemill_core::project::{Flag, SITE_SCOPE};
use tidemill_core::shell::command;

/// Maximum number of jobs shown per agent.
const JOBS_MAX: usize = 4;
/// Refresh interval in seconds, because heartbeats create no events.
const REFRESH_SECS: u16 = 3;

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/agents", page)
        .post("/agents/{agent}/drain", actions::drain)
        .post("/agents/{agent}/forget", actions::forget)
        .post("/pools", actions::put_pool)
        .post("/pools/remove", actions::remove_pool)
        .post("/reboot", actions::prepare)
        .post("/reboot/over", actions::over)
}

/// Used and total capacity of an agent.
pub(crate) fn capacity_usage(agent: &Agent, jobs: &[JobRecord]) -> Markup {
    let used: i64 = jobs_of(agent, jobs).map(|job| i64::from(job.weight)).sum();
    let capacity = i64::from(agent.capacity);
    html! { span.nowrap { (count(used)) " of " (count(capacity)) } " "
    span.slim { (bar(used, capacity, "Capacity used", "")) } }
}

fn jobs_of<'a>(agent: &'a Agent, jobs: &'a [JobRecord]) -> impl Iterator<Item = &'a JobRecord> {
    jobs.iter().filter(|job| job.agent_id == Some(agent.agent_id))
}

async fn page(context: PageContext) -> Result<Response, ErrorPage> {
    let client = &context.client;
    let (agents, jobs, pools, flags) =
        tokio::try_join!(client.agents(), client.held_jobs(), client.pools(), client.flags())?;
    // The restart concerns all projects, so callers of one project do not see it.
    let reboot = match client.reboot_status().await {
        Ok(status) => Some(status),
        Err(Error::Refused { status, .. }) if status.as_u16() == 403 => None,
        Err(error) => return Err(error.into()),
    };
    let held = flags.items.iter().filter(|flag| flag.scope == SITE_SCOPE && flag.is_on(context.now));
    let held: Vec<&Flag> = held.collect();
    let (alive, others): (Vec<&Agent>, Vec<&Agent>) =
        agents.items.iter().partition(|agent| agent.is_alive(context.now));
    let body = html! {
        div.head { h1 { "Agents" }
            p.sub { "Agents execute the jobs of graphs on their machines. If an agent is killed, its commands \
                continue, and the next process of the agent takes them over." } }
        div #held data-live { @if !held.is_empty() { (flags_banner(&context, &held)) } }
        div #agents data-live {
            section.panel {
                header { h2 { "Alive" } }
                @if alive.is_empty() {
                    p.empty { "No agent is alive. Start one: "
                        code { "tidemill agent run --server URL --dir DIR" } ", or " code { "tidemill up" }
                        " for this machine." }
                } @else { (table(&context, &alive, &jobs.items)) }
            }
            @if !others.is_empty() {
                section.panel { header { h2 { "Silent or stopped" } } (table(&context, &others, &jobs.items)) }
            }
        }
        div.split {
            (pools::panel(&context, &pools.items))
            @if let Some(reboot) = &reboot { (reboot::panel(&context, reboot)) }
        }
    };
    Ok(Page::new(&context, Section::Agents, "Agents").live().refresh_every(REFRESH_SECS).show(&body))
}

/// Banner with the flags that pause the whole site.
fn flags_banner(context: &PageContext, flags: &[&Flag]) -> Markup {
    html! {
        div.note.warn {
            @for flag in flags {
                p { span.state.s-paused { (flag.flag) } " since " (ago(flag.since, context.now))
                    @if let Some(by) = &flag.set_by { " by " (safe(by)) }
                    @if let Some(until) = flag.until_at { ", ends " (ago(until, context.now)) }
                    @if let Some(note) = &flag.note { ": " (line(note)) } }
            }
            a href="/flags" { "All flags" }
        }
    }
}

fn table(context: &PageContext, agents: &[&Agent], jobs: &[JobRecord]) -> Markup {
    let acts = context.may(Method::POST, "/v1/agents/{agent}/drain");
    html! {
        div.scroll { table {
            thead { tr { th { "Agent" } th { "Jobs" } th { "Capacity used" } th { "Last heartbeat" }
                th { "Isolation" } th.wide { "Host" } th.wide { "Labels" } th.wide { "Version" } @if acts { th {} } } }
            tbody { @for agent in agents {
                tr data-key=(agent.agent_id) {
                    td { (safe(&agent.name)) @if agent.draining { " " span.chip { "draining" } }
                        @if !agent.projects.is_all() { span.why { "for " (safe(&agent.projects.list())) } } }
                    td { (jobs_cell(agent, jobs)) }
                    td { (capacity_usage(agent, jobs)) }
                    td.nowrap { @if let Some(left) = agent.left_at { "stopped " (ago(left, context.now)) }
                        @else { (ago(agent.seen_at, context.now)) } }
                    td { (isolation_cell(agent)) }
                    td.wide { (safe(&agent.host)) }
                    td.wide { @for label in &agent.labels { span.chip { (safe(label)) } " " }
                        @if agent.labels.is_empty() { span.dim { "–" } } }
                    td.wide { (safe(&agent.version)) }
                    @if acts { td.acts { (agent_buttons(context, agent, jobs)) } }
                }
            } }
        } }
    }
}

/// The isolation of an agent's tasks in one word, with the mechanisms that do not hold and the reasons.
fn isolation_cell(agent: &Agent) -> Markup {
    let level = agent.isolation_level();
    let class = match level {
        IsolationLevel::Full => "s-success",
        IsolationLevel::Partial | IsolationLevel::None => "s-paused",
        IsolationLevel::Unknown => "s-queued",
    };
    let mechanisms = agent.isolation.iter().flat_map(IsolationReport::mechanisms);
    let missing: Vec<_> = mechanisms.filter_map(|(name, found)| Some((name, found.reason()?))).collect();
    html! {
        span class={ "state " (class) } { (level) }
        @if agent.isolation.is_none() { span.why { "not reported by this version" } }
        @if !missing.is_empty() {
            details {
                summary { "Missing: " (missing.len()) }
                @for (name, reason) in missing { span.why { "No " (name) ": " (line(reason)) } }
            }
        }
    }
}

fn jobs_cell(agent: &Agent, jobs: &[JobRecord]) -> Markup {
    let own: Vec<&JobRecord> = jobs_of(agent, jobs).collect();
    html! {
        @if own.is_empty() { span.dim { "none" } }
        @for job in own.iter().take(JOBS_MAX) {
            div { a href={ "/jobs/" (job.job_id) } { (safe(&job.name)) } " " (crate::graph::code(job)) }
        }
        @if own.len() > JOBS_MAX { span.dim { "and " (own.len() - JOBS_MAX) " more" } }
    }
}

fn agent_buttons(context: &PageContext, agent: &Agent, jobs: &[JobRecord]) -> Markup {
    let path = |verb: &str| format!("/agents/{}/{verb}", agent.agent_id);
    let held = jobs_of(agent, jobs).count();
    let (id, undo) = (agent.agent_id.to_string(), agent.draining.then_some("--undo"));
    html! {
        @if agent.draining {
            (forms::button(context, &path("drain"), &[("draining", "no")], "Stop draining", ""))
        } @else {
            (forms::button(context, &path("drain"), &[("draining", "yes")], "Drain", ""))
        }
        details.ask {
            summary { "Forget…" }
            form.form method="post" action=(path("forget")) {
                (forms::hidden(context))
                p { "Only do this if the machine is gone or no command of this agent is running any more. Its "
                    (crate::widgets::pluralize(i64::try_from(held).unwrap_or(0), "job goes", "jobs go"))
                    " to other agents at once. A command that is still running would run twice." }
                label.tick { input type="checkbox" name="sure" value="yes" required;
                    " No command of it is running any more" }
                label.tick { input type="checkbox" name="force" value="yes";
                    " Even if its last heartbeat is recent" }
                div { button.risk type="submit" { "Forget the agent" } }
            }
        }
        (forms::commands(&[command(["agent", "drain", &id].into_iter().chain(undo)), command(["agent", "forget", &id]),
            command(["agent", "forget", &id, "--force"])]))
    }
}
