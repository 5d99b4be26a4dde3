//! A reader of a stream, byte by byte like a browser.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tidemill_core::RunId;
use tidemill_core::event::Event;
use tidemill_wire::Problem;
use tower::ServiceExt as _;

/// Time limit for the next message.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A message of a stream.
#[derive(Debug)]
pub(crate) enum StreamMessage {
    Event(String, Box<Event>),
    Comment,
    End,
}

/// Run and sequence number of an event.
pub(crate) type EventPosition = (RunId, i32);

pub(crate) struct StreamReader {
    body: Body,
    text: String,
    /// Id to resume after.
    pub(crate) last: Option<String>,
    pub(crate) retry: Option<String>,
}

impl StreamReader {
    /// Opens a stream, which must succeed.
    pub(crate) async fn open(interface: &Router, path: &str, after: Option<&str>) -> Self {
        let answer = ask(interface, path, after).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self { body: answer.into_body(), text: String::new(), last: after.map(str::to_owned), retry: None }
    }

    /// Returns the refusal of a stream.
    pub(crate) async fn refusal(
        interface: &Router,
        path: &str,
        after: Option<&str>,
    ) -> (StatusCode, Problem) {
        let answer = ask(interface, path, after).await;
        let status = answer.status();
        let body = tokio::time::timeout(TIMEOUT, answer.into_body().collect()).await.expect("an end");
        let body = body.expect("a body").to_bytes();
        (status, serde_json::from_slice(&body).expect("a problem"))
    }

    /// Returns the next message of the stream.
    pub(crate) async fn next_message(&mut self) -> StreamMessage {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.text = rest;
                if let Some(next_message) = self.read(&frame) {
                    return next_message;
                }
                continue;
            }
            let frame = tokio::time::timeout(TIMEOUT, self.body.frame()).await;
            let Some(frame) = frame.expect("the stream sends a message in time") else {
                return StreamMessage::End;
            };
            let bytes = frame.expect("the stream continues").into_data().expect("there is data");
            self.text.push_str(std::str::from_utf8(&bytes).expect("frames are whole"));
        }
    }

    fn read(&mut self, frame: &str) -> Option<StreamMessage> {
        let (mut data, mut kind, mut comment) = (None, None, false);
        for line in frame.lines() {
            match line.split_once(": ").expect("a line has a name") {
                ("id", id) => self.last = Some(id.to_owned()),
                ("retry", millis) => self.retry = Some(millis.to_owned()),
                ("data", text) => data = Some(text),
                ("event", name) => kind = Some(name),
                ("", _) => comment = true,
                (name, _) => panic!("a line is called {name}"),
            }
        }
        let Some(data) = data else { return comment.then_some(StreamMessage::Comment) };
        let event: Event = serde_json::from_str(data).expect("the data is an event");
        assert_eq!(kind, Some(event.kind.as_str()));
        Some(StreamMessage::Event(self.last.clone().expect("an event has an id"), Box::new(event)))
    }

    /// Returns the next event and its id.
    pub(crate) async fn next(&mut self) -> (String, Event) {
        loop {
            match self.next_message().await {
                StreamMessage::Event(id, event) => return (id, *event),
                StreamMessage::Comment => {}
                StreamMessage::End => panic!("the stream ended"),
            }
        }
    }

    pub(crate) async fn position(&mut self) -> EventPosition {
        let (_, event) = self.next().await;
        (event.run_id, event.seq)
    }

    pub(crate) async fn positions(&mut self, count: usize) -> Vec<EventPosition> {
        let mut positions = Vec::new();
        while positions.len() < count {
            positions.push(self.position().await);
        }
        positions
    }

    /// Checks that the stream is silent for a moment.
    pub(crate) async fn check_silent(&mut self) {
        let next_message = tokio::time::timeout(Duration::from_millis(400), self.next()).await;
        assert!(next_message.is_err(), "the stream sent {next_message:?}");
    }
}

async fn ask(interface: &Router, path: &str, after: Option<&str>) -> http::Response<Body> {
    let mut request = Request::builder().uri(path);
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    let request = request.body(Body::empty()).expect("a request");
    interface.clone().oneshot(request).await.expect("an answer")
}
