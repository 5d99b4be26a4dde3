//! Floors: plain SQL files that pgbench runs with as many connections as Tidemill uses.

use crate::Plan;
use crate::bench_cluster::BenchCluster;
use crate::report::{Line, Report, log};
use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tidemill_testkit::cluster::{Database, ServerBinaries, find_on_path};

/// A minimal table, and a pgbench script for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor {
    script: &'static str,
    /// Runs that one transaction of the script completes.
    runs: f64,
    /// Runs per second for which the table is filled. More than the machine can complete.
    runs_max: u64,
    /// Connections and their usual rates, as measured on 2026-11-15.
    usual: &'static [(u32, f64)],
}

/// Claims one run and finishes it, with two commits.
pub(crate) const SINGLE: Floor = Floor {
    script: "floor_single.sql",
    runs: 1.0,
    runs_max: 10_000,
    usual: &[(1, 1_750.0), (8, 4_400.0), (16, 4_700.0)],
};

/// Claims 100 runs and finishes them, with two commits.
pub(crate) const BATCH: Floor = Floor {
    script: "floor_batch.sql",
    runs: 100.0,
    runs_max: 100_000,
    usual: &[(1, 31_700.0), (4, 40_500.0), (8, 48_700.0)],
};

impl Floor {
    /// Fills the table again, and measures runs per second.
    pub(crate) fn rate(&self, database: &Database, connections: u32, time: Duration) -> Result<f64> {
        let seconds = time.as_secs().max(1);
        fill(&database.url, self.runs_max * seconds)?;
        Ok(self.runs * pgbench(&database.url, self.script, connections, seconds)?)
    }

    /// Warns if a floor is far below its usual rate.
    pub(crate) fn warn(&self, connections: u32, rate: f64) {
        let usual = self.usual.iter().find(|(known, _)| *known == connections);
        if let Some((_, usual)) = usual
            && rate < 0.6 * usual
        {
            log(&format!(
                "  warning: this floor is {rate:.0}/s, below 60 % of the usual {usual:.0}/s; \
                 the machine is busy or slow"
            ));
        }
    }
}

/// Measures the floors alone, to describe the machine.
pub(crate) fn all(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    log("the floors alone");
    let bare = cluster.empty_database()?;
    for (what, floor) in [("claim and finish", SINGLE), ("claim and finish 100 at once", BATCH)] {
        for (connections, usual) in floor.usual {
            let rate = floor.rate(&bare, *connections, plan.time())?;
            floor.warn(*connections, rate);
            report.add(Line {
                what: format!("floor: {what}, {connections} connections"),
                floor: format!("{rate:.0}/s"),
                figure: format!("{:.0} % of the usual", 100.0 * rate / usual),
                values: [rate; 3],
                ..Line::default()
            });
        }
    }
    Ok(())
}

fn fill(url: &str, runs: u64) -> Result<()> {
    let mut command = Command::new(program("psql")?);
    command.args([
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-v",
        &format!("runs={runs}"),
        "-f",
        &sql("floor_fill.sql"),
        url,
    ]);
    let output = command.output().context("could not run psql")?;
    if !output.status.success() {
        bail!("psql could not fill the table: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Returns the transactions per second of a script.
fn pgbench(url: &str, script: &str, connections: u32, seconds: u64) -> Result<f64> {
    let mut command = Command::new(program("pgbench")?);
    let threads = connections.min(2);
    command.args(["-n", "-M", "prepared", "-c", &connections.to_string(), "-j", &threads.to_string()]);
    command.args(["-T", &seconds.to_string(), "-f", &sql(script), url]);
    let output = command.output().context("could not run pgbench")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate =
        text.lines().find_map(|line| line.strip_prefix("tps = ")).and_then(|rest| rest.split(' ').next());
    match rate {
        Some(rate) if output.status.success() => Ok(rate.parse()?),
        Some(_) | None => bail!("pgbench printed no rate: {text}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn sql(name: &str) -> String {
    format!("{}/sql/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn program(name: &str) -> Result<PathBuf> {
    let installed = ServerBinaries::find()?.postgres.with_file_name(name);
    if installed.exists() {
        return Ok(installed);
    }
    find_on_path(name)
        .with_context(|| format!("{name} is not installed; it is part of the PostgreSQL server packages"))
}
