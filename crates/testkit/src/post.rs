//! A post office for tests: a mail server that really speaks SMTP, over STARTTLS and TLS, and a receiver of
//! webhooks.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a post office that cannot be set up ends the test, loudly"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

/// How a mail server protects its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    None,
    /// On demand, and nothing is taken before.
    StartTls,
    /// From the first byte.
    Tls,
}

/// A mail that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The sender of the envelope.
    pub from: String,
    /// The receivers of the envelope.
    pub to: Vec<String>,
    /// Headers and text, as they came.
    pub data: String,
    /// Whether the connection was protected.
    pub secure: bool,
    /// What the sender signed in with.
    pub login: Option<String>,
}

impl Letter {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let head = self.data.split("\r\n\r\n").next().unwrap_or_default();
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

#[derive(Default)]
struct Office {
    letters: Mutex<Vec<Letter>>,
    /// How many of the next mails are put off.
    busy: AtomicU32,
    asked: AtomicU32,
}

/// A mail server on this machine.
pub struct Smtp {
    /// Its port on `localhost`.
    pub port: u16,
    /// A file with the certificate to trust.
    pub ca_file: PathBuf,
    office: Arc<Office>,
    _directory: TempDir,
}

impl Smtp {
    /// Starts a server.
    pub async fn start(protection: Protection) -> Self {
        let directory = tempfile::tempdir().expect("a directory is made");
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let ca_file = directory.path().join("ca.pem");
        std::fs::write(&ca_file, made.cert.pem()).expect("the certificate is written");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("the certificate is used");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let office = Arc::new(Office::default());
        let shared = office.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, office) = (acceptor.clone(), shared.clone());
                tokio::spawn(async move { serve(stream, protection, &acceptor, &office).await });
            }
        });
        Self { port, ca_file, office, _directory: directory }
    }

    /// Puts off so many mails.
    pub fn put_off(&self, mails: u32) {
        self.office.busy.store(mails, Ordering::SeqCst);
    }

    /// How many mails somebody began to send.
    pub fn asked(&self) -> u32 {
        self.office.asked.load(Ordering::SeqCst)
    }

    /// What has arrived.
    pub fn letters(&self) -> Vec<Letter> {
        self.office.letters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(stream: TcpStream, protection: Protection, acceptor: &TlsAcceptor, office: &Office) {
    if protection == Protection::Tls {
        if let Ok(secured) = acceptor.accept(stream).await {
            let _ = talk(secured, Greeting::Yes, true, protection, office).await;
        }
        return;
    }
    let Ok(Some(stream)) = talk(stream, Greeting::Yes, false, protection, office).await else { return };
    if let Ok(secured) = acceptor.accept(stream).await {
        let _ = talk(secured, Greeting::No, true, protection, office).await;
    }
}

#[derive(PartialEq, Eq)]
enum Greeting {
    Yes,
    No,
}

/// One conversation; the stream, where it is to be secured.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    greeting: Greeting,
    secure: bool,
    protection: Protection,
    office: &Office,
) -> std::io::Result<Option<S>> {
    let mut stream = BufReader::new(stream);
    if greeting == Greeting::Yes {
        stream.write_all(b"220 localhost ESMTP\r\n").await?;
    }
    let (mut from, mut to, mut login) = (String::new(), Vec::new(), None);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let closed = protection == Protection::StartTls && !secure;
        let answer = match verb.to_uppercase().as_str() {
            "EHLO" if closed => "250-localhost\r\n250 STARTTLS\r\n",
            "EHLO" => "250-localhost\r\n250 AUTH PLAIN\r\n",
            "STARTTLS" if closed => {
                stream.write_all(b"220 go ahead\r\n").await?;
                return Ok(Some(stream.into_inner()));
            }
            "QUIT" => {
                stream.write_all(b"221 bye\r\n").await?;
                return Ok(None);
            }
            "NOOP" | "RSET" => "250 ok\r\n",
            _ if closed => "530 must issue STARTTLS first\r\n",
            "AUTH" => {
                login = rest.strip_prefix("PLAIN ").map(str::to_owned);
                "235 welcome\r\n"
            }
            "MAIL" => {
                office.asked.fetch_add(1, Ordering::SeqCst);
                let left = office.busy.load(Ordering::SeqCst);
                if left > 0 {
                    office.busy.store(left - 1, Ordering::SeqCst);
                    "451 come back later\r\n"
                } else {
                    rest.clone_into(&mut from);
                    "250 ok\r\n"
                }
            }
            "RCPT" => {
                to.push(rest.to_owned());
                "250 ok\r\n"
            }
            "DATA" => {
                stream.write_all(b"354 go on\r\n").await?;
                let data = read_data(&mut stream).await?;
                let letter = Letter {
                    from: std::mem::take(&mut from),
                    to: std::mem::take(&mut to),
                    data,
                    secure,
                    login: login.clone(),
                };
                office.letters.lock().unwrap_or_else(PoisonError::into_inner).push(letter);
                "250 taken\r\n"
            }
            _ => "502 what\r\n",
        };
        stream.write_all(answer.as_bytes()).await?;
    }
}

async fn read_data<S: AsyncRead + Unpin>(stream: &mut BufReader<S>) -> std::io::Result<String> {
    let mut data = String::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || line == ".\r\n" {
            return Ok(data);
        }
        data.push_str(line.strip_prefix('.').unwrap_or(&line));
    }
}

/// A request that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// The first line and the headers, names in lower case.
    pub head: Vec<String>,
    /// The body.
    pub body: String,
}

impl Parcel {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A receiver of webhooks on this machine.
pub struct Receiver {
    /// Where it takes requests.
    pub url: String,
    counter: Arc<Counter>,
}

struct Counter {
    parcels: Mutex<Vec<Parcel>>,
    status: AtomicU32,
    arrived: Notify,
}

/// The status that stands for no answer at all.
pub const SILENCE: u32 = 0;

impl Receiver {
    /// Starts a receiver that answers everything with 200.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}/T0KEN", listener.local_addr().expect("it has an address"));
        let counter = Arc::new(Counter {
            parcels: Mutex::default(),
            status: AtomicU32::new(200),
            arrived: Notify::new(),
        });
        let shared = counter.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counter = shared.clone();
                tokio::spawn(async move {
                    let _ = take(stream, &counter).await;
                });
            }
        });
        Self { url, counter }
    }

    /// Answers with this status from now on; with [`SILENCE`], not at all.
    pub fn answer(&self, status: u32) {
        self.counter.status.store(status, Ordering::SeqCst);
    }

    /// What has arrived.
    pub fn parcels(&self) -> Vec<Parcel> {
        self.counter.parcels.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until something arrives.
    pub async fn arrival(&self) {
        self.counter.arrived.notified().await;
    }
}

async fn take(stream: TcpStream, counter: &Counter) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        match line.split_once(": ") {
            Some((name, value)) => head.push(format!("{}: {value}", name.to_lowercase())),
            None => head.push(line.to_owned()),
        }
    }
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    let body = String::from_utf8_lossy(&body).into_owned();
    counter.parcels.lock().unwrap_or_else(PoisonError::into_inner).push(Parcel { head, body });
    counter.arrived.notify_one();
    let status = counter.status.load(Ordering::SeqCst);
    if status == SILENCE {
        return std::future::pending().await;
    }
    let answer = format!("HTTP/1.1 {status} so\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await
}
