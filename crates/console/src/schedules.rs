//! Schedules: what the clock queues, and when.

use crate::Console;
use crate::act::{self, Done, Form};
use crate::layout::{Page, Place};
use crate::oops::Oops;
use crate::text::{line, line_of, says};
use crate::time::{ago, ago_or_none, minute};
use crate::visitor::Visitor;
use crate::words::{first, label, others, run_link};
use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use maud::{Markup, html};
use tidemill_core::schedule::Schedule;
use tidemill_core::shell::command;
use tidemill_wire::schedules::PauseSchedule;

/// Fire times that are shown of each.
const FIRES: usize = 3;

pub(crate) fn routes() -> Router<Console> {
    Router::new()
        .route("/schedules", get(page))
        .route("/schedules/{schedule}/pause", post(pause))
        .route("/schedules/{schedule}/resume", post(resume))
}

async fn page(visitor: Visitor) -> Result<Response, Oops> {
    let schedules = visitor.client.schedules().await?.items;
    let acts = visitor.may(http::Method::POST, "/v1/schedules/{schedule}/pause");
    let body = html! {
        div.head { h1 { "Schedules" } }
        div.panel #schedules data-live {
            @if schedules.is_empty() {
                p.empty { "Nothing is queued by the clock. Make a schedule: "
                    code { "tidemill schedule add NAME --cron \"30 2 * * *\" --project P --env E" } }
            } @else {
                div.scroll { table {
                    thead { tr { th { "Schedule" } th { "When" } th { "Next" } th { "Last" }
                        th.wide { "Queues" } @if acts { th {} } } }
                    tbody { @for schedule in first(&schedules) {
                        tr data-key=(schedule.schedule_id) {
                            td { (says(&schedule.schedule_id)) @if schedule.paused_at.is_some() { " "
                                (label("paused")) }
                                @if let Some(note) = &schedule.paused_note { span.why { (line(note)) } } }
                            td { code.nowrap { (line_of(&schedule.cron, 60)) } span.why { (says(&schedule.time_zone))
                                } }
                            td { (next_times(&visitor, schedule, FIRES)) }
                            td { (ago_or_none(schedule.last_fire_at, visitor.now)) @if let
                                Some(run) = &schedule.last_run_id { " " (run_link(run)) } }
                            td.wide { (says(&schedule.request.project)) "/" (says(&schedule.request.env))
                                span.why { "missed: " (schedule.missed) ", overlap: " (schedule.overlap) } }
                            @if acts { td.acts { (verbs(&visitor, schedule)) } }
                        }
                    } }
                } }
                (others(schedules.len(), "tidemill schedule list"))
            }
        }
    };
    Ok(Page::new(&visitor, Place::Schedules, "Schedules").live().show(&body))
}

fn verbs(visitor: &Visitor, schedule: &Schedule) -> Markup {
    let name = &schedule.schedule_id;
    let (verb, label) = if schedule.paused_at.is_some() { ("resume", "Resume") } else { ("pause", "Pause") };
    html! {
        (act::button(visitor, &format!("/schedules/{name}/{verb}"), &[], label, ""))
        (act::commands(&[command(["schedule", verb, name])]))
    }
}

/// The next times at which a schedule fires.
pub(crate) fn next_times(visitor: &Visitor, schedule: &Schedule, most: usize) -> Markup {
    if let Some(since) = schedule.paused_at {
        return html! { span.warn { "paused " (ago(since, visitor.now)) } };
    }
    let Ok(pattern) = schedule.pattern() else {
        return html! { span.bad { "its pattern is not understood" } };
    };
    let mut fires: Vec<_> = pattern.fires_after(visitor.now).take(most).collect();
    // What is due and not fired yet comes first.
    if let Some(due) = schedule.next_fire_at.filter(|due| *due <= visitor.now) {
        fires.insert(0, due);
        fires.truncate(most);
    }
    html! {
        @if fires.is_empty() { span.dim { "never again" } }
        @for (place, fire) in fires.iter().enumerate() {
            @if place == 0 { b { (ago(*fire, visitor.now)) } } @else { span.why { (minute(*fire)) } }
        }
    }
}

async fn pause(Path(schedule): Path<String>, form: Form) -> Result<Response, Oops> {
    let note = form.field("note").map(str::to_owned);
    form.client.pause_schedule(&schedule, &PauseSchedule { note }).await?;
    Ok(form.back(Done::Plain("paused")))
}

async fn resume(Path(schedule): Path<String>, form: Form) -> Result<Response, Oops> {
    form.client.resume_schedule(&schedule).await?;
    Ok(form.back(Done::Plain("resumed")))
}
