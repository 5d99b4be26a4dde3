//! Full syncs of a REST API that a definition describes, in turn with dlt and with the Nivoda feed, on one supplier.
//!
//! dlt is a Python program of its own, `dlt/sync.py`; `cargo xtask bench sync --feed rest` installs it. Its clock runs
//! only while it extracts and loads: the interpreter and its modules are loaded before.

use crate::Plan;
use crate::bench_cluster::BenchCluster;
use crate::report::{Line, Report, log, median};
use crate::sync::ratio_line;
use crate::sync_processes::{SyncProcesses, supplier};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tidemill_supplier::{RestDefinition, RestKind};
use tidemill_testkit::cluster::Database;

/// Page sizes, each with the smallest ratio to dlt that is the target.
const PAGES: [(u32, f64); 2] = [(30, 3.0), (1_000, 2.0)];
/// Number of resources that dlt reads in parallel.
const DLT_PARTS: u32 = 8;
/// Factor between the two sizes of the source for which memory is measured.
const GROWTH: u32 = 10;

/// Rates in records per second, one per pair.
#[derive(Debug, Default)]
struct Rates {
    rest: Vec<f64>,
    nivoda: Vec<f64>,
    dlt: Vec<f64>,
}

/// The result that the script prints.
#[derive(Debug, Deserialize)]
struct DltResult {
    seconds: f64,
    rows: u32,
    peak_kb: u64,
}

/// Compares rates, and measures memory.
pub(crate) async fn all(
    cluster: &BenchCluster,
    plan: &Plan,
    records: u32,
    report: &mut Report,
) -> Result<()> {
    if plan.wants("rates") {
        rates(cluster, plan, records, report).await?;
    }
    if plan.wants("memory") {
        memory(cluster, records, report).await?;
    }
    Ok(())
}

async fn rates(cluster: &BenchCluster, plan: &Plan, records: u32, report: &mut Report) -> Result<()> {
    let (_supplier, endpoint) = supplier(records)?;
    let rest_url = rest_url(&endpoint)?;
    let python = dlt_python()?;
    let mut measured = [Rates::default(), Rates::default()];
    let mut dlt_peak = 0;
    for pair in 1..=plan.pairs {
        for ((page_size, _), rates) in PAGES.iter().zip(&mut measured) {
            let (rest, _) = rest(cluster, &rest_url, *page_size, records).await?;
            rates.rest.push(rest);
            if *page_size == 30 {
                let nivoda = SyncProcesses::new(cluster.migrated_database().await?, &endpoint)?;
                rates.nivoda.push(full_sync(&nivoda, records)?.0);
            }
            if let Some(python) = &python {
                let done = dlt(python, &cluster.empty_database()?, &rest_url, *page_size, records)?;
                dlt_peak = done.peak_kb.max(dlt_peak);
                rates.dlt.push(f64::from(records) / done.seconds);
            }
            log(&format!("  pair {pair}, {page_size} per page: {rates:.0?}"));
        }
    }
    for ((page_size, target), rates) in PAGES.iter().zip(&measured) {
        report.add(comparison(
            &format!("REST beside dlt at {page_size} per page"),
            &rates.rest,
            &rates.dlt,
            *target,
        ));
        if !rates.nivoda.is_empty() {
            let what = format!("REST beside the Nivoda feed at {page_size} per page");
            report.add(comparison(&what, &rates.rest, &rates.nivoda, 0.8));
        }
    }
    if dlt_peak > 0 {
        log(&format!("peak memory of dlt: {:.0} MB", megabytes(dlt_peak)));
    }
    Ok(())
}

