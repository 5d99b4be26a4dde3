//! The floors: plain SQL files, run with pgbench.

use anyhow::{Context as _, Result, bail};
use std::path::PathBuf;
use std::process::Command;
use tidemill_testkit::cluster::{ServerBinaries, find_on_path};

/// What such a machine does, by measurements made elsewhere; far below, this one is busy or slow.
pub(crate) const SINGLE_8_USUAL: f64 = 4_400.0;
pub(crate) const SINGLE_16_USUAL: f64 = 4_700.0;
pub(crate) const BATCH_8_USUAL: f64 = 48_700.0;

/// Fills the bare table anew.
pub(crate) fn fill(url: &str, runs: u32) -> Result<()> {
    let psql = program("psql")?;
    let mut command = Command::new(psql);
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
        bail!("psql could not fill the floor: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Transactions per second of a script.
pub(crate) fn pgbench(url: &str, script: &str, clients: u32, seconds: u64) -> Result<f64> {
    let mut command = Command::new(program("pgbench")?);
    command.args(["-n", "-M", "prepared", "-c", &clients.to_string(), "-j", "2"]);
    command.args(["-T", &seconds.max(1).to_string(), "-f", &sql(script), url]);
    let output = command.output().context("could not run pgbench")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate =
        text.lines().find_map(|line| line.strip_prefix("tps = ")).and_then(|rest| rest.split(' ').next());
    let Some(rate) = rate else {
        bail!("pgbench gave no rate: {text}{}", String::from_utf8_lossy(&output.stderr));
    };
    Ok(rate.parse()?)
}

/// Says so when a floor is far below what is usual.
pub(crate) fn warn(what: &str, rate: f64, usual: f64) {
    if rate < 0.6 * usual {
        crate::report::say(&format!(
            "  warning: the floor of {what} is {rate:.0}/s, below 60 % of the usual {usual:.0}/s: the machine is busy"
        ));
    }
}

fn sql(name: &str) -> String {
    format!("{}/sql/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn program(name: &str) -> Result<PathBuf> {
    let beside = ServerBinaries::find()?.postgres.with_file_name(name);
    if beside.exists() {
        return Ok(beside);
    }
    find_on_path(name).with_context(|| format!("{name} is not installed; it comes with PostgreSQL's server"))
}
