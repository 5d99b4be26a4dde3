//! Reader of live event streams that reconnects by itself, without gaps and without duplicates.

use crate::{ApiRequest, Client, Error, REQUEST_TIMEOUT, TransportFuture, path_segment};
use ::http::{Method, StatusCode};
use bytes::Bytes;
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::event::Event;
use tidemill_wire::Problem;

/// Silence after which a connection counts as broken. The server sends a keep-alive three times as often.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Longest delay before a reconnect.
const RECONNECT_DELAY_MAX: Duration = Duration::from_secs(10);
/// Maximum size of one server-sent event.
const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// Body of a streamed response.
pub trait Chunks: Send {
    /// Returns the next chunk; `None` at the end.
    fn next(&mut self) -> TransportFuture<'_, Option<Bytes>>;
}

/// Streamed response whose headers have arrived.
pub struct StreamResponse {
    pub status: StatusCode,
    pub body: Box<dyn Chunks>,
}

/// Event of a live stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvent {
    /// Stream position: a later reader can resume after it.
    pub id: String,
    pub event: Event,
}

/// Reader of a live event stream.
pub struct Watch {
    client: Client,
    path: String,
    last: Option<String>,
    body: Option<Box<dyn Chunks>>,
    frames: Frames,
    retry: Duration,
    /// Failed reads since the last received chunk.
    failed_reads: u32,
}

impl Client {
    /// Follows a run's events after a sequence number; 0 for all.
    pub fn watch_run(&self, run: &RunId, after: i32) -> Watch {
        Watch::new(self, format!("/v1/runs/{}/stream", run.in_path()), Some(after.to_string()))
    }

    /// Follows the events of a project, or of all projects, after an id. Without an id, it starts with new events.
    pub fn watch(&self, project: Option<&str>, after: Option<String>) -> Watch {
        let query = project.map_or_else(String::new, |project| format!("?project={}", path_segment(project)));
        Watch::new(self, format!("/v1/stream{query}"), after)
    }
}

impl Watch {
    fn new(client: &Client, path: String, last: Option<String>) -> Self {
        Self {
            client: client.clone(),
            path,
            last,
            body: None,
            frames: Frames::default(),
            retry: Duration::from_secs(1),
            failed_reads: 0,
        }
    }

