//! Tokens: create, list, revoke.

use crate::args_access::TokenCommand;
use crate::environment;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_core::Timestamp;
use tidemill_core::access::{NewAudit, NewToken, Role, Standing, Token, standing};
use tidemill_core::limits::BATCH_MAX;
use tidemill_engine::Engine;
use tidemill_store::Slice;

pub(super) async fn command(engine: Engine, command: TokenCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        TokenCommand::Create { name, role, project, expires } => {
            let expires_in_secs = expires.map(|expires| expires.as_secs());
            let new = NewToken { name, role, project_id: project, expires_in_secs };
            let (token, secret) = engine.create_token(new, &environment::person()).await?;
            record(&engine, "tokens.create", &token).await?;
            if out.is_json() {
                out.json(&serde_json::json!({"token": token, "secret": secret.reveal()}));
            } else {
                out.line(secret.reveal());
                out.say(format!("token {} is for {}; it is shown this once", token.token_id, scope(&token)));
            }
        }
        TokenCommand::List => list(&engine, out).await?,
        TokenCommand::Revoke { id } => {
            let token = engine.revoke_token(id, None, &environment::person()).await?;
            record(&engine, "tokens.delete", &token).await?;
            if out.is_json() {
                out.json(&token);
            } else {
                out.line(format!("token {id} ({}) is revoked; servers follow within 5 seconds", token.name));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What somebody does at the database itself goes on record like everything else.
async fn record(engine: &Engine, action: &str, token: &Token) -> Result<(), Failure> {
    let audit = NewAudit {
        who: environment::person(),
        token_id: None,
        role: Role::Admin,
        action: action.to_owned(),
        subject: Some(token.token_id.to_string()),
        project_id: token.project_id.clone(),
        detail: serde_json::json!({"name": token.name, "role": token.role}),
        source: None,
    };
    Ok(engine.record(audit).await?)
}

fn scope(token: &Token) -> String {
    let projects =
        token.project_id.as_ref().map_or_else(|| "all projects".to_owned(), |name| format!("project {name}"));
    format!("role {} in {projects}", token.role)
}

async fn list(engine: &Engine, out: Out) -> Result<(), Failure> {
    let mut tokens: Vec<Token> = Vec::new();
    loop {
        let before = tokens.last().map(|token| token.token_id);
        let page = engine.store().tokens(Slice { project: None, before, limit: BATCH_MAX }).await?;
        let last = page.len() < BATCH_MAX;
        tokens.extend(page);
        if last {
            break;
        }
    }
    if out.is_json() {
        out.json(&tokens);
        return Ok(());
    }
    let now = engine.store().now(None).await?;
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
