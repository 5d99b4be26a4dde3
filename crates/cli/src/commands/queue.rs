//! Queues: list, peek, dead letters, replay.

use crate::args_sync::QueueCommand;
use crate::asking;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::limits::BATCH_MAX;
use tidemill_wire::queues::{ListDead, Peek, ReplayDead};

pub(super) async fn command(client: Client, command: QueueCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        QueueCommand::List => list(&client, out).await?,
        QueueCommand::Peek { queue, limit } => peek(&client, &queue, limit, out).await?,
        QueueCommand::Dead { queue, limit } => dead(&client, &queue, limit, out).await?,
        QueueCommand::Replay { queue, ids, all } => {
            asking::queue(&queue)?;
            let done = client.replay(&queue, &ReplayDead { ids, all }).await?;
            if out.is_json() {
                out.json(&done);
            } else {
                out.line(format!("{} dead letters of {queue} were sent again", done.replayed));
                if !done.hints.is_empty() {
                    out.say("some lead to nothing, because what they belong to has failed");
                }
                for hint in &done.hints {
                    out.say(format!("hint: {hint}"));
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, out: Out) -> Result<(), Failure> {
    let found = client.queues().await?.items;
    if out.is_json() {
        let shown: Vec<_> = found
            .iter()
            .map(|line| serde_json::json!({"settings": line.settings, "depth": line.depth}))
            .collect();
        out.json(&shown);
        return Ok(());
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = found
        .iter()
        .map(|line| {
            let (settings, depth) = (&line.settings, &line.depth);
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

async fn peek(client: &Client, queue: &str, limit: usize, out: Out) -> Result<(), Failure> {
    asking::queue(queue)?;
    let rows = limit.clamp(1, BATCH_MAX);
    let mut messages = client.peek(queue, Peek { limit: u16::try_from(rows).ok() }).await?.items;
    messages.truncate(limit);
    if out.is_json() {
        out.json(&messages);
        return Ok(());
    }
    let now = client.info().await?.now;
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

async fn dead(client: &Client, queue: &str, limit: usize, out: Out) -> Result<(), Failure> {
    asking::queue(queue)?;
    let letters = asking::listed(limit, async |after, limit| {
        client.dead_letters(queue, &ListDead { after, limit }).await
    })
    .await?;
    if out.is_json() {
        out.json(&letters);
        return Ok(());
    }
    let now = client.info().await?.now;
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
