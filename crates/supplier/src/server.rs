//! The HTTP server, and the handle that tests hold.

use crate::admin::{self, AdminAnswer, Truth, TruthBody};
use crate::api::{self, Answer, Window};
use crate::behaviour::{Behaviour, DateHeader};
use crate::config::{Config, MAX_STONES};
use crate::desk::Desk;
use crate::life::{Change, Changed, Churn};
use crate::stats::Stats;
use crate::template::Template;
use crate::{lock, schema};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, DATE, HeaderValue, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemill_core::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

/// The longest body of a request.
const MAX_BODY: usize = 1024 * 1024;
/// How long a request may take to arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long answers may take when the supplier is told to end.
const GRACE: Duration = Duration::from_secs(5);
/// How often stones change by themselves, where they do.
const TICK: Duration = Duration::from_millis(20);

type Reply = Response<Either<Full<Bytes>, TruthBody>>;

/// Why a supplier could not be started.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// There is not enough room.
    #[error("a supplier has at most {MAX_STONES} stones, not {asked}")]
    TooManyStones {
        /// How many were asked for.
        asked: u32,
    },
    /// The address cannot be had.
    #[error("could not listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The tables of fields contradict each other.
    #[error("the schema is faulty: {fault}")]
    Schema {
        /// What the schema builder says.
        fault: String,
    },
}

/// A supplier that has an address, and does not answer yet.
pub struct Supplier {
    listener: TcpListener,
    local_addr: SocketAddr,
    desk: Arc<Desk>,
}

/// Closes a connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the supplier closed the connection")]
struct Closed;

impl Supplier {
    /// Makes the stones, and takes the address.
    pub async fn bind(config: Config) -> Result<Self, BindError> {
        if config.stones > MAX_STONES {
            return Err(BindError::TooManyStones { asked: config.stones });
        }
        let schema = schema::build().map_err(|fault| BindError::Schema { fault: fault.to_string() })?;
        let standard = Template::standard().ok_or_else(|| BindError::Schema {
            fault: "the standard selection has unknown fields".to_owned(),
        })?;
        let address = config.listen;
        let listen = |source| BindError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let local_addr = listener.local_addr().map_err(listen)?;
        Ok(Self { listener, local_addr, desk: Arc::new(Desk::new(config, schema, standard)) })
    }

    /// Where it listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Where the API is.
    pub fn endpoint(&self) -> String {
        format!("http://{}/api/diamonds", self.local_addr)
    }

    /// What tests and the demo hold.
    pub fn handle(&self) -> Handle {
        Handle { desk: Arc::clone(&self.desk) }
    }

    /// Answers until `shutdown` is ready, and then until what is being answered is sent.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let Self { listener, desk, .. } = self;
        let graceful = GracefulShutdown::new();
        let window = Arc::new(Mutex::new(Window::default()));
        let churn = churn(&desk);
        tokio::pin!(shutdown, churn);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                () = &mut churn => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => connect(stream, peer, &desk, &window, &graceful),
                    Err(fault) => {
                        // Most likely there are too many open files: some will be closed soon.
                        warn!("the supplier could not accept a connection: {fault}");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(listener);
        if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
            warn!("the supplier ended before every answer was sent");
        }
    }

    /// Answers in a task of its own, for tests.
    pub fn spawn(self) -> Running {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (local_addr, endpoint, handle) = (self.local_addr, self.endpoint(), self.handle());
        let task = tokio::spawn(self.serve(async move {
            // It also ends when nobody can tell it to any more.
            let _ = stopped.await;
        }));
        Running { local_addr, endpoint, handle, stop, task }
    }
}

/// A supplier that answers in a task. It ends when this is dropped.
pub struct Running {
    /// Where it listens.
    pub local_addr: SocketAddr,
    /// Where the API is.
    pub endpoint: String,
    /// What can be told to it.
    pub handle: Handle,
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Ends it, and waits for the end.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(fault) = self.task.await {
            warn!("the supplier's task failed: {fault}");
        }
    }
}

/// Lets stones change by themselves, for ever.
async fn churn(desk: &Desk) {
    let mut owed = 0_u64;
    loop {
        if desk.churn_per_second() == 0 {
            owed = 0;
            desk.churn_set.notified().await;
            continue;
        }
        tokio::time::sleep(TICK).await;
        // Asked again, so that nothing changes after it was stopped. Counted in changes × milliseconds, so
        // that slow rates lose nothing.
        owed += u64::from(desk.churn_per_second()) * 20;
        desk.churn_some(u32::try_from(owed / 1_000).unwrap_or(u32::MAX));
        owed %= 1_000;
    }
}

fn connect(
    stream: TcpStream,
    peer: SocketAddr,
    desk: &Arc<Desk>,
    window: &Arc<Mutex<Window>>,
    graceful: &GracefulShutdown,
) {
    // A page is written at once; waiting for more would only delay its end.
    let _ = stream.set_nodelay(true);
    let (desk, window) = (Arc::clone(desk), Arc::clone(window));
    let service = service_fn(move |request| {
        let (desk, window) = (Arc::clone(&desk), Arc::clone(&window));
        async move { route(&desk, &window, peer, request).await }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_TIMEOUT)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(fault) = connection.await {
            debug!("a connection to the supplier ended: {fault}");
        }
    });
}

