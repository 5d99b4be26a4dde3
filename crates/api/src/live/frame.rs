//! Encoding of events as server-sent events.

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

/// Reconnect delay for clients.
const RETRY_MILLIS: u32 = 1_000;
/// Buffered frames between a stream's task and its connection. The hub decides how far a client may fall behind.
const FRAMES_BUFFERED: usize = 4;

/// First frame of a stream: the reconnect delay and, if known, the start position.
pub(super) fn opening(start: Option<&Point>) -> Bytes {
    // A client remembers an id without data, but does not treat it as an event.
    let id = start.map_or_else(String::new, |point| format!("id: {point}\n"));
    format!("retry: {RETRY_MILLIS}\n{id}\n").into()
}

/// Keep-alive frame. With a position, the client can resume from there.
pub(super) fn keep_alive(reached: Option<&Point>) -> Bytes {
    reached.map_or_else(
        || Bytes::from_static(b": still here\n\n"),
        |point| format!(": still here\nid: {point}\n\n").into(),
    )
}

/// An event for delivery. It is encoded once for all readers.
pub(super) struct Item {
    pub(super) seq: i32,
    cursor: Cursor,
    body: String,
    by_seq: OnceLock<Bytes>,
    by_cursor: OnceLock<Bytes>,
}

impl Item {
    /// Creates an item for an event that was committed between two points.
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
            body: encode(event),
            by_seq: OnceLock::new(),
            by_cursor: OnceLock::new(),
        }
    }

    /// Encodes the event for readers of its run, with the sequence number as id.
    pub(super) fn with_seq_id(&self) -> Bytes {
        self.by_seq.get_or_init(|| with_id(self.seq, &self.body)).clone()
    }

    /// Encodes the event for readers of several runs, with the cursor as id.
    pub(super) fn with_cursor_id(&self) -> Bytes {
        self.by_cursor.get_or_init(|| with_id(&self.cursor, &self.body)).clone()
    }
}

/// Encodes an event for readers of its run.
pub(super) fn with_seq_id(event: &Event) -> Bytes {
    with_id(event.seq, &encode(event))
}

fn with_id(id: impl Display, body: &str) -> Bytes {
    format!("id: {id}\n{body}").into()
}

/// Encodes kind and data. JSON contains no line breaks, so the data is a single line.
fn encode(event: &Event) -> String {
    // Serialization cannot fail: an event contains only strings and numbers.
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("event: {}\ndata: {data}\n\n", event.kind)
}

/// Responds with an event stream that a separate task writes until the client disconnects.
pub(super) fn stream_response<F>(write: impl FnOnce(mpsc::Sender<Bytes>) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (frames, receiver) = mpsc::channel(FRAMES_BUFFERED);
    tokio::spawn(write(frames));
    let mut response = Response::new(Body::new(ChannelBody(receiver)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Otherwise buffering proxies would delay events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct ChannelBody(mpsc::Receiver<Bytes>);

impl HttpBody for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
