//! `tidemill consolidator`: writes fetched records to the canonical table.

use super::metrics::MetricsArgs;
use super::services::{self, Service};
use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use clap::Args;
use std::process::ExitCode;
use tidemill_engine::sync::{ConsolidatorOptions, Syncs};

/// The consolidator
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tidemill consolidator --concurrency 8\n  tidemill consolidator --once")]
pub(crate) struct ConsolidatorArgs {
    /// Maximum number of batches that are written at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) concurrency: Option<u16>,
    /// Consolidate the waiting syncs, and exit
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

/// Consolidates syncs until SIGTERM.
pub(super) async fn consolidator(
    syncs: Syncs,
    config: &Config,
    args: ConsolidatorArgs,
    out: Out,
) -> Result<ExitCode, Failure> {
    let service = Service::start(&syncs, config).await?;
    out.inform(format!("the consolidator is running on {}", syncs.engine().store().location()));
    let mut options = ConsolidatorOptions { once: args.once, ..ConsolidatorOptions::default() };
    if let Some(concurrency) = args.concurrency {
        options.concurrency = concurrency.into();
    }
    let run = || syncs.consolidate(services::identity("consolidator"), &options, service.stop());
    let completed = services::run_role(&syncs, "consolidator", run).await;
    service.finish(&syncs, args.once, "completed", completed, out).await
}
