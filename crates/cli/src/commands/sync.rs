//! Syncs: list, show, retry, cancel, consolidate.

use super::sync_show;
use crate::args_sync::SyncCommand;
use crate::environment;
use crate::fail::Failure;
use crate::out::Out;
use std::process::ExitCode;
use tidemill_engine::sync::Syncs;

pub(super) async fn command(syncs: Syncs, command: SyncCommand, out: Out) -> Result<ExitCode, Failure> {
    let store = syncs.engine().store();
    match command {
        SyncCommand::List { feed, limit } => {
            super::feed::known(&syncs, feed.as_deref()).await?;
            let found = store.syncs(feed, limit).await?;
            if out.is_json() {
                out.json(&found);
            } else {
                sync_show::table(&found, store.now(None).await?, out);
            }
        }
        SyncCommand::Show { id } => {
            let status = syncs.status(&id).await?;
            if out.is_json() {
                out.json(&status);
            } else {
                sync_show::status(&status, store.now(None).await?, out);
            }
        }
        SyncCommand::Retry { id, restart, partition } => {
            let retried = syncs.retry_sync(&id, restart, partition, &environment::person()).await?;
            if out.is_json() {
                out.json(&retried);
            } else if retried.created {
                out.line(format!("sync {} goes on as {}", retried.sync, retried.run_id));
            } else {
                out.line(format!("sync {} goes on already, as {}", retried.sync, retried.run_id));
            }
        }
        SyncCommand::Cancel { id, reason } => {
            let stopped = syncs.cancel_sync(&id, &environment::person(), reason.as_deref()).await?;
            if out.is_json() {
                out.json(&serde_json::json!({"sync": id, "cancelled": stopped}));
            } else if stopped {
                out.line(format!("sync {id} is cancelled; pages in hand change nothing more"));
            } else {
                out.line(format!("sync {id} had ended"));
            }
        }
        SyncCommand::Consolidate { id, force, advance } => {
            let ordered = syncs.consolidate_sync(&id, force, advance, &environment::person()).await?;
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
