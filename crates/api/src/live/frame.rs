//! How events are written to a stream.

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, header};
use http_body::Frame;
use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use tidemill_core::event::Event;
use tidemill_core::live::{Cursor, Point};
use tokio::sync::mpsc;

/// How long a reader waits before it comes back.
const RETRY_MILLIS: u32 = 1_000;
/// Frames between the task of a stream and its connection. What a reader may fall behind is the hub's to say.
const FRAMES: usize = 4;

/// What is said first: when to come back, and where the stream begins, where an id says so.
pub(super) fn hello(begin: Option<&Point>) -> Bytes {
    // An id without data is remembered by the reader, and is no event.
    let id = begin.map_or_else(String::new, |point| format!("id: {point}\n"));
    format!("retry: {RETRY_MILLIS}\n{id}\n").into()
}

/// What is said when there is nothing to say; with an id, how far that goes.
pub(super) fn heartbeat(reached: Option<&Point>) -> Bytes {
    reached.map_or_else(
        || Bytes::from_static(b": still here\n\n"),
        |point| format!(": still here\nid: {point}\n\n").into(),
    )
}

/// An event on its way to readers; written once for all of them.
pub(super) struct Item {
    pub(super) seq: i32,
    cursor: Cursor,
    said: String,
    by_seq: OnceLock<Bytes>,
    by_cursor: OnceLock<Bytes>,
}

impl Item {
    /// An event that ended between two points.
    pub(super) fn new(event: &Event, since: &Point, until: &Point) -> Self {
        let cursor = Cursor::Within {
            since: since.clone(),
            until: until.clone(),
            run: event.run_id.clone(),
            seq: event.seq,
        };
        Self {
            seq: event.seq,
            cursor,
            said: said(event),
            by_seq: OnceLock::new(),
            by_cursor: OnceLock::new(),
        }
    }

    /// For readers of its run.
    pub(super) fn numbered(&self) -> Bytes {
        self.by_seq.get_or_init(|| with_id(self.seq, &self.said)).clone()
    }

    /// For readers of everybody's events.
    pub(super) fn placed(&self) -> Bytes {
        self.by_cursor.get_or_init(|| with_id(&self.cursor, &self.said)).clone()
    }
}

/// An event of one run, for its readers.
pub(super) fn numbered(event: &Event) -> Bytes {
    with_id(event.seq, &said(event))
}

fn with_id(id: impl Display, said: &str) -> Bytes {
    format!("id: {id}\n{said}").into()
}

/// JSON has no line breaks of its own: an event is one line of data.
fn said(event: &Event) -> String {
    // Records are made of texts and numbers, which can always be written.
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("event: {}\ndata: {data}\n\n", event.kind)
}

/// Answers with a stream that a task of its own writes, for as long as somebody reads.
pub(super) fn answer<F>(write: impl FnOnce(mpsc::Sender<Bytes>) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (frames, written) = mpsc::channel(FRAMES);
    tokio::spawn(write(frames));
    let mut response = Response::new(Body::new(Written(written)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that collect answers would keep events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct Written(mpsc::Receiver<Bytes>);

impl HttpBody for Written {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
