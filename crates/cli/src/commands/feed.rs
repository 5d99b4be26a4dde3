//! `tidemill feed`: feeds and their watermarks.

pub(crate) mod args;

use super::sync::show::{self as sync_show, state_cell};
use super::sync::watch as watch_sync;
use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::requests;
use crate::times::{self, When};
use args::{FeedAddArgs, FeedCommand};
use std::path::PathBuf;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::feed::Watermark;
use tidemill_core::reach::DefinedBy;
use tidemill_core::records::FeedRecord;
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
        FeedCommand::Sync { name, full, wait, key } => start_sync(&client, &name, full, wait, key, out).await,
        FeedCommand::Pause { name, note, until } => pause(&client, &name, note, until, out).await,
        FeedCommand::Resume { name } => resume(&client, &name, out).await,
        FeedCommand::Watermark { name, set, import, note } => {
            watermark(&client, &name, set, import, note, out).await
        }
        FeedCommand::Heatmap { name } => sync_show::heatmap(&client, &name, out).await,
        FeedCommand::Rejects { name, limit } => rejects(&client, name, limit, out).await,
        FeedCommand::Gaps { name, all } => gaps(&client, name, all, out).await,
    }
}

async fn add_feed(client: &Client, add: FeedAddArgs, out: Out) -> Result<ExitCode, Failure> {
    request::check_name("feed", &add.name).map_err(Error::from)?;
    request::check_name("project", &add.project).map_err(Error::from)?;
    for cron in add.schedule.iter().chain(&add.full_schedule) {
        parse_cron(cron, &add.time_zone)?;
    }
    let (has_schedule, has_full_schedule) = (add.schedule.is_some(), add.full_schedule.is_some());
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
        out.inform("hint: tidemill feed add NAME --endpoint URL --username USER --password-env VAR");
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
    feed.watermark
        .as_ref()
        .map_or_else(|| "none".to_owned(), |mark| times::format_relative(mark.last_updated_at, now))
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

async fn show(client: &Client, name: &str, out: Out) -> Result<ExitCode, Failure> {
    requests::check_feed(name)?;
    let FeedDetail { feed, syncs, gaps, watermark_changes: changes } = client.feed(name).await?;
    if out.is_json() {
        out.print_json(
            &serde_json::json!({"feed": feed, "syncs": syncs, "gaps": gaps, "watermark_changes": changes}),
        );
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let account = feed.feed.username.as_deref().unwrap_or("no account");
    let password =
        feed.feed.password_env.as_deref().map_or_else(String::new, |name| format!(", password in ${name}"));
    out.print(format!("feed       {name} ({}, project {})", feed.feed.kind, feed.feed.project_id));
    out.print(format!("endpoint   {} as {account}{password}", feed.feed.endpoint));
    out.print(format!("rate       {}", format_rate(feed.feed.rate)));
    out.print(format!("health     {}", health(&feed, now).text));
    out.print(match feed.feed.defined_by {
        DefinedBy::Operator => "defined    by the operator; the lists of [reach] do not apply",
        DefinedBy::Project => "defined    by the project; the lists of [reach] apply",
    });
    match &feed.watermark {
        Some(mark) => {
            out.print(format!(
                "watermark  {} ({})",
                mark.last_updated_at.to_rfc3339(),
                format_age(mark, now)
            ));
        }
        None => out.print("watermark  none; the next sync is a full sync"),
    }
    if let Some(url) = &feed.copy_url {
        let state = feed
            .copy_error
            .as_ref()
            .map_or_else(|| "up to date".to_owned(), |error| format!("failed: {error}"));
        out.print(format!("copy       {url} ({state})"));
    }
    for gap in &gaps {
        out.print(format!(
            "gap {}     {} to {} dollars: {}",
            gap.gap_id,
            gap.range.from / 100,
            gap.range.to / 100,
            gap.reason
        ));
    }
    if !syncs.is_empty() {
        out.print("");
        sync_show::print_syncs(&syncs, now, out);
    }
    Ok(ExitCode::SUCCESS)
}

fn format_age(mark: &Watermark, now: Timestamp) -> String {
    times::format_relative(mark.last_updated_at, now)
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

async fn watermark(
    client: &Client,
    name: &str,
    set: Option<When>,
    import: Option<PathBuf>,
    note: Option<String>,
    out: Out,
) -> Result<ExitCode, Failure> {
    requests::check_feed(name)?;
    let now = client.info().await?.now;
    let wanted = match (set, import) {
        (Some(set), _) => Some(Watermark {
            last_updated_at: set.resolve_future(now),
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
        Some(mark) => out.print(format!("{} ({})", mark.last_updated_at.to_rfc3339(), format_age(mark, now))),
        None => out.print("none; the next sync is a full sync"),
    }
    let rows: Vec<Vec<Cell>> = state
        .changes
        .iter()
        .map(|change| {
            let at =
                |time: Option<Timestamp>| time.map_or_else(|| "none".to_owned(), |time| time.to_rfc3339());
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

async fn gaps(client: &Client, name: Option<String>, all: bool, out: Out) -> Result<ExitCode, Failure> {
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
    let rows: Vec<Vec<Cell>> = items
        .iter()
        .map(|gap| {
            let closed = gap.closed_at.map_or_else(
                || Cell::new("open".to_owned(), Style::Warning),
                |at| Cell::new(format!("closed {}", times::format_relative(at, now)), Style::Success),
            );
            vec![
                gap.gap_id.to_string().into(),
                gap.feed.as_str().into(),
                format!("{} – {}", gap.range.from / 100, gap.range.to / 100).into(),
                gap.updated_from.map_or_else(|| "everything".to_owned(), |from| from.to_rfc3339()).into(),
                closed,
                gap.reason.as_str().into(),
            ]
        })
        .collect();
    out.print_table(&["GAP", "FEED", "DOLLARS", "CHANGED SINCE", "STATE", "REASON"], &rows);
    Ok(ExitCode::SUCCESS)
}
