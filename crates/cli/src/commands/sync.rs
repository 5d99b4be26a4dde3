//! `tidemill sync`: syncs of feeds.

pub(super) mod show;
pub(super) mod watch;

use crate::failure::Failure;
use crate::out::Out;
use crate::requests;
use clap::Subcommand;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_wire::syncs::{Consolidate, ListSyncs, RetrySync};

#[derive(Debug, Subcommand)]
pub(crate) enum SyncCommand {
    /// List syncs, newest first
    #[command(after_help = "Example:\n  tidemill sync list --feed nivoda")]
    List {
        /// Show only syncs of this feed
        #[arg(long)]
        feed: Option<String>,
        /// Maximum number of syncs
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show a sync and its partitions
    #[command(after_help = "Example:\n  tidemill sync show run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e")]
    Show {
        /// Id of the sync, or of one of its runs
        id: String,
    },
    /// Retry the failed partitions of a sync from where they stopped
    #[command(
        after_help = "Example:\n  tidemill sync retry run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e --restart"
    )]
    Retry {
        /// Id of the sync, or of one of its runs
        id: String,
        /// Retry the failed partitions from their beginning
        #[arg(long)]
        restart: bool,
        /// Restart only this partition
        #[arg(long, value_name = "ID", requires = "restart")]
        partition: Option<String>,
    },
    /// Cancel a sync
    #[command(after_help = "Example:\n  tidemill sync cancel run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e")]
    Cancel {
        /// Id of the sync, or of one of its runs
        id: String,
        /// Reason to record with the sync
        #[arg(long)]
        reason: Option<String>,
    },
    /// Resume the consolidation of a sync that failed
    #[command(
        after_help = "Example:\n  tidemill sync consolidate run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e --force"
    )]
    Consolidate {
        /// Id of the sync, or of one of its runs
        id: String,
        /// Consolidate the fetched records despite failed partitions; the watermark does not move
        #[arg(long)]
        force: bool,
        /// Move the watermark past the failed partitions, and record them as gaps for the next sync
        #[arg(long, requires = "force")]
        advance: bool,
    },
}

pub(super) async fn command(client: Client, command: SyncCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        SyncCommand::List { feed, limit } => {
            feed.as_deref().map_or(Ok(()), requests::check_feed)?;
            let found = requests::read_pages(limit, async |after, limit| {
                client.syncs(&ListSyncs { feed: feed.clone(), after, limit }).await
            })
            .await?;
            if out.is_json() {
                out.print_json(&found);
            } else {
                show::print_syncs(&found, client.info().await?.now, out);
            }
        }
        SyncCommand::Show { id } => {
            requests::check_sync(&id)?;
            let status = client.sync(&id).await?;
            if out.is_json() {
                out.print_json(&status);
            } else {
                let feed = client.feed(&status.sync.feed).await?.feed.feed;
                show::print_status(&status, &feed, client.info().await?.now, out);
            }
        }
        SyncCommand::Retry { id, restart, partition } => {
            requests::check_sync(&id)?;
            let retried = client.retry_sync(&id, &RetrySync { restart, partition }).await?;
            if out.is_json() {
                out.print_json(&retried);
            } else if retried.created {
                out.print(format!("sync {} continues as {}", retried.sync, retried.run_id));
            } else {
                out.print(format!("sync {} is already running, as {}", retried.sync, retried.run_id));
            }
        }
        SyncCommand::Cancel { id, reason } => {
            requests::check_sync(&id)?;
            let is_cancelled = client.cancel_sync(&id, reason).await?.cancelled;
            if out.is_json() {
                out.print_json(&serde_json::json!({"sync": id, "cancelled": is_cancelled}));
            } else if is_cancelled {
                out.print(format!("sync {id} is cancelled; results of its current pages are discarded"));
            } else {
                out.print(format!("sync {id} has already ended"));
            }
        }
        SyncCommand::Consolidate { id, force, advance } => {
            requests::check_sync(&id)?;
            let order = client.consolidate_sync(&id, Consolidate { force, advance }).await?;
            if out.is_json() {
                out.print_json(&order);
            } else {
                let how = match (order.forced, order.advance) {
                    (true, true) => {
                        "despite failed partitions; the watermark moves, and the gaps are recorded"
                    }
                    (true, false) => "despite failed partitions; the watermark does not move",
                    (false, _) => "from where it stopped",
                };
                out.print(format!("consolidation of sync {} is queued {how}", order.sync));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
