//! A scripted server that implements the GraphQL API, and the feed that queries it.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemill_core::diamond::ALL_PRICES;
use tidemill_core::feed::FeedQuery;
use tidemill_core::feed_definition::Place;
use tidemill_feeds::{Budgets, Feed, FeedError, MappedRecord, Network, Secret, Tuning};
use tokio::sync::Semaphore;

/// Opens a feed with a password.
#[expect(clippy::needless_pass_by_value, reason = "the tests make the password in the call")]
pub(crate) fn open(
    feed: &tidemill_core::feed::Feed,
    password: Option<Secret>,
    network: &Network,
    tuning: Tuning,
) -> Result<Arc<dyn Feed>, FeedError> {
    let feed = tidemill_core::feed::Feed { password_env: Some("PASSWORD".to_owned()), ..feed.clone() };
    tidemill_feeds::open(&feed, &|_| password.clone(), network, tuning, &Budgets::default())
}

/// Returns a place without a token.
pub(crate) fn at(offset: u64) -> Place {
    Place { offset, token: None }
}

/// Maps a record to a diamond.
pub(crate) fn diamond(feed: &dyn Feed, payload: &str) -> tidemill_core::diamond::Diamond {
    match feed.map(payload).unwrap() {
        MappedRecord::Diamond(diamond) => *diamond,
        other @ (MappedRecord::Row(_) | MappedRecord::Deleted(_)) => panic!("{other:?}"),
    }
}

/// A scripted response that replaces the normal answer to one request.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Status, headers and body.
    Answer(u16, Vec<(&'static str, &'static str)>, String),
    /// No response at all.
    Silence,
}

impl Step {
    /// A body with status 200.
    pub(crate) fn body(body: &impl ToString) -> Self {
        Self::Answer(200, Vec::new(), body.to_string())
    }

    /// A status with an HTML body.
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, Vec::new(), "<html>sorry</html>".to_owned())
    }

    /// A response with a GraphQL error.
    pub(crate) fn error(message: &str) -> Self {
        Self::body(&json!({ "data": null, "errors": [{ "message": message }] }))
    }
}

/// A scripted server on a free port.
pub(crate) struct Server {
    pub(crate) endpoint: String,
    /// Responses to the next logins; when it is empty, logins succeed.
    pub(crate) logins: Mutex<VecDeque<Step>>,
    /// Responses to the next other requests; when it is empty, they are answered normally.
    pub(crate) script: Mutex<VecDeque<Step>>,
    /// The items of every page.
    pub(crate) items: Mutex<Value>,
    /// If set: the number of records per page (at most the requested limit) and the size of each in bytes.
    pub(crate) large: Mutex<Option<(u64, usize)>>,
    /// All requests so far, including logins.
    pub(crate) requests: Mutex<Vec<Value>>,
    /// The number of the valid token.
    pub(crate) token: AtomicU32,
    /// Permits for answering logins.
    pub(crate) login_permits: Semaphore,
}

impl Server {
    /// Starts a server on a free port that answers logins at once.
    pub(crate) async fn start() -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self {
            endpoint: format!("http://{}/api/diamonds", listener.local_addr().unwrap()),
            logins: Mutex::default(),
            script: Mutex::default(),
            items: Mutex::new(json!([])),
            large: Mutex::default(),
            requests: Mutex::default(),
            token: AtomicU32::new(0),
            login_permits: Semaphore::new(10_000),
        });
        let router =
            Router::new().route("/api/diamonds", axum::routing::post(answer)).with_state(Arc::clone(&server));
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    /// Returns the requests of a kind so far: `Login`, `Count` or `Page`.
    pub(crate) fn requests_of(&self, kind: &str) -> Vec<Value> {
        let start = format!("query {kind}(");
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .filter(|request| request["query"].as_str().unwrap().starts_with(&start))
            .cloned()
            .collect()
    }

    /// Appends responses to the script.
    pub(crate) fn then(&self, steps: impl IntoIterator<Item = Step>) {
        self.script.lock().unwrap().extend(steps);
    }

    /// Opens the feed of this server.
    pub(crate) fn feed(&self, tuning: Tuning) -> Arc<dyn Feed> {
        open(&record(&self.endpoint), Some(Secret::new("open sesame")), &Network::Unrestricted, tuning)
            .unwrap()
    }
}

async fn answer(State(server): State<Arc<Server>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap();
    server.requests.lock().unwrap().push(request.clone());
    let document = request["query"].as_str().unwrap();
    let is_login = document.starts_with("query Login(");
    let script = if is_login { &server.logins } else { &server.script };
    let step = script.lock().unwrap().pop_front();
    match step {
        Some(Step::Silence) => std::future::pending().await,
        Some(Step::Answer(status, headers, body)) => {
            let mut response = (StatusCode::from_u16(status).unwrap(), body).into_response();
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            return response;
        }
        None => {}
    }
    if is_login {
        server.login_permits.acquire().await.unwrap().forget();
        let token = format!("token-{}", server.token.load(Ordering::SeqCst));
        let data = json!({ "authenticate": { "username_and_password": { "token": token } } });
        return json!({ "data": data }).to_string().into_response();
    }
    let token = format!("token-{}", server.token.load(Ordering::SeqCst));
    if request["variables"]["token"] != token.as_str() {
        return json!({ "data": null, "errors": [{ "message": "Token expired" }] })
            .to_string()
            .into_response();
    }
    let data = if document.starts_with("query Count(") {
        json!({ "as": { "diamonds_by_query_count": 4_711 } })
    } else if let Some((count, bytes)) = *server.large.lock().unwrap() {
        let count = count.min(request["variables"]["limit"].as_u64().unwrap());
        let items: Vec<_> = (0..count)
            .map(|number| json!({ "diamond": { "id": number.to_string() }, "x": "x".repeat(bytes) }))
            .collect();
        json!({ "as": { "diamonds_by_query": { "items": items } } })
    } else {
        json!({ "as": { "diamonds_by_query": { "items": *server.items.lock().unwrap() } } })
    };
    json!({ "data": data }).to_string().into_response()
}

/// The stored configuration of a feed.
pub(crate) fn record(endpoint: &str) -> tidemill_core::feed::Feed {
    tidemill_core::feed::Feed {
        feed: "nivoda-natural".into(),
        project_id: "diamonds".into(),
        kind: "nivoda".into(),
        endpoint: endpoint.into(),
        username: Some("ali".into()),
        password_env: None,
        rate: 0,
        settings: Value::Null,
        defined_by: tidemill_core::reach::DefinedBy::Operator,
        created_at: tidemill_core::Timestamp::UNIX_EPOCH,
    }
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

/// A query for all stones.
pub(crate) fn all() -> FeedQuery {
    FeedQuery { range: ALL_PRICES, updated_from: None }
}

/// Checks that an error names the endpoint and contains no credentials.
pub(crate) fn checked(server: &Server, error: FeedError) -> FeedError {
    let text = format!("{error} {error:?}");
    for secret in ["open sesame", "token-"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert!(text.contains(server.endpoint.strip_prefix("http://").unwrap()), "{text}");
    error
}
