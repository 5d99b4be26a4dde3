//! `tidemill feed watermark`: shows and sets the watermark, a time or a number.

use super::{format_cursor, format_mark};
use crate::failure::Failure;
use crate::out::{Cell, Out};
use crate::requests;
use crate::times::{self, When};
use std::path::PathBuf;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::feed::{CursorUnit, Watermark};
use tidemill_core::time::watermark_from_micros;
use tidemill_wire::feeds::SetWatermark;

/// A watermark on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    When(When),
    Number(i64),
}

/// Parses a time, a duration from now, or a number.
pub(crate) fn parse_mark(text: &str) -> Result<Mark, String> {
    match text.parse() {
        Ok(number) => Ok(Mark::Number(number)),
        Err(_) => times::parse_when(text).map(Mark::When),
    }
}

impl Mark {
    /// Returns the watermark in the unit of the feed.
    fn resolve(self, unit: CursorUnit, now: Timestamp) -> Result<Timestamp, Failure> {
        match (self, unit) {
            (Self::When(when), CursorUnit::Time) => Ok(when.resolve_future(now)),
            (Self::Number(number), CursorUnit::Number) => Ok(watermark_from_micros(number)),
            (Self::Number(number), CursorUnit::Time) => {
                Err(Failure::usage(format!("the watermark of this feed is a time, not the number {number}"))
                    .with_hint("write a time such as 2026-02-14T10:30:00Z"))
            }
            (Self::When(_), CursorUnit::Number) => {
                Err(Failure::usage("the watermark of this feed is a number, not a time")
                    .with_hint("write a number such as 1200"))
            }
        }
    }
}

pub(super) async fn watermark(
    client: &Client,
    name: &str,
    set: Option<Mark>,
    import: Option<PathBuf>,
    note: Option<String>,
    out: Out,
) -> Result<ExitCode, Failure> {
    requests::check_feed(name)?;
    let now = client.info().await?.now;
    let unit = client.feed(name).await?.feed.feed.cursor_unit();
    let wanted = match (set, import) {
        (Some(set), _) => Some(Watermark {
            last_updated_at: set.resolve(unit, now)?,
            last_run_id: None,
            last_run_completed_at: None,
        }),
        (None, Some(file)) => Some(read_watermark(&file)?),
        (None, None) => None,
    };
    let state = match wanted {
        Some(wanted) => client.set_watermark(name, &SetWatermark { watermark: Some(wanted), note }).await?,
        None => client.watermark(name).await?,
    };
    if out.is_json() {
        out.print_json(&state.watermark);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    match &state.watermark {
        Some(mark) => out.print(format_mark(unit, mark, now)),
        None => out.print("none; the next sync is a full sync"),
    }
    let rows: Vec<Vec<Cell>> = state
        .changes
        .iter()
        .map(|change| {
            let at = |value: Option<Timestamp>| {
                value.map_or_else(|| "none".to_owned(), |value| format_cursor(unit, value))
            };
            vec![
                times::format_relative(change.changed_at, now).into(),
                at(change.before).into(),
                at(change.after).into(),
                change.by.as_str().into(),
                change.note.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    if !rows.is_empty() {
        out.print_table(&["CHANGED", "FROM", "TO", "BY", "NOTE"], &rows);
    }
    Ok(ExitCode::SUCCESS)
}

fn read_watermark(file: &std::path::Path) -> Result<Watermark, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::refused(format!("could not read `{}`: {error}", file.display())))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::refused(format!("`{}` is not a watermark: {error}", file.display())).with_hint(
            r#"{"lastUpdatedAt": "2026-01-16T02:00:00Z", "lastRunId": null, "lastRunCompletedAt": null}"#,
        )
    })
}
