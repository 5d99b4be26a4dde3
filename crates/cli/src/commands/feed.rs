//! `tidemill feed`: feeds and their watermarks.

mod apply;
pub(crate) mod args;
mod confirm;
pub(super) mod definition;
mod show;
mod watermark;

use super::sync::show::{self as sync_show, state_cell};
use super::sync::watch as watch_sync;
use crate::config::Config;
use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::requests;
use crate::times::{self, When};
use args::{FeedAddArgs, FeedCommand};
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::feed::{CursorUnit, REST_KIND, Watermark};
use tidemill_core::records::FeedRecord;
use tidemill_core::run::QueueRun;
use tidemill_core::{Json, Timestamp, request};
use tidemill_engine::parse_cron;
use tidemill_store::Error;
use tidemill_wire::feeds::{ListRejects, PutFeed, StartSync};
use tidemill_wire::projects::Pause;

pub(super) async fn command(
    client: Client,
    command: FeedCommand,
    config: &Config,
    out: Out,
) -> Result<ExitCode, Failure> {
    match command {
        FeedCommand::Definition(command) => definition::command(command, config, out).await,
        FeedCommand::Add(add) => add_feed(&client, *add, out).await,
        FeedCommand::Apply(args) => apply::apply(&client, *args, out).await,
        FeedCommand::Rebuild { name, batch } => apply::rebuild(&client, &name, batch, out).await,
        FeedCommand::List => list(&client, out).await,
        FeedCommand::Show { name } => show::show(&client, &name, out).await,
        FeedCommand::Sync { name, full, wait, key } => start_sync(&client, &name, full, wait, key, out).await,
        FeedCommand::Pause { name, note, until } => pause(&client, &name, note, until, out).await,
        FeedCommand::Resume { name } => resume(&client, &name, out).await,
        FeedCommand::Watermark { name, set, import, note } => {
            watermark::watermark(&client, &name, set, import, note, out).await
        }
        FeedCommand::Heatmap { name } => sync_show::heatmap(&client, &name, out).await,
        FeedCommand::Rejects { name, limit } => rejects(&client, name, limit, out).await,
        FeedCommand::Gaps { name, all } => show::gaps(&client, name, all, out).await,
    }
}

