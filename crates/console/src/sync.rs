//! A sync on the page of its run: partitions, what was counted and what came, consolidation, and what can be done.

mod pace;
mod partitions;
mod verbs;

use crate::Console;
use crate::act;
use crate::picture::{Bars, Columns, Heat, Row, Span};
use crate::text::{line, says};
use crate::time::{ago, ago_or_none, rough};
use crate::visitor::Visitor;
use crate::words::{bar, count, label, sync_progress};
use axum::Router;
use axum::routing::post;
use maud::{Markup, html};
use tidemill_client::Error;
use tidemill_core::feed::{Cents, PRICE_CEILING, PriceRange};
use tidemill_core::pace::Pace;
use tidemill_core::partition::PartitionState;
use tidemill_core::records::{Gap, Partition, Sync, SyncStatus};
use tidemill_core::run::Run;
use tidemill_core::shell::command;
use tidemill_core::sync::SyncState;
use tidemill_core::{Json, Timestamp};
use tidemill_wire::feeds::ListGaps;

pub(crate) use pace::Paces;
pub(crate) use partitions::range;

pub(crate) fn routes() -> Router<Console> {
    Router::new()
        .route("/syncs/{sync}/retry", post(verbs::retry))
        .route("/syncs/{sync}/cancel", post(verbs::cancel))
        .route("/syncs/{sync}/consolidate", post(verbs::consolidate))
}

/// A sync, and what its feed is missing.
pub(crate) struct Told {
    pub(crate) status: SyncStatus,
    pace: Pace,
    gaps: Vec<Gap>,
}

/// The sync of a request, once it is planned.
pub(crate) async fn of(visitor: &Visitor, first: &Run) -> Result<Option<Told>, Error> {
    let client = &visitor.client;
    let status = match client.sync(first.run_id.as_str()).await {
        Ok(status) => status,
        Err(Error::Refused { status, .. }) if status.as_u16() == 404 => return Ok(None),
        Err(error) => return Err(error),
    };
    let asked = ListGaps { feed: Some(status.sync.feed.clone()), ..ListGaps::default() };
    let paces = &visitor.console().inner.paces;
    let (gaps, pace) = tokio::try_join!(client.gaps(&asked), paces.of(client, status.sync.run_id))?;
    Ok(Some(Told { status, pace, gaps: gaps.items }))
}

/// Dollars, without the cents where there are none.
pub(crate) fn money(cents: Cents) -> String {
    if cents % 100 == 0 {
        format!("${}", count(cents / 100))
    } else {
        format!("${}.{:02}", count(cents / 100), cents % 100)
    }
}

/// The sync's part of the page.
pub(crate) fn part(visitor: &Visitor, told: &Told) -> Markup {
    let SyncStatus { sync, partitions, newer } = &told.status;
    html! {
        section.panel #sync {
            header { h2 { "Sync of " a href={ "/feeds/" (sync.feed) } { (says(&sync.feed)) } }
                (label(sync.state.as_str()))
                span.chip { (sync.run_type) } (sync_progress(sync)) }
            @if let Some(newer) = newer.filter(|_| sync.state == SyncState::Failed) {
                p.empty { "A newer sync of the feed was completed, so that this one is not tried again: "
                    a.mono href={ "/runs/run-" (newer) } { (newer) } }
            }
            div.in { (numbers(visitor, sync, partitions)) }
        }
        section.panel #partitions {
            header { h2 { "Partitions" } span.dim.small { "by price, each a range of the feed" } }
            @if partitions.is_empty() { p.empty { "The scan found nothing to read." } }
            @else { (partitions::grid(visitor, &told.status)) }
        }
        (pace::panel(&told.pace))
        @if !partitions.is_empty() {
            section.panel {
                header { h2 { "Heatmap" } span.dim.small { "stones per partition, by the lowest price in it" }
                    }
                div.in.picture { (heat(partitions)) }
            }
            section.panel {
                header { h2 { "When each was read" } }
                div.in.picture { (gantt(sync, partitions, visitor.now)) }
            }
            section.panel { header { h2 { "What the scan counted" }
                    span.dim.small { (count(sync.predicted)) " stones in " (sync.count_calls) " counts, "
                        (rough(chrono::TimeDelta::milliseconds(sync.scan_ms))) } }
                div.in.picture { (scan(&sync.heatmap)) } }
        }
        @if !told.gaps.is_empty() { (gaps(visitor, &told.gaps)) }
    }
}

