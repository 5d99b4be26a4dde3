//! `tidemill sweep`: maintenance (sweep, schedules, prune), once or in a loop.

use super::metrics::MetricsArgs;
use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use clap::Args;
use std::process::ExitCode;
use tidemill_engine::{Engine, RetryPolicy};

/// The maintenance to run
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tidemill sweep\n  tidemill sweep --loop")]
pub(crate) struct SweepArgs {
    /// Repeat until SIGTERM
    #[arg(long = "loop")]
    pub(crate) forever: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

/// Runs maintenance once, or until SIGTERM.
pub(super) async fn sweep(
    engine: Engine,
    config: &Config,
    args: SweepArgs,
    out: Out,
) -> Result<ExitCode, Failure> {
    if args.forever {
        let stop = super::work::stop_signal();
        out.inform("running maintenance until SIGTERM");
        let (engine, upkeep) = (engine.with_retry_policy(RetryPolicy::None), config.upkeep());
        tokio::select! {
            () = engine.run_maintenance(&upkeep) => {}
            () = super::work::stopped(stop) => {}
        }
        return Ok(ExitCode::SUCCESS);
    }
    let upkeep = config.upkeep();
    let progress = || "maintenance in progress".to_owned();
    let done = out.wait_with_progress(progress, engine.upkeep(&upkeep)).await?;
    engine.store().close().await;
    if out.is_json() {
        out.print_json(&done);
        return Ok(ExitCode::SUCCESS);
    }
    for decision in &done.swept {
        let next =
            decision.successor.as_ref().map_or_else(String::new, |next| format!("; {next} is its successor"));
        out.print(format!("run {} ended: {}{next}", decision.run_id, decision.action));
    }
    for run in &done.scheduled {
        out.print(format!("run {run} was queued by a schedule"));
    }
    out.print(format!(
        "{} ended, {} scheduled, {} pruned",
        done.swept.len(),
        done.scheduled.len(),
        done.pruned.runs
    ));
    Ok(ExitCode::SUCCESS)
}
