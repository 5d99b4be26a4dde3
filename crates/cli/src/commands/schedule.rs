//! Schedules: add, list, remove, pause, resume.

use super::run::asked;
use crate::args::ScheduleCommand;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_engine::{Engine, NewSchedule};

pub(super) async fn command(engine: Engine, command: ScheduleCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ScheduleCommand::Add { name, cron, time_zone, missed, overlap, request } => {
            let request = asked(*request);
            let kept =
                engine.put_schedule(NewSchedule { name, cron, time_zone, request, missed, overlap }).await?;
            if out.is_json() {
                out.json(&kept);
            } else {
                let next = kept.next_fire_at.map_or_else(|| "never".to_owned(), |next| next.to_rfc3339());
                out.line(format!("schedule {} fires next at {next}", kept.schedule_id));
                out.say("a worker, or tidemill sweep --loop, must be running to fire it");
            }
        }
        ScheduleCommand::List => list(&engine, out).await?,
        ScheduleCommand::Remove { name } => {
            engine.store().remove_schedule(name.clone()).await?;
            done(&name, "is removed; its runs stay", out);
        }
        ScheduleCommand::Pause { name, note } => {
            engine.pause_schedule(&name, note).await?;
            done(&name, "is paused", out);
        }
        ScheduleCommand::Resume { name } => {
            let next = engine.resume_schedule(&name).await?;
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

async fn list(engine: &Engine, out: Out) -> Result<(), Failure> {
    let schedules = engine.store().schedules(None).await?;
    if out.is_json() {
        out.json(&schedules);
        return Ok(());
    }
    let now = engine.store().now(None).await?;
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
