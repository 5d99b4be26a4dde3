//! Page of one feed.

use super::{definition, rules};
use crate::chart::{Step, Steps};
use crate::error_page::ErrorPage;
use crate::form_return::previous_value;
use crate::forms;
use crate::json_view;
use crate::layout::{Page, Section};
use crate::page_context::PageContext;
use crate::sync::{cursor, gaps};
use crate::text::{clip, line, safe, visible};
use crate::time::{ago, ago_or_none, full, took};
use crate::widgets::{count, label, sync_progress};
use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::feed::{CursorUnit, Feed, REST_KIND};
use tidemill_core::project::Flag;
use tidemill_core::records::{FeedRecord, Reject, Sync, WatermarkChange};
use tidemill_core::schedule::Schedule;
use tidemill_core::shell::command;
use tidemill_engine::sync::{full_schedule_name, schedule_name};
use tidemill_wire::Page as Slice;
use tidemill_wire::feeds::ListRejects;
use tidemill_wire::syncs::ListSyncs;

/// Number of syncs, rejected records and schedule times on the page.
const SYNCS_MAX: u16 = 20;
const REJECTS_MAX: u16 = 25;
const FIRES_MAX: usize = 5;

pub(super) async fn page(context: PageContext, Path(feed): Path<String>) -> Result<Response, ErrorPage> {
    let client = &context.client;
    let cursor = form_urlencoded::parse(context.uri.query().unwrap_or_default().as_bytes())
        .find(|(name, _)| name == "rejects")
        .map(|(_, value)| value.into_owned());
    let listed = ListSyncs { feed: Some(feed.clone()), limit: Some(SYNCS_MAX), ..ListSyncs::default() };
    let rejected = ListRejects { feed: Some(feed.clone()), after: cursor, limit: Some(REJECTS_MAX) };
    let detail = client.feed(&feed).await?;
    let (watermark, syncs, rejects, flags, changes, all) = tokio::try_join!(
        client.watermark(&feed),
        client.syncs(&listed),
        client.rejects(&rejected),
        client.flags(),
        schedule(client, schedule_name(&feed)),
        schedule(client, full_schedule_name(&feed))
    )?;
    let scope = format!("feed:{feed}");
    let flag = flags.items.iter().find(|flag| flag.scope == scope && flag.is_on(context.now));
    let input = rules::StoneInput::from_uri(&context.uri);
    let record = &detail.feed.feed;
    let (field, unit) = (record.partition_field(), record.cursor_unit());
    // Prices belong to stones; a feed with a definition has a table instead.
    let rules = if record.kind == REST_KIND {
        definition::panel(&context, record).await?
    } else {
        rules::panel(&context, &feed, input).await?
    };
    let body = html! {
        div #head data-live { (head(&context, &detail.feed, flag)) }
        div.split {
            div {
                div #syncs data-live { (recent_syncs(&context, &syncs.items)) }
                div #missing data-live { @if !detail.gaps.is_empty() { (gaps(&context, &detail.gaps, &field, unit)) } }
                (rejects_panel(&context, &feed, &rejects))
            }
            div {
                div #far data-live { (watermark_panel(&context, &detail.feed, &watermark.changes))
                    (schedule_panel(&context, record, changes.as_ref(), all.as_ref())) }
                (rules)
            }
        }
    };
    Ok(Page::new(&context, Section::Feeds, feed).live().show(&body))
}

