//! Comparisons of syncs: two worker processes with one, and other settings with the defaults.

use crate::Plan;
use crate::bench_cluster::BenchCluster;
use crate::report::{Line, Pairs, Report, log, median};
use crate::sync::ratio_line;
use crate::sync_processes::{SyncProcesses, supplier};
use anyhow::Result;

/// Compares two worker processes with one. Scheduler and consolidator are separate processes.
pub(crate) async fn workers(
    cluster: &BenchCluster,
    plan: &Plan,
    stones: u32,
    report: &mut Report,
) -> Result<()> {
    log("two worker processes compared with one");
    let (_supplier, endpoint) = supplier(stones)?;
    let mut pairs = Pairs::default();
    for _ in 0..plan.pairs {
        let mut rates = [0.0; 2];
        for (count, rate) in rates.iter_mut().enumerate() {
            let processes = SyncProcesses::new(cluster.migrated_database().await?, &endpoint)?;
            let mut running = vec![processes.start(&["scheduler"])?, processes.start(&["consolidator"])?];
            for _ in 0..=count {
                running.push(processes.start(&["worker"])?);
            }
            *rate = f64::from(stones) / processes.sync(stones)?.0;
        }
        pairs.add(rates[0], rates[1]);
    }
    report.add(pairs.line("two worker processes compared with one", 90.0, None));
    Ok(())
}

/// Settings of a sync: name, arguments and environment.
struct Setting {
    what: &'static str,
    pages: &'static [&'static str],
    environment: Option<(&'static str, &'static str)>,
}

const fn pages(what: &'static str, pages: &'static [&'static str]) -> Setting {
    Setting { what, pages, environment: None }
}

const fn variable(what: &'static str, name: &'static str, value: &'static str) -> Setting {
    Setting { what, pages: &[], environment: Some((name, value)) }
}

/// Settings, beginning with the defaults.
const SETTINGS: [Setting; 11] = [
    pages("the defaults", &[]),
    pages("2 pages at a time", &["--pages-min", "2", "--pages-max", "2"]),
    pages("4 pages at a time", &["--pages-min", "4", "--pages-max", "4"]),
    pages("8 pages at a time", &["--pages-min", "8", "--pages-max", "8"]),
    variable("2 connections", "TIDEMILL_DATABASE_CONNECTIONS", "2"),
    variable("8 connections", "TIDEMILL_DATABASE_CONNECTIONS", "8"),
    variable("batches of 1,000", "TIDEMILL_SYNC_BATCH", "1000"),
    variable("batches of 5,000", "TIDEMILL_SYNC_BATCH", "5000"),
    variable("statements of 100", "TIDEMILL_SYNC_UPSERT", "100"),
    variable("statements of 250", "TIDEMILL_SYNC_UPSERT", "250"),
    variable("statements of 2,000", "TIDEMILL_SYNC_UPSERT", "2000"),
];

/// Compares other settings with the defaults, alternately.
pub(crate) async fn settings(
    cluster: &BenchCluster,
    plan: &Plan,
    stones: u32,
    report: &mut Report,
) -> Result<()> {
    log("other settings compared with the defaults");
    let (_supplier, endpoint) = supplier(stones)?;
    let mut rates: [Vec<f64>; SETTINGS.len()] = std::array::from_fn(|_| Vec::new());
    for _ in 0..plan.pairs {
        for (setting, rates) in SETTINGS.iter().zip(&mut rates) {
            let mut processes = SyncProcesses::new(cluster.migrated_database().await?, &endpoint)?;
            processes.environment.extend(setting.environment.map(|(name, value)| (name, value.to_owned())));
            let up = processes.start(&[&["up", "--no-server"], setting.pages].concat())?;
            let rate = f64::from(stones) / processes.sync(stones)?.0;
            let page_ms = up.stop()?["pages"]["p50_ms"].as_f64().unwrap_or(0.0);
            log(&format!("  {}: {rate:.0}/s, a page without its fetch {page_ms:.1} ms", setting.what));
            rates.push(rate);
        }
    }
    let default = median(&rates[0]);
    let mut best: f64 = default;
    for (setting, rates) in SETTINGS.iter().zip(&rates).skip(1) {
        best = best.max(median(rates));
        report.add(Line {
            what: setting.what.to_owned(),
            floor: format!("{default:.0}/s"),
            ours: format!("{:.0}/s", median(rates)),
            figure: format!("{:.2} × the defaults", median(rates) / default),
            ..Line::default()
        });
    }
    report.add(ratio_line(
        "the defaults compared with the best setting",
        default / best,
        "≥ 0.75",
        |value| value >= 0.75,
    ));
    Ok(())
}
