//! How syncs look: tables, and the heatmap as bars.

use super::feed::state_cell;
use crate::asking;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::feed::{Cents, PRICE_CEILING};
use tidemill_core::partition::PartitionState;
use tidemill_core::records::{Partition, Sync, SyncStatus};
use tidemill_core::{Json, Timestamp};
use tidemill_wire::feeds::Heatmap;

/// Columns of the widest bar.
const BAR: usize = 40;

/// The last syncs, one line each.
pub(super) fn table(syncs: &[Sync], now: Timestamp, out: Out) {
    let rows: Vec<Vec<Cell>> = syncs
        .iter()
        .map(|sync| {
            let took =
                sync.completed_at.map_or_else(|| "–".to_owned(), |at| times::rough(at - sync.started_at));
            vec![
                sync.run_id.to_string().into(),
                sync.feed.as_str().into(),
                state_cell(sync),
                format!("{}/{}", sync.completed_workers, sync.expected_workers).into(),
                sync.predicted.to_string().into(),
                times::relative(sync.started_at, now).into(),
                took.into(),
                sync.error.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.table(&["SYNC", "FEED", "STATE", "PARTITIONS", "RECORDS", "BEGAN", "TOOK", "ERROR"], &rows);
}

/// One sync with its partitions.
pub(super) fn status(status: &SyncStatus, now: Timestamp, out: Out) {
    let sync = &status.sync;
    out.line(format!("sync       {} of {}", sync.run_id, sync.feed));
    out.line(format!("state      {}", out.paint(&state_cell(sync).0, state_cell(sync).1)));
    if let Some(error) = &sync.error {
        out.line(format!("error      {error}"));
    }
    out.line(format!("run        {}", sync.ops_run_id));
    let since = sync.updated_from.map_or_else(|| "everything".to_owned(), |from| from.to_rfc3339());
    out.line(format!("window     {since} to {}", sync.updated_to.to_rfc3339()));
    out.line(format!(
        "scan       {} records in {} partitions, {} count calls, {} ms",
        sync.predicted, sync.expected_workers, sync.count_calls, sync.scan_ms
    ));
    let consolidated: i64 = status.partitions.iter().map(|partition| partition.consolidated).sum();
    let refused: i64 = status.partitions.iter().map(|partition| partition.refused).sum();
    out.line(format!("table      {consolidated} consolidated, {refused} rejected, {} deleted", sync.deleted));
    if let Some(note) = &sync.delete_note {
        out.line(format!("deletion   {note}"));
    }
    out.line("");
    let rows: Vec<Vec<Cell>> =
        status.partitions.iter().map(|partition| partition_row(partition, now)).collect();
    out.table(&["PARTITION", "DOLLARS", "STATE", "READ", "CHANGED", "IN TABLE", "MOVED", "ERROR"], &rows);
}

fn partition_row(partition: &Partition, now: Timestamp) -> Vec<Cell> {
    let style = match partition.state {
        PartitionState::Completed => Style::Good,
        PartitionState::Failed => Style::Bad,
        PartitionState::Pending => Style::Plain,
        PartitionState::InProgress | PartitionState::FetchingPages => Style::Busy,
    };
    vec![
        partition.partition_id.as_str().into(),
        dollars(partition.prices.from, partition.prices.to).into(),
        Cell(partition.state.to_string(), style),
        format!("{}/{}", partition.next_offset, partition.predicted).into(),
        partition.changed.to_string().into(),
        partition.consolidated_to.to_string().into(),
        times::relative(partition.updated_at, now).into(),
        partition.error.clone().unwrap_or_default().into(),
    ]
}

fn dollars(from: Cents, to: Cents) -> String {
    if to >= PRICE_CEILING {
        format!("{} and up", from / 100)
    } else {
        format!("{} – {}", from / 100, to / 100)
    }
}

/// What the last scan of a feed counted, and what became of it.
pub(super) async fn heatmap(client: &Client, feed: &str, out: Out) -> Result<ExitCode, Failure> {
    asking::feed(feed)?;
    let Heatmap { sync, predicted, count_calls, cells, partitions } = client.heatmap(feed).await?;
    if out.is_json() {
        out.json(&serde_json::json!({"sync": sync, "cells": cells, "partitions": partitions}));
        return Ok(ExitCode::SUCCESS);
    }
    out.line(format!("scan of sync {sync}: {predicted} records, {count_calls} count calls"));
    let most = partitions
        .iter()
        .map(|partition| partition.predicted.max(partition.stored))
        .max()
        .unwrap_or(1)
        .max(1);
    let rows: Vec<Vec<Cell>> = partitions
        .iter()
        .map(|partition| {
            let width =
                usize::try_from(partition.predicted).unwrap_or(0) * BAR / usize::try_from(most).unwrap_or(1);
            vec![
                dollars(partition.prices.from, partition.prices.to).into(),
                partition.predicted.to_string().into(),
                partition.fetched.to_string().into(),
                partition.stored.to_string().into(),
                Cell("█".repeat(width.max(1)), Style::Busy),
            ]
        })
        .collect();
    out.table(&["DOLLARS", "PREDICTED", "FETCHED", "STORED", ""], &rows);
    if let Json::Array(cells) = &cells {
        out.say(format!("{} cells were counted; --json shows them", cells.len()));
    }
    Ok(ExitCode::SUCCESS)
}
