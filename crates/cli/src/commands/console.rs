//! `tidemill console`: a one-time link to the console of a local server.

use super::server::browsable;
use crate::args::Global;
use crate::config::Config;
use crate::failure::Failure;
use crate::local_token::{self, LocalServer};
use crate::out::Out;
use crate::{environment, remote, times};
use clap::Args;
use std::net::SocketAddr;
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tidemill_client::Client;
use tidemill_core::limits::SIGN_IN_LINK_SECS;

/// The link to create
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidemill console\n  tidemill console --server http://127.0.0.1:8080 --no-open"
)]
pub(crate) struct ConsoleArgs {
    /// Print the link, and do not open it in a browser
    #[arg(long)]
    pub(crate) no_open: bool,
}

/// Creates a link at the server of `--server`, or at the configured address.
pub(super) async fn console(
    global: &Global,
    config: &Config,
    args: ConsoleArgs,
    out: Out,
) -> Result<ExitCode, Failure> {
    let server =
        global.server.clone().unwrap_or_else(|| format!("http://{}", browsable(config.server.listen)));
    let client = Client::new(remote::transport_to(&server, global, config)?);
    let link = client.create_sign_in_link().await.map_err(|error| {
        let is_away = matches!(error, tidemill_client::Error::Unreachable { .. });
        let failure = Failure::from(error);
        if is_away { failure.with_hint("start a server with `tidemill up`") } else { failure }
    })?;
    if out.is_json() {
        out.print_json(&link);
    } else {
        out.print(link.url.as_str());
        out.inform(format!("the link is {}", validity()));
    }
    if !args.no_open
        && let Some(local) = LocalServer::of_url(&server, config)?
    {
        open(config, local.address, &link.url, out);
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes how often and how long a link works.
pub(super) fn validity() -> String {
    let time = times::format_exact(Duration::from_secs(SIGN_IN_LINK_SECS.into()));
    format!("valid once, for {time}")
}

/// Opens a link in the browser of this desktop, if there is one and a person watches. A failure leaves the printed
/// link.
pub(super) fn open(config: &Config, address: SocketAddr, url: &str, out: Out) {
    if !out.is_live() || !environment::has_display() {
        return;
    }
    let Ok(page) = local_token::write_page(config, address, url) else { return };
    let mut command = tokio::process::Command::new("xdg-open");
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The runtime reaps the process when it ends.
    let _ = command.spawn();
}
