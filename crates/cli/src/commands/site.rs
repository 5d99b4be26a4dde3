//! What graphs share: pools, flags, and the restart of the site.

use crate::args_graph::{FlagCommand, PoolCommand, Reboot};
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::graph::record::RebootStatus;
use tidemill_core::project::Flag;

use tidemill_wire::projects::{ClearFlag, SetFlag};

pub(super) async fn pool(client: Client, command: PoolCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        PoolCommand::List => {
            let pools = client.pools().await?.items;
            if out.is_json() {
                out.json(&pools);
                return Ok(ExitCode::SUCCESS);
            }
            let rows: Vec<Vec<Cell>> = pools
                .iter()
                .map(|pool| {
                    let is_full = pool.used >= i64::from(pool.size);
                    let style = if is_full { Style::Odd } else { Style::Plain };
                    vec![
                        pool.name.as_str().into(),
                        pool.size.to_string().into(),
                        Cell(pool.used.to_string(), style),
                    ]
                })
                .collect();
            out.table(&["POOL", "SIZE", "USED"], &rows);
        }
        PoolCommand::Set { name, size } => {
            let pool = client.put_pool(&name, size).await?;
            if out.is_json() {
                out.json(&pool);
            } else {
                out.line(format!("pool {name} has size {size}; {} of it is used", pool.used));
            }
        }
        PoolCommand::Remove { name } => {
            client.remove_pool(&name).await?;
            if out.is_json() {
                out.json(&serde_json::json!({"name": name, "removed": true}));
            } else {
                out.line(format!("pool {name} is gone"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn flag(client: Client, command: FlagCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        FlagCommand::List => {
            let (flags, now) = (client.flags().await?.items, client.info().await?.now);
            if out.is_json() {
                out.json(&flags);
            } else if flags.is_empty() {
                out.say("nothing is held");
            } else {
                table(&flags, now, out);
            }
        }
        FlagCommand::Set { flag, scope, note, until } => {
            let now = client.info().await?.now;
            let until_at = until.map(|until| until.from(now));
            let set = client.set_flag(&SetFlag { flag, scope, note, until_at }).await?;
            if out.is_json() {
                out.json(&set);
            } else {
                let end = set.until_at.map_or_else(
                    || "until it is cleared".to_owned(),
                    |until| format!("until {}", until.to_rfc3339()),
                );
                out.line(format!("{flag} is on for {} {end}", set.scope));
            }
        }
        FlagCommand::Clear { flag, scope } => {
            let was_on = client.clear_flag(&ClearFlag { flag, scope: scope.clone() }).await?.resumed;
            if out.is_json() {
                out.json(&serde_json::json!({"flag": flag, "scope": scope, "cleared": was_on}));
            } else if was_on {
                out.line(format!("{flag} is off for {scope}"));
            } else {
                out.line(format!("{flag} was not on for {scope}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(flags: &[Flag], now: Timestamp, out: Out) {
    let rows: Vec<Vec<Cell>> = flags
        .iter()
        .map(|flag| {
            let ends = match flag.until_at {
                Some(until) if flag.is_on(now) => times::relative(until, now),
                Some(_) => "over".to_owned(),
                None => "–".to_owned(),
            };
            vec![
                Cell(flag.flag.to_string(), if flag.is_on(now) { Style::Odd } else { Style::Dim }),
                flag.scope.as_str().into(),
                times::relative(flag.since, now).into(),
                ends.into(),
                format!("{} ({})", flag.set_by.as_deref().unwrap_or("–"), flag.source).into(),
                flag.note.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.table(&["FLAG", "HOLDS", "SINCE", "ENDS", "BY", "NOTE"], &rows);
}

/// Prepares for a restart, says whether it is safe, or lets jobs go on.
pub(super) async fn reboot(client: Client, order: Reboot, out: Out) -> Result<ExitCode, Failure> {
    if order.cancel {
        let was = client.end_reboot().await?.resumed;
        if out.is_json() {
            out.json(&serde_json::json!({"resumed": was}));
        } else if was {
            out.line("jobs go on");
        } else {
            out.line("no restart was prepared for");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let status = if order.status {
        client.reboot_status().await?
    } else {
        client.prepare_for_reboot(order.note).await?
    };
    if out.is_json() {
        out.json(&status);
    } else {
        out.line(said(&status));
        if !order.status && !status.safe {
            out.say("hint: tidemill prepare-for-reboot --status tells when it is safe");
        }
    }
    let is_told_no = order.status && !status.safe;
    Ok(if is_told_no { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

fn said(status: &RebootStatus) -> String {
    if status.safe {
        return "it is safe to restart: nothing runs, and nothing begins".to_owned();
    }
    let running = match status.running {
        1 => "1 task runs".to_owned(),
        count => format!("{count} tasks run"),
    };
    let stopping = match status.stopping {
        1 => "1 is being stopped".to_owned(),
        count => format!("{count} are being stopped"),
    };
    let busy = format!("{running}, and {stopping}");
    if status.preparing {
        format!("it is not safe yet: {busy}")
    } else {
        format!("no restart is prepared for: {busy}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_is_one() {
        let told =
            |running, stopping| said(&RebootStatus { preparing: true, safe: false, running, stopping });
        assert_eq!(told(1, 1), "it is not safe yet: 1 task runs, and 1 is being stopped");
        assert_eq!(told(2, 0), "it is not safe yet: 2 tasks run, and 0 are being stopped");
    }
}
