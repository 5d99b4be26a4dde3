//! Tokens: create, list, revoke.

use crate::args_access::TokenCommand;
use crate::asking;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::access::{self, Standing, Token, standing};
use tidemill_store::Error;
use tidemill_wire::access::{ListTokens, NewToken, TokenMade};

pub(super) async fn command(client: Client, command: TokenCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        TokenCommand::Create { name, role, project, expires } => {
            let expires_in_secs = expires.map(|expires| expires.as_secs());
            let new = NewToken { name, role, project, expires_in_secs };
            check(&new)?;
            // Asked again after a lost answer, it makes no second token that nobody knows of.
            let key = format!("cli-{}", uuid::Uuid::new_v4());
            let TokenMade { token, secret } = client.create_token(&new, Some(key)).await?;
            if out.is_json() {
                out.json(&serde_json::json!({"token": token, "secret": secret}));
            } else {
                out.line(secret);
                out.say(format!("token {} is for {}; it is shown this once", token.token_id, scope(&token)));
            }
        }
        TokenCommand::List => list(&client, out).await?,
        TokenCommand::Revoke { id } => {
            let token = client.revoke_token(id).await?;
            if out.is_json() {
                out.json(&token);
            } else {
                out.line(format!("token {id} ({}) is revoked; servers follow within 5 seconds", token.name));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses what no token can be, in the words of its own rules.
fn check(new: &NewToken) -> Result<(), Failure> {
    let NewToken { name, role, project, expires_in_secs } = new.clone();
    let new = access::NewToken { name, role, project_id: project, expires_in_secs };
    Ok(new.check().map_err(Error::from)?)
}

fn scope(token: &Token) -> String {
    let projects =
        token.project_id.as_ref().map_or_else(|| "all projects".to_owned(), |name| format!("project {name}"));
    format!("role {} in {projects}", token.role)
}

async fn list(client: &Client, out: Out) -> Result<(), Failure> {
    let tokens = asking::listed(usize::MAX, async |after, limit| {
        client.tokens(&ListTokens { project: None, after, limit }).await
    })
    .await?;
    if out.is_json() {
        out.json(&tokens);
        return Ok(());
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = tokens.iter().map(|token| row(token, now)).collect();
    out.table(&["TOKEN", "ROLE", "PROJECT", "STANDING", "LAST USED", "NAME"], &rows);
    Ok(())
}

fn row(token: &Token, now: Timestamp) -> Vec<Cell> {
    let standing = match standing(token, now) {
        Standing::Revoked => Cell("revoked".to_owned(), Style::Dim),
        Standing::Expired => Cell("expired".to_owned(), Style::Dim),
        Standing::Good => match token.expires_at {
            Some(end) => Cell(format!("ends {}", times::relative(end, now)), Style::Good),
            None => Cell("good".to_owned(), Style::Good),
        },
    };
    vec![
        token.token_id.to_string().into(),
        token.role.as_str().into(),
        token.project_id.clone().unwrap_or_else(|| "all".to_owned()).into(),
        standing,
        token.last_used_at.map_or_else(|| "never".to_owned(), |used| times::relative(used, now)).into(),
        token.name.clone().into(),
    ]
}
