//! The sync part of a run's page: counts, partitions, charts, gaps and actions.

mod actions;
mod pace;
mod partitions;

use crate::chart::{Bars, Columns, Heatmap, Row, Span};
use crate::forms;
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::text::{line, safe, visible};
use crate::time::{ago, ago_or_none, rough};
use crate::widgets::{bar, count, label, sync_progress};
use maud::{Markup, html};
use tidemill_client::Error;
use tidemill_core::feed::{CursorUnit, FieldUnit, PartitionField};
use tidemill_core::pace::Pace;
use tidemill_core::partition::PartitionState;
use tidemill_core::records::{Gap, Partition, Sync, SyncStatus};
use tidemill_core::run::Run;
use tidemill_core::shell::command;
use tidemill_core::sync::SyncState;
use tidemill_core::{Json, Timestamp};
use tidemill_wire::feeds::ListGaps;

pub(crate) use pace::PaceCache;

pub(crate) fn routes() -> Routes {
    Routes::new()
        .post("/syncs/{sync}/retry", actions::retry)
        .post("/syncs/{sync}/cancel", actions::cancel)
        .post("/syncs/{sync}/consolidate", actions::consolidate)
}

/// A sync with its pace, and the words and gaps of its feed.
pub(crate) struct SyncView {
    pub(crate) status: SyncStatus,
    field: PartitionField,
    unit: CursorUnit,
    pace: Pace,
    gaps: Vec<Gap>,
}

/// Reads the sync of a request, if it is planned.
pub(crate) async fn read(context: &PageContext, first: &Run) -> Result<Option<SyncView>, Error> {
    let client = &context.client;
    let status = match client.sync(first.run_id.as_str()).await {
        Ok(status) => status,
        Err(Error::Refused { status, .. }) if status.as_u16() == 404 => return Ok(None),
        Err(error) => return Err(error),
    };
    let params = ListGaps { feed: Some(status.sync.feed.clone()), ..ListGaps::default() };
    let cache = &context.console().inner.paces;
    let (feed, gaps, pace) = tokio::try_join!(
        client.feed(&status.sync.feed),
        client.gaps(&params),
        cache.get(client, status.sync.run_id)
    )?;
    let feed = feed.feed.feed;
    let (field, unit) = (feed.partition_field(), feed.cursor_unit());
    Ok(Some(SyncView { status, field, unit, pace, gaps: gaps.items }))
}

/// Renders a value of the feed's cursor: a relative time, or the number that it holds.
pub(crate) fn cursor(unit: CursorUnit, at: Timestamp, now: Timestamp) -> Markup {
    match unit.number(at) {
        Some(number) => html! { (count(number)) },
        None => ago(at, now),
    }
}

fn cursor_or_none(unit: CursorUnit, at: Option<Timestamp>, now: Timestamp) -> Markup {
    at.map_or_else(|| ago_or_none(None, now), |at| cursor(unit, at, now))
}

/// Renders the sync part of the page.
pub(crate) fn panel(context: &PageContext, view: &SyncView) -> Markup {
    let SyncStatus { sync, partitions, newer } = &view.status;
    let field = &view.field;
    html! {
        section.panel #sync {
            header { h2 { "Sync of " a href={ "/feeds/" (sync.feed) } { (safe(&sync.feed)) } }
                (label(sync.state.as_str()))
                span.chip { (sync.run_type) } (sync_progress(sync)) }
            @if let Some(newer) = newer.filter(|_| sync.state == SyncState::Failed) {
                p.empty { "A newer sync of this feed has completed, so this one cannot be retried: "
                    a.mono href={ "/runs/run-" (newer) } { (newer) } }
            }
            div.in { (numbers(context, view)) }
        }
        section.panel #partitions {
            header { h2 { "Partitions" } span.dim.small { (safe(&field.description())) } }
            @if partitions.is_empty() { p.empty { "The scan found no records to read." } }
            @else { (partitions::grid(context, &view.status, field)) }
        }
        (pace::panel(&view.pace))
        @if !partitions.is_empty() {
            section.panel {
                header { h2 { "Heatmap" } span.dim.small { (safe(&heat_title(field))) } }
                div.in.picture { (heat(field, partitions)) }
            }
            section.panel {
                header { h2 { "Partitions over time" } }
                div.in.picture { (partition_timeline(sync, partitions, context.now)) }
            }
            @if sync.count_calls > 0 {
                section.panel { header { h2 { "Scan" }
                        span.dim.small { (count(sync.predicted)) " records in " (sync.count_calls) " counts, "
                            (rough(chrono::TimeDelta::milliseconds(sync.scan_ms))) } }
                    div.in.picture { (scan(field, &sync.heatmap)) } }
            }
        }
        @if !view.gaps.is_empty() { (gaps(context, &view.gaps, field, view.unit)) }
    }
}

