//! `tidemill feed show` and `gaps`, in the words of each feed.

use super::{format_cursor, format_mark, format_rate, health};
use crate::commands::sync::show as sync_show;
use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::{requests, times};
use std::collections::BTreeMap;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::feed::{CursorUnit, Feed};
use tidemill_core::reach::DefinedBy;
use tidemill_wire::feeds::{FeedDetail, ListGaps};

pub(super) async fn show(client: &Client, name: &str, out: Out) -> Result<ExitCode, Failure> {
    requests::check_feed(name)?;
    let FeedDetail { feed, syncs, gaps, watermark_changes: changes } = client.feed(name).await?;
    if out.is_json() {
        out.print_json(
            &serde_json::json!({"feed": feed, "syncs": syncs, "gaps": gaps, "watermark_changes": changes}),
        );
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    out.print(format!("feed       {name} ({}, project {})", feed.feed.kind, feed.feed.project_id));
    print_source(&feed.feed, out);
    out.print(format!("rate       {}", format_rate(feed.feed.rate)));
    out.print(format!("health     {}", health(&feed, now).text));
    out.print(match feed.feed.defined_by {
        DefinedBy::Operator => "defined    by the operator; the lists of [reach] do not apply",
        DefinedBy::Project => "defined    by the project; the lists of [reach] apply",
    });
    match &feed.watermark {
        Some(mark) => out.print(format!("watermark  {}", format_mark(feed.feed.cursor_unit(), mark, now))),
        None => out.print("watermark  none; the next sync is a full sync"),
    }
    if let Some(url) = &feed.copy_url {
        let state = feed
            .copy_error
            .as_ref()
            .map_or_else(|| "up to date".to_owned(), |error| format!("failed: {error}"));
        out.print(format!("copy       {url} ({state})"));
    }
    if let Some(note) = syncs.first().and_then(|last| last.delete_note.as_ref()) {
        out.print(format!("deletion   {note}"));
    }
    let field = feed.feed.partition_field();
    for gap in &gaps {
        out.print(format!("gap {}     {}: {}", gap.gap_id, field.label(gap.range), gap.reason));
    }
    if !syncs.is_empty() {
        out.print("");
        sync_show::print_syncs(&syncs, now, out);
    }
    if let Some(text) = feed.feed.definition_text() {
        out.print("");
        out.print_document(text);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints where the records come from, and the table that receives them.
fn print_source(feed: &Feed, out: Out) {
    match feed.definition() {
        Some(Ok(definition)) => {
            out.print(format!("endpoint   {}{}", feed.endpoint, definition.resource.request.path));
            out.print(format!("paginator  {}", definition.paginator.word()));
            out.print(format!("table      {}", definition.into.table));
        }
        Some(Err(error)) => out.print(format!("definition {error}")),
        None => {
            let account = feed.username.as_deref().unwrap_or("no account");
            let variable = feed.password_env.as_deref();
            let password = variable.map_or_else(String::new, |name| format!(", password in ${name}"));
            out.print(format!("endpoint   {} as {account}{password}", feed.endpoint));
        }
    }
}

pub(super) async fn gaps(
    client: &Client,
    name: Option<String>,
    all: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    name.as_deref().map_or(Ok(()), requests::check_feed)?;
    let items = requests::read_pages(usize::MAX, async |after, limit| {
        client.gaps(&ListGaps { feed: name.clone(), all: Some(all), after, limit }).await
    })
    .await?;
    if out.is_json() {
        out.print_json(&items);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let feeds: BTreeMap<String, Feed> = client
        .feeds()
        .await?
        .items
        .into_iter()
        .map(|line| (line.feed.feed.feed.clone(), line.feed.feed))
        .collect();
    let rows: Vec<Vec<Cell>> = items
        .iter()
        .map(|gap| {
            let feed = feeds.get(&gap.feed);
            let unit = feed.map_or(CursorUnit::Time, Feed::cursor_unit);
            let closed = gap.closed_at.map_or_else(
                || Cell::new("open".to_owned(), Style::Warning),
                |at| Cell::new(format!("closed {}", times::format_relative(at, now)), Style::Success),
            );
            vec![
                gap.gap_id.to_string().into(),
                gap.feed.as_str().into(),
                feed.map_or_else(String::new, |feed| feed.partition_field().label(gap.range)).into(),
                gap.updated_from
                    .map_or_else(|| "everything".to_owned(), |from| format_cursor(unit, from))
                    .into(),
                closed,
                gap.reason.as_str().into(),
            ]
        })
        .collect();
    out.print_table(&["GAP", "FEED", "RANGE", "CHANGED SINCE", "STATE", "REASON"], &rows);
    Ok(ExitCode::SUCCESS)
}
