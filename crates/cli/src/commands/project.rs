//! Projects: create, list, pause, resume.

use crate::args::ProjectCommand;
use crate::asking;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::request;
use tidemill_store::Error;
use tidemill_wire::projects::{Pause, PutProject};

pub(super) async fn command(client: Client, command: ProjectCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ProjectCommand::Create { id, environments } => create(&client, &id, environments, out).await,
        ProjectCommand::List => list(&client, out).await,
        ProjectCommand::Pause { id, note, until } => {
            asking::project(&id)?;
            let now = client.info().await?.now;
            let pause = Pause { note, until_at: until.map(|until| until.from(now)) };
            let flag = client.pause_project(&id, &pause).await?;
            if out.is_json() {
                out.json(&flag);
            } else {
                let end = flag.until_at.map_or_else(
                    || "until it is resumed".to_owned(),
                    |until| format!("until {}", until.to_rfc3339()),
                );
                out.line(format!("project {id} is paused {end}; runs in hand go on"));
            }
            Ok(ExitCode::SUCCESS)
        }
        ProjectCommand::Resume { id } => {
            asking::project(&id)?;
            let was = client.resume_project(&id).await?.resumed;
            if out.is_json() {
                out.json(&serde_json::json!({"project_id": id, "resumed": was}));
            } else if was {
                out.line(format!("project {id} goes on"));
            } else {
                out.line(format!("project {id} was not paused"));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn create(client: &Client, id: &str, environments: Vec<String>, out: Out) -> Result<ExitCode, Failure> {
    request::check_name("project", id).map_err(Error::from)?;
    for name in &environments {
        request::check_name("environment", name).map_err(Error::from)?;
    }
    let put = PutProject { environments };
    let created = client.put_project(id, &put).await?.created;
    let environments = put.environments;
    if out.is_json() {
        out.json(&serde_json::json!({"project_id": id, "environments": environments, "created": created}));
    } else if created {
        out.line(format!("project {id} is there, with {}", environments.join(", ")));
    } else {
        out.line(format!("project {id} was there already, with {}", environments.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, out: Out) -> Result<ExitCode, Failure> {
    let projects = client.projects().await?.items;
    if out.is_json() {
        out.json(&projects);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = projects
        .iter()
        .map(|project| {
            let state = match project.paused.as_ref().filter(|flag| flag.is_on(now)) {
                Some(flag) => {
                    let until = flag
                        .until_at
                        .map_or_else(String::new, |until| format!(", ends {}", times::relative(until, now)));
                    let note = flag.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
                    Cell(format!("paused{until}{note}"), Style::Odd)
                }
                None => Cell("active".to_owned(), Style::Good),
            };
            vec![
                project.project_id.as_str().into(),
                project.environments.join(", ").into(),
                times::relative(project.created_at, now).into(),
                state,
            ]
        })
        .collect();
    out.table(&["PROJECT", "ENVIRONMENTS", "CREATED", "STATE"], &rows);
    Ok(ExitCode::SUCCESS)
}
