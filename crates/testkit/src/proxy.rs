//! A proxy in front of PostgreSQL that drops answers, cuts connections or stalls at a chosen statement.
//!
//! It parses the wire protocol just far enough to know which statement runs when, prepared ones included, and when the
//! server has committed. A fault is armed, acts a given number of times and counts its actions; then everything passes.
//! Clients must end a batch with Sync (sqlx does): an answer requested by Flush only may be held back. `session` holds
//! the rules, `wire` the messages.

mod session;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncWriteExt as _, BufWriter};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::Address;
use session::{FromClient, FromServer, Session};
use wire::{Frames, Startup};

/// The action of a fault on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    CutAfterCommit,
    CutBefore,
    Stall,
}

/// A fault to arm: the action, the statement, and the number of times.
///
/// A substring is compared with the text of a statement as the client sent it, case-sensitively.
#[derive(Clone, Debug)]
pub struct Fault {
    action: Action,
    substring: Option<String>,
    nth: u32,
    times: u32,
}

impl Fault {
    /// Lets a `COMMIT` through, drops its answer, and cuts both connections.
    ///
    /// The server has committed and the client does not know. Statements outside a transaction block do not count here:
    /// name them with [`Fault::cut_after_commit_of`].
    pub fn cut_after_commit() -> Self {
        Self::new(Action::CutAfterCommit, None)
    }

    /// Like [`Fault::cut_after_commit`], for the transaction that ran a statement containing `substring`.
    ///
    /// It may be a transaction block or a single statement in autocommit. Nothing of the answer to a single statement
    /// reaches the client, including rows. A transaction that rolls back does not count.
    pub fn cut_after_commit_of(substring: &str) -> Self {
        Self::new(Action::CutAfterCommit, Some(substring))
    }

    /// Cuts both connections before a statement containing `substring` is run.
    pub fn cut_before(substring: &str) -> Self {
        Self::new(Action::CutBefore, Some(substring))
    }

    /// Holds a statement containing `substring` until [`Armed::release`], or until its client disconnects.
    pub fn stall(substring: &str) -> Self {
        Self::new(Action::Stall, Some(substring))
    }

    /// Acts at the `nth` match after arming, counted from 1 over all connections. The default is 1.
    #[must_use]
    pub fn nth(mut self, nth: u32) -> Self {
        self.nth = nth;
        self
    }

    /// Acts at this many matches in a row. The default is 1.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    fn new(action: Action, substring: Option<&str>) -> Self {
        Self { action, substring: substring.map(str::to_owned), nth: 1, times: 1 }
    }
}

/// Progress of an armed fault.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    seen: u32,
    fired: u32,
    released: bool,
    disarmed: bool,
}

/// An armed fault, shared by the connections and its owner.
#[derive(Debug)]
struct Trigger {
    fault: Fault,
    progress: watch::Sender<Progress>,
}

impl Trigger {
    /// Returns whether this fault matches `sql`.
    fn concerns(&self, sql: &str) -> bool {
        self.fault.substring.as_deref().is_some_and(|substring| sql.contains(substring))
    }

    /// Counts one match; returns whether the fault acts on it.
    fn fire(&self) -> bool {
        let mut fires = false;
        self.progress.send_modify(|progress| {
            progress.seen += 1;
            fires =
                !progress.disarmed && progress.seen >= self.fault.nth && progress.fired < self.fault.times;
            progress.fired += u32::from(fires);
        });
        fires
    }

    async fn released(&self) {
        // The sender lives in `self`, so the channel cannot close during the wait.
        let _ = self.progress.subscribe().wait_for(|progress| progress.released).await;
    }
}

/// The owner's view of an armed fault. Dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct Armed {
    trigger: Arc<Trigger>,
}

impl Armed {
    /// Returns how often the fault has acted.
    pub fn fired(&self) -> u32 {
        self.trigger.progress.borrow().fired
    }

    /// Returns the number of matches, whether or not the fault acted.
    pub fn matches(&self) -> u32 {
        self.trigger.progress.borrow().seen
    }

    /// Waits until the fault has acted at least `count` times.
    pub async fn wait_fired(&self, count: u32) {
        // The sender lives in the trigger, so the channel cannot close during the wait.
        let _ = self.trigger.progress.subscribe().wait_for(|progress| progress.fired >= count).await;
    }

    /// Releases every statement that this fault holds, now and later.
    pub fn release(&self) {
        self.trigger.progress.send_modify(|progress| progress.released = true);
    }

    /// Prevents further actions of the fault; held statements stay held.
    pub fn disarm(&self) {
        self.trigger.progress.send_modify(|progress| progress.disarmed = true);
    }
}

