//! Syncs beside each other: two worker processes beside one, and other settings beside the defaults.

use crate::Plan;
use crate::ground::Ground;
use crate::mill::{Mill, supplier};
use crate::report::{Line, Pairs, Report, median, say};
use crate::sync::plain;
use anyhow::Result;

/// Measures two worker processes beside one; scheduler and consolidator are processes of their own.
pub(crate) async fn workers(ground: &Ground, plan: &Plan, stones: u32, report: &mut Report) -> Result<()> {
    say("two worker processes beside one");
    let (_supplier, endpoint) = supplier(stones)?;
    let mut pairs = Pairs::default();
    for _ in 0..plan.pairs {
        let mut rates = [0.0; 2];
        for (count, rate) in rates.iter_mut().enumerate() {
            let mill = Mill::new(ground.fresh().await?, &endpoint)?;
            let mut running = vec![mill.start(&["scheduler"])?, mill.start(&["consolidator"])?];
            for _ in 0..=count {
                running.push(mill.start(&["worker"])?);
            }
            *rate = f64::from(stones) / mill.sync(stones)?.0;
        }
        pairs.add(rates[0], rates[1]);
    }
    report.add(pairs.line("two worker processes beside one", 90.0, None));
    Ok(())
}

/// One way to set a sync: its name, arguments and environment.
struct Setting {
    what: &'static str,
    pages: &'static [&'static str],
    set: Option<(&'static str, &'static str)>,
}

const fn pages(what: &'static str, pages: &'static [&'static str]) -> Setting {
    Setting { what, pages, set: None }
}

const fn set(what: &'static str, name: &'static str, value: &'static str) -> Setting {
    Setting { what, pages: &[], set: Some((name, value)) }
}

/// The defaults come first.
const SETTINGS: [Setting; 11] = [
    pages("the defaults", &[]),
    pages("2 pages at a time", &["--pages-min", "2", "--pages-max", "2"]),
    pages("4 pages at a time", &["--pages-min", "4", "--pages-max", "4"]),
    pages("8 pages at a time", &["--pages-min", "8", "--pages-max", "8"]),
    set("2 connections", "TIDEMILL_DATABASE_CONNECTIONS", "2"),
    set("8 connections", "TIDEMILL_DATABASE_CONNECTIONS", "8"),
    set("batches of 1,000", "TIDEMILL_SYNC_BATCH", "1000"),
    set("batches of 5,000", "TIDEMILL_SYNC_BATCH", "5000"),
    set("statements of 100", "TIDEMILL_SYNC_UPSERT", "100"),
    set("statements of 250", "TIDEMILL_SYNC_UPSERT", "250"),
    set("statements of 2,000", "TIDEMILL_SYNC_UPSERT", "2000"),
];

/// Measures the defaults beside other settings, each in turn.
pub(crate) async fn settings(ground: &Ground, plan: &Plan, stones: u32, report: &mut Report) -> Result<()> {
    say("the defaults beside other settings");
    let (_supplier, endpoint) = supplier(stones)?;
    let mut rates: [Vec<f64>; SETTINGS.len()] = std::array::from_fn(|_| Vec::new());
    for _ in 0..plan.pairs {
        for (setting, rates) in SETTINGS.iter().zip(&mut rates) {
            let mut mill = Mill::new(ground.fresh().await?, &endpoint)?;
            mill.set.extend(setting.set.map(|(name, value)| (name, value.to_owned())));
            let up = mill.start(&[&["up", "--no-server"], setting.pages].concat())?;
            let rate = f64::from(stones) / mill.sync(stones)?.0;
            let page_ms = up.end()?["pages"]["p50_ms"].as_f64().unwrap_or(0.0);
            say(&format!("  {}: {rate:.0}/s, a page but for its fetch {page_ms:.1} ms", setting.what));
            rates.push(rate);
        }
    }
    let usual = median(&rates[0]);
    let mut best: f64 = usual;
    for (setting, rates) in SETTINGS.iter().zip(&rates).skip(1) {
        best = best.max(median(rates));
        report.add(Line {
            what: setting.what.to_owned(),
            floor: format!("{usual:.0}/s"),
            ours: format!("{:.0}/s", median(rates)),
            figure: format!("{:.2} × the defaults", median(rates) / usual),
            ..Line::default()
        });
    }
    report
        .add(plain("the defaults beside the best setting", usual / best, "≥ 0.75", |value| value >= 0.75));
    Ok(())
}
