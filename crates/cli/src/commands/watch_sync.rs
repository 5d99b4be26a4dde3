//! Follows a sync to its end: scan, partitions, pages, consolidation.

use crate::fail::Failure;
use crate::out::{Out, Style};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_client::Client;
use tidemill_core::RunId;
use tidemill_core::records::SyncStatus;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;

const LOOK: Duration = Duration::from_millis(150);

/// Follows a run of a feed; success, or exit code 3.
pub(super) async fn watch(client: &Client, run: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let mut told = String::new();
    loop {
        let found = client.run(run).await?;
        let status = client.sync(run.as_str()).await.ok();
        let line = match &status {
            Some(status) => progress(status),
            None if found.status == RunState::Queued => "waits for a scheduler".to_owned(),
            None => "the feed is scanned".to_owned(),
        };
        if line != told {
            show(&line, out);
            told = line;
        }
        if found.status.is_terminal() {
            if out.is_live() {
                let _ = writeln!(std::io::stderr().lock());
            }
            return Ok(finish(&found, status.as_ref(), out));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// One line that is written over on a terminal; nothing but the end elsewhere.
fn show(line: &str, out: Out) {
    if out.is_live() {
        let _ = write!(std::io::stderr().lock(), "\r\x1b[2K{line}");
        let _ = std::io::stderr().flush();
    }
}

/// Where a sync is, in a line.
pub(super) fn progress(status: &SyncStatus) -> String {
    let sync = &status.sync;
    let read: i64 = status.partitions.iter().map(|partition| i64::from(partition.next_offset)).sum();
    let consolidated: i64 =
        status.partitions.iter().map(|partition| i64::from(partition.consolidated_to)).sum();
    let done = status.partitions.iter().filter(|partition| partition.state.completed()).count();
    match sync.state {
        SyncState::Created | SyncState::WorkersRunning => format!(
            "{} {read}/{} records, {done}/{} partitions",
            bar(read, sync.predicted),
            sync.predicted,
            status.partitions.len()
        ),
        SyncState::ConsolidationTriggered | SyncState::Consolidating => {
            format!("{} {consolidated}/{read} consolidated", bar(consolidated, read))
        }
        SyncState::Completed => format!("{read} records are in the table"),
        SyncState::Failed => sync.error.clone().unwrap_or_else(|| "failed".to_owned()),
    }
}

/// A bar of twenty places.
pub(super) fn bar(done: i64, of: i64) -> String {
    let full = usize::try_from((done * 20).checked_div(of.max(1)).unwrap_or(0).clamp(0, 20)).unwrap_or(0);
    format!("{}{}", "█".repeat(full), "░".repeat(20 - full))
}

fn finish(run: &tidemill_core::run::Run, status: Option<&SyncStatus>, out: Out) -> ExitCode {
    let good = run.status == RunState::Success;
    if out.is_json() {
        out.json(&serde_json::json!({"run": run, "sync": status.map(|status| &status.sync)}));
    } else {
        let error = run.metadata.get("error").and_then(|error| error.as_str()).unwrap_or_default();
        let style = Style::of_state(run.status);
        let summary = status.map_or_else(String::new, |status| {
            let sync = &status.sync;
            format!(
                ": {} records, {} rejected, {} deleted",
                sync.consolidation_processed, sync.consolidation_errors, sync.deleted
            )
        });
        let tail = if good { summary } else { format!(": {error}") };
        out.line(format!("{} {}{tail}", run.run_id, out.paint(run.status.as_str(), style)));
    }
    if good { ExitCode::SUCCESS } else { ExitCode::from(3) }
}
