//! Feeds: add, look, bring in, pause, and their watermarks.

use super::watch_sync;
use crate::args_sync::{FeedAdd, FeedCommand};
use crate::asking;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times::{self, When};
use std::path::PathBuf;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::feed::Watermark;
use tidemill_core::records::{FeedRecord, Sync};
use tidemill_core::run::QueueRun;
use tidemill_core::{Json, Timestamp, request};
use tidemill_engine::parse_cron;
use tidemill_store::Error;
use tidemill_wire::feeds::{FeedDetail, ListGaps, ListRejects, PutFeed, SetWatermark, StartSync};
use tidemill_wire::projects::Pause;

pub(super) async fn command(client: Client, command: FeedCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        FeedCommand::Add(add) => add_feed(&client, *add, out).await,
        FeedCommand::List => list(&client, out).await,
        FeedCommand::Show { name } => show(&client, &name, out).await,
        FeedCommand::Sync { name, full, wait, key } => bring_in(&client, &name, full, wait, key, out).await,
        FeedCommand::Pause { name, note, until } => pause(&client, &name, note, until, out).await,
        FeedCommand::Resume { name } => resume(&client, &name, out).await,
        FeedCommand::Watermark { name, set, import, note } => {
            watermark(&client, &name, set, import, note, out).await
        }
        FeedCommand::Heatmap { name } => super::sync_show::heatmap(&client, &name, out).await,
        FeedCommand::Rejects { name, limit } => rejects(&client, name, limit, out).await,
        FeedCommand::Gaps { name, all } => gaps(&client, name, all, out).await,
    }
}

async fn add_feed(client: &Client, add: FeedAdd, out: Out) -> Result<ExitCode, Failure> {
    request::check_name("feed", &add.name).map_err(Error::from)?;
    request::check_name("project", &add.project).map_err(Error::from)?;
    for cron in add.schedule.iter().chain(&add.full_schedule) {
        parse_cron(cron, &add.time_zone)?;
    }
    let (scheduled, read_whole) = (add.schedule.is_some(), add.full_schedule.is_some());
    let put = PutFeed {
        project_id: add.project,
        kind: add.kind,
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
    let kept = client.put_feed(&add.name, &put).await?;
    if out.is_json() {
        out.json(&kept);
        return Ok(ExitCode::SUCCESS);
    }
    let name = &kept.feed.feed;
    out.line(format!("feed {name} is read from {}, {}", kept.feed.endpoint, rate(kept.feed.rate)));
    if scheduled {
        out.line(format!("schedule feed-{name} brings it in; tidemill up, or a sweeper, must be running"));
    }
    if read_whole {
        out.line(format!("schedule full-feed-{name} reads all of it, and finds what it no longer offers"));
    }
    out.say(format!("hint: tidemill feed sync {name} --wait, while tidemill up is running"));
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, out: Out) -> Result<ExitCode, Failure> {
    let lines = client.feeds().await?.items;
    if out.is_json() {
        let feeds: Vec<&FeedRecord> = lines.iter().map(|line| &line.feed).collect();
        out.json(&feeds);
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
                mark(feed, now).into(),
                line.last_sync.as_ref().map_or_else(|| "never".into(), state_cell),
                health(feed, now),
            ]
        })
        .collect();
    out.table(&["FEED", "KIND", "WATERMARK", "LAST SYNC", "ANSWERS"], &rows);
    if lines.is_empty() {
        out.say("hint: tidemill feed add NAME --endpoint URL --username U --password-env VAR");
    }
    Ok(ExitCode::SUCCESS)
}

/// A rate, for people.
fn rate(per_second: u32) -> String {
    match per_second {
        0 => "without a limit of requests".to_owned(),
        some => format!("at {some} requests/s over all workers"),
    }
}

fn mark(feed: &FeedRecord, now: Timestamp) -> String {
    feed.watermark
        .as_ref()
        .map_or_else(|| "none".to_owned(), |mark| times::relative(mark.last_updated_at, now))
}

