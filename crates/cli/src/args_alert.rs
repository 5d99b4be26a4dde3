//! The command line of alerts.

use clap::Subcommand;
use tidemill_core::alert::AlertKind;

#[derive(Debug, Subcommand)]
pub(crate) enum AlertCommand {
    /// List alerts, the newest first.
    List {
        /// Of this project.
        #[arg(long)]
        project: Option<String>,
        /// Of this kind.
        #[arg(long)]
        kind: Option<AlertKind>,
        /// Those that are over as well.
        #[arg(long)]
        all: bool,
        /// At most so many.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Send a test message to one target of the configuration, or to all of them.
    Test {
        /// The target.
        target: Option<String>,
    },
}
