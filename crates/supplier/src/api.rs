//! The API over HTTP: one address, and everything that can go wrong on the way to it.

use crate::behaviour::{FailWith, Outage, Target, take};
use crate::desk::{BAD_TOKEN, Desk};
use crate::lock;
use crate::schema::MAX_DEPTH;
use async_graphql::Request;
use hyper::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// An answer of the API, before it is put into HTTP.
pub(crate) enum Answer {
    /// A JSON body.
    Json(StatusCode, Vec<u8>),
    /// The same, with the seconds to wait.
    RetryAfter(StatusCode, u64),
    /// A page for people, where a program asked.
    Html,
    /// No answer: the connection ends.
    Closed,
}

/// Requests of the current second.
#[derive(Debug)]
pub(crate) struct Window {
    since: Instant,
    count: u32,
}

impl Default for Window {
    fn default() -> Self {
        Self { since: Instant::now(), count: 0 }
    }
}

impl Window {
    /// Whether one more request is within the limit.
    fn admits(&mut self, limit: u32) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            *self = Self::default();
        }
        self.count = self.count.saturating_add(1);
        self.count <= limit
    }
}

/// A GraphQL answer that is only an error.
pub(crate) fn error(message: &str) -> Vec<u8> {
    serde_json::json!({"data": null, "errors": [{"message": message}]}).to_string().into_bytes()
}

/// A body that is no JSON, and does not look like one that was cut off.
const BROKEN: &[u8] = br#"{"data":{"as":{"diamonds_by_query":{"items":[{]}}}}"#;

/// An answer to a count or a page that holds neither.
const NULLS: &[u8] =
    br#"{"data":{"as":{"diamonds_by_query":{"items":null},"diamonds_by_query_count":null}}}"#;

/// What a request for a count asks for.
const COUNT_FIELD: &[u8] = b"diamonds_by_query_count";

/// Answers a request to the API.
pub(crate) async fn answer(desk: &Arc<Desk>, window: &std::sync::Mutex<Window>, body: &[u8]) -> Answer {
    desk.counters.requests.add(1);
    let is_count = body.windows(COUNT_FIELD.len()).any(|word| word == COUNT_FIELD);
    let _counting = is_count.then(|| desk.counters.counting.enter());
    let (latency, jitter) = {
        let behaviour = lock(&desk.behaviour);
        (behaviour.latency_ms, behaviour.jitter_ms)
    };
    if latency + jitter > 0 {
        let more = desk.below(jitter.saturating_add(1));
        tokio::time::sleep(Duration::from_millis(latency + more)).await;
    }
    let request = serde_json::from_slice::<Request>(body);
    if let Some(trouble) = trouble(desk, window, request.as_ref().map_or("", |request| &request.query)) {
        return trouble;
    }
    match request {
        Ok(request) => execute(desk, request).await,
        Err(fault) => {
            let text = format!("the body is not a GraphQL request: {fault}");
            Answer::Json(StatusCode::BAD_REQUEST, error(&text))
        }
    }
}

/// The answer that the behaviour puts in the place of the right one.
fn trouble(desk: &Desk, window: &std::sync::Mutex<Window>, document: &str) -> Option<Answer> {
    let mut behaviour = lock(&desk.behaviour);
    let retry_after = behaviour.retry_after_secs;
    match behaviour.outage {
        Outage::Off => {}
        Outage::Closed => return Some(Answer::Closed),
        Outage::Unavailable => return Some(Answer::RetryAfter(StatusCode::SERVICE_UNAVAILABLE, retry_after)),
    }
    if behaviour.html {
        return Some(Answer::Html);
    }
    if behaviour.rate_limit.is_some_and(|limit| !lock(window).admits(limit)) {
        desk.counters.limited.add(1);
        return Some(Answer::RetryAfter(StatusCode::TOO_MANY_REQUESTS, retry_after));
    }
    let meant = behaviour.fail_on == Target::Any || behaviour.fail_on == target(document);
    if !(meant && take(&mut behaviour.fail_next)) {
        return None;
    }
    desk.counters.failed.add(1);
    let failed = |status| Answer::Json(status, error("the supplier failed"));
    Some(match behaviour.fail_with {
        FailWith::TooManyRequests => Answer::RetryAfter(StatusCode::TOO_MANY_REQUESTS, retry_after),
        FailWith::BareLimit => failed(StatusCode::TOO_MANY_REQUESTS),
        FailWith::Internal => failed(StatusCode::INTERNAL_SERVER_ERROR),
        FailWith::BadGateway => failed(StatusCode::BAD_GATEWAY),
        FailWith::Unavailable => Answer::RetryAfter(StatusCode::SERVICE_UNAVAILABLE, retry_after),
        FailWith::Graphql => Answer::Json(StatusCode::OK, error(&behaviour.error_text)),
        FailWith::Html => Answer::Html,
        FailWith::BrokenJson => Answer::Json(StatusCode::OK, BROKEN.to_vec()),
        FailWith::NullList => Answer::Json(StatusCode::OK, NULLS.to_vec()),
        FailWith::Token => Answer::Json(StatusCode::OK, error(BAD_TOKEN)),
        FailWith::Closed => Answer::Closed,
    })
}

/// What a document asks for, as far as its words tell.
fn target(document: &str) -> Target {
    if document.contains("username_and_password") {
        Target::Login
    } else if document.contains("diamonds_by_query_count") {
        Target::Count
    } else {
        Target::Page
    }
}

async fn execute(desk: &Arc<Desk>, request: Request) -> Answer {
    if !desk.plans.knows(&request.query) && nests_deeper_than(&request.query, 4 * MAX_DEPTH) {
        return Answer::Json(StatusCode::OK, error("the query is nested too deeply"));
    }
    let seen = desk.plans.see(&request.query);
    if let Some(body) = seen.answer(desk, &request) {
        desk.counters.fast.add(1);
        return Answer::Json(StatusCode::OK, body);
    }
    desk.counters.general.add(1);
    let response = desk.schema.execute(request.data(Arc::clone(desk))).await;
    if response.is_ok() {
        seen.validated();
    }
    let body = serde_json::to_vec(&response);
    Answer::Json(StatusCode::OK, body.unwrap_or_else(|fault| error(&fault.to_string())))
}

/// Whether brackets nest deeper than that. The parser is recursive, so this is asked before it starts.
fn nests_deeper_than(document: &str, depth: usize) -> bool {
    let mut open = 0_usize;
    document.bytes().any(|byte| {
        match byte {
            b'{' | b'[' | b'(' => open += 1,
            b'}' | b']' | b')' => open = open.saturating_sub(1),
            _ => {}
        }
        open > depth
    })
}
