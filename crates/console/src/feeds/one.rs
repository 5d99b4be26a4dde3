//! One feed.

use super::rules;
use crate::act;
use crate::fold;
use crate::layout::{Page, Place};
use crate::oops::Oops;
use crate::picture::{Step, Steps};
use crate::sync::gaps;
use crate::text::{line, line_of, says, visible};
use crate::time::{ago, ago_or_none, full, took};
use crate::visitor::Visitor;
use crate::way_back::kept;
use crate::words::{count, label, sync_progress};
use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::project::Flag;
use tidemill_core::records::{FeedRecord, Reject, Sync, WatermarkChange};
use tidemill_core::schedule::Schedule;
use tidemill_core::shell::command;
use tidemill_engine::sync::{full_schedule_name, schedule_name};
use tidemill_wire::Page as Slice;
use tidemill_wire::feeds::ListRejects;
use tidemill_wire::syncs::ListSyncs;

/// Syncs, rejected rows and fire times that are shown.
const SYNCS: u16 = 20;
const REJECTS: u16 = 25;
const FIRES: usize = 5;

pub(super) async fn page(visitor: Visitor, Path(feed): Path<String>) -> Result<Response, Oops> {
    let client = &visitor.client;
    let cursor = form_urlencoded::parse(visitor.uri.query().unwrap_or_default().as_bytes())
        .find(|(name, _)| name == "rejects")
        .map(|(_, value)| value.into_owned());
    let listed = ListSyncs { feed: Some(feed.clone()), limit: Some(SYNCS), ..ListSyncs::default() };
    let rejected = ListRejects { feed: Some(feed.clone()), after: cursor, limit: Some(REJECTS) };
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
    let flag = flags.items.iter().find(|flag| flag.scope == scope && flag.is_on(visitor.now));
    let tried = rules::Tried::of(&visitor.uri);
    let rules = rules::panel(&visitor, &feed, tried).await?;
    let body = html! {
        div #head data-live { (head(&visitor, &detail.feed, flag)) }
        div.split {
            div {
                div #syncs data-live { (last_runs(&visitor, &syncs.items)) }
                div #missing data-live { @if !detail.gaps.is_empty() { (gaps(&visitor, &detail.gaps)) } }
                (rejected_rows(&visitor, &feed, &rejects))
            }
            div {
                div #far data-live { (how_far(&visitor, &detail.feed, &watermark.changes))
                    (times(&visitor, changes.as_ref(), all.as_ref())) }
                (rules)
            }
        }
    };
    Ok(Page::new(&visitor, Place::Feeds, feed).live().show(&body))
}

