//! Upkeep and statistics.

use crate::config::Config;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::stats::MeanDuration;
use tidemill_engine::{Engine, Patience};

/// One pass of upkeep, or passes for ever.
pub(super) async fn sweep(
    engine: Engine,
    config: &Config,
    forever: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    if forever {
        let stop = super::work::stop_signal();
        out.say("upkeep is done until this process is stopped");
        let (engine, upkeep) = (engine.with_patience(Patience::None), config.upkeep());
        tokio::select! {
            () = engine.keep_up(&upkeep) => {}
            () = super::work::stopped(stop) => {}
        }
        return Ok(ExitCode::SUCCESS);
    }
    let upkeep = config.upkeep();
    let still = || "sweeping and pruning go on".to_owned();
    let done = out.wait(still, engine.upkeep(&upkeep)).await?;
    engine.store().close().await;
    if out.is_json() {
        out.json(&done);
        return Ok(ExitCode::SUCCESS);
    }
    for decision in &done.swept {
        let next =
            decision.successor.as_ref().map_or_else(String::new, |next| format!("; {next} carries it on"));
        out.line(format!("run {} ended: {}{next}", decision.run_id, decision.action));
    }
    for run in &done.scheduled {
        out.line(format!("run {run} was queued by its schedule"));
    }
    out.line(format!(
        "{} ended, {} scheduled, {} pruned",
        done.swept.len(),
        done.scheduled.len(),
        done.pruned.runs
    ));
    Ok(ExitCode::SUCCESS)
}

/// The key metrics.
pub(super) async fn stats(client: Client, out: Out) -> Result<ExitCode, Failure> {
    let stats = client.stats().await?;
    if out.is_json() {
        out.json(&stats);
        return Ok(ExitCode::SUCCESS);
    }
    let age = stats.oldest_ready_secs.map_or_else(String::new, |secs| {
        #[expect(clippy::cast_possible_truncation, reason = "an age in milliseconds")]
        let length = chrono::Duration::milliseconds((secs * 1_000.0) as i64);
        format!(", the oldest ready for {}", times::rough(length))
    });
    out.line(format!(
        "queued       {} ({} could be claimed now{age})",
        stats.queued_count, stats.ready_count
    ));
    let active: i64 = stats.active.iter().map(|worker| worker.active_runs).sum();
    out.line(format!("in hand      {active}"));
    let rate = stats.success_rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.2} %"));
    out.line(format!(
        "last 24 h    {} succeeded, {} failed, success rate {rate}",
        stats.success_count, stats.failed_count
    ));
    if !stats.active.is_empty() {
        out.line("");
        let rows: Vec<Vec<Cell>> = stats
            .active
            .iter()
            .map(|worker| vec![worker.claimed_by.as_str().into(), worker.active_runs.to_string().into()])
            .collect();
        out.table(&["WORKER", "RUNS"], &rows);
    }
    means("LAST 24 HOURS", &stats.durations_day, out);
    means("LAST 7 DAYS", &stats.durations, out);
    Ok(ExitCode::SUCCESS)
}

/// How long runs took, by how they ended.
fn means(when: &str, durations: &[MeanDuration], out: Out) {
    if durations.is_empty() {
        return;
    }
    out.line("");
    let rows: Vec<Vec<Cell>> = durations
        .iter()
        .map(|mean| {
            vec![
                Cell(mean.status.to_string(), Style::of_state(mean.status)),
                mean.runs.to_string().into(),
                format!("{:.2} s", mean.avg_duration_seconds).into(),
            ]
        })
        .collect();
    out.table(&[when, "RUNS", "MEAN TIME"], &rows);
}