/// The state of a sync, in its colour.
pub(super) fn state_cell(sync: &Sync) -> Cell {
    use tidemill_core::sync::SyncState as S;
    let style = match sync.state {
        S::Completed => Style::Good,
        S::Failed => Style::Bad,
        S::Created | S::WorkersRunning | S::ConsolidationTriggered | S::Consolidating => Style::Busy,
    };
    Cell(format!("{} {}", sync.run_type, sync.state), style)
}

fn health(feed: &FeedRecord, now: Timestamp) -> Cell {
    let probe =
        feed.circuit.get("probe_at").and_then(Json::as_str).and_then(|at| at.parse::<Timestamp>().ok());
    match probe {
        Some(at) => {
            let reason = feed.circuit_reason.clone().unwrap_or_default();
            Cell(format!("down, asked again {}: {reason}", times::relative(at, now)), Style::Bad)
        }
        None => Cell("yes".to_owned(), Style::Plain),
    }
}

async fn show(client: &Client, name: &str, out: Out) -> Result<ExitCode, Failure> {
    asking::feed(name)?;
    let FeedDetail { feed, syncs: last, gaps, watermark_changes: changes } = client.feed(name).await?;
    if out.is_json() {
        out.json(
            &serde_json::json!({"feed": feed, "syncs": last, "gaps": gaps, "watermark_changes": changes}),
        );
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let account = feed.feed.username.as_deref().unwrap_or("no account");
    let password =
        feed.feed.password_env.as_deref().map_or_else(String::new, |name| format!(", password in ${name}"));
    out.line(format!("feed       {name} ({}, project {})", feed.feed.kind, feed.feed.project_id));
    out.line(format!("endpoint   {} as {account}{password}", feed.feed.endpoint));
    out.line(format!("rate       {}", rate(feed.feed.rate)));
    out.line(format!("answers    {}", health(&feed, now).0));
    match &feed.watermark {
        Some(mark) => {
            out.line(format!("watermark  {} ({})", mark.last_updated_at.to_rfc3339(), mark_age(mark, now)));
        }
        None => out.line("watermark  none: the next sync reads everything"),
    }
    if let Some(url) = &feed.copy_url {
        let state = feed
            .copy_error
            .as_ref()
            .map_or_else(|| "up to date".to_owned(), |error| format!("late: {error}"));
        out.line(format!("copy       {url} ({state})"));
    }
    for gap in &gaps {
        out.line(format!(
            "gap {}     {} to {} dollars: {}",
            gap.gap_id,
            gap.prices.from / 100,
            gap.prices.to / 100,
            gap.reason
        ));
    }
    if !last.is_empty() {
        out.line("");
        super::sync_show::table(&last, now, out);
    }
    Ok(ExitCode::SUCCESS)
}

fn mark_age(mark: &Watermark, now: Timestamp) -> String {
    times::relative(mark.last_updated_at, now)
}

async fn bring_in(
    client: &Client,
    name: &str,
    full: bool,
    wait: bool,
    key: Option<String>,
    out: Out,
) -> Result<ExitCode, Failure> {
    asking::feed(name)?;
    // In the words of the option, and not in those of the header that carries it.
    QueueRun { idempotency_key: key.clone(), ..QueueRun::new(name, name) }.check().map_err(Error::from)?;
    let queued = client.start_sync(name, StartSync { full }, key).await?;
    if !out.is_json() {
        out.say(format!("{} {}", if queued.created { "queued" } else { "there already:" }, queued.run_id));
    }
    if wait {
        return watch_sync::watch(client, &queued.run_id, out).await;
    }
    if out.is_json() {
        out.json(&queued);
    } else {
        out.line(queued.run_id.as_str());
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
    asking::feed(name)?;
    let now = client.info().await?.now;
    let pause = Pause { note, until_at: until.map(|until| until.from(now)) };
    let flag = client.pause_feed(name, &pause).await?;
    if out.is_json() {
        out.json(&flag);
    } else {
        out.line(format!("feed {name} is paused; pages in hand go on"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn resume(client: &Client, name: &str, out: Out) -> Result<ExitCode, Failure> {
    asking::feed(name)?;
    let was = client.resume_feed(name).await?.resumed;
    if out.is_json() {
        out.json(&serde_json::json!({"feed": name, "resumed": was}));
    } else if was {
        out.line(format!("feed {name} goes on"));
    } else {
        out.line(format!("feed {name} was not paused"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn watermark(
    client: &Client,
    name: &str,
    set: Option<When>,
    import: Option<PathBuf>,
    note: Option<String>,
    out: Out,
) -> Result<ExitCode, Failure> {
    asking::feed(name)?;
    let now = client.info().await?.now;
    let wanted = match (set, import) {
        (Some(set), _) => {
            Some(Watermark { last_updated_at: set.from(now), last_run_id: None, last_run_completed_at: None })
        }
        (None, Some(file)) => Some(read_watermark(&file)?),
        (None, None) => None,
    };
    let found = match wanted {
        Some(wanted) => client.set_watermark(name, &SetWatermark { watermark: Some(wanted), note }).await?,
        None => client.watermark(name).await?,
    };
    if out.is_json() {
        out.json(&found.watermark);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    match &found.watermark {
        Some(mark) => out.line(format!("{} ({})", mark.last_updated_at.to_rfc3339(), mark_age(mark, now))),
        None => out.line("none: the next sync reads everything"),
    }
    let rows: Vec<Vec<Cell>> = found
        .changes
        .iter()
        .map(|change| {
            let at =
                |time: Option<Timestamp>| time.map_or_else(|| "none".to_owned(), |time| time.to_rfc3339());
            vec![
                times::relative(change.changed_at, now).into(),
                at(change.before).into(),
                at(change.after).into(),
                change.by.as_str().into(),
                change.note.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    if !rows.is_empty() {
        out.table(&["CHANGED", "FROM", "TO", "BY", "NOTE"], &rows);
    }
    Ok(ExitCode::SUCCESS)
}

fn read_watermark(file: &std::path::Path) -> Result<Watermark, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::refused(format!("could not read `{}`: {error}", file.display())))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::refused(format!("`{}` holds no watermark: {error}", file.display()))
            .hint("{\"lastUpdatedAt\": \"2026-01-16T02:00:00Z\", \"lastRunId\": null, \"lastRunCompletedAt\": null}")
    })
}

async fn rejects(client: &Client, name: Option<String>, limit: usize, out: Out) -> Result<ExitCode, Failure> {
    name.as_deref().map_or(Ok(()), asking::feed)?;
    let found = asking::listed(limit, async |after, limit| {
        client.rejects(&ListRejects { feed: name.clone(), after, limit }).await
    })
    .await?;
    if out.is_json() {
        out.json(&found);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = found
        .iter()
        .map(|reject| {
            vec![
                reject.feed.as_str().into(),
                reject.stone_id.as_str().into(),
                reject.stage.as_str().into(),
                reject.times.to_string().into(),
                times::relative(reject.last_at, now).into(),
                reject.reason.as_str().into(),
            ]
        })
        .collect();
    out.table(&["FEED", "STONE", "STAGE", "TIMES", "LAST", "REASON"], &rows);
    Ok(ExitCode::SUCCESS)
}

async fn gaps(client: &Client, name: Option<String>, all: bool, out: Out) -> Result<ExitCode, Failure> {
    name.as_deref().map_or(Ok(()), asking::feed)?;
    let found = asking::listed(usize::MAX, async |after, limit| {
        client.gaps(&ListGaps { feed: name.clone(), all: Some(all), after, limit }).await
    })
    .await?;
    if out.is_json() {
        out.json(&found);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = found
        .iter()
        .map(|gap| {
            let closed = gap.closed_at.map_or_else(
                || Cell("open".to_owned(), Style::Odd),
                |at| Cell(format!("closed {}", times::relative(at, now)), Style::Good),
            );
            vec![
                gap.gap_id.to_string().into(),
                gap.feed.as_str().into(),
                format!("{} – {}", gap.prices.from / 100, gap.prices.to / 100).into(),
                gap.updated_from.map_or_else(|| "everything".to_owned(), |from| from.to_rfc3339()).into(),
                closed,
                gap.reason.as_str().into(),
            ]
        })
        .collect();
    out.table(&["GAP", "FEED", "DOLLARS", "CHANGED SINCE", "STATE", "REASON"], &rows);
    Ok(ExitCode::SUCCESS)
}
