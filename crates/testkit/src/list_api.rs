//! A small HTTP API that lists the JSON records of a test, and filters them as SQL does. Tests can replace responses.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a fixture that cannot be set up or read must end the test"
)]

use std::cmp::Ordering;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::sync::watch;

/// A request as the API received it.
#[derive(Debug, Clone)]
pub struct ListCall {
    pub path: String,
    /// Query parameters, and the variables of a GraphQL request.
    pub query: HashMap<String, String>,
}

impl ListCall {
    fn number(&self, name: &str) -> Option<usize> {
        self.query.get(name)?.parse().ok()
    }

    /// Returns whether a record meets the filters of the request.
    pub fn selects(&self, record: &Value) -> bool {
        matches(record, self)
    }

    /// Whether the request names a partition.
    pub fn is_filtered(&self) -> bool {
        self.query.keys().any(|name| is_filter(name))
    }
}

/// An answer that the test chooses.
pub type ListAnswer = Response<Body>;

type Override = Box<dyn Fn(&ListCall) -> Option<ListAnswer> + Send>;

/// Returns an answer with this body.
pub fn text_response(text: &str) -> ListAnswer {
    text.to_owned().into_response()
}

/// Returns an answer whose body never ends.
pub fn endless_response() -> ListAnswer {
    Body::new(Endless).into_response()
}

struct Endless;

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(hyper::body::Frame::data(Bytes::from_static(&[b' '; 16_384])))))
    }
}

/// The API. `GET /items` lists records as `{"data": […], "total": n}`, from `offset`, at most `limit`.
///
/// Filters are `FIELD_from` (inclusive), `FIELD_to` (exclusive), `FIELD_last` (inclusive), and `FIELD_is`. As in SQL, a
/// record without a value of the field matches none of them.
#[derive(Clone)]
pub struct ListApi {
    /// URL of the API, without a path.
    pub base_url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    records: Mutex<Vec<Value>>,
    calls: Mutex<Vec<ListCall>>,
    answer: Mutex<Option<Override>>,
    is_held: watch::Sender<bool>,
}

impl ListApi {
    /// Starts the API on a free port, with these records.
    pub async fn start(records: Vec<Value>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base_url = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared { records: Mutex::new(records), ..Shared::default() });
        let router = Router::new().fallback(respond).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base_url, shared }
    }

    /// Changes the records of the list.
    pub fn change(&self, change: impl FnOnce(&mut Vec<Value>)) {
        change(&mut self.shared.records.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Answers the requests for which `answer` returns a response with that response.
    pub fn answer_with(&self, answer: impl Fn(&ListCall) -> Option<ListAnswer> + Send + 'static) {
        *self.shared.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(answer));
    }

    /// Answers from the list again.
    pub fn answer_normally(&self) {
        *self.shared.answer.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Holds all requests unanswered until `release` is called.
    pub fn hold(&self) {
        self.shared.is_held.send_replace(true);
    }

    /// Answers the held requests.
    pub fn release(&self) {
        self.shared.is_held.send_replace(false);
    }

    /// Returns the requests so far, and forgets them.
    pub fn take_calls(&self) -> Vec<ListCall> {
        std::mem::take(&mut *self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn respond(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    Query(mut query): Query<HashMap<String, String>>,
    body: Bytes,
) -> Response<Body> {
    query.extend(variables(&body));
    let call = ListCall { path: uri.path().to_owned(), query };
    shared.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call.clone());
    // Waits without a lock and without blocking a thread, because the sync under test runs in the same runtime.
    let _open = shared.is_held.subscribe().wait_for(|is_held| !is_held).await.map(|_| ());
    let answer = shared.answer.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(response) = answer.as_ref().and_then(|answer| answer(&call)) {
        return response;
    }
    drop(answer);
    let records = shared.records.lock().unwrap_or_else(PoisonError::into_inner);
    let found: Vec<&Value> = records.iter().filter(|record| matches(record, &call)).collect();
    let (offset, limit) = (call.number("offset").unwrap_or(0), call.number("limit").unwrap_or(usize::MAX));
    let page: Vec<&Value> = found.iter().skip(offset).take(limit).copied().collect();
    let body = json!({ "data": page, "total": found.len() }).to_string();
    ([("content-type", "application/json")], body).into_response()
}

/// Returns the variables of a GraphQL request that have a value.
fn variables(body: &[u8]) -> HashMap<String, String> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let of = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Some((name.clone(), text.clone())),
        Value::Number(number) => Some((name.clone(), number.to_string())),
        Value::Array(items) => {
            let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            Some((name.clone(), texts.join(",")))
        }
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
    };
    body["variables"].as_object().map(|all| all.iter().filter_map(of).collect()).unwrap_or_default()
}

fn is_filter(name: &str) -> bool {
    ["_from", "_to", "_last", "_is"].iter().any(|end| name.ends_with(end))
}

fn matches(record: &Value, call: &ListCall) -> bool {
    call.query.iter().filter(|(name, _)| is_filter(name)).all(|(name, wanted)| {
        let Some((field, kind)) = name.rsplit_once('_') else { return false };
        let order = compare(&record[field], wanted);
        match kind {
            "from" => order.is_some_and(Ordering::is_ge),
            "to" => order.is_some_and(Ordering::is_lt),
            "last" => order.is_some_and(Ordering::is_le),
            _ => order.is_some_and(Ordering::is_eq),
        }
    })
}

/// Compares a value with a parameter; `None` if it has no value.
fn compare(value: &Value, wanted: &str) -> Option<Ordering> {
    match value {
        Value::Number(number) => number.as_f64()?.partial_cmp(&wanted.parse().ok()?),
        Value::String(text) => Some(text.as_str().cmp(wanted)),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
