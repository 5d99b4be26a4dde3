//! One connection: its place, the TLS handshake, and its requests.

use super::Limits;
use super::budget::Source;
use super::connection_table::{Connection, ConnectionTable};
use super::tls::Tls;
use super::trusted_proxies::TrustedProxies;
use super::write_timeout::WriteTimeoutStream;
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
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

/// Maximum size of a request's headers.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of a request's headers.
const HEAD_FIELDS_MAX: usize = 100;
/// Maximum number of refused connections that get a response at the same time. Further ones are just closed.
const REFUSALS_MAX: usize = 64;
/// Time limit for that response.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Response to a connection without a free slot.
const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
                    x-content-type-options: nosniff\r\ncache-control: no-store\r\n\
                    connection: close\r\ncontent-length: 78\r\n\r\n\
                    {\"code\":\"busy\",\"message\":\"the server has no free slot for another connection\"}";

/// Places of connections, and responses to those without one.
pub(super) struct ConnectionSlots {
    table: ConnectionTable,
    refusals: Arc<Semaphore>,
}

impl ConnectionSlots {
    pub(super) fn new(table: ConnectionTable) -> Self {
        Self { table, refusals: Arc::new(Semaphore::new(REFUSALS_MAX)) }
    }

    /// Takes a place for a connection, if necessary that of an idle one.
    pub(super) fn take(&self, source: Source) -> Option<Arc<Connection>> {
        self.table.admit(source)
    }

    /// Responds with 503 to a connection without a slot.
    pub(super) fn refuse(&self, mut stream: TcpStream, connections: &mut JoinSet<()>) {
        metrics::counter!("tidemill_http_refused_total", "why" => "connections").increment(1);
        let Ok(permit) = self.refusals.clone().try_acquire_owned() else { return };
        connections.spawn(async move {
            let respond = async {
                stream.write_all(REFUSAL.as_bytes()).await?;
                stream.shutdown().await?;
                // The request is read first: closing a socket with unread data resets it, and the response is lost.
                let mut rest = [0; 1024];
                while stream.read(&mut rest).await? > 0 {}
                Ok::<(), std::io::Error>(())
            };
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, respond).await;
            drop(permit);
        });
    }
}

/// Handler of connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct ConnectionHandler {
    router: Router,
    tls: Option<Tls>,
    proxies: Arc<TrustedProxies>,
    head_time: Duration,
    write_time: Duration,
}

impl ConnectionHandler {
    pub(super) fn new(router: Router, tls: Option<Tls>, proxies: TrustedProxies, limits: &Limits) -> Self {
        let proxies = Arc::new(proxies);
        Self { router, tls, proxies, head_time: limits.head_time, write_time: limits.write_time }
    }

    /// Returns the source that a connection counts for.
    pub(super) fn source(&self, peer: SocketAddr) -> Source {
        if self.proxies.contains(peer.ip()) { Source::of_proxy(peer) } else { Source::new(Some(peer.ip())) }
    }

    /// Serves one connection until it is closed.
    pub(super) async fn serve(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        slot: Arc<Connection>,
        watcher: Watcher,
    ) {
        let _open = OpenConnection::count();
        // Responses are written at once, so Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let stream = WriteTimeoutStream::new(stream, self.write_time);
        let serve = async {
            match &self.tls {
                None => self.serve_stream(stream, peer, &slot, watcher).await,
                Some(tls) => match tokio::time::timeout(self.head_time, tls.accept(stream)).await {
                    Ok(Ok(stream)) => self.serve_stream(stream, peer, &slot, watcher).await,
                    Ok(Err(error)) => tracing::debug!("TLS handshake failed: {error}"),
                    Err(_) => tracing::debug!("TLS handshake timed out"),
                },
            }
        };
        tokio::select! {
            () = serve => {}
            () = slot.evicted() => tracing::debug!("idle connection closed to make room for others"),
        }
    }

    async fn serve_stream<S>(&self, stream: S, peer: SocketAddr, slot: &Arc<Connection>, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|mut request: http::Request<Incoming>| {
            let address = self.proxies.client(peer, request.headers());
            request.extensions_mut().insert(Peer { address, tls: self.tls.is_some() });
            request.extensions_mut().insert(slot.clone());
            self.router.clone().oneshot(request)
        });
        // A client that closes its sending side is gone; its request is dropped at once.
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head_time)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEAD_FIELDS_MAX)
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!("connection ended: {error}");
        }
    }
}

/// Counts an open connection in the gauge until it is dropped.
struct OpenConnection;

impl OpenConnection {
    fn count() -> Self {
        metrics::gauge!("tidemill_http_connections").increment(1);
        Self
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        metrics::gauge!("tidemill_http_connections").decrement(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_without_a_slot_has_a_correct_content_length() {
        let (head, body) = REFUSAL.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        assert!(body.starts_with("{\"code\":\"busy\""));
    }
}