    /// Position that a later reader can resume after.
    pub fn last_id(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Waits for the next event, reconnecting as needed. Returns an error only if the server refuses the stream or
    /// sends an undecodable event.
    pub async fn next(&mut self) -> Result<StreamEvent, Error> {
        loop {
            while let Some(frame) = self.frames.take()? {
                if let Some(event) = self.apply(frame)? {
                    return Ok(event);
                }
            }
            if let Err(error) = self.read_more().await {
                if !error.is_transient() {
                    return Err(error);
                }
                self.body = None;
                self.frames = Frames::default();
                self.failed_reads += 1;
            }
        }
    }

    /// Applies a frame's id and retry delay and returns its event, if it has one.
    fn apply(&mut self, frame: Frame) -> Result<Option<StreamEvent>, Error> {
        if let Some(millis) = frame.retry {
            self.retry = Duration::from_millis(millis).min(RECONNECT_DELAY_MAX);
        }
        let id = frame.id.or_else(|| self.last.clone());
        let event = match (frame.data, &id) {
            (Some(data), Some(id)) => {
                let event =
                    serde_json::from_str(&data).map_err(|bad| Error::InvalidResponse(bad.to_string()))?;
                Some(StreamEvent { id: id.clone(), event })
            }
            (Some(_), None) => return Err(Error::InvalidResponse("event without an id".to_owned())),
            (None, _) => None,
        };
        self.last = id;
        Ok(event)
    }

    fn request(&self) -> ApiRequest {
        let path = self.path.clone();
        ApiRequest { method: Method::GET, path, idempotency_key: None, body: None, timeout: REQUEST_TIMEOUT }
    }

    /// Reads more of the stream; opens it first if necessary.
    async fn read_more(&mut self) -> Result<(), Error> {
        let body = if let Some(body) = &mut self.body {
            body
        } else {
            if self.failed_reads > 0 {
                let wait = self.retry.saturating_mul(1 << (self.failed_reads - 1).min(5));
                tokio::time::sleep(wait.min(RECONNECT_DELAY_MAX)).await;
            }
            let response = self.client.transport.open(self.request(), self.last.clone()).await?;
            self.body.insert(successful_body(response).await?)
        };
        let silent = |_| self.client.unreachable("no data from the event stream");
        match tokio::time::timeout(SILENCE_MAX, body.next()).await.map_err(silent)?? {
            Some(bytes) => {
                self.failed_reads = 0;
                self.frames.add(&bytes)
            }
            None => Err(self.client.unreachable("the event stream ended")),
        }
    }
}

/// Returns the body of a successful response and turns any other one into an error.
async fn successful_body(mut response: StreamResponse) -> Result<Box<dyn Chunks>, Error> {
    if response.status.is_success() {
        return Ok(response.body);
    }
    let mut text = Vec::new();
    while let Some(bytes) = response.body.next().await? {
        text.extend_from_slice(&bytes);
        if text.len() > FRAME_BYTES_MAX {
            break;
        }
    }
    match serde_json::from_slice::<Problem>(&text) {
        Ok(problem) => Err(Error::Refused { status: response.status, problem: Box::new(problem) }),
        Err(_) => Err(Error::NotTidemill { status: response.status }),
    }
}

/// One server-sent event, or a comment in its place.
#[derive(Debug, Default, PartialEq, Eq)]
struct Frame {
    id: Option<String>,
    data: Option<String>,
    retry: Option<u64>,
}

/// Received bytes that are not parsed yet.
#[derive(Debug, Default)]
struct Frames {
    text: Vec<u8>,
    /// Offset up to which `text` contains no end of a frame.
    scanned: usize,
}

impl Frames {
    fn add(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.text.len() + bytes.len() > FRAME_BYTES_MAX {
            return Err(Error::InvalidResponse(format!("event is larger than {FRAME_BYTES_MAX} bytes")));
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn take(&mut self) -> Result<Option<Frame>, Error> {
        let from = self.scanned.saturating_sub(1);
        let Some(end) = self.text[from..].windows(2).position(|pair| pair == b"\n\n") else {
            self.scanned = self.text.len();
            return Ok(None);
        };
        let rest = self.text.split_off(from + end + 2);
        let frame = std::mem::replace(&mut self.text, rest);
        self.scanned = 0;
        let frame = String::from_utf8(frame).map_err(|bad| Error::InvalidResponse(bad.to_string()))?;
        Ok(Some(read(&frame)))
    }
}

fn read(text: &str) -> Frame {
    let mut frame = Frame::default();
    for line in text.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => frame.id = Some(value.to_owned()),
            "retry" => frame.retry = value.parse().ok(),
            "data" => match &mut frame.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => frame.data = Some(value.to_owned()),
            },
            // The event itself contains its kind, and a line without a name is a comment.
            _ => {}
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_split_at_any_byte_are_parsed() {
        let text = b"retry: 1000\nid: 7\n\n: still here\n\nid: 8\nevent: log\ndata: {\"a\":1}\n\nid: 9\n";
        for size in 1..text.len() {
            let (mut frames, mut read) = (Frames::default(), Vec::new());
            for bytes in text.chunks(size) {
                frames.add(bytes).unwrap();
                while let Some(frame) = frames.take().unwrap() {
                    read.push(frame);
                }
            }
            let hello = Frame { id: Some("7".to_owned()), retry: Some(1_000), data: None };
            let event = Frame { id: Some("8".to_owned()), data: Some("{\"a\":1}".to_owned()), retry: None };
            assert_eq!(read, [hello, Frame::default(), event], "{size}");
        }
    }

    #[test]
    fn frame_without_an_end_is_refused() {
        let mut frames = Frames::default();
        let mut add = || frames.add(&vec![b'x'; 64 * 1024]);
        assert!((0..16).all(|_| add().is_ok()) && add().is_err());
    }
}
