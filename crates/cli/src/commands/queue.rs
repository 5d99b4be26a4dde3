//! `tidemill queue`: message queues and dead letters.

use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::requests;
use crate::times;
use clap::Subcommand;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::limits::BATCH_MAX;
use tidemill_wire::queues::{ListDead, Peek, ReplayDead};

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues, their depths and their settings
    #[command(after_help = "Example:\n  tidemill queue list")]
    List,
    /// Show the messages of a queue without receiving them
    #[command(after_help = "Example:\n  tidemill queue peek work-items --limit 5")]
    Peek {
        /// Name of the queue
        queue: String,
        /// Maximum number of messages
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// List the dead letters of a queue
    #[command(after_help = "Example:\n  tidemill queue dead work-items")]
    Dead {
        /// Name of the queue
        queue: String,
        /// Maximum number of dead letters
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Send dead letters of a queue again
    #[command(after_help = "Example:\n  tidemill queue replay work-items --all")]
    Replay {
        /// Name of the queue
        queue: String,
        /// Ids of the messages to send again
        #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "ID")]
        ids: Vec<String>,
        /// Send all dead letters of the queue again
        #[arg(long)]
        all: bool,
    },
}

pub(super) async fn command(client: Client, command: QueueCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        QueueCommand::List => list(&client, out).await?,
        QueueCommand::Peek { queue, limit } => peek(&client, &queue, limit, out).await?,
        QueueCommand::Dead { queue, limit } => dead(&client, &queue, limit, out).await?,
        QueueCommand::Replay { queue, ids, all } => {
            requests::check_queue(&queue)?;
            let outcome = client.replay(&queue, &ReplayDead { ids, all }).await?;
            if out.is_json() {
                out.print_json(&outcome);
            } else {
                out.print(format!("{} dead letters of {queue} were sent again", outcome.replayed));
                if !outcome.hints.is_empty() {
                    out.inform("some of them have no effect, because their sync has failed");
                }
                for hint in &outcome.hints {
                    out.inform(format!("hint: {hint}"));
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
        out.print_json(&shown);
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
                depth.oldest_at.map_or_else(|| "–".to_owned(), |at| times::format_relative(at, now)).into(),
                Cell::new(depth.dead.to_string(), if depth.dead > 0 { Style::Error } else { Style::Plain }),
                format!("{} s", settings.lock_secs).into(),
                settings.deliveries_max.to_string().into(),
                window.into(),
            ]
        })
        .collect();
    let header =
        ["QUEUE", "WAITING", "DELAYED", "IN FLIGHT", "OLDEST", "DEAD", "LOCK", "DELIVERIES", "WINDOW"];
    out.print_table(&header, &rows);
    Ok(())
}

async fn peek(client: &Client, queue: &str, limit: usize, out: Out) -> Result<(), Failure> {
    requests::check_queue(queue)?;
    let rows = limit.clamp(1, BATCH_MAX);
    let mut messages = client.peek(queue, Peek { limit: u16::try_from(rows).ok() }).await?.items;
    messages.truncate(limit);
    if out.is_json() {
        out.print_json(&messages);
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
                times::format_relative(message.enqueued_at, now).into(),
                message.deliveries.to_string().into(),
                message.last_error.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.print_table(&["MESSAGE", "GROUP", "STATE", "SENT", "DELIVERIES", "LAST ERROR"], &rows);
    Ok(())
}

async fn dead(client: &Client, queue: &str, limit: usize, out: Out) -> Result<(), Failure> {
    requests::check_queue(queue)?;
    let letters = requests::read_pages(limit, async |after, limit| {
        client.dead_letters(queue, &ListDead { after, limit }).await
    })
    .await?;
    if out.is_json() {
        out.print_json(&letters);
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
                times::format_relative(letter.dead_at, now).into(),
                letter.deliveries.to_string().into(),
                letter.last_error.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.print_table(&["MESSAGE", "GROUP", "REASON", "DEAD", "DELIVERIES", "LAST ERROR"], &rows);
    if !letters.is_empty() {
        out.inform(format!("hint: tidemill queue replay {queue} --all"));
    }
    Ok(())
}
