//! An SMTP server for tests, with STARTTLS and TLS.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "an SMTP server that cannot be set up must end the test"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Encryption of the server's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    None,
    /// Required before any mail is accepted.
    StartTls,
    /// From the first byte.
    Tls,
}

/// A mail that the server received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    pub from: String,
    pub to: Vec<String>,
    /// Headers and body, unchanged.
    pub data: String,
    /// Whether the connection was encrypted.
    pub secure: bool,
    /// Credentials of the sender.
    pub login: Option<String>,
}

impl Mail {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let head = self.data.split("\r\n\r\n").next().unwrap_or_default();
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

#[derive(Default)]
struct Mailbox {
    mails: Mutex<Vec<Mail>>,
    /// Number of next mails to answer with a temporary error.
    deferrals: AtomicU32,
    attempts: AtomicU32,
}

/// An SMTP server on this machine.
pub struct SmtpServer {
    /// Port of the server on `localhost`.
    pub port: u16,
    /// File with the certificate to trust.
    pub ca_file: PathBuf,
    mailbox: Arc<Mailbox>,
    _directory: TempDir,
}

impl SmtpServer {
    /// Starts a server with this encryption.
    pub async fn start(encryption: Encryption) -> Self {
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
        let mailbox = Arc::new(Mailbox::default());
        let shared = mailbox.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, mailbox) = (acceptor.clone(), shared.clone());
                tokio::spawn(async move { serve(stream, encryption, &acceptor, &mailbox).await });
            }
        });
        Self { port, ca_file, mailbox, _directory: directory }
    }

    /// Answers the next mails with a temporary error.
    pub fn defer(&self, mails: u32) {
        self.mailbox.deferrals.store(mails, Ordering::SeqCst);
    }

    /// Returns the number of attempts to send a mail.
    pub fn attempts(&self) -> u32 {
        self.mailbox.attempts.load(Ordering::SeqCst)
    }

    /// Returns the received mails.
    pub fn mails(&self) -> Vec<Mail> {
        self.mailbox.mails.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(stream: TcpStream, encryption: Encryption, acceptor: &TlsAcceptor, mailbox: &Mailbox) {
    if encryption == Encryption::Tls {
        if let Ok(secured) = acceptor.accept(stream).await {
            let _ = converse(secured, Greeting::Yes, true, encryption, mailbox).await;
        }
        return;
    }
    let Ok(Some(stream)) = converse(stream, Greeting::Yes, false, encryption, mailbox).await else { return };
    if let Ok(secured) = acceptor.accept(stream).await {
        let _ = converse(secured, Greeting::No, true, encryption, mailbox).await;
    }
}

#[derive(PartialEq, Eq)]
enum Greeting {
    Yes,
    No,
}

/// Handles one connection; returns the stream if the client starts TLS.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    greeting: Greeting,
    secure: bool,
    encryption: Encryption,
    mailbox: &Mailbox,
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
        let closed = encryption == Encryption::StartTls && !secure;
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
                mailbox.attempts.fetch_add(1, Ordering::SeqCst);
                let left = mailbox.deferrals.load(Ordering::SeqCst);
                if left > 0 {
                    mailbox.deferrals.store(left - 1, Ordering::SeqCst);
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
                let mail = Mail {
                    from: std::mem::take(&mut from),
                    to: std::mem::take(&mut to),
                    data,
                    secure,
                    login: login.clone(),
                };
                mailbox.mails.lock().unwrap_or_else(PoisonError::into_inner).push(mail);
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
