//! One connection: a seat, a handshake, and requests until it is closed.

use super::Limits;
use super::stall::Stalling;
use super::tls::Tls;
use crate::access::Peer;
use axum::Router;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::Watcher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

/// The most bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most fields of the head of a request.
const HEAD_FIELDS_MAX: usize = 100;
/// How many callers at once are told that there is no seat; the others are only turned away.
const TOLD_MAX: usize = 64;
/// How long they have to hear it.
const TOLD_TIME: Duration = Duration::from_secs(1);
/// What they are told.
const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
                    connection: close\r\ncontent-length: 73\r\n\r\n\
                    {\"code\":\"busy\",\"message\":\"the server has no room for another connection\"}";

/// Seats for connections.
pub(super) struct Seats {
    free: Arc<Semaphore>,
    telling: Arc<Semaphore>,
}

impl Seats {
    pub(super) fn new(connections: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(connections)), telling: Arc::new(Semaphore::new(TOLD_MAX)) }
    }

    /// A seat, if one is free.
    pub(super) fn take(&self) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_owned().ok()
    }

    /// Tells a caller that there is no seat.
    pub(super) fn turn_away(&self, mut stream: TcpStream, connections: &mut JoinSet<()>) {
        metrics::counter!("tidemill_http_refused_total", "why" => "connections").increment(1);
        let Ok(turn) = self.telling.clone().try_acquire_owned() else { return };
        connections.spawn(async move {
            let told = async {
                stream.write_all(FULL.as_bytes()).await?;
                stream.shutdown().await?;
                // What the caller sent is read: to close before would take the answer away from it.
                let mut rest = [0; 1024];
                while stream.read(&mut rest).await? > 0 {}
                Ok::<(), std::io::Error>(())
            };
            let _ = tokio::time::timeout(TOLD_TIME, told).await;
            drop(turn);
        });
    }
}

/// What is behind every connection; cheap to clone.
#[derive(Clone)]
pub(super) struct Door {
    router: Router,
    tls: Option<Tls>,
    head_time: Duration,
    write_time: Duration,
}

impl Door {
    pub(super) fn new(router: Router, tls: Option<Tls>, limits: &Limits) -> Self {
        Self { router, tls, head_time: limits.head_time, write_time: limits.write_time }
    }

    /// Serves one connection to its end.
    pub(super) async fn serve(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        seat: OwnedSemaphorePermit,
        watcher: Watcher,
    ) {
        let _open = Open::count();
        // An answer is written at once; waiting for more would only delay it.
        let _ = stream.set_nodelay(true);
        let stream = Stalling::new(stream, self.write_time);
        match &self.tls {
            None => self.speak(stream, peer, watcher).await,
            Some(tls) => match tokio::time::timeout(self.head_time, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.speak(stream, peer, watcher).await,
                Ok(Err(fault)) => tracing::debug!("a connection over TLS was not made: {fault}"),
                Err(_) => tracing::debug!("a connection over TLS was not made in time"),
            },
        }
        drop(seat);
    }

    async fn speak<S>(&self, stream: S, peer: SocketAddr, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(Peer { address: peer, tls: self.tls.is_some() });
            self.router.clone().oneshot(request)
        });
        // A caller that ends its side of the connection has gone: what it waits for is dropped at once.
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head_time)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEAD_FIELDS_MAX)
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(fault) = watcher.watch(connection).await {
            tracing::debug!("a connection ended: {fault}");
        }
    }
}

/// An open connection, as long as it is one.
struct Open;

impl Open {
    fn count() -> Self {
        metrics::gauge!("tidemill_http_connections").increment(1);
        Self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        metrics::gauge!("tidemill_http_connections").decrement(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_without_a_seat_is_told_has_the_length_that_it_says() {
        let (head, body) = FULL.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        assert!(body.starts_with("{\"code\":\"busy\""));
    }
}
