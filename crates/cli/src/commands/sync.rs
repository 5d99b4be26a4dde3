//! Syncs: list, show, retry, cancel, consolidate.

use super::sync_show;
use crate::args_sync::SyncCommand;
use crate::asking;
use crate::fail::Failure;
use crate::out::Out;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_wire::syncs::{Consolidate, ListSyncs, RetrySync};

pub(super) async fn command(client: Client, command: SyncCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        SyncCommand::List { feed, limit } => {
            feed.as_deref().map_or(Ok(()), asking::feed)?;
            let found = asking::listed(limit, async |after, limit| {
                client.syncs(&ListSyncs { feed: feed.clone(), after, limit }).await
            })
            .await?;
            if out.is_json() {
                out.json(&found);
            } else {
                sync_show::table(&found, client.info().await?.now, out);
            }
        }
        SyncCommand::Show { id } => {
            asking::sync(&id)?;
            let status = client.sync(&id).await?;
            if out.is_json() {
                out.json(&status);
            } else {
                sync_show::status(&status, client.info().await?.now, out);
            }
        }
        SyncCommand::Retry { id, restart, partition } => {
            asking::sync(&id)?;
            let retried = client.retry_sync(&id, &RetrySync { restart, partition }).await?;
            if out.is_json() {
                out.json(&retried);
            } else if retried.created {
                out.line(format!("sync {} goes on as {}", retried.sync, retried.run_id));
            } else {
                out.line(format!("sync {} goes on already, as {}", retried.sync, retried.run_id));
            }
        }
        SyncCommand::Cancel { id, reason } => {
            asking::sync(&id)?;
            let stopped = client.cancel_sync(&id, reason).await?.cancelled;
            if out.is_json() {
                out.json(&serde_json::json!({"sync": id, "cancelled": stopped}));
            } else if stopped {
                out.line(format!("sync {id} is cancelled; pages in hand change nothing more"));
            } else {
                out.line(format!("sync {id} had ended"));
            }
        }
        SyncCommand::Consolidate { id, force, advance } => {
            asking::sync(&id)?;
            let ordered = client.consolidate_sync(&id, Consolidate { force, advance }).await?;
            if out.is_json() {
                out.json(&ordered);
            } else {
                let how = match (ordered.forced, ordered.advance) {
                    (true, true) => "by force; the watermark moves, and the gaps are noted",
                    (true, false) => "by force; the watermark stays",
                    (false, _) => "from where it stopped",
                };
                out.line(format!("sync {} is consolidated {how}", ordered.sync));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
