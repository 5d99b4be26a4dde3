//! `tidemill schedule`: cron schedules that queue runs.

use super::run::args::RunRequestArgs;
use super::run::queue_run;
use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::requests;
use crate::times;
use clap::Subcommand;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::request;
use tidemill_core::schedule::{MissedPolicy, OverlapPolicy};
use tidemill_engine::parse_cron;
use tidemill_store::Error;
use tidemill_wire::schedules::{PauseSchedule, PutSchedule};

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Create a schedule, or change an existing one
    #[command(after_help = "Example:\n  tidemill schedule add nightly --cron '30 2 * * *' \
                            --project shop --env staging")]
    Add {
        /// Name of the schedule
        name: String,
        /// Cron expression with five fields, or a shortcut such as @daily
        #[arg(long)]
        cron: String,
        /// Time zone of the cron expression
        #[arg(long, default_value = "UTC", value_name = "ZONE")]
        time_zone: String,
        /// Policy for missed fires: skip, once or all
        #[arg(long, default_value = "once")]
        missed: MissedPolicy,
        /// Policy while the previous run of the schedule has not ended: allow or skip
        #[arg(long, default_value = "skip")]
        overlap: OverlapPolicy,
        #[command(flatten)]
        request: Box<RunRequestArgs>,
    },
    /// List schedules and their next fires
    #[command(after_help = "Example:\n  tidemill schedule list")]
    List,
    /// Remove a schedule; the runs that it queued stay
    #[command(after_help = "Example:\n  tidemill schedule remove nightly")]
    Remove {
        /// Name of the schedule
        name: String,
    },
    /// Stop a schedule from firing
    #[command(after_help = "Example:\n  tidemill schedule pause nightly --note holidays")]
    Pause {
        /// Name of the schedule
        name: String,
        /// Reason, shown to other operators
        #[arg(long)]
        note: Option<String>,
    },
    /// Let a paused schedule fire again
    #[command(after_help = "Example:\n  tidemill schedule resume nightly")]
    Resume {
        /// Name of the schedule
        name: String,
    },
}

pub(super) async fn command(client: Client, command: ScheduleCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ScheduleCommand::Add { name, cron, time_zone, missed, overlap, request } => {
            let request = queue_run(*request);
            request::check_name("schedule", &name).map_err(Error::from)?;
            request.check().map_err(Error::from)?;
            parse_cron(&cron, &time_zone)?;
            let put = PutSchedule { cron, time_zone, request: request.into(), missed, overlap };
            let schedule = client.put_schedule(&name, &put).await?;
            if out.is_json() {
                out.print_json(&schedule);
            } else {
                let next = schedule.next_fire_at.map_or_else(|| "never".to_owned(), |next| next.to_rfc3339());
                out.print(format!("schedule {} fires next at {next}", schedule.schedule_id));
                out.inform("schedules fire only while a worker or `tidemill sweep --loop` is running");
            }
        }
        ScheduleCommand::List => list(&client, out).await?,
        ScheduleCommand::Remove { name } => {
            requests::check_schedule(&name)?;
            client.remove_schedule(&name).await?;
            print_done(&name, "is removed; its runs stay", out);
        }
        ScheduleCommand::Pause { name, note } => {
            requests::check_schedule(&name)?;
            client.pause_schedule(&name, &PauseSchedule { note }).await?;
            print_done(&name, "is paused", out);
        }
        ScheduleCommand::Resume { name } => {
            requests::check_schedule(&name)?;
            let next = client.resume_schedule(&name).await?.next_fire_at;
            let next = next.map_or_else(|| "never".to_owned(), |next| next.to_rfc3339());
            print_done(&name, &format!("fires next at {next}"), out);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_done(name: &str, what: &str, out: Out) {
    if out.is_json() {
        out.print_json(&serde_json::json!({"schedule_id": name, "message": what}));
    } else {
        out.print(format!("schedule {name} {what}"));
    }
}

async fn list(client: &Client, out: Out) -> Result<(), Failure> {
    let schedules = client.schedules().await?.items;
    if out.is_json() {
        out.print_json(&schedules);
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
                    Cell::new(format!("paused{note}"), Style::Warning)
                }
                (None, Some(next)) => Cell::new(times::format_relative(next, now), Style::Plain),
                (None, None) => Cell::new("never".to_owned(), Style::Warning),
            };
            let last = schedule
                .last_fire_at
                .map_or_else(|| "–".to_owned(), |last| times::format_relative(last, now));
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
    out.print_table(&["SCHEDULE", "ENVIRONMENT", "CRON", "ZONE", "LAST", "POLICY", "NEXT"], &rows);
    Ok(())
}
