//! One request over a connection of its own.

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Status and body of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Sends a request to a port of this machine. HTTP 1.0 ends the body with the connection.
pub(super) async fn send(port: u16, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8(answer).context("the answer is not UTF-8")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no end of its headers")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(Answer { status: status.context("the answer has no status")?, body: body.to_owned() })
}
