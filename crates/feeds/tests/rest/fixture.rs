//! A scripted API with every kind of pagination, and the source that reads it.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemill_core::feed_definition::{FeedDefinition, Place, RecordQuery};
use tidemill_feeds::rest::{RestError, RestItem, RestPage, RestSource, parse_definition};
use tidemill_feeds::{Network, Secret, Tuning};

/// Number of records that the API lists.
pub(crate) const RECORDS: usize = 47;
/// Largest page of the API.
const PAGE_MAX: usize = 10;

/// A request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) query: HashMap<String, String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) form: HashMap<String, String>,
    pub(crate) raw_query: String,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.query.get(name)?.parse().ok()
    }
}

type Handler = Arc<dyn Fn(&ReceivedRequest) -> Response + Send + Sync>;

/// A server on a free port.
pub(crate) struct Server {
    /// URL of the server, without a path.
    pub(crate) base: String,
    handler: Handler,
    /// Responses that replace the normal ones, in order.
    pub(crate) script: Mutex<VecDeque<Response>>,
    pub(crate) requests: Mutex<Vec<ReceivedRequest>>,
}

impl Server {
    /// Starts a server that answers with `handler`.
    pub(crate) async fn start(
        handler: impl Fn(&ReceivedRequest) -> Response + Send + Sync + 'static,
    ) -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self {
            base: format!("http://{}", listener.local_addr().unwrap()),
            handler: Arc::new(handler),
            script: Mutex::default(),
            requests: Mutex::default(),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&server));
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    /// Starts a server that answers every request with this JSON.
    pub(crate) async fn fixed(body: Value) -> Arc<Self> {
        Self::start(move |_| json_response(&body)).await
    }

    /// Appends a response to the script.
    pub(crate) fn then(&self, response: Response) {
        self.script.lock().unwrap().push_back(response);
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub(crate) fn last(&self) -> ReceivedRequest {
        self.requests.lock().unwrap().last().unwrap().clone()
    }

    /// Opens a source of this server. `{base}` in the definition is its URL.
    pub(crate) fn source(&self, definition: &str) -> RestSource {
        self.try_source(definition, quick()).unwrap()
    }

    pub(crate) fn try_source(&self, definition: &str, tuning: Tuning) -> Result<RestSource, RestError> {
        let definition = self.definition(definition);
        RestSource::new(definition, &secrets, &Network::Unrestricted, tuning)
    }

    pub(crate) fn definition(&self, text: &str) -> FeedDefinition {
        let text = text.replace("{base}", &self.base);
        parse_definition(&text).unwrap_or_else(|errors| panic!("{text}\n{errors:#?}"))
    }
}

/// The environment of the tests.
pub(crate) fn secrets(name: &str) -> Option<Secret> {
    match name {
        "TOKEN" => Some(Secret::new("open-sesame")),
        "PASSWORD" => Some(Secret::new("hush hush")),
        _ => None,
    }
}

async fn answer(State(server): State<Arc<Server>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let raw_query = uri.query().unwrap_or_default().to_owned();
    let pairs =
        |text: &[u8]| url::form_urlencoded::parse(text).into_owned().collect::<HashMap<String, String>>();
    let received = ReceivedRequest {
        path: uri.path().to_owned(),
        query: pairs(raw_query.as_bytes()),
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        form: pairs(&body),
        raw_query,
    };
    server.requests.lock().unwrap().push(received.clone());
    let scripted = server.script.lock().unwrap().pop_front();
    scripted.unwrap_or_else(|| (server.handler)(&received))
}

pub(crate) fn json_response(body: &Value) -> Response {
    ([("content-type", "application/json")], body.to_string()).into_response()
}

pub(crate) fn status(code: u16, body: &'static str) -> Response {
    (StatusCode::from_u16(code).unwrap(), body).into_response()
}

pub(crate) fn streaming(body: Body) -> Response {
    body.into_response()
}

pub(crate) fn record(number: usize) -> Value {
    json!({ "id": format!("r{number:03}"), "price": number * 100, "updated_at": "2026-01-01T00:00:00Z" })
}

/// Returns records from a position, at most `limit` and at most [`PAGE_MAX`].
pub(crate) fn slice(from: usize, limit: usize) -> Vec<Value> {
    (from..RECORDS.min(from + limit.min(PAGE_MAX))).map(record).collect()
}

/// A definition of this server with a paginator and further sections.
pub(crate) fn definition(paginator: &str, extra: &str) -> String {
    format!(
        "version: 1\nfeed: items\nclient: {{base_url: '{{base}}', rate: 0}}\n\
         resource: {{path: /items, data_selector: data, primary_key: id}}\npaginator: {paginator}\n\
         into: {{table: shop.items}}\n{extra}"
    )
}

/// Reads all pages. The number of pages is bounded, so that a loop fails the test.
pub(crate) async fn read_all(source: &RestSource) -> Result<Vec<RestItem>, RestError> {
    let (mut place, mut items) = (Place::default(), Vec::new());
    for _ in 0..30 {
        let page = source.page(&RecordQuery::default(), &place, 10).await?;
        assert_eq!(page.rejected, []);
        let RestPage { items: more, next, is_last, .. } = page;
        items.extend(more);
        assert_eq!(next.is_none(), is_last);
        match next {
            Some(next) => place = next,
            None => return Ok(items),
        }
    }
    panic!("the list does not end");
}

/// Checks that every record was read exactly once, in order.
pub(crate) fn check_complete(items: &[RestItem]) {
    let ids: Vec<&str> = items.iter().map(|item| item.record_id.as_str()).collect();
    let expected: Vec<String> = (0..RECORDS).map(|number| format!("r{number:03}")).collect();
    assert_eq!(ids, expected);
}

/// Settings with waits of milliseconds and two retries.
pub(crate) fn quick() -> Tuning {
    Tuning {
        retries_max: 2,
        backoff: Duration::from_millis(1),
        backoff_max: Duration::from_millis(2),
        jitter_max: Duration::from_millis(1),
        ..Tuning::default()
    }
}
