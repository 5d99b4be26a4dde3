//! `tidemill controller`: schedules the jobs of graphs.

use super::services;
use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use std::process::ExitCode;
use tidemill_engine::RetryPolicy;
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_engine::sync::Syncs;

/// Controls graphs until SIGTERM.
pub(super) async fn controller(syncs: Syncs, config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let stop = super::work::stop_signal();
    let maintenance = services::start_maintenance(&syncs, config.upkeep(), stop.clone());
    let graphs = Graphs::new(syncs.engine().with_retry_policy(RetryPolicy::None), GraphSettings::default());
    out.inform(format!("the controller is running on {}", syncs.engine().store().location()));
    let run = || graphs.control(services::identity("controller"), stop.clone());
    let ended = services::run_role(&syncs, "controller", run).await;
    drop(maintenance);
    syncs.engine().store().close().await;
    ended?;
    out.inform("stopped");
    Ok(ExitCode::SUCCESS)
}
