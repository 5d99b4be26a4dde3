//! HTTP/1.1 server for the API, plain or over TLS, with limits and a graceful shutdown.
//!
//! Every resource that a client can consume has a limit: connections, concurrent requests, waiting requests, and the
//! total size of all bodies. Agents and workers, people, and callers without a token have separate shares of each, and
//! within a share a source or a token has a limit. A request has limits for the size and the arrival time of its
//! headers and its body, and for the time until the client reads the response. A body is read only after the
//! credentials in the headers are checked.

mod admission;
mod budget;
mod connection;
mod connection_table;
mod host;
mod layers;
mod limited_body;
mod local;
mod response_headers;
mod tls;
mod trusted_proxies;
mod write_timeout;

pub(crate) use admission::Admission;
pub(crate) use budget::{Class, Holder, Source};
pub use tls::{Tls, TlsError};
pub use trusted_proxies::{InvalidNetworkError, Network, TrustedProxies};

use crate::app::App;
use axum::Router;
use axum::routing::MethodRouter;
use budget::{Share, Shares};
use connection::{ConnectionHandler, ConnectionSlots};
use connection_table::ConnectionTable;
use hyper_util::server::graceful::GracefulShutdown;
use layers::Layers;
use std::future::Future;
use std::time::Duration;
use tidemill_store::{LoopError, LoopHandle, TaskMonitor, catch_panic};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    pub connections: usize,
    /// Connections of one source address without a valid token.
    pub connections_per_source: usize,
    /// Concurrent requests, without long polls.
    pub requests: usize,
    /// Long polls and live streams of one person's token.
    pub waits_per_token: usize,
    /// Size of one body.
    pub body_bytes: usize,
    /// Total size of all bodies in memory.
    pub bodies_bytes: usize,
    /// Time for the headers of a request to arrive; also the idle time of a connection.
    pub head_time: Duration,
    pub body_time: Duration,
    /// Processing time of a request, without the wait of a long poll.
    pub request_time: Duration,
    /// Time for a client to read some of its response before the connection is closed.
    pub write_time: Duration,
    /// Time for running requests to end during shutdown.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            connections_per_source: 256,
            requests: 512,
            waits_per_token: 256,
            body_bytes: 1024 * 1024,
            bodies_bytes: 64 * 1024 * 1024,
            // Longer than clients keep idle connections, so that the client closes them first.
            head_time: Duration::from_secs(65),
            body_time: Duration::from_secs(15),
            request_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

impl Limits {
    fn connection_shares(&self) -> Shares {
        let shares = Shares::divide(self.connections);
        let all = shares.anonymous.all;
        Shares { anonymous: Share { all, each: self.connections_per_source.min(all) }, ..shares }
    }
}

/// HTTP server of the API, ready to be bound to a socket.
pub struct Server {
    app: App,
    limits: Limits,
    tls: Option<Tls>,
    proxies: TrustedProxies,
    extra_routes: Router,
    fallback: Option<MethodRouter>,
}

impl Server {
    /// Creates a server with default settings.
    pub fn new(app: App) -> Self {
        Self {
            app,
            limits: Limits::default(),
            tls: None,
            proxies: TrustedProxies::default(),
            extra_routes: Router::new(),
            fallback: None,
        }
    }

    /// Sets the limits of the server.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves HTTPS with this TLS configuration.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Takes the client's address from `X-Forwarded-For` in requests of these proxies.
    #[must_use]
    pub fn trusted_proxies(mut self, proxies: TrustedProxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// Adds routes next to the API's, within the same limits.
    #[must_use]
    pub fn extra_routes(mut self, router: Router) -> Self {
        self.extra_routes = router;
        self
    }

    /// Replaces the handler for paths without a route.
    #[must_use]
    pub fn fallback(mut self, fallback: MethodRouter) -> Self {
        self.fallback = Some(fallback);
        self
    }

    /// Serves until `stop` is ready, and then until all responses are sent, within the grace period.
    ///
    /// During shutdown it accepts no connections, ends long polls and lets running requests finish.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let Self { app, limits, tls, proxies, extra_routes, fallback } = self;
        let layers = Layers::new(limits.clone(), app.is_local());
        let mut router = crate::router(app.clone()).merge(extra_routes);
        if let Some(fallback) = fallback {
            router = router.fallback_service(fallback);
        }
        let handler = ConnectionHandler::new(layers.wrap(router), tls, proxies, &limits);
        let state = app.engine().store().monitor().register("http_server");
        let slots = ConnectionSlots::new(ConnectionTable::new(limits.connection_shares()));
        let accepting = Accepting { listener, handler, slots, grace: limits.grace };
        accept_loop(accepting, stop, || app.close(), &state).await;
    }
}

/// Serves a router that is not the API, within limits, until `stop` is ready.
pub(crate) async fn serve_router(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let router = Layers::new(limits.clone(), false).wrap(router);
    let handler = ConnectionHandler::new(router, None, TrustedProxies::default(), &limits);
    let state = TaskMonitor::default().register("metrics_server");
    let slots = ConnectionSlots::new(ConnectionTable::new(Shares::anonymous_only(limits.connections)));
    let accepting = Accepting { listener, handler, slots, grace: limits.grace };
    accept_loop(accepting, stop, || {}, &state).await;
}

/// Parts of a server that accepts connections.
struct Accepting {
    listener: TcpListener,
    handler: ConnectionHandler,
    slots: ConnectionSlots,
    grace: Duration,
}

/// Pause after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Event of the accept loop.
enum Turn {
    Stop,
    Accepted,
    Closed,
}

/// Accepts connections until `stop` is ready. Then `close` ends long polls, and the connections have the grace period
/// to finish.
async fn accept_loop(
    accepting: Accepting,
    stop: impl Future<Output = ()>,
    close: impl FnOnce(),
    state: &LoopHandle,
) {
    let Accepting { listener, handler, slots, grace } = accepting;
    let graceful = GracefulShutdown::new();
    let mut connections: JoinSet<()> = JoinSet::new();
    tokio::pin!(stop);
    loop {
        // A panic here must not end the server. Connections run in tasks of their own.
        let turn = catch_panic(async {
            tokio::select! {
                () = &mut stop => return Ok(Turn::Stop),
                Some(_) = connections.join_next(), if !connections.is_empty() => return Ok(Turn::Closed),
                accepted = listener.accept() => {
                    let (stream, peer) = accepted?;
                    match slots.take(handler.source(peer)) {
                        Some(slot) => {
                            let (handler, watcher) = (handler.clone(), graceful.watcher());
                            connections.spawn(async move { handler.serve(stream, peer, slot, watcher).await });
                        }
                        None => slots.refuse(stream, &mut connections),
                    }
                }
            }
            Ok::<_, std::io::Error>(Turn::Accepted)
        });
        let error = match turn.await {
            Ok(Ok(Turn::Stop)) => break,
            Ok(Ok(Turn::Closed)) => continue,
            Ok(Ok(Turn::Accepted)) => {
                state.succeeded();
                continue;
            }
            Ok(Err(error)) => LoopError::new(format!("cannot accept a connection: {error}")),
            Err(panic) => panic.into(),
        };
        // Most likely there are too many open files; some will be closed soon.
        state.failed(error);
        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
    }
    drop(listener);
    close();
    if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("shutdown grace period is over; some responses were not sent");
    }
    connections.shutdown().await;
}

/// Raises the limit of open files to the maximum: each connection needs one.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}