/// Measures the peak memory of all roles for a source and for one that is ten times as large.
async fn memory(cluster: &BenchCluster, records: u32, report: &mut Report) -> Result<()> {
    let mut peaks = Vec::new();
    for records in [records, records.saturating_mul(GROWTH)] {
        let (_supplier, endpoint) = supplier(records)?;
        let (rate, peak_kb) = rest(cluster, &rest_url(&endpoint)?, 1_000, records).await?;
        log(&format!("  {records} records: {rate:.0}/s, {:.0} MB", megabytes(peak_kb)));
        let what = format!("memory of all three roles at {records} records, MB");
        report.add(ratio_line(&what, megabytes(peak_kb), "< 150", |value| value < 150.0));
        peaks.push(megabytes(peak_kb));
    }
    let what = "memory divided by that of a tenth of the records";
    let growth = peaks.last().zip(peaks.first()).map_or(0.0, |(large, small)| large / small);
    report.add(ratio_line(what, growth, "≤ 1.2", |value| value <= 1.2));
    Ok(())
}

/// Compares two lists of rates pair by pair.
fn comparison(what: &str, ours: &[f64], theirs: &[f64], target: f64) -> Line {
    let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    ratios.sort_by(f64::total_cmp);
    let (Some(min), Some(max)) = (ratios.first().copied(), ratios.last().copied()) else {
        let what = what.to_owned();
        let ours = format!("{:.0}/s", median(ours));
        return Line {
            what,
            floor: "–".to_owned(),
            ours,
            figure: "not measured".to_owned(),
            ..Line::default()
        };
    };
    let middle = median(&ratios);
    Line {
        what: what.to_owned(),
        floor: format!("{:.0}/s", median(theirs)),
        ours: format!("{:.0}/s", median(ours)),
        figure: format!("{middle:.2} × ({min:.2}–{max:.2})"),
        values: [middle, min, max],
        target: format!("≥ {target} ×"),
        met: Some(middle >= target),
        ..Line::default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "an approximate size")]
fn megabytes(kilobytes: u64) -> f64 {
    kilobytes as f64 / 1_024.0
}

/// Returns the URL of the supplier's REST API.
fn rest_url(endpoint: &str) -> Result<String> {
    let host = endpoint.strip_suffix("/api/diamonds").context("the supplier has another address")?;
    Ok(format!("{host}/rest"))
}

/// Reads the REST API once into a new database. Returns records per second and peak memory in kB.
async fn rest(cluster: &BenchCluster, base_url: &str, page_size: u32, records: u32) -> Result<(f64, u64)> {
    let kind = RestKind::Offset;
    let definition = RestDefinition { base_url, feed: "bench", table: "public.items", kind, page_size };
    let database = cluster.migrated_database().await?;
    full_sync(&SyncProcesses::with_definition(database, &definition.to_yaml())?, records)
}

fn full_sync(processes: &SyncProcesses, records: u32) -> Result<(f64, u64)> {
    let up = processes.start(&["up", "--no-server"])?;
    let (seconds, _) = processes.sync(records)?;
    let (_, peak_kb) = up.cost();
    up.stop()?;
    Ok((f64::from(records) / seconds, peak_kb))
}

/// Returns the Python that has dlt, if it is installed.
fn dlt_python() -> Result<Option<PathBuf>> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).context("the target directory has no name")?;
    let python = target.join("dlt-venv/bin/python");
    if target.join("dlt-venv/installed.txt").exists() {
        return Ok(Some(python));
    }
    log("skipped dlt: it is not installed; run `cargo xtask bench sync --feed rest`");
    Ok(None)
}

/// Reads the REST API once with dlt.
fn dlt(python: &Path, database: &Database, url: &str, page_size: u32, records: u32) -> Result<DltResult> {
    let folder = tempfile::tempdir()?;
    let output = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("dlt/sync.py"))
        .args([url, &database.url, &page_size.to_string(), &DLT_PARTS.to_string()])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .context("could not run dlt")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("dlt failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let last = text.lines().last().context("dlt printed no result")?;
    let done: DltResult =
        serde_json::from_str(last).with_context(|| format!("unexpected result `{last}`"))?;
    if done.rows != records {
        bail!("dlt loaded {} of {records} records", done.rows);
    }
    Ok(done)
}