/// The faults of a proxy, in the order in which they were armed.
#[derive(Clone, Debug, Default)]
struct Triggers(Arc<Mutex<Vec<Arc<Trigger>>>>);

impl Triggers {
    fn all(&self) -> Vec<Arc<Trigger>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn push(&self, trigger: Arc<Trigger>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(trigger);
    }
}

/// A proxy on 127.0.0.1. Dropping it cuts every connection through it.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    credentials: String,
    triggers: Triggers,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy in front of a server that trusts the user `postgres`, on the current runtime.
    pub async fn start(upstream: SocketAddr) -> Result<Self> {
        Self::listen(upstream, "postgres".to_owned()).await
    }

    /// Starts a proxy in front of the server of this URL, with its user and password.
    pub async fn in_front_of(server_url: &str) -> Result<Self> {
        let address = Address::parse(server_url)?;
        let upstream = lookup_host((address.host.as_str(), address.port))
            .await?
            .next()
            .with_context(|| format!("the host `{}` has no address", address.host))?;
        Self::listen(upstream, address.credentials).await
    }

    async fn listen(upstream: SocketAddr, credentials: String) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("the proxy could not listen")?;
        let port = listener.local_addr()?.port();
        let triggers = Triggers::default();
        let accepting = tokio::spawn(accept(listener, upstream, triggers.clone()));
        Ok(Self { port, credentials, triggers, accepting })
    }

    /// Returns the URL of `database` through this proxy.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{}@127.0.0.1:{}/{database}", self.credentials, self.port)
    }

    /// Arms a fault for every connection, including open ones.
    pub fn arm(&self, fault: Fault) -> Armed {
        let trigger = Arc::new(Trigger { fault, progress: watch::Sender::new(Progress::default()) });
        self.triggers.push(Arc::clone(&trigger));
        Armed { trigger }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, triggers: Triggers) {
    // Connections live in this set, so they end when the task is aborted.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let triggers = triggers.clone();
                connections.spawn(async move {
                    // Broken connections are the purpose of this proxy; the client sees the error.
                    let _ = serve(client, upstream, triggers).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Relays one connection from its start-up message to its end.
async fn serve(client: TcpStream, upstream: SocketAddr, triggers: Triggers) -> io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_read, mut client_write) = client.into_split();
    let (server_read, mut server_write) = server.into_split();
    let mut from_client = Frames::new(client_read);
    loop {
        match from_client.startup().await? {
            Some(Startup::Encryption) => client_write.write_all(b"N").await?,
            Some(Startup::Cancel(message)) => return server_write.write_all(&message).await,
            Some(Startup::Session(message)) => {
                server_write.write_all(&message).await?;
                break;
            }
            None => return Ok(()),
        }
    }
    let session = Mutex::new(Session::default());
    // When either side ends, both sockets close at the end of this function.
    tokio::select! {
        ended = client_to_server(from_client, server_write, &session, &triggers) => ended,
        ended = server_to_client(Frames::new(server_read), client_write, &session, &triggers) => ended,
    }
}

async fn client_to_server(
    mut client: Frames<OwnedReadHalf>,
    server: OwnedWriteHalf,
    session: &Mutex<Session>,
    triggers: &Triggers,
) -> io::Result<()> {
    let mut server = BufWriter::new(server);
    loop {
        let Some(frame) = client.buffered()? else {
            server.flush().await?;
            if client.fill().await? == 0 {
                return Ok(());
            }
            continue;
        };
        let step = lock(session).client_sends(&frame, &triggers.all());
        match step {
            FromClient::Pass => {}
            FromClient::Cut => return Ok(()),
            FromClient::Stall(trigger) => {
                server.flush().await?;
                tokio::select! {
                    () = trigger.released() => {}
                    ended = client.ended() => return ended,
                }
            }
        }
        server.write_all(frame.bytes()).await?;
    }
}

async fn server_to_client(
    mut server: Frames<OwnedReadHalf>,
    client: OwnedWriteHalf,
    session: &Mutex<Session>,
    triggers: &Triggers,
) -> io::Result<()> {
    let mut client = BufWriter::new(client);
    let mut held: Vec<u8> = Vec::new();
    loop {
        let Some(frame) = server.buffered()? else {
            client.flush().await?;
            if server.fill().await? == 0 {
                return Ok(());
            }
            continue;
        };
        let step = lock(session).server_sends(&frame, &triggers.all());
        match step {
            FromServer::Cut => return Ok(()),
            FromServer::Hold => held.extend_from_slice(frame.bytes()),
            FromServer::Pass => {
                client.write_all(&held).await?;
                held.clear();
                client.write_all(frame.bytes()).await?;
            }
        }
    }
}

fn lock(session: &Mutex<Session>) -> std::sync::MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}
