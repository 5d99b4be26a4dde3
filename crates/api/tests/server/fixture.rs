//! A server for one test, and a client that can violate the protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_api::App;
use tidemill_api::access::{Access, LocalAccess};
use tidemill_api::server::{Limits, Server};
use tidemill_core::RunId;
use tidemill_core::access::{NewToken, Role};
use tidemill_core::project_set::ProjectSet;
use tidemill_core::run::QueueRun;
use tidemill_engine::clock::Clock;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_testkit::interface::{Fixture, Kind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Token of a local server.
pub(crate) const LOCAL_TOKEN: &str = "tm_0707070707070707070707070707070707070707070707070707070707070707";

/// Time limit for every wait; reached only by a failure.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// A server on a socket, with its store.
pub(crate) struct ServerFixture {
    pub(crate) base: Fixture,
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// A response of the server.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl ServerFixture {
    /// Starts a server with these limits.
    pub(crate) async fn open(kind: Kind, limits: Limits) -> Self {
        Self::with(kind, |server| server.limits(limits)).await
    }

    /// Starts a server with custom settings.
    pub(crate) async fn with(kind: Kind, configure: impl FnOnce(Server) -> Server) -> Self {
        Self::on(Fixture::open(kind).await, configure).await
    }

    /// Starts a server on this PostgreSQL server.
    pub(crate) async fn on_server(server: &str, limits: Limits) -> Self {
        Self::on(Fixture::open_on(server).await, |server| server.limits(limits)).await
    }

    /// Starts a server that requires tokens.
    pub(crate) async fn with_tokens(kind: Kind, limits: Limits) -> Self {
        Self::with_access(Fixture::open(kind).await, Access::Tokens, |server| server.limits(limits)).await
    }

    /// Starts a server of one user, whose token is [`LOCAL_TOKEN`].
    pub(crate) async fn local(kind: Kind) -> Self {
        let token = LOCAL_TOKEN.parse().expect("a token");
        let local = LocalAccess::new("ann".to_owned(), &token, "http://127.0.0.1:7171");
        let access = Access::Local(Arc::new(local));
        Self::with_access(Fixture::open(kind).await, access, |server| server).await
    }

    async fn on(base: Fixture, configure: impl FnOnce(Server) -> Server) -> Self {
        Self::with_access(base, Access::Open { name: "ann".to_owned() }, configure).await
    }

    async fn with_access(base: Fixture, access: Access, configure: impl FnOnce(Server) -> Server) -> Self {
        let engine = Engine::new(base.store.clone(), Clock::Database, RetryPolicy::None);
        let app = App::new(Syncs::new(engine.clone(), SyncSettings::default()), access);
        tidemill_api::metrics::install();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address is free");
        let address = listener.local_addr().expect("it has an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let server = configure(Server::new(app));
        let task = tokio::spawn(async move {
            server
                .serve(listener, async {
                    let _ = stopped.await;
                })
                .await;
        });
        Self { base, engine, address, stop, task }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the server accepts")
    }

    /// Connects from another loopback address.
    pub(crate) async fn connect_from(&self, address: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket is made");
        socket.bind(SocketAddr::from((address, 0))).expect("every loopback address is ours");
        socket.connect(self.address).await.expect("the server accepts")
    }

    /// Creates a token, and returns the header line that sends it.
    pub(crate) async fn token(&self, role: Role) -> String {
        let new = NewToken { name: role.to_string(), role, projects: ProjectSet::All, expires_in_secs: None };
        let (_, secret) = self.engine.create_token(new, "ann").await.expect("a token is made");
        format!("authorization: Bearer {}\r\n", secret.reveal())
    }

    /// Waits until the server has read everything that this many clients sent.
    pub(crate) async fn until_read(&self, callers: usize) {
        self.until_sockets("the server reads", |sockets| {
            sockets.iter().filter(|socket| socket.is_open && socket.unread == 0).count() >= callers
        })
        .await;
    }

    /// Waits until the server has read everything on the connections that are still open.
    pub(crate) async fn until_nothing_unread(&self) {
        self.until_sockets("the server reads", |sockets| {
            !sockets.iter().any(|socket| socket.is_open && socket.unread > 0)
        })
        .await;
    }

    /// Waits until the server has closed every connection.
    pub(crate) async fn until_closed(&self) {
        self.until_sockets("the server closes", |sockets| !sockets.iter().any(|socket| socket.is_open)).await;
    }

    async fn until_sockets(&self, what: &str, holds: impl Fn(&[Socket]) -> bool) {
        let began = tokio::time::Instant::now();
        while !holds(&sockets_of(self.address.port())) {
            assert!(began.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends a literal text, and reads until the server closes.
    pub(crate) async fn raw(&self, text: &str) -> Response {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.expect("the server reads");
        answer(&mut stream).await
    }

    /// Sends a GET request.
    pub(crate) async fn get(&self, path: &str) -> Response {
        self.raw(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).await
    }

    /// Sends a POST request.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.raw(&post(path, body, "connection: close\r\n")).await
    }

    /// Queues a run; returns its id.
    pub(crate) async fn queue(&self) -> RunId {
        self.engine.queue(QueueRun::new("shop", "staging")).await.expect("the run is queued").run_id
    }

    /// Stops the server, and waits until it has ended.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        tokio::time::timeout(TIMEOUT, self.task).await.expect("the server ends").expect("without a panic");
        self.base.close().await;
    }
}

/// A connection as the operating system reports it for the server's side.
struct Socket {
    /// Whether the server has not closed its side.
    is_open: bool,
    /// Received bytes that the server has not read.
    unread: usize,
}

/// Returns the connections of the server on this port.
fn sockets_of(port: u16) -> Vec<Socket> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the system lists its sockets");
    let own = format!(":{port:04X}");
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let local = words.nth(1)?;
        let (state, queues) = (words.nth(1)?, words.next()?);
        let unread = usize::from_str_radix(queues.split(':').nth(1)?, 16).ok()?;
        // Established, or closed by the client only.
        let is_open = matches!(state, "01" | "08");
        local.ends_with(&own).then_some(Socket { is_open, unread })
    };
    table.lines().skip(1).filter_map(read).collect()
}

/// Returns a request with a body as text.
pub(crate) fn post(path: &str, body: &Value, fields: &str) -> String {
    let body = body.to_string();
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {length}\r\n\r\n{body}")
}

/// Returns the body of a waiting claim.
pub(crate) fn claim(request: &str, wait: u16) -> Value {
    json!({"worker": "ann", "request_id": request, "wait_secs": wait})
}

/// Reads a response until it is complete or the server closes.
pub(crate) async fn answer(stream: &mut TcpStream) -> Response {
    let mut bytes = Vec::new();
    let read = async {
        let mut some = [0; 4096];
        loop {
            match stream.read(&mut some).await {
                Ok(0) | Err(_) => break,
                Ok(more) => bytes.extend_from_slice(&some[..more]),
            }
            if is_whole(&bytes) {
                break;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.expect("the server answers or closes");
    parse(&bytes)
}

fn is_whole(bytes: &[u8]) -> bool {
    let answer = parse(bytes);
    let length = answer.head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    length.is_some_and(|length: usize| answer.body.len() >= length)
}

fn parse(bytes: &[u8]) -> Response {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = end.map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 4..]));
    let head = String::from_utf8_lossy(head).to_lowercase();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Response { status: if end.is_some() { status } else { 0 }, head, body: body.to_vec() }
}
