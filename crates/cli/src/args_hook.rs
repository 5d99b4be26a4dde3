//! The command line of webhooks.

use clap::Subcommand;
use tidemill_core::hook::{HookKind, HookRule};

#[derive(Debug, Subcommand)]
pub(crate) enum HookCommand {
    /// Set up a webhook, or change the one of that name.
    Add {
        /// Its name, which is the last part of its address: /v1/hooks/NAME.
        name: String,
        /// The project whose runs it queues.
        #[arg(long, value_name = "P")]
        project: String,
        /// Who sends: github or generic.
        #[arg(long, default_value = "github")]
        kind: HookKind,
        /// The environment variable of the server that holds the secret.
        #[arg(long, value_name = "VAR")]
        secret_env: String,
        /// Which branch is for which environment; the first that fits decides.
        #[arg(long = "rule", value_name = "PATTERN=ENV", value_parser = rule)]
        rules: Vec<HookRule>,
        /// Take deliveries, and queue nothing for now.
        #[arg(long)]
        paused: bool,
    },
    /// List webhooks and their rules.
    List,
    /// Remove a webhook; the runs that it queued stay.
    Remove {
        /// Its name.
        name: String,
    },
}

fn rule(text: &str) -> Result<HookRule, String> {
    match text.rsplit_once('=') {
        Some((pattern, env)) if !pattern.is_empty() && !env.is_empty() => {
            Ok(HookRule { pattern: pattern.to_owned(), env: env.to_owned() })
        }
        Some(_) | None => Err("it must be PATTERN=ENV, such as release/*=prod".to_owned()),
    }
}
