//! `tidemill server`: the HTTP API and the console.

use crate::config::Config;
use crate::environment;
use crate::failure::Failure;
use crate::local_token::TokenFile;
use crate::out::Out;
use clap::Args;
use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tidemill_api::App;
use tidemill_api::access::{Access, LocalAccess};
use tidemill_api::server::{Server, Tls, raise_file_limit};
use tidemill_core::access::Secret;
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_wire::access::SignInLink;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Time for which a request is retried while the database does not answer. Clients have their own retries.
const PATIENCE: RetryPolicy = RetryPolicy::For(Duration::from_secs(5));

/// Address, TLS and authentication of the server
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  tidemill server\n  \
                        tidemill server --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem")]
pub(crate) struct ServerArgs {
    /// Address to listen on; the default is server.listen of the configuration, 127.0.0.1:7171
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Serve TLS with this PEM file of the certificate and its chain
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Require tokens on loopback addresses, too; without it, only the user of the server has access there
    #[arg(long)]
    pub(crate) auth: bool,
}

/// A server that has bound its address and does not answer yet.
pub(super) struct BoundServer {
    server: Server,
    listener: TcpListener,
    local: Option<LocalAccount>,
}

/// Access of the user of a local server: the token file for programs, and a link for the browser.
struct LocalAccount {
    token_file: TokenFile,
    address: SocketAddr,
    link: SignInLink,
}

pub(super) async fn server(
    engine: Engine,
    config: &Config,
    args: ServerArgs,
    out: Out,
) -> Result<ExitCode, Failure> {
    let stop = super::work::stop_signal();
    let syncs = Syncs::new(engine, config.sync());
    let bound = bind(&syncs, config, &args, out).await?;
    let maintenance = super::services::start_maintenance(&syncs, config.upkeep(), stop.clone());
    bound.serve(stop).await;
    drop(maintenance);
    syncs.engine().store().close().await;
    out.inform("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Binds the address, and prints how to access the server.
pub(super) async fn bind(
    syncs: &Syncs,
    config: &Config,
    args: &ServerArgs,
    out: Out,
) -> Result<BoundServer, Failure> {
    let listen = args.listen.unwrap_or(config.server.listen);
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            let tls = Tls::from_files(certificate, key);
            Some(tls.map_err(|error| Failure::usage(error.to_string()))?)
        }
        _ => None,
    };
    raise_file_limit();
    tidemill_api::metrics::install();
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Failure::outage(format!("could not listen on {listen}: {error}"))
            .with_hint("use another address for --listen, or tidemill up --no-server")
    })?;
    let address = listener.local_addr().unwrap_or(listen);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", browsable(address));
    // After the bind: the first token of a server that cannot start would be lost, and the token file of a running
    // server would be replaced.
    let (access, local) = if address.ip().to_canonical().is_loopback() && !args.auth {
        let (access, account) = local_access(config, address, &url)?;
        (Access::Local(access), Some(account))
    } else {
        (Access::Tokens, None)
    };
    let first_token = match &local {
        Some(_) => None,
        None => tidemill_api::access::first_admin(syncs.engine()).await?.map(|(_, secret)| secret),
    };
    let origin = format!("{scheme}://{address}");
    announce(&origin, &url, first_token.as_ref(), local.as_ref(), out);
    if local.is_none() && tls.is_none() && !address.ip().to_canonical().is_loopback() {
        out.inform("warning: tokens are sent unencrypted; use --tls-cert and --tls-key");
    }
    warn_of_exposed_files(syncs, out);
    let engine = syncs.engine().with_retry_policy(PATIENCE);
    let app = App::new(Syncs::new(engine, config.sync()), access);
    let console = tidemill_console::router(app.clone());
    let mut server = Server::new(app).limits(config.server.limits()).trusted_proxies(config.server.proxies());
    server = server.extra_routes(console).fallback(tidemill_console::not_found());
    if let Some(tls) = tls {
        server = server.tls(tls);
    }
    Ok(BoundServer { server, listener, local })
}

/// Creates the access of the current user to a local server: a new token in a file, and a first link.
fn local_access(
    config: &Config,
    address: SocketAddr,
    url: &str,
) -> Result<(Arc<LocalAccess>, LocalAccount), Failure> {
    let token = Secret::token(tidemill_engine::access::random()?);
    let access = Arc::new(LocalAccess::new(environment::user(), &token, url));
    let link = access.create_link(host_now())?;
    let token_file = TokenFile::write(config, address, &token)?;
    Ok((access, LocalAccount { token_file, address, link }))
}

/// Prints the address of the server, and how to get access to it.
fn announce(origin: &str, url: &str, first_token: Option<&Secret>, local: Option<&LocalAccount>, out: Out) {
    if let Some(secret) = first_token {
        out.inform("first admin token, shown only once:");
        out.inform(secret.reveal());
    }
    if out.is_json() {
        let mut body = serde_json::json!({"address": origin, "asks_for_tokens": local.is_none()});
        if let Some(secret) = first_token {
            body["first_token"] = secret.reveal().into();
        }
        out.print_json(&body);
    }
    out.inform(format!("the server is listening on {origin}"));
    match local {
        // A log must not contain the link: others may read it.
        Some(local) if std::io::stderr().is_terminal() => {
            let validity = super::console::validity();
            out.inform(format!("the console is at {} ({validity})", local.link.url));
            out.inform("only you have access; `tidemill console` prints a new link");
        }
        Some(_) => {
            out.inform(format!("the console is at {url}/"));
            out.inform("only the user of this process has access; sign in with `tidemill console`");
        }
        None => {
            out.inform(format!("the console is at {url}/"));
            out.inform("tokens are required; create one with `tidemill token create NAME --role ROLE`");
        }
    }
}

/// Warns of database files that other users of this machine can read.
fn warn_of_exposed_files(syncs: &Syncs, out: Out) {
    for path in syncs.engine().store().exposed_files() {
        let shown = path.display();
        out.inform(format!("warning: other users can access {shown}; run `chmod 600 {shown}`"));
    }
}

/// Replaces an unspecified address by loopback, so that a browser on this machine can open it.
pub(super) fn browsable(listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, listen.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, listen.port())),
        IpAddr::V4(_) | IpAddr::V6(_) => listen,
    }
}

impl BoundServer {
    /// Opens the console in the browser of the desktop, if the server belongs to its user.
    pub(super) fn open_console(&self, config: &Config, out: Out) {
        if let Some(local) = &self.local {
            super::console::open(config, local.address, &local.link.url, out);
        }
    }

    pub(super) async fn serve(self, stop: watch::Receiver<bool>) {
        let local = self.local;
        let stopped = async {
            super::work::stopped(stop).await;
            if let Some(local) = &local {
                local.token_file.remove();
            }
        };
        self.server.serve(self.listener, stopped).await;
    }
}
