//! Projects: create, list, pause, resume.

use crate::args::ProjectCommand;
use crate::environment;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_core::project::{Flag, FlagName, project_scope};
use tidemill_core::request;
use tidemill_engine::Engine;
use tidemill_store::{Error, RefusalCode};

pub(super) async fn command(engine: Engine, command: ProjectCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ProjectCommand::Create { id, environments } => create(&engine, &id, environments, out).await,
        ProjectCommand::List => list(&engine, out).await,
        ProjectCommand::Pause { id, note, until } => {
            must_exist(&engine, &id).await?;
            let now = engine.store().now(None).await?;
            let flag = Flag {
                flag: FlagName::Paused,
                scope: project_scope(&id),
                note,
                since: now,
                until_at: until.map(|until| until.from(now)),
                set_by: Some(environment::person()),
            };
            engine.store().set_flag(flag.clone()).await?;
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
            must_exist(&engine, &id).await?;
            let was = engine.store().clear_flag(FlagName::Paused, project_scope(&id)).await?;
            engine.store().wake_soon();
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

async fn create(engine: &Engine, id: &str, environments: Vec<String>, out: Out) -> Result<ExitCode, Failure> {
    request::check_name("project", id).map_err(Error::from)?;
    for name in &environments {
        request::check_name("environment", name).map_err(Error::from)?;
    }
    let created = engine.store().create_project(id, environments.clone(), None).await?;
    if out.is_json() {
        out.json(&serde_json::json!({"project_id": id, "environments": environments, "created": created}));
    } else if created {
        out.line(format!("project {id} is there, with {}", environments.join(", ")));
    } else {
        out.line(format!("project {id} was there already, with {}", environments.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(engine: &Engine, out: Out) -> Result<ExitCode, Failure> {
    let projects = engine.store().projects().await?;
    if out.is_json() {
        out.json(&projects);
        return Ok(ExitCode::SUCCESS);
    }
    let now = engine.store().now(None).await?;
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

async fn must_exist(engine: &Engine, id: &str) -> Result<(), Failure> {
    let projects = engine.store().projects().await?;
    if projects.iter().any(|project| project.project_id == id) {
        return Ok(());
    }
    Err(Error::refused(RefusalCode::UnknownProject, format!("project `{id}` does not exist")).into())
}