/// Mean number of records per second, from the first page to the last.
fn mean_pace(partitions: &[Partition], now: Timestamp) -> Option<i64> {
    let from = partitions.iter().filter_map(|partition| partition.first_page_at).min()?;
    let open = partitions.iter().any(|partition| partition.state.is_open());
    let last = partitions.iter().filter_map(|partition| partition.ended_at).max();
    let to = if open { now } else { last.unwrap_or(now) };
    let stored: i64 = partitions.iter().map(|partition| partition.stored).sum();
    let millis = (to - from).num_milliseconds();
    (millis > 0 && stored > 0).then(|| (stored.saturating_mul(1_000) + millis / 2) / millis)
}

fn numbers(context: &PageContext, view: &SyncView) -> Markup {
    let SyncStatus { sync, partitions, .. } = &view.status;
    let mark = |at| cursor_or_none(view.unit, at, context.now);
    let sum = |field: fn(&Partition) -> i64| partitions.iter().map(field).sum::<i64>();
    let (fetched, stored, rejected) = (
        sum(|partition| partition.fetched),
        sum(|partition| partition.stored),
        sum(|partition| partition.rejected),
    );
    let consolidated = sum(|partition| partition.consolidated);
    // A record that was read twice is counted twice in `stored`, but only once here.
    let is_done = sync.state == SyncState::Completed;
    let total = if is_done { consolidated } else { sync.consolidation_total.max(stored) };
    let done = if is_done { "done" } else { "" };
    // Until the sync is completed, its ledger has consolidated records only.
    let rejected = match &sync.ledger {
        Some(ledger) => ledger.rejected_total(),
        None => rejected + sum(|partition| partition.refused),
    };
    html! {
        div.tiles {
            @if is_counted(sync) {
                div.tile { span { "Predicted" } b { (count(sync.predicted)) } span { "by the scan" } }
            }
            div.tile { span { "Fetched" } b { (count(fetched)) } span { (count(stored)) " stored" } }
            div.tile { span { "Pace" } b { @if let Some(pace) = mean_pace(partitions, context.now) {
                (count(pace)) } @else { "–" } }
                span { "records per second" } }
            div.tile { span { "Rejected" } b.bad[rejected > 0] { (count(rejected)) }
                span { a href={ "/feeds/" (sync.feed) "#rejects" } { "reasons" } } }
            div.tile { span { "Deleted" } b { (count(sync.deleted)) } span { "flagged, or not in the feed any more" } }
        }
        dl.facts {
            dt { "Records" } dd { (line(&view.status.summary())) }
            dt { "Fetched" }
            @if is_counted(sync) {
                dd.barred { (bar(fetched, sync.predicted, "Fetched", "")) span { (count(fetched)) " of "
                    (count(sync.predicted)) } }
            } @else { dd { (count(fetched)) } }
            dt { "Consolidated" }
            dd.barred { (bar(consolidated, total, "Consolidated", done)) span { (count(consolidated)) " of "
                (count(total)) } }
            dt { "Window" } dd { @if sync.updated_from.is_some() { "since " (mark(sync.updated_from)) }
                @else { "everything" }
                @if view.unit == CursorUnit::Time { ", up to " (ago(sync.updated_to, context.now)) } }
            dt { "Watermark" } dd { (mark(sync.watermark_before)) " → " (mark(sync.watermark_after)) }
            @if let Some(note) = &sync.delete_note { dt { "Not deleted" } dd { (line(note)) } }
            @if let Some(error) = &sync.error { dt { "Error" } dd.bad { (line(error)) } }
            dt { "Trace" } dd { code { (safe(&sync.trace_id)) } }
        }
    }
}

