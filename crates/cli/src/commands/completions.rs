//! `tidemill completions`: completion scripts for shells.

use crate::args::Arguments;
use clap::{Args, CommandFactory as _};

/// The shell to complete for
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  tidemill completions bash > ~/.local/share/bash-completion/completions/tidemill"
)]
pub(crate) struct CompletionsArgs {
    /// Shell that reads the script
    pub(crate) shell: clap_complete::Shell,
}

pub(crate) fn completions(args: &CompletionsArgs) {
    clap_complete::generate(args.shell, &mut Arguments::command(), "tidemill", &mut std::io::stdout());
}
