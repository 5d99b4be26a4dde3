//! The server.

use crate::args_server::Serve;
use crate::config::Config;
use crate::environment;
use crate::fail::Failure;
use crate::out::Out;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_api::server::{Server, Tls, raise_file_limit};
use tidemill_core::access::Secret;
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, Patience};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long a request goes on trying while the database does not answer. Callers have a patience of their own.
const PATIENCE: Patience = Patience::For(Duration::from_secs(5));

/// A server that has its address, and does not answer yet.
pub(super) struct Ready {
    server: Server,
    listener: TcpListener,
}

/// Serves until told to stop.
pub(super) async fn server(
    engine: Engine,
    config: &Config,
    serve: Serve,
    out: Out,
) -> Result<ExitCode, Failure> {
    let stop = super::work::stop_signal();
    let syncs = Syncs::new(engine, config.sync());
    let ready = prepare(&syncs, config, &serve, out).await?;
    let upkeep = super::mill::keep_up(&syncs, config.upkeep(), stop.clone());
    ready.serve(stop).await;
    drop(upkeep);
    syncs.engine().store().close().await;
    out.say("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Takes the address, and says who may come in.
pub(super) async fn prepare(
    syncs: &Syncs,
    config: &Config,
    serve: &Serve,
    out: Out,
) -> Result<Ready, Failure> {
    let listen = serve.listen.unwrap_or(config.server.listen);
    let tls = match (&serve.tls_cert, &serve.tls_key) {
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
            .hint("--listen names another address; tidemill up --no-server does without")
    })?;
    // After the address is taken: a token that is made for a server that cannot begin would be lost.
    let (access, first_token) = access(syncs, listen, serve.auth).await?;
    let local = listener.local_addr().unwrap_or(listen);
    let scheme = if tls.is_some() { "https" } else { "http" };
    let is_open = matches!(access, Access::Open { .. });
    if let Some(secret) = &first_token {
        out.say("the first token, for an admin; it is shown this once:");
        out.say(secret.reveal());
    }
    if out.is_json() {
        let mut told =
            serde_json::json!({"address": format!("{scheme}://{local}"), "asks_for_tokens": !is_open});
        if let Some(secret) = &first_token {
            told["first_token"] = secret.reveal().into();
        }
        out.json(&told);
    }
    out.say(format!("the server is listening on {scheme}://{local}"));
    out.say(format!("the console is at {scheme}://{}/", reachable(local)));
    if is_open {
        out.say("it asks for no token: whoever uses this machine may do everything");
    } else {
        out.say("it asks for tokens: tidemill token create NAME --role ROLE makes one");
        if tls.is_none() && !local.ip().to_canonical().is_loopback() {
            out.say("warning: without --tls-cert and --tls-key, tokens travel where others may read them");
        }
    }
    let engine = syncs.engine().with_patience(PATIENCE);
    let app = App::new(Syncs::new(engine, config.sync()), access);
    let console = tidemill_console::router(app.clone());
    let mut server = Server::new(app).limits(config.server.limits()).beside(console);
    server = server.nowhere(tidemill_console::nowhere());
    if is_open {
        server = server.local();
    }
    if let Some(tls) = tls {
        server = server.tls(tls);
    }
    Ok(Ready { server, listener })
}

/// An address that a browser on this machine can go to: one for all addresses is none to go to.
fn reachable(listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, listen.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, listen.port())),
        IpAddr::V4(_) | IpAddr::V6(_) => listen,
    }
}

/// Who may come in: whoever uses this machine, on its own addresses; elsewhere it takes a token. Where nobody has one
/// yet, the first is made, and is to be shown.
async fn access(syncs: &Syncs, listen: SocketAddr, auth: bool) -> Result<(Access, Option<Secret>), Failure> {
    if listen.ip().to_canonical().is_loopback() && !auth {
        return Ok((Access::Open { name: environment::person() }, None));
    }
    let first = tidemill_api::access::first_admin(syncs.engine()).await?;
    Ok((Access::Tokens, first.map(|(_, secret)| secret)))
}

impl Ready {
    /// Serves until told to stop.
    pub(super) async fn serve(self, stop: watch::Receiver<bool>) {
        self.server.serve(self.listener, super::work::stopped(stop)).await;
    }
}
