//! Output of syncs: tables, and the heatmap as bars.

use crate::commands::feed::format_cursor;
use crate::failure::Failure;
use crate::out::{Cell, Line, Out, Style};
use crate::requests;
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::feed::{CursorUnit, Feed, PartitionField};
use tidemill_core::partition::PartitionState;
use tidemill_core::records::{Partition, Sync, SyncStatus};
use tidemill_core::{Json, Timestamp};
use tidemill_wire::feeds::Heatmap;

/// Width of the longest bar of the heatmap.
const BAR_WIDTH: usize = 40;

/// State of a sync, in its colour.
pub(in crate::commands) fn state_cell(sync: &Sync) -> Cell {
    use tidemill_core::sync::SyncState as S;
    let style = match sync.state {
        S::Completed => Style::Success,
        S::Failed => Style::Error,
        S::Created | S::WorkersRunning | S::ConsolidationTriggered | S::Consolidating => Style::Active,
    };
    Cell::new(format!("{} {}", sync.run_type, sync.state), style)
}

pub(in crate::commands) fn print_syncs(syncs: &[Sync], now: Timestamp, out: Out) {
    let rows: Vec<Vec<Cell>> = syncs
        .iter()
        .map(|sync| {
            let took = sync
                .completed_at
                .map_or_else(|| "–".to_owned(), |at| times::format_rough(at - sync.started_at));
            vec![
                sync.run_id.to_string().into(),
                sync.feed.as_str().into(),
                state_cell(sync),
                format!("{}/{}", sync.completed_workers, sync.expected_workers).into(),
                records_of(sync).to_string().into(),
                times::format_relative(sync.started_at, now).into(),
                took.into(),
                sync.error.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.print_table(&["SYNC", "FEED", "STATE", "PARTITIONS", "RECORDS", "STARTED", "TOOK", "ERROR"], &rows);
}

/// Returns the number of records that the scan counted, or that were read if the feed does not count.
fn records_of(sync: &Sync) -> i64 {
    if sync.predicted > 0 { sync.predicted } else { sync.consolidation_total }
}

pub(in crate::commands) fn print_status(status: &SyncStatus, feed: &Feed, now: Timestamp, out: Out) {
    let (sync, field, unit) = (&status.sync, feed.partition_field(), feed.cursor_unit());
    out.print(format!("sync       {} of {}", sync.run_id, sync.feed));
    out.print(Line::from("state      ").and(out.paint(&state_cell(sync).text, state_cell(sync).style)));
    if let Some(error) = &sync.error {
        out.print(format!("error      {error}"));
    }
    out.print(format!("run        {}", sync.ops_run_id));
    out.print(format!("window     {}", window(sync, unit)));
    if sync.count_calls > 0 {
        out.print(format!(
            "scan       {} records in {} partitions, {} count calls, {} ms",
            sync.predicted, sync.expected_workers, sync.count_calls, sync.scan_ms
        ));
    } else {
        out.print(format!("partitions {}, {}", sync.expected_workers, field.description()));
    }
    out.print(format!("records    {}", status.summary()));
    if let Some(note) = &sync.delete_note {
        out.print(format!("deletion   {note}"));
    }
    out.print("");
    let rows: Vec<Vec<Cell>> =
        status.partitions.iter().map(|partition| partition_row(partition, &field, now)).collect();
    out.print_table(
        &["PARTITION", &heading(&field), "STATE", "READ", "CHANGED", "IN TABLE", "UPDATED", "ERROR"],
        &rows,
    );
}

/// Returns the window of a sync: the changes since a time or a number, or everything.
fn window(sync: &Sync, unit: CursorUnit) -> String {
    match (sync.updated_from, unit) {
        (None, CursorUnit::Number) => "everything".to_owned(),
        (Some(from), CursorUnit::Number) => format!("from {}", format_cursor(unit, from)),
        (from, CursorUnit::Time) => {
            let since = from.map_or_else(|| "everything".to_owned(), |from| from.to_rfc3339());
            format!("{since} to {}", sync.updated_to.to_rfc3339())
        }
    }
}

/// Returns the heading of the ranges of a feed.
fn heading(field: &PartitionField) -> String {
    field.name.to_uppercase()
}

fn partition_row(partition: &Partition, field: &PartitionField, now: Timestamp) -> Vec<Cell> {
    let style = match partition.state {
        PartitionState::Completed => Style::Success,
        PartitionState::Failed => Style::Error,
        PartitionState::Pending => Style::Plain,
        PartitionState::InProgress | PartitionState::FetchingPages => Style::Active,
    };
    vec![
        partition.partition_id.as_str().into(),
        field.values(partition.range).into(),
        Cell::new(partition.state.to_string(), style),
        read_of(partition).into(),
        partition.changed.to_string().into(),
        partition.consolidated_to.to_string().into(),
        times::format_relative(partition.updated_at, now).into(),
        partition.error.clone().unwrap_or_default().into(),
    ]
}

/// Formats the position of a partition, and the expected number of records if the feed counts.
fn read_of(partition: &Partition) -> String {
    match partition.predicted {
        0 => partition.next_offset.to_string(),
        predicted => format!("{}/{predicted}", partition.next_offset),
    }
}

/// Prints the record counts of the last scan of a feed, and how many were fetched and stored.
pub(in crate::commands) async fn heatmap(client: &Client, feed: &str, out: Out) -> Result<ExitCode, Failure> {
    requests::check_feed(feed)?;
    let Heatmap { sync, predicted, count_calls, cells, partitions } = client.heatmap(feed).await?;
    if out.is_json() {
        out.print_json(&serde_json::json!({"sync": sync, "cells": cells, "partitions": partitions}));
        return Ok(ExitCode::SUCCESS);
    }
    let field = client.feed(feed).await?.feed.feed.partition_field();
    out.print(format!("scan of sync {sync}: {predicted} records, {count_calls} count calls"));
    let max = partitions
        .iter()
        .map(|partition| partition.predicted.max(partition.stored))
        .max()
        .unwrap_or(1)
        .max(1);
    let rows: Vec<Vec<Cell>> = partitions
        .iter()
        .map(|partition| {
            let width = usize::try_from(partition.predicted).unwrap_or(0) * BAR_WIDTH
                / usize::try_from(max).unwrap_or(1);
            vec![
                field.values(partition.range).into(),
                partition.predicted.to_string().into(),
                partition.fetched.to_string().into(),
                partition.stored.to_string().into(),
                Cell::new("█".repeat(width.max(1)), Style::Active),
            ]
        })
        .collect();
    out.print_table(&[&heading(&field), "PREDICTED", "FETCHED", "STORED", ""], &rows);
    if let Json::Array(cells) = &cells {
        out.inform(format!("{} counted cells; use --json to see them", cells.len()));
    }
    Ok(ExitCode::SUCCESS)
}
