//! `tidemill server`: the HTTP API and the console.

use crate::config::Config;
use crate::environment;
use crate::failure::Failure;
use crate::out::Out;
use clap::Args;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_api::server::{Server, Tls, raise_file_limit};
use tidemill_core::access::Secret;
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, RetryPolicy};
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
    /// Require tokens on loopback addresses, too
    #[arg(long)]
    pub(crate) auth: bool,
}

/// A server that has bound its address and does not answer yet.
pub(super) struct BoundServer {
    server: Server,
    listener: TcpListener,
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
    // After the bind: the first token of a server that cannot start would be lost.
    let (access, first_token) = decide_access(syncs, listen, args.auth).await?;
    let local = listener.local_addr().unwrap_or(listen);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let is_open = matches!(access, Access::Open { .. });
    if let Some(secret) = &first_token {
        out.inform("first admin token, shown only once:");
        out.inform(secret.reveal());
    }
    if out.is_json() {
        let mut body =
            serde_json::json!({"address": format!("{scheme}://{local}"), "asks_for_tokens": !is_open});
        if let Some(secret) = &first_token {
            body["first_token"] = secret.reveal().into();
        }
        out.print_json(&body);
    }
    out.inform(format!("the server is listening on {scheme}://{local}"));
    out.inform(format!("the console is at {scheme}://{}/", browsable(local)));
    if is_open {
        out.inform("no token is required: every user of this machine has full access");
    } else {
        out.inform("tokens are required; create one with `tidemill token create NAME --role ROLE`");
        if tls.is_none() && !local.ip().to_canonical().is_loopback() {
            out.inform("warning: tokens are sent unencrypted; use --tls-cert and --tls-key");
        }
    }
    let engine = syncs.engine().with_retry_policy(PATIENCE);
    let app = App::new(Syncs::new(engine, config.sync()), access);
    let console = tidemill_console::router(app.clone());
    let mut server = Server::new(app).limits(config.server.limits()).trusted_proxies(config.server.proxies());
    server = server.extra_routes(console).fallback(tidemill_console::not_found());
    if is_open {
        server = server.local();
    }
    if let Some(tls) = tls {
        server = server.tls(tls);
    }
    Ok(BoundServer { server, listener })
}

/// Replaces an unspecified address by loopback, so that a browser on this machine can open it.
fn browsable(listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, listen.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, listen.port())),
        IpAddr::V4(_) | IpAddr::V6(_) => listen,
    }
}

/// Decides who has access: every user of this machine on a loopback address, and holders of tokens otherwise.
///
/// Creates the first admin token if there is no token yet.
async fn decide_access(
    syncs: &Syncs,
    listen: SocketAddr,
    auth: bool,
) -> Result<(Access, Option<Secret>), Failure> {
    if listen.ip().to_canonical().is_loopback() && !auth {
        return Ok((Access::Open { name: environment::user() }, None));
    }
    let first = tidemill_api::access::first_admin(syncs.engine()).await?;
    Ok((Access::Tokens, first.map(|(_, secret)| secret)))
}

impl BoundServer {
    pub(super) async fn serve(self, stop: watch::Receiver<bool>) {
        self.server.serve(self.listener, super::work::stopped(stop)).await;
    }
}