/// Stones per second, from the first page to the last.
fn mean_pace(partitions: &[Partition], now: Timestamp) -> Option<i64> {
    let from = partitions.iter().filter_map(|partition| partition.first_page_at).min()?;
    let open = partitions.iter().any(|partition| partition.state.is_open());
    let last = partitions.iter().filter_map(|partition| partition.ended_at).max();
    let to = if open { now } else { last.unwrap_or(now) };
    let stored: i64 = partitions.iter().map(|partition| partition.stored).sum();
    let millis = (to - from).num_milliseconds();
    (millis > 0 && stored > 0).then(|| (stored.saturating_mul(1_000) + millis / 2) / millis)
}

fn numbers(visitor: &Visitor, sync: &Sync, partitions: &[Partition]) -> Markup {
    let sum = |field: fn(&Partition) -> i64| partitions.iter().map(field).sum::<i64>();
    let (fetched, stored, rejected) = (
        sum(|partition| partition.fetched),
        sum(|partition| partition.stored),
        sum(|partition| partition.rejected),
    );
    let consolidated = sum(|partition| partition.consolidated);
    // A stone that was read twice is stored twice, and is in the table once.
    let is_done = sync.state == SyncState::Completed;
    let total = if is_done { consolidated } else { sync.consolidation_total.max(stored) };
    let done = if is_done { "done" } else { "" };
    let refused = sync.consolidation_errors.max(sum(|partition| partition.refused));
    html! {
        div.tiles {
            div.tile { span { "Predicted" } b { (count(sync.predicted)) } span { "by the scan" } }
            div.tile { span { "Fetched" } b { (count(fetched)) } span { (count(stored)) " stored" } }
            div.tile { span { "Pace" } b { @if let Some(pace) = mean_pace(partitions, visitor.now) {
                (count(pace)) } @else { "–" } }
                span { "stones per second" } }
            div.tile { span { "Rejected" } b.bad[rejected + refused > 0] { (count(rejected + refused)) }
                span { a href={ "/feeds/" (sync.feed) "#rejects" } { "why" } } }
            div.tile { span { "Deleted" } b { (count(sync.deleted)) } span { "no longer offered" } }
        }
        dl.facts {
            dt { "Read" }
            dd.barred { (bar(fetched, sync.predicted, "Read", "")) span { (count(fetched)) " of "
                (count(sync.predicted)) } }
            dt { "In the table" }
            dd.barred { (bar(consolidated, total, "In the table", done)) span { (count(consolidated)) " of "
                (count(total)) } }
            dt { "Window" } dd { @if let Some(from) = sync.updated_from { "since " (ago(from, visitor.now)) }
                @else { "everything" }
                ", up to " (ago(sync.updated_to, visitor.now)) }
            dt { "Watermark" } dd { (ago_or_none(sync.watermark_before, visitor.now)) " → "
                (ago_or_none(sync.watermark_after, visitor.now)) }
            @if let Some(note) = &sync.delete_note { dt { "Not deleted" } dd { (line(note)) } }
            @if let Some(error) = &sync.error { dt { "Error" } dd.bad { (line(error)) } }
            dt { "Trace" } dd { code { (says(&sync.trace_id)) } }
        }
    }
}

fn heat(partitions: &[Partition]) -> Markup {
    let row = |field: fn(&Partition) -> i64| partitions.iter().map(field).collect();
    Heat {
        title: "Stones predicted, fetched and stored, by partition".to_owned(),
        columns: partitions.iter().map(|partition| money(partition.prices.from)).collect(),
        rows: vec![
            ("predicted", row(|partition| partition.predicted)),
            ("fetched", row(|partition| partition.fetched)),
            ("stored", row(|partition| partition.stored)),
        ],
    }
    .draw()
}

fn gantt(sync: &Sync, partitions: &[Partition], now: Timestamp) -> Markup {
    let rows = partitions.iter().map(|partition| {
        let begun = partition.first_page_at.unwrap_or(sync.started_at);
        let end = partition.ended_at.unwrap_or(now).max(begun);
        let mut spans = vec![Span { from: sync.started_at, to: begun, state: "pending", waiting: true }];
        if partition.first_page_at.is_some() || partition.ended_at.is_some() {
            spans.push(Span { from: begun, to: end, state: partition.state.as_str(), waiting: false });
        }
        Row { name: partition.partition_id.clone(), spans }
    });
    Bars { title: "When each partition was read".to_owned(), rows: rows.collect() }.draw()
}

