//! `tidemill stats`: queue depth, running work and recent results.

use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::stats::MeanDuration;

pub(super) async fn stats(client: Client, out: Out) -> Result<ExitCode, Failure> {
    let stats = client.stats().await?;
    if out.is_json() {
        out.print_json(&stats);
        return Ok(ExitCode::SUCCESS);
    }
    let age = stats.oldest_ready_secs.map_or_else(String::new, |secs| {
        #[expect(clippy::cast_possible_truncation, reason = "an age in milliseconds")]
        let length = chrono::Duration::milliseconds((secs * 1_000.0) as i64);
        format!(", the oldest for {}", times::format_rough(length))
    });
    out.print(format!("queued       {} ({} claimable{age})", stats.queued_count, stats.ready_count));
    let active: i64 = stats.active.iter().map(|worker| worker.active_runs).sum();
    out.print(format!("executing    {active}"));
    let rate = stats.success_rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.2} %"));
    out.print(format!(
        "last 24 h    {} succeeded, {} failed, success rate {rate}",
        stats.success_count, stats.failed_count
    ));
    if !stats.active.is_empty() {
        out.print("");
        let rows: Vec<Vec<Cell>> = stats
            .active
            .iter()
            .map(|worker| vec![worker.claimed_by.as_str().into(), worker.active_runs.to_string().into()])
            .collect();
        out.print_table(&["WORKER", "RUNS"], &rows);
    }
    print_means("LAST 24 HOURS", &stats.durations_day, out);
    print_means("LAST 7 DAYS", &stats.durations, out);
    Ok(ExitCode::SUCCESS)
}

/// Prints the mean duration of runs, by final state.
fn print_means(when: &str, durations: &[MeanDuration], out: Out) {
    if durations.is_empty() {
        return;
    }
    out.print("");
    let rows: Vec<Vec<Cell>> = durations
        .iter()
        .map(|mean| {
            vec![
                Cell::new(mean.status.to_string(), Style::of_state(mean.status)),
                mean.runs.to_string().into(),
                format!("{:.2} s", mean.avg_duration_seconds).into(),
            ]
        })
        .collect();
    out.print_table(&[when, "RUNS", "MEAN TIME"], &rows);
}
