//! Queues: list, peek, dead letters, replay.

use crate::args_sync::QueueCommand;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_core::queue::Replay;
use tidemill_engine::Engine;
use tidemill_store::Queue as _;

pub(super) async fn command(engine: Engine, command: QueueCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        QueueCommand::List => list(&engine, out).await?,
        QueueCommand::Peek { queue, limit } => peek(&engine, queue, limit, out).await?,
        QueueCommand::Dead { queue, limit } => dead(&engine, queue, limit, out).await?,
        QueueCommand::Replay { queue, ids, all } => {
            let which = if all { Replay::All } else { Replay::Ids(ids) };
            let sent = engine.store().replay(queue.clone(), which, None).await?;
            if out.is_json() {
                out.json(&serde_json::json!({"queue": queue, "replayed": sent}));
            } else {
                out.line(format!("{sent} dead letters of {queue} were sent again"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(engine: &Engine, out: Out) -> Result<(), Failure> {
    let store = engine.store();
    let mut found = Vec::new();
    for settings in store.queues().await? {
        let depth = store.depth(settings.queue.clone(), None).await?;
        found.push((settings, depth));
    }
    if out.is_json() {
        let shown: Vec<_> = found
            .iter()
            .map(|(settings, depth)| serde_json::json!({"settings": settings, "depth": depth}))
            .collect();
        out.json(&shown);
        return Ok(());
    }
    let now = store.now(None).await?;
    let rows: Vec<Vec<Cell>> = found
        .iter()
        .map(|(settings, depth)| {
            let window = settings.window_secs.map_or_else(|| "–".to_owned(), |secs| format!("{secs} s"));
            vec![
                settings.queue.as_str().into(),
                depth.waiting.to_string().into(),
                depth.delayed.to_string().into(),
                depth.in_flight.to_string().into(),
                depth.oldest_at.map_or_else(|| "–".to_owned(), |at| times::relative(at, now)).into(),
                Cell(depth.dead.to_string(), if depth.dead > 0 { Style::Bad } else { Style::Plain }),
                format!("{} s", settings.lock_secs).into(),
                settings.deliveries_max.to_string().into(),
                window.into(),
            ]
        })
        .collect();
    let header =
        ["QUEUE", "WAITING", "DELAYED", "IN FLIGHT", "OLDEST", "DEAD", "LOCK", "DELIVERIES", "WINDOW"];
    out.table(&header, &rows);
    Ok(())
}

async fn peek(engine: &Engine, queue: String, limit: usize, out: Out) -> Result<(), Failure> {
    let store = engine.store();
    let messages = store.peek(queue, limit, None).await?;
    if out.is_json() {
        out.json(&messages);
        return Ok(());
    }
    let now = store.now(None).await?;
    let rows: Vec<Vec<Cell>> = messages
        .iter()
        .map(|message| {
            vec![
                message.message_id.as_str().into(),
                message.group.as_str().into(),
                message.state.as_str().into(),
                times::relative(message.enqueued_at, now).into(),
                message.deliveries.to_string().into(),
                message.last_error.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.table(&["MESSAGE", "GROUP", "STATE", "SENT", "DELIVERIES", "LAST ERROR"], &rows);
    Ok(())
}

async fn dead(engine: &Engine, queue: String, limit: usize, out: Out) -> Result<(), Failure> {
    let store = engine.store();
    let letters = store.dead(queue.clone(), limit, None).await?;
    if out.is_json() {
        out.json(&letters);
        return Ok(());
    }
    let now = store.now(None).await?;
    let rows: Vec<Vec<Cell>> = letters
        .iter()
        .map(|letter| {
            vec![
                letter.message_id.as_str().into(),
                letter.group.as_str().into(),
                letter.reason.as_str().into(),
                times::relative(letter.dead_at, now).into(),
                letter.deliveries.to_string().into(),
                letter.last_error.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.table(&["MESSAGE", "GROUP", "REASON", "DEAD", "DELIVERIES", "LAST ERROR"], &rows);
    if !letters.is_empty() {
        out.say(format!("hint: tidemill queue replay {queue} --all"));
    }
    Ok(())
}