/// The cells of the scan: counts of price ranges, as the sync keeps them.
fn scan(heatmap: &Json) -> Markup {
    let cells = heatmap.as_array().into_iter().flatten().filter_map(|cell| {
        let number = |name: &str| cell.get(name).and_then(Json::as_i64);
        let prices = PriceRange { from: number("from")?, to: number("to")?.min(PRICE_CEILING) };
        Some((money(prices.from), number("count")?))
    });
    Columns { title: "Stones by price, as the scan counted them".to_owned(), items: cells.collect() }.draw()
}

/// Ranges that the watermark passed without covering them.
pub(crate) fn gaps(visitor: &Visitor, gaps: &[Gap]) -> Markup {
    html! {
        section.panel #gaps {
            header { h2 { "Gaps" } span.dim.small { "the next sync covers them" } }
            div.scroll { table {
                thead { tr { th { "Prices" } th { "Changed" } th { "Left by" } th { "Why" } } }
                tbody {
                    @for gap in gaps {
                        tr data-key=(gap.gap_id) {
                            td.nowrap { (range(gap.prices)) }
                            td { @if let Some(from) = gap.updated_from { "since " (ago(from, visitor.now)) }
                                @else { "ever" }
                                ", until " (ago(gap.updated_to, visitor.now)) }
                            td { a.mono href={ "/runs/run-" (gap.left_by) } { (gap.left_by) } " "
                                (ago(gap.created_at, visitor.now)) }
                            td { (line(&gap.reason)) }
                        }
                    }
                }
            } }
        }
    }
}

/// What can be done to a sync. `run` is the page's own: what is done is done to its last attempt alone.
pub(crate) fn acts(visitor: &Visitor, told: &Told, run: &Run) -> Markup {
    let SyncStatus { sync, partitions, newer } = &told.status;
    if !visitor.may_operate() || sync.ops_run_id != run.run_id {
        return html! {};
    }
    let failed: Vec<&Partition> =
        partitions.iter().filter(|partition| partition.state == PartitionState::Failed).collect();
    let path = |verb: &str| format!("/syncs/{}/{verb}", sync.run_id);
    html! {
        @if sync.state.is_live() { (cancel(visitor, &path("cancel"))) }
        // A sync that a newer one made good is refused both.
        @if sync.state == SyncState::Failed && newer.is_none() {
            @if !failed.is_empty() {
                (act::button(visitor, &path("retry"), &[], "Retry what failed", "main"))
                (force(visitor, &path("consolidate"), &failed))
            } @else {
                (act::button(visitor, &path("consolidate"), &[], "Go on consolidating", "main"))
            }
        }
    }
}

fn cancel(visitor: &Visitor, path: &str) -> Markup {
    html! {
        details.drop open[act::is_given(visitor)] {
            summary { "Cancel…" }
            div {
                form.form method="post" action=(path) {
                    (act::hidden(visitor))
                    p { "Its open partitions fail, and its watermark stays. What is stored stays stored." }
                    (act::reason(visitor))
                    div { button.risk type="submit" { "Cancel the sync" } }
                }
            }
        }
    }
}

/// Going on without what failed: it names what will be missing, and asks for it to be said.
fn force(visitor: &Visitor, path: &str, failed: &[&Partition]) -> Markup {
    html! {
        details.drop {
            summary { "Go on without them…" }
            div {
                form.form method="post" action=(path) {
                    (act::hidden(visitor))
                    input type="hidden" name="force" value="yes";
                    p { "These stones will be missing from the table until they are read:" }
                    ul.gaps { @for partition in failed {
                        li { b { (partition.partition_id) } " " (range(partition.prices)) ", "
                            (count((partition.predicted - partition.stored).max(0))) " of "
                                (count(partition.predicted)) " stones" }
                    } }
                    label.tick { input type="radio" name="advance" value="" checked;
                        " Leave the watermark: the next sync reads everything since" }
                    label.tick { input type="radio" name="advance" value="yes";
                        " Move the watermark, and note these ranges as gaps" }
                    label.tick { input type="checkbox" name="sure" value="yes" required;
                        " I know that these ranges will be missing" }
                    div { button.risk type="submit" { "Consolidate without them" } }
                }
            }
        }
    }
}

/// Commands that do the same.
pub(crate) fn commands(visitor: &Visitor, told: &Told, run: &Run) -> Vec<String> {
    let SyncStatus { sync, partitions, newer } = &told.status;
    let id = sync.run_id.to_string();
    let verb =
        |verb, options: &[&str]| command(["sync", verb, &id].into_iter().chain(options.iter().copied()));
    let mut commands = vec![verb("show", &[])];
    if !visitor.may_operate() || sync.ops_run_id != run.run_id {
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
