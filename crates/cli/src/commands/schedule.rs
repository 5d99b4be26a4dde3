//! Schedules: add, list, remove, pause, resume.

use super::run::asked;
use crate::args::ScheduleCommand;
use crate::asking;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::request;
use tidemill_engine::parse_cron;
use tidemill_store::Error;
use tidemill_wire::schedules::{PauseSchedule, PutSchedule};

pub(super) async fn command(client: Client, command: ScheduleCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ScheduleCommand::Add { name, cron, time_zone, missed, overlap, request } => {
            let request = asked(*request);
            request::check_name("schedule", &name).map_err(Error::from)?;
            request.check().map_err(Error::from)?;
            parse_cron(&cron, &time_zone)?;
            let put = PutSchedule { cron, time_zone, request: request.into(), missed, overlap };
            let kept = client.put_schedule(&name, &put).await?;
            if out.is_json() {
                out.json(&kept);
            } else {
                let next = kept.next_fire_at.map_or_else(|| "never".to_owned(), |next| next.to_rfc3339());
                out.line(format!("schedule {} fires next at {next}", kept.schedule_id));
                out.say("a worker, or tidemill sweep --loop, must be running to fire it");
            }
        }
        ScheduleCommand::List => list(&client, out).await?,
        ScheduleCommand::Remove { name } => {
            asking::schedule(&name)?;
            client.remove_schedule(&name).await?;
            done(&name, "is removed; its runs stay", out);
        }
        ScheduleCommand::Pause { name, note } => {
            asking::schedule(&name)?;
            client.pause_schedule(&name, &PauseSchedule { note }).await?;
            done(&name, "is paused", out);
        }
        ScheduleCommand::Resume { name } => {
            asking::schedule(&name)?;
            let next = client.resume_schedule(&name).await?.next_fire_at;
            let next = next.map_or_else(|| "never".to_owned(), |next| next.to_rfc3339());
            done(&name, &format!("fires next at {next}"), out);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn done(name: &str, what: &str, out: Out) {
    if out.is_json() {
        out.json(&serde_json::json!({"schedule_id": name, "message": what}));
    } else {
        out.line(format!("schedule {name} {what}"));
    }
}

async fn list(client: &Client, out: Out) -> Result<(), Failure> {
    let schedules = client.schedules().await?.items;
    if out.is_json() {
        out.json(&schedules);
        return Ok(());
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = schedules
        .iter()
        .map(|schedule| {
            let next = match (&schedule.paused_at, schedule.next_fire_at) {
                (Some(_), _) => {
                    let note =
                        schedule.paused_note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
                    Cell(format!("paused{note}"), Style::Odd)
                }
                (None, Some(next)) => Cell(times::relative(next, now), Style::Plain),
                (None, None) => Cell("never".to_owned(), Style::Odd),
            };
            let last =
                schedule.last_fire_at.map_or_else(|| "–".to_owned(), |last| times::relative(last, now));
            vec![
                schedule.schedule_id.as_str().into(),
                format!("{}/{}", schedule.project_id, schedule.request.env).into(),
                schedule.cron.as_str().into(),
                schedule.time_zone.as_str().into(),
                last.into(),
                format!("missed {}, overlap {}", schedule.missed, schedule.overlap).into(),
                next,
            ]
        })
        .collect();
    out.table(&["SCHEDULE", "ENVIRONMENT", "CRON", "ZONE", "LAST", "POLICY", "NEXT"], &rows);
    Ok(())
}
