//! Webhooks: add, list, remove.

use crate::args_hook::HookCommand;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use std::process::ExitCode;
use tidemill_core::hook::{Hook, default_rules};
use tidemill_engine::Engine;

pub(super) async fn command(engine: Engine, command: HookCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        HookCommand::Add { name, project, kind, secret_env, rules, paused } => {
            let now = engine.store().now(None).await?;
            let hook = Hook {
                hook: name,
                project_id: project,
                kind,
                secret_env,
                rules: if rules.is_empty() { default_rules() } else { rules },
                paused_at: paused.then_some(now),
                created_at: now,
            };
            let kept = engine.put_hook(hook).await?;
            if out.is_json() {
                out.json(&kept);
            } else {
                out.line(format!("hook {} takes deliveries at /v1/hooks/{}", kept.hook, kept.hook));
                out.say(format!("the server must have the secret in {}", kept.secret_env));
                tell_what_is_missing(&engine, &kept, out).await?;
            }
        }
        HookCommand::List => list(&engine, out).await?,
        HookCommand::Remove { name } => {
            engine.store().remove_hook(name.clone(), None).await?;
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
async fn tell_what_is_missing(engine: &Engine, hook: &Hook, out: Out) -> Result<(), Failure> {
    let projects = engine.store().projects().await?;
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

async fn list(engine: &Engine, out: Out) -> Result<(), Failure> {
    let hooks = engine.store().hooks(None, None).await?;
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
