//! `tidemill flag`: pauses, maintenance and restarts.

use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::times::{self, When};
use clap::Subcommand;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::project::{Flag, FlagName};
use tidemill_wire::projects::{ClearFlag, SetFlag};

#[derive(Debug, Subcommand)]
pub(crate) enum FlagCommand {
    /// List the flags that are set, and why
    #[command(after_help = "Example:\n  tidemill flag list")]
    List,
    /// Set a flag: paused, maintenance, reboot or probe_off
    #[command(after_help = "Examples:\n  tidemill flag set paused --scope lane:sync --until 2h\n  \
                            tidemill flag set maintenance --note upgrade")]
    Set {
        /// Name of the flag
        flag: FlagName,
        /// Scope: site, lane:graph, lane:ops, lane:sync, project:ID or feed:NAME; only `paused` can have a scope
        /// smaller than the site
        #[arg(long, default_value = "site")]
        scope: String,
        /// Reason, shown to other operators
        #[arg(long)]
        note: Option<String>,
        /// End of the flag: a time, or a duration from now such as 2h; the default is until it is cleared
        #[arg(long, value_parser = times::parse_when)]
        until: Option<When>,
    },
    /// Clear a flag
    #[command(after_help = "Example:\n  tidemill flag clear paused --scope lane:sync")]
    Clear {
        /// Name of the flag
        flag: FlagName,
        /// Scope that the flag was set for
        #[arg(long, default_value = "site")]
        scope: String,
    },
}

pub(super) async fn command(client: Client, command: FlagCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        FlagCommand::List => {
            let (flags, now) = (client.flags().await?.items, client.info().await?.now);
            if out.is_json() {
                out.print_json(&flags);
            } else if flags.is_empty() {
                out.inform("no flag is set");
            } else {
                print_table(&flags, now, out);
            }
        }
        FlagCommand::Set { flag, scope, note, until } => {
            let now = client.info().await?.now;
            let until_at = until.map(|until| until.resolve_future(now));
            let set = client.set_flag(&SetFlag { flag, scope, note, until_at }).await?;
            if out.is_json() {
                out.print_json(&set);
            } else {
                let end = set.until_at.map_or_else(
                    || "until it is cleared".to_owned(),
                    |until| format!("until {}", until.to_rfc3339()),
                );
                out.print(format!("{flag} is set for {} {end}", set.scope));
            }
        }
        FlagCommand::Clear { flag, scope } => {
            let was_set = client.clear_flag(&ClearFlag { flag, scope: scope.clone() }).await?.resumed;
            if out.is_json() {
                out.print_json(&serde_json::json!({"flag": flag, "scope": scope, "cleared": was_set}));
            } else if was_set {
                out.print(format!("{flag} is cleared for {scope}"));
            } else {
                out.print(format!("{flag} was not set for {scope}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_table(flags: &[Flag], now: Timestamp, out: Out) {
    let rows: Vec<Vec<Cell>> = flags
        .iter()
        .map(|flag| {
            let ends = match flag.until_at {
                Some(until) if flag.is_on(now) => times::format_relative(until, now),
                Some(_) => "ended".to_owned(),
                None => "–".to_owned(),
            };
            vec![
                Cell::new(flag.flag.to_string(), if flag.is_on(now) { Style::Warning } else { Style::Dim }),
                flag.scope.as_str().into(),
                times::format_relative(flag.since, now).into(),
                ends.into(),
                format!("{} ({})", flag.set_by.as_deref().unwrap_or("–"), flag.source).into(),
                flag.note.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.print_table(&["FLAG", "SCOPE", "SINCE", "ENDS", "BY", "NOTE"], &rows);
}
