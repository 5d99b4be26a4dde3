//! Runs the SQL files of the benchmarks with psql and pgbench.

use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tidemill_testkit::cluster::{ServerBinaries, find_on_path};

/// Returns the path of a frozen file: a file that both sides of a comparison depend on.
pub(crate) fn frozen(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("frozen").join(name)
}

/// Runs an SQL file with psql; `:runs` is a variable of the file.
pub(crate) fn psql(url: &str, file: &Path, runs: u64) -> Result<()> {
    let mut command = Command::new(program("psql")?);
    command.args(["-q", "--no-psqlrc", "-o", "/dev/null", "-v", "ON_ERROR_STOP=1"]);
    command.arg("-v").arg(format!("runs={runs}")).arg("-f").arg(file).arg(url);
    let output = command.output().context("could not run psql")?;
    ensure!(output.status.success(), "{} failed: {}", file.display(), errors(&output));
    Ok(())
}

/// Result of a timed run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedRun {
    pub(crate) transactions: f64,
    /// Transactions per second, without the time to connect.
    pub(crate) rate: f64,
}

/// Runs a script for some time with concurrent connections.
pub(crate) fn run_for(url: &str, script: &Path, connections: u32, seconds: u64) -> Result<TimedRun> {
    let output = run(url, script, connections, ["-T", &seconds.to_string()])?;
    let text = String::from_utf8_lossy(&output.stdout);
    match timed(&text) {
        Some(timed) => Ok(timed),
        None => bail!("pgbench printed no rate: {text}{}", errors(&output)),
    }
}

fn timed(text: &str) -> Option<TimedRun> {
    let number = |prefix: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(prefix))?;
        rest.split(' ').next()?.parse().ok()
    };
    Some(TimedRun {
        transactions: number("number of transactions actually processed: ")?,
        rate: number("tps = ")?,
    })
}

/// Returns the transactions per second of a script.
pub(crate) fn rate(url: &str, script: &Path, connections: u32, seconds: u64) -> Result<f64> {
    Ok(run_for(url, script, connections, seconds)?.rate)
}

/// Runs a script `count` times in one session.
pub(crate) fn repeat(url: &str, script: &Path, count: u32) -> Result<()> {
    run(url, script, 1, ["-t", &count.to_string()]).map(drop)
}

fn run(url: &str, script: &Path, connections: u32, length: [&str; 2]) -> Result<Output> {
    let mut command = Command::new(program("pgbench")?);
    let threads = connections.min(2);
    command.args(["-n", "-M", "prepared", "-c", &connections.to_string(), "-j", &threads.to_string()]);
    command.args(length).arg("-f").arg(script).arg(url);
    let output = command.output().context("could not run pgbench")?;
    // A client that fails ends, while the others go on: pgbench then exits with 2.
    ensure!(output.status.success(), "pgbench failed at {}: {}", script.display(), errors(&output));
    Ok(output)
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// Returns the path of a program that belongs to the server's packages.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let installed = ServerBinaries::find()?.postgres.with_file_name(name);
    if installed.exists() {
        return Ok(installed);
    }
    find_on_path(name)
        .with_context(|| format!("{name} is not installed; it is part of the PostgreSQL server packages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_count_are_read_from_the_output() {
        let text = "number of transactions actually processed: 1200\nlatency average = 1 ms\n\
                    tps = 599.5 (without initial connection time)\n";
        let timed = timed(text).unwrap();
        assert!((timed.transactions - 1_200.0).abs() < 0.1 && (timed.rate - 599.5).abs() < 0.1);
    }
}
