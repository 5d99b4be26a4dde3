//! Alerts: list them, and try whether messages arrive.

use crate::args_alert::AlertCommand;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_wire::alerts::ListAlerts;

pub(super) async fn command(client: Client, command: AlertCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        AlertCommand::List { project, kind, all, limit } => {
            let asked = ListAlerts { project, kind, resolved: Some(all), after: None, limit: Some(limit) };
            list(&client, &asked, out).await
        }
        AlertCommand::Test { target } => test(&client, target, out).await,
    }
}

async fn list(client: &Client, asked: &ListAlerts, out: Out) -> Result<ExitCode, Failure> {
    let alerts = client.alerts(asked).await?.items;
    if out.is_json() {
        out.json(&alerts);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = alerts
        .iter()
        .map(|alert| {
            let style = match (alert.resolved_at, alert.kind.is_good_news()) {
                (Some(_), _) | (_, true) => Style::Plain,
                (None, false) => Style::Bad,
            };
            vec![
                Cell(alert.kind.to_string(), style),
                times::relative(alert.last_at, now).into(),
                alert.times.to_string().into(),
                if alert.resolved_at.is_some() { "over" } else { "lasts" }.into(),
                alert.message.as_str().into(),
                alert.command.clone().unwrap_or_default().into(),
            ]
        })
        .collect();
    out.table(&["ALERT", "LAST", "TIMES", "STATE", "WHAT HAPPENED", "COMMAND"], &rows);
    Ok(ExitCode::SUCCESS)
}

async fn test(client: &Client, target: Option<String>, out: Out) -> Result<ExitCode, Failure> {
    let tested = client.test_alerts(target).await?.items;
    if tested.is_empty() {
        return Err(Failure::refused("the configuration names nobody to tell")
            .hint("add [[alerts.targets]] to tidemill.toml"));
    }
    if out.is_json() {
        out.json(&tested);
    }
    let mut missed = Vec::new();
    for one in &tested {
        match &one.error {
            None if out.is_json() => {}
            None => out.line(format!("{} was told", one.target)),
            Some(error) => missed.push(format!("{} was not told: {error}", one.target)),
        }
    }
    if missed.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(Failure::outage(missed.join("; "))) }
}
