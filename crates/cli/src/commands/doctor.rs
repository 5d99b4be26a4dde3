//! `tidemill doctor`: checks of the database or of a server.

use crate::config::Config;
use crate::config::reach::describe;
use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use http::StatusCode;
use std::process::ExitCode;
use tidemill_client::{Client, Error};
use tidemill_core::Timestamp;
use tidemill_core::agent::{Agent, IsolationLevel};
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::reach::{DefinedBy, Use};
use tidemill_engine::Engine;
use tidemill_engine::sync::refusal_of;
use tidemill_store::{Health, Store};

/// Clock skew that makes the displayed times misleading.
const SKEW_MAX_SECS: f64 = 2.0;

/// Delay after which a schedule counts as overdue.
const OVERDUE: chrono::Duration = chrono::Duration::minutes(2);

/// Maximum number of stalled runs that are listed.
const STALLED_MAX: usize = 20;

/// Result of one check.
#[derive(serde::Serialize)]
struct Finding {
    #[serde(rename = "what")]
    check: &'static str,
    ok: bool,
    #[serde(rename = "told")]
    message: String,
}

pub(super) async fn check_database(config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let engine = super::open(config).await?;
    let store = engine.store();
    let health = store.health().await?;
    let mut findings = vec![
        Finding {
            check: "database",
            ok: true,
            message: format!("{} at {}", health.version, store.location()),
        },
        Finding { check: "schema", ok: true, message: "the schema matches this version".to_owned() },
    ];
    findings.extend(check_health(&health));
    findings.extend(check_permissions(store));
    findings.extend(store.stopped_writer().map(|holder| Finding {
        check: "write lock",
        ok: false,
        message: format!("{holder}; run {}", holder.hint()),
    }));
    findings.push(check_workers(store, config).await?);
    let stats = store.stats(None).await?;
    let waiting_secs = stats.oldest_ready_secs.filter(|secs| *secs > 60.0);
    findings.push(Finding {
        check: "queue",
        ok: waiting_secs.is_none(),
        message: match waiting_secs {
            Some(secs) => format!(
                "{} runs are claimable, the oldest for {secs:.0} s; start workers with the labels that they require",
                stats.ready_count
            ),
            None => format!("{} queued, {} claimable", stats.queued_count, stats.ready_count),
        },
    });
    findings.push(check_schedules(store).await?);
    findings.push(check_stalled(store).await?);
    findings.extend(check_reach(&engine).await?);
    findings.extend(check_isolation(&store.agents(None, BATCH_MAX).await?, store.now(None).await?));
    let pinning = serde_json::json!(health.pinning);
    Ok(print_findings(&findings, Some(pinning), out))
}

