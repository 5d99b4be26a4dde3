//! Live events: a reader that comes back by itself, misses nothing and gets nothing twice.

use crate::{Call, Client, Error, PATIENCE, part};
use ::http::{Method, StatusCode};
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::event::Event;
use tidemill_wire::Problem;

/// Silence after which a connection counts as broken: the server says something three times as often.
const SILENCE: Duration = Duration::from_secs(45);
/// The longest wait before coming back.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes of one server-sent event, at most.
const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// Something that comes later.
pub type LaterOf<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// An answer whose body comes bit by bit.
pub trait Chunks: Send {
    /// The next bit; nothing at the end.
    fn next(&mut self) -> LaterOf<'_, Option<Bytes>>;
}

/// An answer that has begun.
pub struct Opened {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Box<dyn Chunks>,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// What to resume after.
    pub id: String,
    /// The event.
    pub event: Event,
}

/// A reader of a live stream.
pub struct Watch {
    client: Client,
    path: String,
    last: Option<String>,
    body: Option<Box<dyn Chunks>>,
    frames: Frames,
    retry: Duration,
    /// Attempts to read since something came.
    vain: u32,
}

impl Client {
    /// Follows a run's events after a number; 0 for all of them.
    pub fn watch_run(&self, run: &RunId, after: i32) -> Watch {
        Watch::new(self, format!("/v1/runs/{}/stream", run.in_path()), Some(after.to_string()))
    }

    /// Follows the events of a project, or of all, after an id; from now on where there is none.
    pub fn watch(&self, project: Option<&str>, after: Option<String>) -> Watch {
        let query = project.map_or_else(String::new, |project| format!("?project={}", part(project)));
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
            vain: 0,
        }
    }

    /// What a later reader can resume after.
    pub fn last_id(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// The next event. It waits for as long as it takes, and through broken connections; an error is the server's no.
    pub async fn next(&mut self) -> Result<Seen, Error> {
        loop {
            while let Some(frame) = self.frames.take()? {
                if let Some(seen) = self.heed(frame)? {
                    return Ok(seen);
                }
            }
            if let Err(error) = self.more().await {
                if !error.is_transient() {
                    return Err(error);
                }
                self.body = None;
                self.frames = Frames::default();
                self.vain += 1;
            }
        }
    }

    /// Notes what a frame says; the event, where it is one.
    fn heed(&mut self, frame: Frame) -> Result<Option<Seen>, Error> {
        if let Some(millis) = frame.retry {
            self.retry = Duration::from_millis(millis).min(WAIT_MAX);
        }
        let id = frame.id.or_else(|| self.last.clone());
        let seen = match (frame.data, &id) {
            (Some(data), Some(id)) => {
                let event = serde_json::from_str(&data).map_err(|bad| Error::Unreadable(bad.to_string()))?;
                Some(Seen { id: id.clone(), event })
            }
            (Some(_), None) => return Err(Error::Unreadable("an event has no id".to_owned())),
            (None, _) => None,
        };
        self.last = id;
        Ok(seen)
    }

    fn call(&self) -> Call {
        let path = self.path.clone();
        Call { method: Method::GET, path, idempotency_key: None, body: None, patience: PATIENCE }
    }

    /// Gets more of the stream, opening it where it is not open.
    async fn more(&mut self) -> Result<(), Error> {
        let body = if let Some(body) = &mut self.body {
            body
        } else {
            if self.vain > 0 {
                let wait = self.retry.saturating_mul(1 << (self.vain - 1).min(5));
                tokio::time::sleep(wait.min(WAIT_MAX)).await;
            }
            let opened = self.client.transport.open(self.call(), self.last.clone()).await?;
            self.body.insert(accepted(opened).await?)
        };
        let silent = |_| self.client.unreachable("the stream fell silent");
        match tokio::time::timeout(SILENCE, body.next()).await.map_err(silent)?? {
            Some(bytes) => {
                self.vain = 0;
                self.frames.add(&bytes)
            }
            None => Err(self.client.unreachable("the stream ended")),
        }
    }
}

/// The body of a success; anything else is what the server says.
async fn accepted(mut opened: Opened) -> Result<Box<dyn Chunks>, Error> {
    if opened.status.is_success() {
        return Ok(opened.body);
    }
    let mut text = Vec::new();
    while let Some(bytes) = opened.body.next().await? {
        text.extend_from_slice(&bytes);
        if text.len() > FRAME_BYTES_MAX {
            break;
        }
    }
    match serde_json::from_slice::<Problem>(&text) {
        Ok(problem) => Err(Error::Refused { status: opened.status, problem: Box::new(problem) }),
        Err(_) => Err(Error::NotTidemill { status: opened.status }),
    }
}

/// One server-sent event, or what stands in its place.
#[derive(Debug, Default, PartialEq, Eq)]
struct Frame {
    id: Option<String>,
    data: Option<String>,
    retry: Option<u64>,
}

/// What has come of a stream and was not read yet.
#[derive(Debug, Default)]
struct Frames {
    text: Vec<u8>,
    /// Where to look for the end of the next frame.
    looked: usize,
}

impl Frames {
    fn add(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.text.len() + bytes.len() > FRAME_BYTES_MAX {
            return Err(Error::Unreadable("an event is larger than any can be".to_owned()));
        }
        self.text.extend_from_slice(bytes);
        Ok(())
    }

    fn take(&mut self) -> Result<Option<Frame>, Error> {
        let from = self.looked.saturating_sub(1);
        let Some(end) = self.text[from..].windows(2).position(|pair| pair == b"\n\n") else {
            self.looked = self.text.len();
            return Ok(None);
        };
        let rest = self.text.split_off(from + end + 2);
        let frame = std::mem::replace(&mut self.text, rest);
        self.looked = 0;
        let frame = String::from_utf8(frame).map_err(|bad| Error::Unreadable(bad.to_string()))?;
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
            // The kind is in the event itself, and a line without a name is a comment.
            _ => {}
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_however_they_are_cut() {
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
    fn what_never_ends_is_refused() {
        let mut frames = Frames::default();
        let mut add = || frames.add(&vec![b'x'; 64 * 1024]);
        assert!((0..16).all(|_| add().is_ok()) && add().is_err());
    }
}
