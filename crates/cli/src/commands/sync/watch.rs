//! Follows a sync until it ends: scan, partitions, pages, consolidation.

use crate::failure::Failure;
use crate::out::{Line, Out, Style};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_client::Client;
use tidemill_core::RunId;
use tidemill_core::records::SyncStatus;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;

const POLL_EVERY: Duration = Duration::from_millis(150);

/// Follows a run of a feed. The exit code is 0 if it succeeded, and 3 otherwise.
pub(in crate::commands) async fn watch(client: &Client, run: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let mut last = String::new();
    loop {
        let found = client.run(run).await?;
        let status = client.sync(run.as_str()).await.ok();
        let line = match &status {
            Some(status) => describe_progress(status),
            None if found.status == RunState::Queued => "waiting for a scheduler".to_owned(),
            None => "scanning the feed".to_owned(),
        };
        if line != last {
            show_progress(&line, out);
            last = line;
        }
        if found.status.is_terminal() {
            if out.is_live() {
                let _ = writeln!(std::io::stderr().lock());
            }
            return Ok(print_result(&found, status.as_ref(), out));
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Prints a progress line that the next one replaces. Without a terminal it prints nothing.
fn show_progress(line: &str, out: Out) {
    if out.is_live() {
        let _ = write!(std::io::stderr().lock(), "\r\x1b[2K{}", Line::from(line).as_str());
        let _ = std::io::stderr().flush();
    }
}

/// Describes the progress of a sync in one line.
pub(in crate::commands) fn describe_progress(status: &SyncStatus) -> String {
    let sync = &status.sync;
    let read: i64 = status.partitions.iter().map(|partition| i64::from(partition.next_offset)).sum();
    let consolidated: i64 =
        status.partitions.iter().map(|partition| i64::from(partition.consolidated_to)).sum();
    let done = status.partitions.iter().filter(|partition| partition.state.completed()).count();
    match sync.state {
        // A feed that does not count its records has no expected number.
        SyncState::Created | SyncState::WorkersRunning if sync.predicted == 0 => {
            format!("{read} records, {done}/{} partitions", status.partitions.len())
        }
        SyncState::Created | SyncState::WorkersRunning => format!(
            "{} {read}/{} records, {done}/{} partitions",
            bar(read, sync.predicted),
            sync.predicted,
            status.partitions.len()
        ),
        SyncState::ConsolidationTriggered | SyncState::Consolidating => {
            format!("{} {consolidated}/{read} consolidated", bar(consolidated, read))
        }
        SyncState::Completed => format!("{read} records stored"),
        SyncState::Failed => sync.error.clone().unwrap_or_else(|| "failed".to_owned()),
    }
}

/// Draws a progress bar of 20 characters.
pub(in crate::commands) fn bar(done: i64, of: i64) -> String {
    let full = usize::try_from((done * 20).checked_div(of.max(1)).unwrap_or(0).clamp(0, 20)).unwrap_or(0);
    format!("{}{}", "█".repeat(full), "░".repeat(20 - full))
}

fn print_result(run: &tidemill_core::run::Run, status: Option<&SyncStatus>, out: Out) -> ExitCode {
    let is_success = run.status == RunState::Success;
    if out.is_json() {
        out.print_json(&serde_json::json!({
            "run": run, "sync": status.map(|status| &status.sync), "summary": status.map(SyncStatus::summary),
        }));
    } else {
        let error = run.metadata.get("error").and_then(|error| error.as_str()).unwrap_or_default();
        let style = Style::of_state(run.status);
        let summary = status.map_or_else(String::new, |status| format!(": {}", status.summary()));
        let tail = if is_success { summary } else { format!(": {error}") };
        let start = Line::from(format!("{} ", run.run_id));
        out.print(start.and(out.paint(run.status.as_str(), style)).and(tail));
    }
    if is_success { ExitCode::SUCCESS } else { ExitCode::from(3) }
}
