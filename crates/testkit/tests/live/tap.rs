//! A reader of a stream, byte by byte as a browser reads it.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tidemill_core::RunId;
use tidemill_core::event::Event;
use tidemill_wire::Problem;
use tower::ServiceExt as _;

/// How long something may take to come.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a stream says.
#[derive(Debug)]
pub(crate) enum Said {
    Event(String, Box<Event>),
    Comment,
    End,
}

/// An event by its run and number.
pub(crate) type Place = (RunId, i32);

pub(crate) struct Tap {
    body: Body,
    text: String,
    /// What to resume after.
    pub(crate) last: Option<String>,
    pub(crate) retry: Option<String>,
}

impl Tap {
    /// Opens a stream, which must be one.
    pub(crate) async fn open(door: &Router, path: &str, after: Option<&str>) -> Self {
        let answer = ask(door, path, after).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self { body: answer.into_body(), text: String::new(), last: after.map(str::to_owned), retry: None }
    }

    /// What is said instead of a stream.
    pub(crate) async fn refusal(door: &Router, path: &str, after: Option<&str>) -> (StatusCode, Problem) {
        let answer = ask(door, path, after).await;
        let status = answer.status();
        let body = tokio::time::timeout(PATIENCE, answer.into_body().collect()).await.expect("an end");
        let body = body.expect("a body").to_bytes();
        (status, serde_json::from_slice(&body).expect("a problem"))
    }

    /// What the stream says next.
    pub(crate) async fn said(&mut self) -> Said {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.text = rest;
                if let Some(said) = self.read(&frame) {
                    return said;
                }
                continue;
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            let Some(frame) = frame.expect("the stream says something in time") else { return Said::End };
            let bytes = frame.expect("the stream goes on").into_data().expect("there is data");
            self.text.push_str(std::str::from_utf8(&bytes).expect("frames are whole"));
        }
    }

    fn read(&mut self, frame: &str) -> Option<Said> {
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
        let Some(data) = data else { return comment.then_some(Said::Comment) };
        let event: Event = serde_json::from_str(data).expect("the data is an event");
        assert_eq!(kind, Some(event.kind.as_str()));
        Some(Said::Event(self.last.clone().expect("an event has an id"), Box::new(event)))
    }

    /// The next event and its id.
    pub(crate) async fn next(&mut self) -> (String, Event) {
        loop {
            match self.said().await {
                Said::Event(id, event) => return (id, *event),
                Said::Comment => {}
                Said::End => panic!("the stream ended"),
            }
        }
    }

    pub(crate) async fn place(&mut self) -> Place {
        let (_, event) = self.next().await;
        (event.run_id, event.seq)
    }

    pub(crate) async fn places(&mut self, count: usize) -> Vec<Place> {
        let mut places = Vec::new();
        while places.len() < count {
            places.push(self.place().await);
        }
        places
    }

    /// Makes sure that the stream stays silent for a moment.
    pub(crate) async fn silent(&mut self) {
        let said = tokio::time::timeout(Duration::from_millis(400), self.next()).await;
        assert!(said.is_err(), "the stream said {said:?}");
    }
}

async fn ask(door: &Router, path: &str, after: Option<&str>) -> http::Response<Body> {
    let mut request = Request::builder().uri(path);
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    let request = request.body(Body::empty()).expect("a request");
    door.clone().oneshot(request).await.expect("an answer")
}
