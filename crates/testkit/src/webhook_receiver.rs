//! A receiver of webhooks for tests.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a receiver that cannot be set up must end the test"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A webhook request that the receiver got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRequest {
    /// First line and headers, with lower-case names.
    pub head: Vec<String>,
    pub body: String,
}

impl WebhookRequest {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A webhook receiver on this machine.
pub struct WebhookReceiver {
    pub url: String,
    inbox: Arc<Inbox>,
}

struct Inbox {
    requests: Mutex<Vec<WebhookRequest>>,
    status: AtomicU32,
    arrived: Notify,
}

/// Status that stands for no answer.
pub const SILENCE: u32 = 0;

impl WebhookReceiver {
    /// Starts a receiver that answers everything with 200.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}/T0KEN", listener.local_addr().expect("it has an address"));
        let inbox = Arc::new(Inbox {
            requests: Mutex::default(),
            status: AtomicU32::new(200),
            arrived: Notify::new(),
        });
        let shared = inbox.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let inbox = shared.clone();
                tokio::spawn(async move {
                    let _ = take(stream, &inbox).await;
                });
            }
        });
        Self { url, inbox }
    }

    /// Answers with this status from now on; with [`SILENCE`], not at all.
    pub fn answer(&self, status: u32) {
        self.inbox.status.store(status, Ordering::SeqCst);
    }

    /// Returns the received requests.
    pub fn requests(&self) -> Vec<WebhookRequest> {
        self.inbox.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a request arrives.
    pub async fn wait_for_request(&self) {
        self.inbox.arrived.notified().await;
    }
}

async fn take(stream: TcpStream, inbox: &Inbox) -> std::io::Result<()> {
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
    inbox.requests.lock().unwrap_or_else(PoisonError::into_inner).push(WebhookRequest { head, body });
    inbox.arrived.notify_one();
    let status = inbox.status.load(Ordering::SeqCst);
    if status == SILENCE {
        return std::future::pending().await;
    }
    let answer = format!("HTTP/1.1 {status} so\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await
}
