//! The server: the door on a socket, within limits, and with an end that leaves nobody without an answer.
//!
//! HTTP/1.1, plain or over TLS. Everything that a caller can make grow has a bound: connections, requests in flight,
//! the head and the body of a request and the time that each takes to arrive, the bytes of all bodies together, and the
//! time that a caller lets an answer wait.

mod connection;
mod layers;
mod local;
mod stall;
mod tls;

pub use tls::{Tls, TlsError};

use crate::app::App;
use axum::Router;
use axum::routing::MethodRouter;
use connection::{Door, Seats};
use hyper_util::server::graceful::GracefulShutdown;
use layers::Layers;
use std::future::Future;
use std::time::Duration;
use tidemill_store::{LoopError, LoopHandle, TaskMonitor, catch_panic};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What one server takes, at most.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Requests that are being carried out at once, but for those that wait for something to happen.
    pub requests: usize,
    /// Bytes of one body.
    pub body_bytes: usize,
    /// Bytes of all bodies that are held at once.
    pub bodies_bytes: usize,
    /// Time for a head to arrive, and for a connection to be idle before it.
    pub head_time: Duration,
    /// Time for a body to arrive.
    pub body_time: Duration,
    /// Time for a request to be carried out, on top of what it may wait.
    pub request_time: Duration,
    /// Time for a caller to take some of its answer, before the connection is closed.
    pub write_time: Duration,
    /// Time for what is being carried out to end when the server is told to.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            requests: 512,
            body_bytes: 1024 * 1024,
            bodies_bytes: 64 * 1024 * 1024,
            // Longer than clients keep idle connections, so that they are the ones who close them.
            head_time: Duration::from_secs(65),
            body_time: Duration::from_secs(15),
            request_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// The door, ready to be put on a socket.
pub struct Server {
    app: App,
    limits: Limits,
    tls: Option<Tls>,
    is_local: bool,
    beside: Router,
    nowhere: Option<MethodRouter>,
}

impl Server {
    /// A server for this door, with every default.
    pub fn new(app: App) -> Self {
        Self {
            app,
            limits: Limits::default(),
            tls: None,
            is_local: false,
            beside: Router::new(),
            nowhere: None,
        }
    }

    /// The same within other limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The same over TLS.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The same for callers that know it by a name of this machine alone, and for pages of its own: a door without
    /// tokens must not be opened by whatever a browser on this machine happens to show.
    #[must_use]
    pub fn local(mut self) -> Self {
        self.is_local = true;
        self
    }

    /// The same with other routes beside those of the door, within the same limits.
    #[must_use]
    pub fn beside(mut self, router: Router) -> Self {
        self.beside = router;
        self
    }

    /// The same with somebody else to answer where there is no route.
    #[must_use]
    pub fn nowhere(mut self, nowhere: MethodRouter) -> Self {
        self.nowhere = Some(nowhere);
        self
    }

    /// Serves until `stop` is ready, and then until what is being answered is sent, within the grace period.
    ///
    /// Nothing is accepted any more, whoever waits is answered with what there is, and requests in flight end.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let Self { app, limits, tls, is_local, beside, nowhere } = self;
        let layers = Layers::new(limits.clone(), is_local);
        let mut router = crate::router(app.clone()).merge(beside);
        if let Some(nowhere) = nowhere {
            router = router.fallback_service(nowhere);
        }
        let door = Door::new(layers.around(router), tls, &limits);
        let state = app.engine().store().monitor().register("http_server");
        seat(listener, door, &limits, stop, || app.close(), &state).await;
    }
}

/// Serves a few routes on a socket, within these limits, until `stop` is ready: for what is not the whole door.
pub(crate) async fn accept(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let door = Door::new(Layers::new(limits.clone(), false).around(router), None, &limits);
    let state = TaskMonitor::default().register("metrics_server");
    seat(listener, door, &limits, stop, || {}, &state).await;
}

/// Pause after a connection that could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// What one turn of the server did.
enum Turn {
    /// It was told to stop.
    Stop,
    /// It accepted a connection.
    Accepted,
    /// A connection ended.
    Closed,
}

/// Gives every connection a seat until `stop` is ready; then `close` tells those who wait, and they have the grace
/// period to be answered.
async fn seat(
    listener: TcpListener,
    door: Door,
    limits: &Limits,
    stop: impl Future<Output = ()>,
    close: impl FnOnce(),
    state: &LoopHandle,
) {
    let seats = Seats::new(limits.connections);
    let graceful = GracefulShutdown::new();
    let mut connections: JoinSet<()> = JoinSet::new();
    tokio::pin!(stop);
    loop {
        // A panic here must not end the server; connections have tasks of their own.
        let turn = catch_panic(async {
            tokio::select! {
                () = &mut stop => return Ok(Turn::Stop),
                Some(_) = connections.join_next(), if !connections.is_empty() => return Ok(Turn::Closed),
                accepted = listener.accept() => {
                    let (stream, peer) = accepted?;
                    match seats.take() {
                        Some(seat) => {
                            let (door, watcher) = (door.clone(), graceful.watcher());
                            connections.spawn(async move { door.serve(stream, peer, seat, watcher).await });
                        }
                        None => seats.turn_away(stream, &mut connections),
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
            Ok(Err(fault)) => LoopError::new(format!("could not accept a connection: {fault}")),
            Err(panic) => panic.into(),
        };
        // Most likely there are too many open files: some will be closed soon.
        state.failed(error);
        tokio::time::sleep(ACCEPT_AGAIN).await;
    }
    drop(listener);
    close();
    if tokio::time::timeout(limits.grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("the server ended before every answer was sent");
    }
    connections.shutdown().await;
}

/// Lets this process have as many open files as it may: each connection is one.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum
        && let Err(fault) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!("could not raise the limit of open files: {fault}");
    }
}