async fn route(
    desk: &Arc<Desk>,
    window: &Mutex<Window>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Reply, Closed> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let admin = path.strip_prefix("/admin/");
    let mut reply = if admin.is_some() && !is_on_this_machine(peer) {
        admin_reply(admin::failure(StatusCode::FORBIDDEN, "admin endpoints are for this machine only"))
    } else {
        match (admin, path, read(body).await) {
            (_, _, Err(refused)) => admin_reply(refused),
            (Some(admin), _, Ok(body)) => admin_reply(admin::answer(desk, &head.method, admin, &body)),
            (None, "/api/diamonds", Ok(body)) if head.method == Method::POST => {
                api_reply(api::answer(desk, window, &body).await)?
            }
            (None, "/api/diamonds", Ok(_)) => {
                let text = "the API is asked by POST";
                let mut reply = admin_reply(admin::failure(StatusCode::METHOD_NOT_ALLOWED, text));
                reply.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                reply
            }
            (None, _, Ok(_)) => {
                admin_reply(admin::failure(StatusCode::NOT_FOUND, "the API is at /api/diamonds"))
            }
        }
    };
    let header = lock(&desk.behaviour).date;
    if let (DateHeader::Sent, Ok(date)) = (header, HeaderValue::try_from(date(desk))) {
        reply.headers_mut().insert(DATE, date);
    }
    Ok(reply)
}

/// Whether a peer may use the admin endpoints.
const fn is_on_this_machine(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

/// The supplier's time for the header, as far off as it was told.
fn date(desk: &Desk) -> String {
    let skew = lock(&desk.behaviour).date_skew_secs;
    let now = desk.clock.now();
    let skewed = chrono::Duration::try_seconds(skew).and_then(|skew| now.checked_add_signed(skew));
    skewed.unwrap_or(now).format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

async fn read(body: Incoming) -> Result<Bytes, AdminAnswer> {
    match tokio::time::timeout(READ_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(fault)) if fault.is::<http_body_util::LengthLimitError>() => {
            let text = format!("a body has at most {MAX_BODY} bytes");
            Err(admin::failure(StatusCode::PAYLOAD_TOO_LARGE, &text))
        }
        Ok(Err(fault)) => Err(admin::failure(StatusCode::BAD_REQUEST, &fault.to_string())),
        Err(_) => Err(admin::failure(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

fn reply(status: StatusCode, kind: &'static str, body: Either<Full<Bytes>, TruthBody>) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

fn admin_reply(answer: AdminAnswer) -> Reply {
    match answer {
        AdminAnswer::Json(status, body) => {
            reply(status, "application/json", Either::Left(Full::new(body.into())))
        }
        AdminAnswer::Truth(body) => reply(StatusCode::OK, "application/x-ndjson", Either::Right(body)),
    }
}

fn api_reply(answer: Answer) -> Result<Reply, Closed> {
    let whole = |body: Vec<u8>| Either::Left(Full::new(body.into()));
    match answer {
        Answer::Json(status, body) => Ok(reply(status, "application/json", whole(body))),
        Answer::RetryAfter(status, secs) => {
            let mut reply = reply(status, "application/json", whole(api::error("try again later")));
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(secs));
            Ok(reply)
        }
        Answer::Html => {
            let text = "<!doctype html><title>Maintenance</title><p>We will be back soon.</p>";
            Ok(reply(StatusCode::OK, "text/html; charset=utf-8", whole(text.into())))
        }
        Answer::Closed => Err(Closed),
    }
}

/// The supplier from within the same process: the admin endpoints, without HTTP.
#[derive(Clone)]
pub struct Handle {
    desk: Arc<Desk>,
}

impl Handle {
    /// How it behaves.
    pub fn behaviour(&self) -> Behaviour {
        lock(&self.desk.behaviour).clone()
    }

    /// Changes how it behaves.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        // The closure has nothing to refuse.
        let _ = self.desk.behave(|behaviour| {
            change(behaviour);
            Ok(())
        });
    }

    /// Makes every token given so far invalid.
    pub fn expire_tokens(&self) {
        self.desk.expire_tokens();
    }

    /// Changes stones. The error says what is wrong with the order.
    pub fn change(&self, order: &Change) -> Result<Changed, String> {
        self.desk.change(order)
    }

    /// Lets stones change by themselves; the default stops it.
    pub fn churn(&self, churn: Churn) {
        self.desk.set_churn(churn);
    }

    /// The supplier's time.
    pub fn now(&self) -> Timestamp {
        self.desk.clock.now()
    }

    /// Stops the supplier's clock at a time, or lets it follow the machine's again.
    pub fn set_time(&self, time: Option<Timestamp>) {
        self.desk.clock.set(time);
    }

    /// What was asked of it so far.
    pub fn stats(&self) -> Stats {
        self.desk.counters.read()
    }

    /// What is true of every stone at the moment.
    pub fn truth(&self) -> Vec<Truth> {
        admin::all_truth(&self.desk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_peers_on_this_machine_are_admitted_to_the_admin_endpoints() {
        let admitted = |peer: &str| is_on_this_machine(peer.parse().unwrap());
        assert!(admitted("127.0.0.1:80") && admitted("[::1]:80") && admitted("[::ffff:127.0.0.1]:80"));
        assert!(
            !admitted("10.0.0.1:80") && !admitted("[::ffff:10.0.0.1]:80") && !admitted("[2001:db8::1]:80")
        );
    }
}
