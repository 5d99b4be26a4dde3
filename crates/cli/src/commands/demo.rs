//! `tidemill demo`: a demonstration of syncs or of runs on a temporary database.

mod console;
mod runs;
mod source;
mod sync;

use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use clap::Args;
use source::DemoFeed;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// The demonstration to run
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tidemill demo --feed rest\n  tidemill demo --runs --serve")]
pub(crate) struct DemoArgs {
    /// Number of stones that the simulated supplier offers
    #[arg(long, default_value_t = 50_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(100..=2_000_000))]
    pub(crate) stones: u32,
    /// Feed to sync: diamonds of a GraphQL API, or items of a paged REST API in a table of your choice
    #[arg(long, value_enum, default_value_t = DemoFeed::Nivoda, value_name = "FEED")]
    pub(crate) feed: DemoFeed,
    /// Demonstrate runs instead of syncs: one of three workers is killed, and every request ends exactly once
    #[arg(long, conflicts_with = "feed")]
    pub(crate) runs: bool,
    /// Create the database at this path, and keep it after the demonstration
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
    /// Serve the console on the data of the demonstration until Ctrl-C
    #[arg(long)]
    pub(crate) serve: bool,
    /// Address of the console; the default is server.listen of the configuration, 127.0.0.1:7171
    #[arg(long, value_name = "ADDR", requires = "serve")]
    pub(crate) listen: Option<SocketAddr>,
}

pub(super) async fn demo(args: DemoArgs, config: &Config, out: Out) -> Result<ExitCode, Failure> {
    if args.runs { runs::demo(args, config, out).await } else { sync::demo(args, config, out).await }
}

/// Creates a directory of our own. An existing one is an error, because another user may have prepared it.
fn create_directory() -> Result<PathBuf, Failure> {
    let directory = std::env::temp_dir().join(format!("tidemill-demo-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&directory).map_err(|error| {
        Failure::outage(format!("could not create directory `{}`: {error}", directory.display()))
    })?;
    Ok(directory)
}

/// The refusal to write into an existing file.
fn file_exists(file: &std::path::Path) -> Failure {
    Failure::refused(format!("file `{}` already exists; --keep needs the path of a new file", file.display()))
}
