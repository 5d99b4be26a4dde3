//! `tidemill prepare-for-reboot`: stops all jobs before a restart of the machines.

use crate::failure::Failure;
use crate::out::Out;
use clap::Args;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::graph::record::RebootStatus;

/// A restart of the machines
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tidemill prepare-for-reboot --note kernel\n  \
                        tidemill prepare-for-reboot --status")]
pub(crate) struct RebootArgs {
    /// Show only whether a restart is safe; the exit code is 0 if it is, and 3 otherwise
    #[arg(long, conflicts_with_all = ["cancel", "note"])]
    pub(crate) status: bool,
    /// End the preparation after the restart, or without one, and resume the jobs
    #[arg(long, conflicts_with = "note")]
    pub(crate) cancel: bool,
    /// Reason, shown to other operators
    #[arg(long)]
    pub(crate) note: Option<String>,
}

pub(super) async fn command(client: Client, args: RebootArgs, out: Out) -> Result<ExitCode, Failure> {
    if args.cancel {
        let was_preparing = client.end_reboot().await?.resumed;
        if out.is_json() {
            out.print_json(&serde_json::json!({"resumed": was_preparing}));
        } else if was_preparing {
            out.print("jobs are resumed");
        } else {
            out.print("no restart was being prepared");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let status = if args.status {
        client.reboot_status().await?
    } else {
        client.prepare_for_reboot(args.note).await?
    };
    if out.is_json() {
        out.print_json(&status);
    } else {
        out.print(describe(&status));
        if !args.status && !status.safe {
            out.inform("hint: tidemill prepare-for-reboot --status");
        }
    }
    let is_unsafe = args.status && !status.safe;
    Ok(if is_unsafe { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

fn describe(status: &RebootStatus) -> String {
    if status.safe {
        return "it is safe to restart: no task is running, and none will start".to_owned();
    }
    let running = match status.running {
        1 => "1 task is running".to_owned(),
        count => format!("{count} tasks are running"),
    };
    let busy = format!("{running}, {} stopping", status.stopping);
    if status.preparing {
        format!("it is not safe to restart yet: {busy}")
    } else {
        format!("no restart is being prepared: {busy}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_counts_tasks_in_singular_and_plural() {
        let text =
            |running, stopping| describe(&RebootStatus { preparing: true, safe: false, running, stopping });
        assert_eq!(text(1, 1), "it is not safe to restart yet: 1 task is running, 1 stopping");
        assert_eq!(text(2, 0), "it is not safe to restart yet: 2 tasks are running, 0 stopping");
    }
}
