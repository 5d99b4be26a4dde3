//! `tidemill alert`: alerts, and test messages to alert targets.

use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use clap::Subcommand;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::alert::AlertKind;
use tidemill_wire::alerts::ListAlerts;

#[derive(Debug, Subcommand)]
pub(crate) enum AlertCommand {
    /// List alerts, newest first
    #[command(after_help = "Example:\n  tidemill alert list --project shop --all")]
    List {
        /// Show only alerts of this project
        #[arg(long)]
        project: Option<String>,
        /// Show only alerts of this kind
        #[arg(long)]
        kind: Option<AlertKind>,
        /// Include resolved alerts
        #[arg(long)]
        all: bool,
        /// Maximum number of alerts
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Send a test message to one alert target of the configuration, or to all of them
    #[command(after_help = "Example:\n  tidemill alert test ops-mail")]
    Test {
        /// Name of the target; the default is all targets
        target: Option<String>,
    },
}

pub(super) async fn command(client: Client, command: AlertCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        AlertCommand::List { project, kind, all, limit } => {
            let filter = ListAlerts { project, kind, resolved: Some(all), after: None, limit: Some(limit) };
            list(&client, &filter, out).await
        }
        AlertCommand::Test { target } => test(&client, target, out).await,
    }
}

async fn list(client: &Client, filter: &ListAlerts, out: Out) -> Result<ExitCode, Failure> {
    let alerts = client.alerts(filter).await?.items;
    if out.is_json() {
        out.print_json(&alerts);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = alerts
        .iter()
        .map(|alert| {
            let style = match (alert.resolved_at, alert.kind.is_good_news()) {
                (Some(_), _) | (_, true) => Style::Plain,
                (None, false) => Style::Error,
            };
            vec![
                Cell::new(alert.kind.to_string(), style),
                times::format_relative(alert.last_at, now).into(),
                alert.times.to_string().into(),
                if alert.resolved_at.is_some() { "resolved" } else { "active" }.into(),
                alert.message.as_str().into(),
                alert.command.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.print_table(&["ALERT", "LAST", "TIMES", "STATE", "WHAT HAPPENED", "COMMAND"], &rows);
    Ok(ExitCode::SUCCESS)
}

async fn test(client: &Client, target: Option<String>, out: Out) -> Result<ExitCode, Failure> {
    let results = client.test_alerts(target).await?.items;
    if results.is_empty() {
        return Err(Failure::refused("no alert targets are configured")
            .with_hint("add [[alerts.targets]] to tidemill.toml"));
    }
    if out.is_json() {
        out.print_json(&results);
    }
    let mut failures = Vec::new();
    for result in &results {
        match &result.error {
            None if out.is_json() => {}
            None => out.print(format!("test message sent to {}", result.target)),
            Some(error) => failures.push(format!("could not send to {}: {error}", result.target)),
        }
    }
    if failures.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(Failure::outage(failures.join("; "))) }
}
