//! Webhooks: add, list, remove.

use crate::args_hook::HookCommand;
use crate::asking;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::hook::Hook;
use tidemill_core::request;
use tidemill_store::Error;
use tidemill_wire::hooks::PutHook;

pub(super) async fn command(client: Client, command: HookCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        HookCommand::Add { name, project, kind, secret_env, rules, paused } => {
            request::check_name("hook", &name).map_err(Error::from)?;
            let put = PutHook { project, kind, secret_env, rules, paused };
            let kept = client.put_hook(&name, &put).await?;
            if out.is_json() {
                out.json(&kept);
            } else {
                out.line(format!("hook {} takes deliveries at /v1/hooks/{}", kept.hook, kept.hook));
                out.say(format!("the server must have the secret in {}", kept.secret_env));
                tell_what_is_missing(&client, &kept, out).await?;
            }
        }
        HookCommand::List => list(&client, out).await?,
        HookCommand::Remove { name } => {
            asking::hook(&name)?;
            client.remove_hook(&name).await?;
            if out.is_json() {
                out.json(&serde_json::json!({"hook": name, "removed": true}));
            } else {
                out.line(format!("hook {name} is removed; its runs stay"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The usual rules name environments that a project need not have.
async fn tell_what_is_missing(client: &Client, hook: &Hook, out: Out) -> Result<(), Failure> {
    let projects = client.projects().await?.items;
    let Some(project) = projects.iter().find(|project| project.project_id == hook.project_id) else {
        return Ok(());
    };
    for rule in hook.rules.iter().filter(|rule| !project.environments.contains(&rule.env)) {
        let (pattern, env) = (&rule.pattern, &rule.env);
        out.say(format!(
            "warning: {pattern} leads to environment {env}, which is not there; such a push is refused"
        ));
        out.say(format!("hint: tidemill project create {} --env {env}", hook.project_id));
    }
    Ok(())
}

async fn list(client: &Client, out: Out) -> Result<(), Failure> {
    let hooks = client.hooks().await?.items;
    if out.is_json() {
        out.json(&hooks);
        return Ok(());
    }
    let rows: Vec<Vec<Cell>> = hooks
        .iter()
        .map(|hook| {
            let rules: Vec<String> =
                hook.rules.iter().map(|rule| format!("{} → {}", rule.pattern, rule.env)).collect();
            let state = match hook.paused_at {
                Some(_) => Cell("paused".to_owned(), Style::Odd),
                None => Cell("open".to_owned(), Style::Plain),
            };
            vec![
                hook.hook.as_str().into(),
                hook.project_id.as_str().into(),
                hook.kind.to_string().into(),
                hook.secret_env.as_str().into(),
                rules.join(", ").into(),
                state,
            ]
        })
        .collect();
    out.table(&["HOOK", "PROJECT", "KIND", "SECRET IN", "RULES", "STATE"], &rows);
    Ok(())
}