/// Whether the scan counted the records. A sync without records has no partitions.
const fn is_counted(sync: &Sync) -> bool {
    sync.count_calls > 0 || sync.predicted > 0
}

fn heat_title(field: &PartitionField) -> String {
    match field.unit {
        FieldUnit::Whole => "records of the list".to_owned(),
        FieldUnit::Values(_) => format!("records per partition, labelled with its {}", field.name),
        FieldUnit::Dollars | FieldUnit::Money { .. } | FieldUnit::Number | FieldUnit::Time => {
            format!("records per partition, labelled with its lowest {}", field.name)
        }
    }
}

fn heat(field: &PartitionField, partitions: &[Partition]) -> Markup {
    let row = |field: fn(&Partition) -> i64| partitions.iter().map(field).collect();
    Heatmap {
        title: "Records predicted, fetched and stored, by partition".to_owned(),
        columns: partitions.iter().map(|partition| visible(&field.value(partition.range.from))).collect(),
        rows: vec![
            ("predicted", row(|partition| partition.predicted)),
            ("fetched", row(|partition| partition.fetched)),
            ("stored", row(|partition| partition.stored)),
        ],
    }
    .draw()
}

fn partition_timeline(sync: &Sync, partitions: &[Partition], now: Timestamp) -> Markup {
    let rows = partitions.iter().map(|partition| {
        let started = partition.first_page_at.unwrap_or(sync.started_at);
        let end = partition.ended_at.unwrap_or(now).max(started);
        let mut spans = vec![Span { from: sync.started_at, to: started, state: "pending", waiting: true }];
        if partition.first_page_at.is_some() || partition.ended_at.is_some() {
            spans.push(Span { from: started, to: end, state: partition.state.as_str(), waiting: false });
        }
        Row { name: partition.partition_id.clone(), spans }
    });
    Bars { title: "Partitions over time".to_owned(), rows: rows.collect() }.draw()
}

/// Chart of the scan's counts per range of the partition field.
fn scan(field: &PartitionField, heatmap: &Json) -> Markup {
    let cells = heatmap.as_array().into_iter().flatten().filter_map(|cell| {
        let number = |name: &str| cell.get(name).and_then(Json::as_i64);
        Some((visible(&field.value(number("from")?)), number("count")?))
    });
    let title = format!("Records by {}, as counted by the scan", visible(&field.name));
    Columns { title, items: cells.collect() }.draw()
}

/// Panel of ranges that the watermark passed without covering them.
pub(crate) fn gaps(context: &PageContext, gaps: &[Gap], field: &PartitionField, unit: CursorUnit) -> Markup {
    html! {
        section.panel #gaps {
            header { h2 { "Gaps" } span.dim.small { "the next sync covers them" } }
            div.scroll { table {
                thead { tr { th { "Range" } th { "Updated" } th { "Created by" } th { "Reason" } } }
                tbody {
                    @for gap in gaps {
                        tr data-key=(gap.gap_id) {
                            td.nowrap { (safe(&field.label(gap.range))) }
                            td { @if let Some(from) = gap.updated_from { "since " (cursor(unit, from, context.now)) }
                                @else { "any time" }
                                @if unit == CursorUnit::Time { ", until " (ago(gap.updated_to, context.now)) } }
                            td { a.mono href={ "/runs/run-" (gap.left_by) } { (gap.left_by) } " "
                                (ago(gap.created_at, context.now)) }
                            td { (line(&gap.reason)) }
                        }
                    }
                }
            } }
        }
    }
}

