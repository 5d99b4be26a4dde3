//! `tidemill token`: access tokens of the HTTP API.

use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::requests;
use crate::times;
use clap::Subcommand;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::access::{self, Role, Token, TokenStatus, token_status};
use tidemill_core::project_set::ProjectSet;
use tidemill_core::shell;
use tidemill_store::Error;
use tidemill_wire::access::{ListTokens, NewToken, NewTokenResponse};
use uuid::Uuid;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token, and print its secret, which is shown only once
    #[command(
        after_help = "Example:\n  tidemill token create ci --role operator --project shop --expires 90d"
    )]
    Create {
        /// Name that describes the purpose of the token
        name: String,
        /// Role of the token: viewer, operator, worker, agent or admin
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// Restrict the token to this project; the default is all projects, except for role agent. Repeat it for
        /// several projects of a token of role agent or worker
        #[arg(long = "project", value_name = "PROJECT", conflicts_with = "all_projects")]
        projects: Vec<String>,
        /// Create the token for all projects; role agent requires this or --project
        #[arg(long)]
        all_projects: bool,
        /// Lifetime of the token, such as 30d; the default is unlimited
        #[arg(long, value_parser = times::parse_duration, value_name = "TIME")]
        expires: Option<Duration>,
    },
    /// List tokens, newest first
    #[command(after_help = "Example:\n  tidemill token list")]
    List,
    /// Revoke a token permanently
    #[command(after_help = "Example:\n  tidemill token revoke 0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e")]
    Revoke {
        /// Id of the token
        id: Uuid,
    },
}

pub(super) async fn command(client: Client, command: TokenCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        TokenCommand::Create { name, role, projects, all_projects, expires } => {
            let expires_in_secs = expires.map(|expires| expires.as_secs());
            let new = NewToken { name, role, projects, all_projects, expires_in_secs };
            check(&new)?;
            // With a key, a retry after a lost response returns the same token instead of creating a second one.
            let key = format!("cli-{}", Uuid::new_v4());
            let NewTokenResponse { token, secret } = client.create_token(&new, Some(key)).await?;
            if out.is_json() {
                out.print_json(&serde_json::json!({"token": token, "secret": secret}));
            } else {
                out.print(secret);
                out.inform(format!(
                    "token {} has {}; its secret is shown only once",
                    token.token_id,
                    describe_scope(&token)
                ));
            }
        }
        TokenCommand::List => list(&client, out).await?,
        TokenCommand::Revoke { id } => {
            let token = client.revoke_token(id).await?;
            if out.is_json() {
                out.print_json(&token);
            } else {
                out.print(format!(
                    "token {id} ({}) is revoked; servers refuse it within 5 seconds",
                    token.name
                ));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the arguments before the request, so that errors name the options.
fn check(new: &NewToken) -> Result<(), Failure> {
    if new.role == Role::Agent && new.projects.is_empty() && !new.all_projects {
        let message = "a token of role agent needs --project PROJECT or --all-projects";
        return Err(Failure::usage(message.to_owned()).with_hint(format!(
            "tidemill token create {} --role agent --project PROJECT",
            shell::quote(&new.name)
        )));
    }
    let NewToken { name, role, projects, all_projects: _, expires_in_secs } = new.clone();
    let projects = if projects.is_empty() { ProjectSet::All } else { ProjectSet::only(projects) };
    let new = access::NewToken { name, role, projects, expires_in_secs };
    Ok(new.check().map_err(Error::from)?)
}

fn describe_scope(token: &Token) -> String {
    format!("role {} in {}", token.role, token.projects)
}

async fn list(client: &Client, out: Out) -> Result<(), Failure> {
    let tokens = requests::read_pages(usize::MAX, async |after, limit| {
        client.tokens(&ListTokens { project: None, after, limit }).await
    })
    .await?;
    if out.is_json() {
        out.print_json(&tokens);
        return Ok(());
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = tokens.iter().map(|token| row(token, now)).collect();
    out.print_table(&["TOKEN", "ROLE", "PROJECTS", "STATUS", "LAST USED", "NAME"], &rows);
    Ok(())
}

fn row(token: &Token, now: Timestamp) -> Vec<Cell> {
    let status = match token_status(token, now) {
        TokenStatus::Revoked => Cell::new("revoked".to_owned(), Style::Dim),
        TokenStatus::Expired => Cell::new("expired".to_owned(), Style::Dim),
        TokenStatus::Valid => match token.expires_at {
            Some(end) => Cell::new(format!("expires {}", times::format_relative(end, now)), Style::Success),
            None => Cell::new("valid".to_owned(), Style::Success),
        },
    };
    vec![
        token.token_id.to_string().into(),
        token.role.as_str().into(),
        token.projects.list().into(),
        status,
        token
            .last_used_at
            .map_or_else(|| "never".to_owned(), |used| times::format_relative(used, now))
            .into(),
        token.name.clone().into(),
    ]
}
