//! `tidemill project`: projects and their environments.

use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::requests;
use crate::times::{self, When};
use clap::Subcommand;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::request;
use tidemill_store::Error;
use tidemill_wire::projects::{Pause, PutProject};

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectCommand {
    /// Create a project, or add environments to an existing one
    #[command(after_help = "Example:\n  tidemill project create shop --env staging --env production")]
    Create {
        /// Id of the project: lower-case letters, digits and hyphens
        id: String,
        /// Environment of the project; may be repeated
        #[arg(long = "env", value_name = "NAME", required = true)]
        environments: Vec<String>,
    },
    /// List projects
    #[command(after_help = "Example:\n  tidemill project list")]
    List,
    /// Stop workers from claiming the runs of a project
    #[command(after_help = "Example:\n  tidemill project pause shop --until 2h --note release")]
    Pause {
        /// Id of the project
        id: String,
        /// Reason, shown to other operators
        #[arg(long)]
        note: Option<String>,
        /// End of the pause: a time, or a duration from now such as 2h; the default is until it is resumed
        #[arg(long, value_parser = times::parse_when)]
        until: Option<When>,
    },
    /// Let workers claim the runs of a paused project again
    #[command(after_help = "Example:\n  tidemill project resume shop")]
    Resume {
        /// Id of the project
        id: String,
    },
}

pub(super) async fn command(client: Client, command: ProjectCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ProjectCommand::Create { id, environments } => create(&client, &id, environments, out).await,
        ProjectCommand::List => list(&client, out).await,
        ProjectCommand::Pause { id, note, until } => {
            requests::check_project(&id)?;
            let now = client.info().await?.now;
            let pause = Pause { note, until_at: until.map(|until| until.resolve_future(now)) };
            let flag = client.pause_project(&id, &pause).await?;
            if out.is_json() {
                out.print_json(&flag);
            } else {
                let end = flag.until_at.map_or_else(
                    || "until it is resumed".to_owned(),
                    |until| format!("until {}", until.to_rfc3339()),
                );
                out.print(format!("project {id} is paused {end}; claimed runs continue"));
            }
            Ok(ExitCode::SUCCESS)
        }
        ProjectCommand::Resume { id } => {
            requests::check_project(&id)?;
            let was_paused = client.resume_project(&id).await?.resumed;
            if out.is_json() {
                out.print_json(&serde_json::json!({"project_id": id, "resumed": was_paused}));
            } else if was_paused {
                out.print(format!("project {id} is resumed"));
            } else {
                out.print(format!("project {id} was not paused"));
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
        out.print_json(
            &serde_json::json!({"project_id": id, "environments": environments, "created": created}),
        );
    } else if created {
        out.print(format!("project {id} created with {}", environments.join(", ")));
    } else {
        out.print(format!("project {id} already exists, with {}", environments.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, out: Out) -> Result<ExitCode, Failure> {
    let projects = client.projects().await?.items;
    if out.is_json() {
        out.print_json(&projects);
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = projects
        .iter()
        .map(|project| {
            let state = match project.paused.as_ref().filter(|flag| flag.is_on(now)) {
                Some(flag) => {
                    let until = flag.until_at.map_or_else(String::new, |until| {
                        format!(", ends {}", times::format_relative(until, now))
                    });
                    let note = flag.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
                    Cell::new(format!("paused{until}{note}"), Style::Warning)
                }
                None => Cell::new("active".to_owned(), Style::Success),
            };
            vec![
                project.project_id.as_str().into(),
                project.environments.join(", ").into(),
                times::format_relative(project.created_at, now).into(),
                state,
            ]
        })
        .collect();
    out.print_table(&["PROJECT", "ENVIRONMENTS", "CREATED", "STATE"], &rows);
    Ok(ExitCode::SUCCESS)
}