async fn add_feed(client: &Client, add: FeedAddArgs, out: Out) -> Result<ExitCode, Failure> {
    request::check_name("feed", &add.name).map_err(Error::from)?;
    request::check_name("project", &add.project).map_err(Error::from)?;
    if add.kind == REST_KIND {
        let message = format!("a feed of kind `{REST_KIND}` is described in a file");
        return Err(Failure::refused(message).with_hint("tidemill feed apply FILE"));
    }
    for cron in add.schedule.iter().chain(&add.full_schedule) {
        parse_cron(cron, &add.time_zone)?;
    }
    let (has_schedule, has_full_schedule) = (add.schedule.is_some(), add.full_schedule.is_some());
    let put = PutFeed {
        project_id: add.project,
        kind: add.kind,
        definition: None,
        endpoint: add.endpoint,
        username: add.username,
        password_env: add.password_env,
        rate: add.rate,
        settings: add.settings.unwrap_or_else(|| Json::Object(serde_json::Map::new())),
        copy_url: add.watermark_copy,
        schedule: add.schedule,
        full_schedule: add.full_schedule,
        time_zone: add.time_zone,
    };
    let detail = client.put_feed(&add.name, &put).await?;
    if out.is_json() {
        out.print_json(&detail);
        return Ok(ExitCode::SUCCESS);
    }
    let name = &detail.feed.feed;
    out.print(format!("feed {name} reads {}, {}", detail.feed.endpoint, format_rate(detail.feed.rate)));
    if has_schedule {
        out.print(format!(
            "schedule feed-{name} queues syncs while `tidemill up` or `tidemill sweep --loop` is running"
        ));
    }
    if has_full_schedule {
        out.print(format!("schedule full-feed-{name} queues full syncs, which detect removed records"));
    }
    out.inform(format!("hint: tidemill feed sync {name} --wait"));
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, out: Out) -> Result<ExitCode, Failure> {
    let lines = client.feeds().await?.items;
    if out.is_json() {
        let feeds: Vec<&FeedRecord> = lines.iter().map(|line| &line.feed).collect();
        out.print_json(&feeds);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = lines
        .iter()
        .map(|line| {
            let feed = &line.feed;
            vec![
                feed.feed.feed.as_str().into(),
                feed.feed.kind.as_str().into(),
                format_watermark(feed, now).into(),
                line.last_sync.as_ref().map_or_else(|| "never".into(), state_cell),
                health(feed, now),
            ]
        })
        .collect();
    out.print_table(&["FEED", "KIND", "WATERMARK", "LAST SYNC", "HEALTH"], &rows);
    if lines.is_empty() {
        out.inform("hint: tidemill feed try URL, or tidemill feed add NAME --endpoint URL");
    }
    Ok(ExitCode::SUCCESS)
}

fn format_rate(per_second: u32) -> String {
    match per_second {
        0 => "without a rate limit".to_owned(),
        rate => format!("at {rate} requests/s over all workers"),
    }
}

fn format_watermark(feed: &FeedRecord, now: Timestamp) -> String {
    let Some(mark) = &feed.watermark else { return "none".to_owned() };
    let number = feed.feed.cursor_unit().number(mark.last_updated_at);
    number.map_or_else(|| times::format_relative(mark.last_updated_at, now), |number| number.to_string())
}

/// Formats a value of the feed's cursor: a time, or the number that it holds.
pub(super) fn format_cursor(unit: CursorUnit, at: Timestamp) -> String {
    unit.number(at).map_or_else(|| at.to_rfc3339(), |number| number.to_string())
}

fn health(feed: &FeedRecord, now: Timestamp) -> Cell {
    if let Some(reason) = &feed.refusal {
        return Cell::new(format!("refused by the configuration: {reason}"), Style::Error);
    }
    let probe =
        feed.circuit.get("probe_at").and_then(Json::as_str).and_then(|at| at.parse::<Timestamp>().ok());
    match probe {
        Some(at) => {
            let reason = feed.circuit_reason.clone().unwrap_or_default();
            Cell::new(format!("down, next probe {}: {reason}", times::format_relative(at, now)), Style::Error)
        }
        None => Cell::new("up".to_owned(), Style::Plain),
    }
}

/// Formats a watermark with its age, or the number that it holds.
fn format_mark(unit: CursorUnit, mark: &Watermark, now: Timestamp) -> String {
    let at = mark.last_updated_at;
    match unit {
        CursorUnit::Time => format!("{} ({})", at.to_rfc3339(), times::format_relative(at, now)),
        CursorUnit::Number => format_cursor(unit, at),
    }
}

async fn start_sync(
    client: &Client,
    name: &str,
    full: bool,
    wait: bool,
    key: Option<String>,
    out: Out,
) -> Result<ExitCode, Failure> {
    requests::check_feed(name)?;
    // Checked here, too, so that errors name the option instead of the HTTP header.
    QueueRun { idempotency_key: key.clone(), ..QueueRun::new(name, name) }.check().map_err(Error::from)?;
    let queued = client.start_sync(name, StartSync { full }, key).await?;
    if !out.is_json() {
        out.inform(format!(
            "{} {}",
            if queued.created { "queued" } else { "already queued:" },
            queued.run_id
        ));
    }
    if wait {
        return watch_sync::watch(client, &queued.run_id, out).await;
    }
    if out.is_json() {
        out.print_json(&queued);
    } else {
        out.print(queued.run_id.as_str());
    }
    Ok(ExitCode::SUCCESS)
}

async fn pause(
    client: &Client,
    name: &str,
    note: Option<String>,
    until: Option<When>,
    out: Out,
) -> Result<ExitCode, Failure> {
    requests::check_feed(name)?;
    let now = client.info().await?.now;
    let pause = Pause { note, until_at: until.map(|until| until.resolve_future(now)) };
    let flag = client.pause_feed(name, &pause).await?;
    if out.is_json() {
        out.print_json(&flag);
    } else {
        out.print(format!("feed {name} is paused; current pages continue"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn resume(client: &Client, name: &str, out: Out) -> Result<ExitCode, Failure> {
    requests::check_feed(name)?;
    let was_paused = client.resume_feed(name).await?.resumed;
    if out.is_json() {
        out.print_json(&serde_json::json!({"feed": name, "resumed": was_paused}));
    } else if was_paused {
        out.print(format!("feed {name} is resumed"));
    } else {
        out.print(format!("feed {name} was not paused"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn rejects(client: &Client, name: Option<String>, limit: usize, out: Out) -> Result<ExitCode, Failure> {
    name.as_deref().map_or(Ok(()), requests::check_feed)?;
    let items = requests::read_pages(limit, async |after, limit| {
        client.rejects(&ListRejects { feed: name.clone(), after, limit }).await
    })
    .await?;
    if out.is_json() {
        out.print_json(&items);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = items
        .iter()
        .map(|reject| {
            vec![
                reject.feed.as_str().into(),
                reject.record_id.as_str().into(),
                reject.stage.as_str().into(),
                reject.times.to_string().into(),
                times::format_relative(reject.last_at, now).into(),
                reject.reason.as_str().into(),
            ]
        })
        .collect();
    out.print_table(&["FEED", "RECORD", "STAGE", "TIMES", "LAST", "REASON"], &rows);
    Ok(ExitCode::SUCCESS)
}