/// Actions on a sync. `run` is the page's run: only the last attempt of a sync has actions.
pub(crate) fn acts(context: &PageContext, view: &SyncView, run: &Run) -> Markup {
    let SyncStatus { sync, partitions, newer } = &view.status;
    if !context.may_operate() || sync.ops_run_id != run.run_id {
        return html! {};
    }
    let failed: Vec<&Partition> =
        partitions.iter().filter(|partition| partition.state == PartitionState::Failed).collect();
    let path = |verb: &str| format!("/syncs/{}/{verb}", sync.run_id);
    html! {
        @if sync.state.is_live() { (cancel(context, &path("cancel"))) }
        // The API refuses both actions for a sync that a newer one has superseded.
        @if sync.state == SyncState::Failed && newer.is_none() {
            @if !failed.is_empty() {
                (forms::button(context, &path("retry"), &[], "Retry failed partitions", "main"))
                (force_form(context, &path("consolidate"), &failed, &view.field))
            } @else {
                (forms::button(context, &path("consolidate"), &[], "Continue consolidation", "main"))
            }
        }
    }
}

fn cancel(context: &PageContext, path: &str) -> Markup {
    html! {
        details.drop open[forms::reason_was_given(context)] {
            summary { "Cancel…" }
            div {
                form.form method="post" action=(path) {
                    (forms::hidden(context))
                    p { "Its open partitions fail, and the watermark does not move. Stored records are kept." }
                    (forms::reason(context))
                    div { button.risk type="submit" { "Cancel sync" } }
                }
            }
        }
    }
}

/// Form to consolidate without the failed partitions. It lists the missing ranges and asks for confirmation.
fn force_form(context: &PageContext, path: &str, failed: &[&Partition], field: &PartitionField) -> Markup {
    html! {
        details.drop {
            summary { "Consolidate without them…" }
            div {
                form.form method="post" action=(path) {
                    (forms::hidden(context))
                    input type="hidden" name="force" value="yes";
                    p { "These records will be missing until they are read again:" }
                    ul.gaps { @for partition in failed {
                        li { b { (partition.partition_id) } " " (safe(&field.label(partition.range)))
                            @if partition.predicted > 0 {
                                ", " (count((partition.predicted - partition.stored).max(0))) " of "
                                    (count(partition.predicted)) " records"
                            } }
                    } }
                    label.tick { input type="radio" name="advance" value="" checked;
                        " Keep the watermark: the next sync reads all changes since then" }
                    label.tick { input type="radio" name="advance" value="yes";
                        " Move the watermark and record these ranges as gaps" }
                    label.tick { input type="checkbox" name="sure" value="yes" required;
                        " I understand that these ranges will be missing" }
                    div { button.risk type="submit" { "Consolidate" } }
                }
            }
        }
    }
}

pub(crate) fn commands(context: &PageContext, view: &SyncView, run: &Run) -> Vec<String> {
    let SyncStatus { sync, partitions, newer } = &view.status;
    let id = sync.run_id.to_string();
    let verb =
        |verb, options: &[&str]| command(["sync", verb, &id].into_iter().chain(options.iter().copied()));
    let mut commands = vec![verb("show", &[])];
    if !context.may_operate() || sync.ops_run_id != run.run_id {
        return commands;
    }
    if sync.state.is_live() {
        commands.push(verb("cancel", &[]));
    }
    if sync.state == SyncState::Failed && newer.is_none() {
        if partitions.iter().any(|partition| partition.state == PartitionState::Failed) {
            commands.push(verb("retry", &[]));
            commands.push(verb("consolidate", &["--force"]));
            commands.push(verb("consolidate", &["--force", "--advance"]));
        } else {
            commands.push(verb("consolidate", &[]));
        }
    }
    commands
}
