//! `tidemill hook`: webhooks that queue runs.

use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::requests;
use clap::Subcommand;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::hook::{Hook, HookKind, HookRule};
use tidemill_core::request;
use tidemill_store::Error;
use tidemill_wire::hooks::PutHook;

#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// Create a webhook, or change an existing one
    #[command(after_help = "Example:\n  tidemill hook add shop --project shop --secret-env HOOK_SECRET \
                            --rule main=production")]
    Add {
        /// Name of the webhook, the last part of its path: /v1/hooks/NAME
        name: String,
        /// Project whose runs the webhook queues
        #[arg(long, value_name = "PROJECT")]
        project: String,
        /// Type of the sender: github or generic
        #[arg(long, default_value = "github")]
        kind: HookKind,
        /// Environment variable of the server that contains the secret
        #[arg(long, value_name = "VAR")]
        secret_env: String,
        /// Environment for branches that match the pattern; the first matching rule applies; may be repeated
        #[arg(long = "rule", value_name = "PATTERN=ENV", value_parser = parse_rule)]
        rules: Vec<HookRule>,
        /// Accept deliveries, but queue no runs
        #[arg(long)]
        paused: bool,
    },
    /// List webhooks and their rules
    #[command(after_help = "Example:\n  tidemill hook list")]
    List,
    /// Remove a webhook; the runs that it queued stay
    #[command(after_help = "Example:\n  tidemill hook remove shop")]
    Remove {
        /// Name of the webhook
        name: String,
    },
}

fn parse_rule(text: &str) -> Result<HookRule, String> {
    match text.rsplit_once('=') {
        Some((pattern, env)) if !pattern.is_empty() && !env.is_empty() => {
            Ok(HookRule { pattern: pattern.to_owned(), env: env.to_owned() })
        }
        Some(_) | None => Err("it must be PATTERN=ENV, such as release/*=prod".to_owned()),
    }
}

pub(super) async fn command(client: Client, command: HookCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        HookCommand::Add { name, project, kind, secret_env, rules, paused } => {
            request::check_name("hook", &name).map_err(Error::from)?;
            let put = PutHook { project, kind, secret_env, rules, paused };
            let hook = client.put_hook(&name, &put).await?;
            if out.is_json() {
                out.print_json(&hook);
            } else {
                out.print(format!("hook {} accepts deliveries at /v1/hooks/{}", hook.hook, hook.hook));
                out.inform(format!(
                    "set the secret in the environment variable {} of the server",
                    hook.secret_env
                ));
                warn_of_missing_environments(&client, &hook, out).await?;
            }
        }
        HookCommand::List => list(&client, out).await?,
        HookCommand::Remove { name } => {
            requests::check_hook(&name)?;
            client.remove_hook(&name).await?;
            if out.is_json() {
                out.print_json(&serde_json::json!({"hook": name, "removed": true}));
            } else {
                out.print(format!("hook {name} removed; its runs stay"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The default rules use environments that the project may not have.
async fn warn_of_missing_environments(client: &Client, hook: &Hook, out: Out) -> Result<(), Failure> {
    let projects = client.projects().await?.items;
    let Some(project) = projects.iter().find(|project| project.project_id == hook.project_id) else {
        return Ok(());
    };
    for rule in hook.rules.iter().filter(|rule| !project.environments.contains(&rule.env)) {
        let (pattern, env) = (&rule.pattern, &rule.env);
        out.inform(format!(
            "warning: rule {pattern} uses environment {env}, which does not exist; its pushes are refused"
        ));
        out.inform(format!("hint: tidemill project create {} --env {env}", hook.project_id));
    }
    Ok(())
}

async fn list(client: &Client, out: Out) -> Result<(), Failure> {
    let hooks = client.hooks().await?.items;
    if out.is_json() {
        out.print_json(&hooks);
        return Ok(());
    }
    let rows: Vec<Vec<Cell>> = hooks
        .iter()
        .map(|hook| {
            let rules: Vec<String> =
                hook.rules.iter().map(|rule| format!("{} → {}", rule.pattern, rule.env)).collect();
            let state = match hook.paused_at {
                Some(_) => Cell::new("paused".to_owned(), Style::Warning),
                None => Cell::new("active".to_owned(), Style::Plain),
            };
            vec![
                hook.hook.as_str().into(),
                hook.project_id.as_str().into(),
                hook.kind.to_string().into(),
                hook.secret_env.as_str().into(),
                hook.defined_by.to_string().into(),
                rules.join(", ").into(),
                state,
            ]
        })
        .collect();
    out.print_table(&["HOOK", "PROJECT", "KIND", "SECRET VARIABLE", "DEFINED BY", "RULES", "STATE"], &rows);
    Ok(())
}
