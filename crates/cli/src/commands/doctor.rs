//! Looking for trouble.

use crate::config::Config;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_store::{Health, Store};

/// A skew that makes the times people see misleading.
const SKEW_MAX_SECS: f64 = 2.0;

/// One thing that was looked at.
#[derive(serde::Serialize)]
struct Finding {
    what: &'static str,
    ok: bool,
    told: String,
}

pub(super) async fn doctor(config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let engine = super::open(config).await?;
    let store = engine.store();
    let health = store.health().await?;
    let mut findings = vec![
        Finding { what: "database", ok: true, told: format!("{} at {}", health.version, store.place()) },
        Finding { what: "schema", ok: true, told: "the tables are those that this binary needs".to_owned() },
    ];
    findings.extend(database_findings(&health));
    findings.push(workers(store, config).await?);
    let stats = store.stats(None).await?;
    let waiting = stats.oldest_ready_secs.filter(|secs| *secs > 60.0);
    findings.push(Finding {
        what: "queue",
        ok: waiting.is_none(),
        told: match waiting {
            Some(secs) => format!(
                "{} runs could be claimed, the oldest for {secs:.0} s: start workers with what they need",
                stats.ready_count
            ),
            None => format!("{} queued, {} could be claimed now", stats.queued_count, stats.ready_count),
        },
    });
    let ok = findings.iter().all(|finding| finding.ok);
    if out.is_json() {
        out.json(&serde_json::json!({"ok": ok, "findings": findings, "pinning": health.pinning}));
    } else {
        let rows: Vec<Vec<Cell>> = findings
            .iter()
            .map(|finding| {
                let mark =
                    if finding.ok { Cell("ok".into(), Style::Good) } else { Cell("look".into(), Style::Odd) };
                vec![mark, finding.what.into(), finding.told.as_str().into()]
            })
            .collect();
        out.table(&["", "WHAT", "FOUND"], &rows);
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn database_findings(health: &Health) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(skew) = health.clock_skew_secs {
        let ok = skew.abs() <= SKEW_MAX_SECS;
        let told = if ok {
            format!("this host and the database agree within {:.0} ms", skew.abs() * 1_000.0)
        } else {
            format!("this host is {:.1} s off; leases follow the database, times shown here do not", -skew)
        };
        findings.push(Finding { what: "clock", ok, told });
    }
    findings.push(Finding {
        what: "durability",
        ok: health.durable,
        told: if health.durable {
            "a commit waits for the disk".to_owned()
        } else {
            "fsync or synchronous_commit is off: a crash of the server can lose what was answered".to_owned()
        },
    });
    findings.push(match health.pinning.first() {
        Some(session) => Finding {
            what: "old rows",
            ok: false,
            told: format!(
                "session {} ({}) has kept old row versions alive for {:.0} s; claims slow down until it ends: \
                 SELECT pg_terminate_backend({})",
                session.pid, session.what, session.open_secs, session.pid
            ),
        },
        None => Finding { what: "old rows", ok: true, told: "no old transaction keeps them alive".to_owned() },
    });
    if let Some(damage) = &health.damage {
        findings.push(Finding { what: "file", ok: false, told: format!("SQLite finds damage: {damage}") });
    }
    findings
}

async fn workers(store: &Store, config: &Config) -> Result<Finding, Failure> {
    let now = store.now(None).await?;
    let workers = store.workers().await?;
    let alive: Vec<_> = workers.iter().filter(|worker| worker.ended_at.is_none()).collect();
    let silent =
        alive.iter().find(|worker| (now - worker.beat_at).to_std().is_ok_and(|age| age > config.dead_after));
    Ok(match silent {
        Some(worker) => Finding {
            what: "workers",
            ok: false,
            told: format!(
                "worker {} on {} was last heard {}; nobody sweeps: tidemill sweep --loop",
                worker.name,
                worker.host,
                times::relative(worker.beat_at, now)
            ),
        },
        None => Finding { what: "workers", ok: true, told: format!("{} alive", alive.len()) },
    })
}
