//! `tidemill backup`: an online copy of a SQLite database.

use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// The copy to create
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tidemill backup tidemill-copy.db")]
pub(crate) struct BackupArgs {
    /// File to create
    pub(crate) target: PathBuf,
}

pub(super) async fn backup(config: &Config, args: BackupArgs, out: Out) -> Result<ExitCode, Failure> {
    let target = args.target;
    let engine = super::open(config).await?;
    let progress = || {
        let bytes = std::fs::metadata(&target).map_or(0, |file| file.len());
        format!("backup in progress: {bytes} bytes in {}", target.display())
    };
    let bytes = out.wait_with_progress(progress, engine.store().backup(&target)).await?;
    if out.is_json() {
        out.print_json(&serde_json::json!({"target": target, "bytes": bytes}));
    } else {
        out.print(format!("backup complete: {bytes} bytes in {}", target.display()));
    }
    Ok(ExitCode::SUCCESS)
}
