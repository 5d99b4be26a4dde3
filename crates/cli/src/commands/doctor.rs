//! Looking for trouble.

use crate::config::Config;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_store::{Health, Store};

/// A skew that makes the times people see misleading.
const SKEW_MAX_SECS: f64 = 2.0;

/// A schedule that is overdue for so long is not fired by anybody.
const OVERDUE: chrono::Duration = chrono::Duration::minutes(2);

/// Stalled runs that are named.
const STALLED_MAX: usize = 20;

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
    findings.push(schedules(store).await?);
    findings.push(stalled(store).await?);
    let pinning = serde_json::json!(health.pinning);
    Ok(shown(&findings, Some(pinning), out))
}

/// Looks at a server: whether it can be used, and whether its background loops are healthy.
pub(super) async fn server_doctor(client: Client, out: Out) -> Result<ExitCode, Failure> {
    let info = client.info().await?;
    let mut findings =
        vec![Finding { what: "server", ok: true, told: format!("version {} answers", info.version) }];
    let failing = info.loops.iter().filter_map(|state| Some((state, state.failing_secs?)));
    findings.extend(failing.map(|(state, secs)| {
        let error = state.error.as_deref().unwrap_or("the log of the server has the error");
        let told = format!("{} has failed for {secs} s ({} restarts): {error}", state.name, state.restarts);
        Finding { what: "loop", ok: false, told }
    }));
    if findings.len() == 1 {
        let told = match info.loops.len() {
            0 => "this token may not see the loops of the server".to_owned(),
            count => format!("{count} background loops run, none of them fails"),
        };
        findings.push(Finding { what: "loops", ok: true, told });
    }
    Ok(shown(&findings, None, out))
}

/// Overdue schedules: no process fires them, or its loop fails.
async fn schedules(store: &Store) -> Result<Finding, Failure> {
    let now = store.now(None).await?;
    let overdue = store.next_fire(now - OVERDUE).await?;
    Ok(Finding {
        what: "schedules",
        ok: overdue.is_none(),
        told: match overdue {
            Some(fire) => {
                let due = times::relative(fire, now);
                format!("a schedule was due {due} and has not fired: tidemill sweep --loop fires schedules")
            }
            None => "none is overdue".to_owned(),
        },
    })
}

/// Shows what was found; the exit code says whether all is well.
fn shown(findings: &[Finding], pinning: Option<serde_json::Value>, out: Out) -> ExitCode {
    let ok = findings.iter().all(|finding| finding.ok);
    if out.is_json() {
        let mut told = serde_json::json!({"ok": ok, "findings": findings});
        if let Some(pinning) = pinning {
            told["pinning"] = pinning;
        }
        out.json(&told);
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
    if ok { ExitCode::SUCCESS } else { ExitCode::from(3) }
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

async fn stalled(store: &Store) -> Result<Finding, Failure> {
    let mut runs = store.stalled_runs(STALLED_MAX + 1).await?;
    let more = if runs.len() > STALLED_MAX { " and more" } else { "" };
    runs.truncate(STALLED_MAX);
    let told = match runs.first() {
        Some(first) => format!(
            "stalled, because their workers give no sign of life and promised none: {}{more}; \
             if the worker is gone: tidemill run fail {first}",
            runs.iter().map(tidemill_core::RunId::as_str).collect::<Vec<_>>().join(", ")
        ),
        None => "no running run is stalled".to_owned(),
    };
    Ok(Finding { what: "stalled runs", ok: runs.is_empty(), told })
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
