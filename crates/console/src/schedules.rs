//! The page that lists schedules.

use crate::error_page::ErrorPage;
use crate::forms::{self, Form, FormOutcome};
use crate::layout::{Page, Section};
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::text::{clip, line, safe};
use crate::time::{ago, ago_or_none, minute};
use crate::widgets::{first_rows, label, omitted_rows, run_link};
use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use tidemill_core::schedule::Schedule;
use tidemill_core::shell::command;
use tidemill_wire::schedules::PauseSchedule;

/// Number of next times shown per schedule.
const FIRES_MAX: usize = 3;

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/schedules", page)
        .post("/schedules/{schedule}/pause", pause)
        .post("/schedules/{schedule}/resume", resume)
}

async fn page(context: PageContext) -> Result<Response, ErrorPage> {
    let schedules = context.client.schedules().await?.items;
    let acts = context.may(http::Method::POST, "/v1/schedules/{schedule}/pause");
    let body = html! {
        div.head { h1 { "Schedules" } }
        div.panel #schedules data-live {
            @if schedules.is_empty() {
                p.empty { "There are no schedules. Add one: "
                    code { "tidemill schedule add NAME --cron \"30 2 * * *\" --project P --env E" } }
            } @else {
                div.scroll { table {
                    thead { tr { th { "Schedule" } th { "Pattern" } th { "Next" } th { "Last" }
                        th.wide { "Target" } @if acts { th {} } } }
                    tbody { @for schedule in first_rows(&schedules) {
                        tr data-key=(schedule.schedule_id) {
                            td { (safe(&schedule.schedule_id)) @if schedule.paused_at.is_some() { " "
                                (label("paused")) }
                                @if let Some(note) = &schedule.paused_note { span.why { (line(note)) } } }
                            td { code.nowrap { (clip(&schedule.cron, 60)) } span.why { (safe(&schedule.time_zone))
                                } }
                            td { (next_times(&context, schedule, FIRES_MAX)) }
                            td { (ago_or_none(schedule.last_fire_at, context.now)) @if let
                                Some(run) = &schedule.last_run_id { " " (run_link(run)) } }
                            td.wide { (safe(&schedule.request.project)) "/" (safe(&schedule.request.env))
                                span.why { "missed: " (schedule.missed) ", overlap: " (schedule.overlap) } }
                            @if acts { td.acts { (buttons(&context, schedule)) } }
                        }
                    } }
                } }
                (omitted_rows(schedules.len(), "tidemill schedule list"))
            }
        }
    };
    Ok(Page::new(&context, Section::Schedules, "Schedules").live().show(&body))
}

fn buttons(context: &PageContext, schedule: &Schedule) -> Markup {
    let name = &schedule.schedule_id;
    let (verb, label) = if schedule.paused_at.is_some() { ("resume", "Resume") } else { ("pause", "Pause") };
    html! {
        (forms::button(context, &format!("/schedules/{name}/{verb}"), &[], label, ""))
        (forms::commands(&[command(["schedule", verb, name])]))
    }
}

/// Next times of a schedule.
pub(crate) fn next_times(context: &PageContext, schedule: &Schedule, most: usize) -> Markup {
    if let Some(since) = schedule.paused_at {
        return html! { span.warn { "paused " (ago(since, context.now)) } };
    }
    let Ok(pattern) = schedule.pattern() else {
        return html! { span.bad { "invalid pattern" } };
    };
    let mut fires: Vec<_> = pattern.fires_after(context.now).take(most).collect();
    // A time that is due but has not fired yet comes first.
    if let Some(due) = schedule.next_fire_at.filter(|due| *due <= context.now) {
        fires.insert(0, due);
        fires.truncate(most);
    }
    html! {
        @if fires.is_empty() { span.dim { "never" } }
        @for (index, fire) in fires.iter().enumerate() {
            @if index == 0 { b { (ago(*fire, context.now)) } } @else { span.why { (minute(*fire)) } }
        }
    }
}

async fn pause(Path(schedule): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let note = form.field("note").map(str::to_owned);
    form.client.pause_schedule(&schedule, &PauseSchedule { note }).await?;
    Ok(form.back(FormOutcome::Message("paused")))
}

async fn resume(Path(schedule): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    form.client.resume_schedule(&schedule).await?;
    Ok(form.back(FormOutcome::Message("resumed")))
}
