//! `tidemill config`: default configuration, and the check of a configuration file.

use crate::args::Global;
use crate::config::reach::describe;
use crate::config::{config_file, default_text, load};
use crate::failure::Failure;
use crate::out::Out;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every key with its default and its description
    #[command(after_help = "Example:\n  tidemill config default > tidemill.toml")]
    Default,
    /// Check the configuration, and report every error
    #[command(after_help = "Example:\n  tidemill config check --config tidemill.toml")]
    Check,
}

pub(crate) fn command(command: &ConfigCommand, global: &Global, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ConfigCommand::Default => {
            out.print_document(&default_text());
        }
        ConfigCommand::Check => {
            let reach = load(global)?.reach;
            if out.is_json() {
                out.print_json(&serde_json::json!({"ok": true, "reach": reach}));
            } else {
                out.print(match config_file(global) {
                    Some(path) => format!("configuration `{}` is valid", path.display()),
                    None => "no configuration file; the defaults apply".to_owned(),
                });
                for line in describe(&reach) {
                    out.print(format!("reach of {line}"));
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