/// A schedule of a feed, if it has it.
async fn schedule(client: &Client, name: String) -> Result<Option<Schedule>, Error> {
    match client.schedule(&name).await {
        Ok(schedule) => Ok(Some(schedule)),
        Err(Error::Refused { status, .. }) if status.as_u16() == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a feed answers, as its circuit says.
pub(super) fn answers(feed: &FeedRecord) -> Markup {
    let state = feed.circuit.get("state").and_then(|state| state.as_str()).unwrap_or("closed");
    match state {
        "closed" => html! { span.good { "yes" } },
        "probing" => html! { span.warn { "being asked" } },
        _ => {
            html! { span.bad { "no" } @if let Some(reason) = &feed.circuit_reason {
            span.why { (line_of(reason, 120)) } } }
        }
    }
}

fn head(visitor: &Visitor, feed: &FeedRecord, flag: Option<&Flag>) -> Markup {
    let name = &feed.feed.feed;
    let acts = visitor.may(http::Method::POST, "/v1/feeds/{feed}/syncs");
    let path = |verb: &str| format!("/feeds/{name}/{verb}");
    html! {
        div.head {
            h1 { (says(name)) }
            @if flag.is_some() { (label("paused")) }
            @if acts {
                div.acts {
                    (act::button(visitor, &path("sync"), &[], "Sync now", "main"))
                    (act::button(visitor, &path("sync"), &[("full", "yes")], "Read everything", ""))
                    @if flag.is_some() { (act::button(visitor, &path("resume"), &[], "Resume", "")) }
                    @else {
                        details.drop open[kept(visitor, "note").is_some()] { summary { "Pause…" } div {
                            form.form method="post" action=(path("pause")) {
                                (act::hidden(visitor))
                                p { "Nothing of it is brought in until somebody resumes it. Pages in hand go on." }
                                label.field { "Why, for the others" input type="text" name="note"
                                    maxlength="1024" value=[kept(visitor, "note")]; }
                                div { button type="submit" { "Pause the feed" } }
                            }
                        } }
                    }
                }
            }
            p.sub { (says(&feed.feed.kind)) " at " (line(&feed.feed.endpoint)) " · project "
                (says(&feed.feed.project_id)) " · answers: " (answers(feed)) }
        }
        @if let Some(flag) = flag {
            div.note.warn { "Paused " (ago(flag.since, visitor.now)) @if let Some(by) = &flag.set_by { " by "
                (says(by)) }
                @if let Some(note) = &flag.note { ": " (line(note)) } }
        }
        @if let Some(error) = &feed.copy_error { div.note.warn { "The copy of the watermark is late: "
            (line(error)) } }
        (act::commands(&commands(name, acts, flag.is_some())))
    }
}

/// Commands that do the same as the page.
fn commands(feed: &str, acts: bool, paused: bool) -> Vec<String> {
    let verb = |verb| command(["feed", verb, feed]);
    let mut commands = vec![verb("show"), verb("heatmap")];
    if acts {
        let hold = if paused { "resume" } else { "pause" };
        commands.extend([verb("sync"), command(["feed", "sync", feed, "--full"]), verb(hold)]);
    }
    commands
}

fn last_runs(visitor: &Visitor, syncs: &[Sync]) -> Markup {
    html! {
        section.panel {
            header { h2 { "Last syncs" } }
            @if syncs.is_empty() { p.empty { "Nothing of it was ever brought in. Press " b { "Sync now" } "."
                } }
            @else {
                div.scroll { table {
                    thead { tr { th { "State" } th { "Run" } th { "Kind" } th { "Partitions" }
                        th.num { "Stones" } th { "Began" } th.num { "Took" } } }
                    tbody {
                        @for sync in syncs {
                            tr data-key=(sync.run_id) {
                                td { (label(sync.state.as_str())) }
                                td { (crate::words::run_link(&sync.ops_run_id)) @if let
                                    Some(error) = &sync.error { span.why { (line_of(error, 160)) } } }
                                td { (sync.run_type) }
                                td { (sync_progress(sync)) }
                                td.num { (count(sync.predicted)) }
                                td.nowrap { (ago(sync.started_at, visitor.now)) }
                                td.num { (took(Some(sync.started_at),
                                    Some(sync.completed_at.unwrap_or(sync.updated_at)),
                                    visitor.now).unwrap_or_default()) }
                            }
                        }
                    }
                } }
            }
        }
    }
}

fn rejected_rows(visitor: &Visitor, feed: &str, rejects: &Slice<Reject>) -> Markup {
    html! {
        section.panel #rejects {
            header { h2 { "Rejected rows" } span.dim.small { "records that are not in the table, and why" } }
            @if rejects.items.is_empty() { p.empty { "None: every record that was fetched is in the table." }
                }
            @else {
                div.scroll { table {
                    thead { tr { th { "Stone" } th { "Where" } th { "Why" } th.num { "Times" } th { "Last" } }
                        }
                    tbody {
                        @for reject in &rejects.items {
                            tr {
                                td { (line_of(&reject.stone_id, 60)) }
                                td { (reject.stage) }
                                td { (line(&reject.reason))
                                    details { summary { "Record" }
                                        pre { bdi { (visible(crate::text::cut(&reject.payload, 2_000).0)) } }
                                        } }
                                td.num { (reject.times) }
                                td.nowrap { (ago(reject.last_at, visitor.now)) }
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

fn how_far(visitor: &Visitor, feed: &FeedRecord, changes: &[WatermarkChange]) -> Markup {
    let steps =
        changes.iter().rev().filter_map(|change| Some(Step { at: change.changed_at, value: change.after? }));
    html! {
        section.panel {
            header { h2 { "Watermark" } @if let Some(watermark) = &feed.watermark {
                span { (ago(watermark.last_updated_at, visitor.now)) } } }
            div.in {
                @if changes.is_empty() { p.dim { "It has not moved yet: the first sync reads everything." } }
                @else {
                    div.picture.half { (Steps { title: "How the watermark moved".to_owned(), steps:
                        steps.collect() }.draw()) }
                    div.scroll { table {
                        thead { tr { th { "When" } th { "To" } th { "By" } } }
                        tbody {
                            @for change in changes {
                                tr {
                                    td.nowrap { (ago(change.changed_at, visitor.now)) }
                                    td.nowrap { @if let Some(after) = change.after { (full(after)) }
                                        @else { "nothing" } }
                                    td { @if let Some(run) = change.run_id { a.mono href={ "/runs/run-" (run)
                                        } { "sync" } } @else { (says(&change.by)) }
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
                        (ago_or_none(feed.copied_updated_at, visitor.now)) } }
                }
                @if !fold::is_nothing(&feed.feed.settings) {
                    (fold::json("Settings", &feed.feed.settings, None)) }
            }
        }
    }
}

fn times(visitor: &Visitor, changes: Option<&Schedule>, all: Option<&Schedule>) -> Markup {
    html! {
        section.panel {
            header { h2 { "Schedule" } }
            @for schedule in changes.iter().chain(&all) {
                div.in { (crate::schedules::next_times(visitor, schedule, FIRES)) } }
            @if changes.is_none() && all.is_none() { p.empty { "It comes in only when somebody asks. "
                "Add it once more as it was added, with a time: "
                code { "tidemill feed add NAME --endpoint URL --schedule \"0 * * * *\"" } } }
        }
    }
}