/// Returns a schedule of a feed, if it exists.
async fn schedule(client: &Client, name: String) -> Result<Option<Schedule>, Error> {
    match client.schedule(&name).await {
        Ok(schedule) => Ok(Some(schedule)),
        Err(Error::Refused { status, .. }) if status.as_u16() == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the feed responds, according to its circuit breaker, or is refused by the configuration of a process.
pub(super) fn responds_label(feed: &FeedRecord) -> Markup {
    if let Some(reason) = &feed.refusal {
        return html! { span.bad { "refused" } span.why { (clip(reason, 120)) } };
    }
    let state = feed.circuit.get("state").and_then(|state| state.as_str()).unwrap_or("closed");
    match state {
        "closed" => html! { span.good { "yes" } },
        "probing" => html! { span.warn { "probing" } },
        _ => {
            html! { span.bad { "no" } @if let Some(reason) = &feed.circuit_reason {
            span.why { (clip(reason, 120)) } } }
        }
    }
}

fn head(context: &PageContext, feed: &FeedRecord, flag: Option<&Flag>) -> Markup {
    let name = &feed.feed.feed;
    let acts = context.may(http::Method::POST, "/v1/feeds/{feed}/syncs");
    let path = |verb: &str| format!("/feeds/{name}/{verb}");
    html! {
        div.head {
            h1 { (safe(name)) }
            @if flag.is_some() { (label("paused")) }
            @if acts {
                div.acts {
                    (forms::button(context, &path("sync"), &[], "Sync now", "main"))
                    (forms::button(context, &path("sync"), &[("full", "yes")], "Full sync", ""))
                    @if flag.is_some() { (forms::button(context, &path("resume"), &[], "Resume", "")) }
                    @else {
                        details.drop open[previous_value(context, "note").is_some()] { summary { "Pause…" } div {
                            form.form method="post" action=(path("pause")) {
                                (forms::hidden(context))
                                p { "No sync starts until the feed is resumed. Pages in progress are completed." }
                                label.field { "Reason" input type="text" name="note"
                                    maxlength="1024" value=[previous_value(context, "note")]; }
                                div { button type="submit" { "Pause feed" } }
                            }
                        } }
                    }
                }
            }
            p.sub { (safe(&feed.feed.kind)) " at " (line(&feed.feed.endpoint)) " · project "
                (safe(&feed.feed.project_id)) " · defined by " (feed.feed.defined_by.as_str()) " · responds: "
                (responds_label(feed)) }
        }
        @if let Some(flag) = flag {
            div.note.warn { "Paused " (ago(flag.since, context.now)) @if let Some(by) = &flag.set_by { " by "
                (safe(by)) }
                @if let Some(note) = &flag.note { ": " (line(note)) } }
        }
        @if let Some(reason) = &feed.refusal { div.note.bad { "The configuration refuses this feed: "
            (line(reason)) } }
        @if let Some(error) = &feed.copy_error { div.note.warn { "The watermark could not be copied: "
            (line(error)) } }
        (forms::commands(&commands(&feed.feed, acts, flag.is_some())))
    }
}

/// Commands that do the same as the page's buttons.
fn commands(feed: &Feed, acts: bool, paused: bool) -> Vec<String> {
    let name = &feed.feed;
    let verb = |verb| command(["feed", verb, name]);
    let mut commands = vec![verb("show"), verb("heatmap")];
    if feed.kind == REST_KIND {
        commands.push(command(["feed", "apply", &format!("{name}.feed.yaml")]));
    }
    if acts {
        let hold = if paused { "resume" } else { "pause" };
        commands.extend([verb("sync"), command(["feed", "sync", name, "--full"]), verb(hold)]);
    }
    commands
}

fn recent_syncs(context: &PageContext, syncs: &[Sync]) -> Markup {
    html! {
        section.panel {
            header { h2 { "Last syncs" } }
            @if syncs.is_empty() { p.empty { "This feed has no syncs yet. Press " b { "Sync now" } "."
                } }
            @else {
                div.scroll { table {
                    thead { tr { th { "State" } th { "Run" } th { "Kind" } th { "Partitions" }
                        th.num { "Records" } th { "Started" } th.num { "Duration" } } }
                    tbody {
                        @for sync in syncs {
                            tr data-key=(sync.run_id) {
                                td { (label(sync.state.as_str())) }
                                td { (crate::widgets::run_link(&sync.ops_run_id)) @if let
                                    Some(error) = &sync.error { span.why { (clip(error, 160)) } } }
                                td { (sync.run_type) }
                                td { (sync_progress(sync)) }
                                td.num { (count(sync.predicted)) }
                                td.nowrap { (ago(sync.started_at, context.now)) }
                                td.num { (took(Some(sync.started_at),
                                    Some(sync.completed_at.unwrap_or(sync.updated_at)),
                                    context.now).unwrap_or_default()) }
                            }
                        }
                    }
                } }
            }
        }
    }
}

fn rejects_panel(context: &PageContext, feed: &str, rejects: &Slice<Reject>) -> Markup {
    html! {
        section.panel #rejects {
            header { h2 { "Rejected records" } span.dim.small { "records that are not in the table, and why" } }
            @if rejects.items.is_empty() { p.empty { "None. All fetched records are stored." }
                }
            @else {
                div.scroll { table {
                    thead { tr { th { "Record" } th { "Stage" } th { "Reason" } th.num { "Count" } th { "Last" } }
                        }
                    tbody {
                        @for reject in &rejects.items {
                            tr {
                                td { (clip(&reject.record_id, 60)) }
                                td { (reject.stage) }
                                td { (line(&reject.reason))
                                    details { summary { "Record" }
                                        pre { bdi { (visible(crate::text::cut(&reject.payload, 2_000).0)) } }
                                        } }
                                td.num { (reject.times) }
                                td.nowrap { (ago(reject.last_at, context.now)) }
                            }
                        }
                    }
                } }
                @if let Some(next) = &rejects.next {
                    nav.pages { a.button href={ "/feeds/" (feed) "?" (pair("rejects", next)) "#rejects" } {
                        "Older" } }
                }
            }
        }
    }
}

fn pair(name: &str, value: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish()
}

fn watermark_panel(context: &PageContext, feed: &FeedRecord, changes: &[WatermarkChange]) -> Markup {
    let unit = feed.feed.cursor_unit();
    let steps =
        changes.iter().rev().filter_map(|change| Some(Step { at: change.changed_at, value: change.after? }));
    html! {
        section.panel {
            header { h2 { "Watermark" } @if let Some(watermark) = &feed.watermark {
                span { (cursor(unit, watermark.last_updated_at, context.now)) } } }
            div.in {
                @if changes.is_empty() { p.dim { "There is no watermark yet: the first sync reads everything." } }
                @else {
                    @if unit == CursorUnit::Time {
                        div.picture.half { (Steps { title: "Watermark history".to_owned(), steps:
                            steps.collect() }.draw()) }
                    }
                    div.scroll { table {
                        thead { tr { th { "Time" } th { "Watermark" } th { "By" } } }
                        tbody {
                            @for change in changes {
                                tr {
                                    td.nowrap { (ago(change.changed_at, context.now)) }
                                    td.nowrap { @match change.after {
                                        Some(after) => (unit.number(after).map_or_else(|| full(after), count)),
                                        None => "none",
                                    } }
                                    td { @if let Some(run) = change.run_id { a.mono href={ "/runs/run-" (run)
                                        } { "sync" } } @else { (safe(&change.by)) }
                                        @if let Some(note) = &change.note { span.why { (line(note)) } } }
                                }
                            }
                        }
                    } }
                }
                dl.facts {
                    dt { "Rate" } dd { @if feed.feed.rate == 0 { "no limit" } @else { (feed.feed.rate)
                        " requests per second" } }
                    @if let Some(copy) = &feed.copy_url { dt { "Copy" } dd { (line(copy)) " "
                        (ago_or_none(feed.copied_updated_at, context.now)) } }
                }
                @if feed.feed.kind != REST_KIND && !json_view::is_empty(&feed.feed.settings) {
                    (json_view::json("Settings", &feed.feed.settings, None)) }
            }
        }
    }
}

fn schedule_panel(
    context: &PageContext,
    feed: &Feed,
    changes: Option<&Schedule>,
    all: Option<&Schedule>,
) -> Markup {
    let source = if feed.kind == REST_KIND { "apply FILE" } else { "add NAME --endpoint URL" };
    html! {
        section.panel {
            header { h2 { "Schedule" } }
            @for schedule in changes.iter().chain(&all) {
                div.in { (crate::schedules::next_times(context, schedule, FIRES_MAX)) } }
            @if changes.is_none() && all.is_none() { p.empty { "No schedule: syncs are only started manually. "
                "To add one, repeat the command that added the feed with a schedule: "
                code { "tidemill feed " (source) " --schedule \"0 * * * *\"" } } }
        }
    }
}