/// Checks that a server answers, and that its background loops succeed.
pub(super) async fn check_server(client: Client, out: Out) -> Result<ExitCode, Failure> {
    let info = client.info().await?;
    let mut findings =
        vec![Finding { check: "server", ok: true, message: format!("version {} answers", info.version) }];
    let failing = info.loops.iter().filter_map(|state| Some((state, state.failing_secs?)));
    findings.extend(failing.map(|(state, secs)| {
        let error = state.error.as_deref().unwrap_or("see the log of the server");
        let message =
            format!("{} has failed for {secs} s ({} restarts): {error}", state.name, state.restarts);
        Finding { check: "loop", ok: false, message }
    }));
    if findings.len() == 1 {
        let message = match info.loops.len() {
            0 => "this token has no access to the loops of the server".to_owned(),
            count => format!("{count} background loops are running, none is failing"),
        };
        findings.push(Finding { check: "loops", ok: true, message });
    }
    // Tokens of workers and agents cannot list agents.
    match client.agents().await {
        Ok(agents) => findings.extend(check_isolation(&agents.items, info.now)),
        Err(Error::Refused { status: StatusCode::FORBIDDEN, .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(print_findings(&findings, None, out))
}

/// Checks that the live agents isolate their tasks: one finding per agent that does not do so fully. Missing limits
/// alone are no warning, because many machines do not delegate the controllers of control groups.
fn check_isolation(agents: &[Agent], now: Timestamp) -> Vec<Finding> {
    let live: Vec<&Agent> = agents.iter().filter(|agent| agent.is_alive(now)).collect();
    let mut findings: Vec<Finding> = live.iter().filter_map(|agent| find_isolation(agent)).collect();
    if findings.is_empty() && !live.is_empty() {
        let message = format!("{} agents isolate their tasks fully", live.len());
        findings.push(Finding { check: "isolation", ok: true, message });
    }
    findings
}

fn find_isolation(agent: &Agent) -> Option<Finding> {
    let (name, level) = (&agent.name, agent.isolation_level());
    let Some(report) = &agent.isolation else {
        let version = &agent.version;
        let message =
            format!("agent {name} (version {version}) does not report how it isolates tasks; upgrade it");
        return Some(Finding { check: "isolation", ok: false, message });
    };
    if level == IsolationLevel::Full {
        return None;
    }
    let missing =
        report.mechanisms().into_iter().filter_map(|(what, mechanism)| Some((what, mechanism.reason()?)));
    let missing: Vec<String> = missing.map(|(what, reason)| format!("no {what}: {reason}")).collect();
    let ok = report.missing_boundaries().is_empty();
    let advice = if ok {
        "delegate the controllers to the agent (systemd 254: Delegate=yes and DelegateSubgroup=agent)"
    } else {
        "give it only jobs of people who may read its secrets, or mend the causes; see docs/agents.md"
    };
    let message = format!("isolation of agent {name} is {level}: {}; {advice}", missing.join("; "));
    Some(Finding { check: "isolation", ok, message })
}

/// Checks for overdue schedules, which mean that no process fires schedules.
async fn check_schedules(store: &Store) -> Result<Finding, Failure> {
    let now = store.now(None).await?;
    let overdue = store.next_fire(now - OVERDUE).await?;
    Ok(Finding {
        check: "schedules",
        ok: overdue.is_none(),
        message: match overdue {
            Some(fire) => {
                let due = times::format_relative(fire, now);
                format!("a schedule was due {due} and has not fired; start tidemill sweep --loop")
            }
            None => "no schedule is overdue".to_owned(),
        },
    })
}

/// Prints the findings. The exit code is 0 if all checks passed, and 3 otherwise.
fn print_findings(findings: &[Finding], pinning: Option<serde_json::Value>, out: Out) -> ExitCode {
    let ok = findings.iter().all(|finding| finding.ok);
    if out.is_json() {
        let mut body = serde_json::json!({"ok": ok, "findings": findings});
        if let Some(pinning) = pinning {
            body["pinning"] = pinning;
        }
        out.print_json(&body);
    } else {
        let rows: Vec<Vec<Cell>> = findings
            .iter()
            .map(|finding| {
                let mark = if finding.ok {
                    Cell::new("ok".into(), Style::Success)
                } else {
                    Cell::new("warning".into(), Style::Warning)
                };
                vec![mark, finding.check.into(), finding.message.as_str().into()]
            })
            .collect();
        out.print_table(&["", "CHECK", "RESULT"], &rows);
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::from(3) }
}

fn check_health(health: &Health) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(skew) = health.clock_skew_secs {
        let ok = skew.abs() <= SKEW_MAX_SECS;
        let message = if ok {
            format!("this host and the database differ by {:.0} ms", skew.abs() * 1_000.0)
        } else {
            format!("the clock of this host differs by {:+.1} s; leases use the clock of the database", -skew)
        };
        findings.push(Finding { check: "clock", ok, message });
    }
    findings.push(Finding {
        check: "durability",
        ok: health.durable,
        message: if health.durable {
            "a commit waits for the disk".to_owned()
        } else {
            "fsync or synchronous_commit is off; a crash of the server can lose committed data".to_owned()
        },
    });
    findings.push(match health.pinning.first() {
        Some(session) => Finding {
            check: "old rows",
            ok: false,
            message: format!(
                "session {} ({}) has prevented the removal of old row versions for {:.0} s, which slows down claims; \
                 end it with SELECT pg_terminate_backend({})",
                session.pid, session.what, session.open_secs, session.pid
            ),
        },
        None => Finding { check: "old rows", ok: true, message: "no transaction prevents their removal".to_owned() },
    });
    if let Some(damage) = &health.damage {
        findings.push(Finding {
            check: "file",
            ok: false,
            message: format!("SQLite reports damage: {damage}"),
        });
    }
    findings
}

/// Lists what projects may use, and the definitions of projects that this configuration refuses.
async fn check_reach(engine: &Engine) -> Result<Vec<Finding>, Failure> {
    let (store, reach) = (engine.store(), engine.reach());
    let lists = describe(reach).into_iter().map(|message| Finding { check: "reach", ok: true, message });
    let mut findings: Vec<Finding> = lists.collect();
    for record in store.feeds().await? {
        if let Some(reason) = refusal_of(&record, reach) {
            let message = format!("feed {} is refused here: {reason}", record.feed.feed);
            findings.push(Finding { check: "reach", ok: false, message });
        }
    }
    for hook in store.hooks(None, None).await?.iter().filter(|hook| hook.defined_by == DefinedBy::Project) {
        if let Err(error) = reach.check(&hook.project_id, [Use::HookSecret(&hook.secret_env)]) {
            let message = format!("hook {} is refused here: {error}; {}", hook.hook, error.hint());
            findings.push(Finding { check: "reach", ok: false, message });
        }
    }
    Ok(findings)
}

/// Checks that only the owner can access the files of a SQLite database.
fn check_permissions(store: &Store) -> Option<Finding> {
    if store.is_postgres() {
        return None;
    }
    let exposed: Vec<String> = store.exposed_files().iter().map(|path| path.display().to_string()).collect();
    let message = if exposed.is_empty() {
        "only the owner has access to the database files".to_owned()
    } else {
        format!("other users can access the database files; run chmod 600 {}", exposed.join(" "))
    };
    Some(Finding { check: "permissions", ok: exposed.is_empty(), message })
}

async fn check_stalled(store: &Store) -> Result<Finding, Failure> {
    let mut runs = store.stalled_runs(STALLED_MAX + 1).await?;
    let more = if runs.len() > STALLED_MAX { " and more" } else { "" };
    runs.truncate(STALLED_MAX);
    let message = match runs.first() {
        Some(first) => format!(
            "stalled runs, whose workers send no heartbeats: {}{more}; \
             if the worker is gone: tidemill run fail {first}",
            runs.iter().map(tidemill_core::RunId::as_str).collect::<Vec<_>>().join(", ")
        ),
        None => "no run is stalled".to_owned(),
    };
    Ok(Finding { check: "stalled runs", ok: runs.is_empty(), message })
}

async fn check_workers(store: &Store, config: &Config) -> Result<Finding, Failure> {
    let now = store.now(None).await?;
    let workers = store.workers().await?;
    let live: Vec<_> = workers.iter().filter(|worker| worker.ended_at.is_none()).collect();
    let silent =
        live.iter().find(|worker| (now - worker.beat_at).to_std().is_ok_and(|age| age > config.dead_after));
    Ok(match silent {
        Some(worker) => Finding {
            check: "workers",
            ok: false,
            message: format!(
                "the last heartbeat of worker {} on {} was {}, and no sweeper runs; start tidemill sweep --loop",
                worker.name,
                worker.host,
                times::format_relative(worker.beat_at, now)
            ),
        },
        None => Finding { check: "workers", ok: true, message: format!("{} alive", live.len()) },
    })
}
