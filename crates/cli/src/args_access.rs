//! The command line of tokens.

use crate::times;
use clap::Subcommand;
use std::time::Duration;
use tidemill_core::access::Role;
use uuid::Uuid;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, and print its secret this once.
    Create {
        /// What it is for, in your words.
        name: String,
        /// What its holder may do: viewer, operator, worker, agent or admin.
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// The only project that its holder sees; all, if none is named.
        #[arg(long, value_name = "P")]
        project: Option<String>,
        /// How long it is good, such as 30d; for ever, if nothing is said.
        #[arg(long, value_parser = times::duration, value_name = "TIME")]
        expires: Option<Duration>,
    },
    /// List tokens, the youngest first.
    List,
    /// Take a token back: it is worth nothing from now on.
    Revoke {
        /// Its id.
        id: Uuid,
    },
}
