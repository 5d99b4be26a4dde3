//! `tidemill scheduler`: plans syncs.

use super::metrics::MetricsArgs;
use super::services::{self, Service};
use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use clap::Args;
use std::process::ExitCode;

/// The scheduler
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tidemill scheduler\n  tidemill scheduler --once")]
pub(crate) struct SchedulerArgs {
    /// Plan the queued syncs, and exit
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) partitions: PartitionArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

/// Partitions of syncs; each option overrides the configuration
#[derive(Debug, Args)]
pub(crate) struct PartitionArgs {
    /// Target number of records per partition
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) partition_target: Option<u32>,
    /// Minimum number of records per partition
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) partition_min: Option<u32>,
    /// Maximum number of partitions of a full sync
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) partitions_full: Option<u32>,
    /// Maximum number of partitions of an incremental sync
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500))]
    pub(crate) partitions_incremental: Option<u32>,
}

/// Plans syncs until SIGTERM.
pub(super) async fn scheduler(config: Config, args: SchedulerArgs, out: Out) -> Result<ExitCode, Failure> {
    let partitions = config.partitions.clone().with_args(&args.partitions)?;
    let config = Config { partitions, ..config };
    let syncs = super::open_syncs(&config).await?;
    let service = Service::start(&syncs, &config).await?;
    out.inform(format!("the scheduler is running on {}", syncs.engine().store().location()));
    let run = || syncs.schedule(services::identity("scheduler"), args.once, service.stop());
    let planned = services::run_role(&syncs, "scheduler", run).await;
    service.finish(&syncs, args.once, "planned", planned, out).await
}
