//! `tidemill man`: the manual pages.

use crate::args::Arguments;
use crate::failure::Failure;
use clap::{Args, CommandFactory as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// The directory to write to
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tidemill man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory for the pages; it is created if it does not exist
    pub(crate) directory: PathBuf,
}

/// Writes one page for `tidemill` and one for each of its commands.
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let written = std::fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), &args.directory));
    written.map_err(|error| {
        let shown = args.directory.display();
        Failure::outage(format!("could not write the manual pages to `{shown}`: {error}"))
    })?;
    Ok(ExitCode::SUCCESS)
}
