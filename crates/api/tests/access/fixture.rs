//! An HTTP API with tokens, on a database of its own, with a clock that the test moves.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::Response;
use chrono::TimeDelta;
use http::header::AsHeaderName;
use http::{HeaderMap, Method, Request, StatusCode};
use serde_json::Value;
use tidemill_api::access::{Access, Peer};
use tidemill_api::{App, router};
use tidemill_core::access::{NewToken, Role, Secret, Token};
use tidemill_core::project_set::ProjectSet;
use tidemill_core::reach::{Reach, ReachKind};
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Clock, Engine, RetryPolicy};
use tidemill_store::Store;
use tidemill_testkit::interface::{Fixture, Kind, at};
use tidemill_testkit::sync_fixture::quick;
use tower::ServiceExt as _;

/// An HTTP API that requires tokens.
pub(crate) struct AccessFixture {
    pub(crate) base: Fixture,
    pub(crate) engine: Engine,
    pub(crate) interface: Router,
    /// Token of an admin of all projects.
    pub(crate) admin: String,
}

/// A response of the API.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: impl AsHeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A request to the API.
pub(crate) struct Ask(http::request::Builder, Body);

pub(crate) fn ask(method: &Method, path: &str) -> Ask {
    // Each request has its own source address by default, so that throttling of one does not affect another.
    static NEXT: AtomicU32 = AtomicU32::new(0x0a00_0000);
    let address = SocketAddr::from((NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes(), 4_711));
    let builder = Request::builder().method(method.clone()).uri(path);
    Ask(builder.extension(Peer { address, tls: false }), Body::empty())
}

pub(crate) fn get(path: &str) -> Ask {
    ask(&Method::GET, path)
}

pub(crate) fn post(path: &str, body: &Value) -> Ask {
    ask(&Method::POST, path).body(body)
}

impl Ask {
    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value), self.1)
    }

    pub(crate) fn token(self, secret: &str) -> Self {
        self.header("authorization", &format!("Bearer {secret}"))
    }

    pub(crate) fn body(self, body: &Value) -> Self {
        Self(self.0.header("content-type", "application/json"), Body::from(body.to_string()))
    }

    pub(crate) fn form(self, body: &str) -> Self {
        Self(self.0.header("content-type", "application/x-www-form-urlencoded"), Body::from(body.to_owned()))
    }

    pub(crate) fn from(self, address: [u8; 4], tls: bool) -> Self {
        Self(self.0.extension(Peer { address: (address, 1).into(), tls }), self.1)
    }

    /// Sends the request and returns the body of the stream.
    pub(crate) async fn stream(self, interface: &Router) -> Body {
        let request = self.0.body(self.1).expect("a request");
        let response: Response = interface.clone().oneshot(request).await.expect("the API answers");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        response.into_body()
    }

    pub(crate) async fn at(self, interface: &Router) -> Reply {
        let request = self.0.body(self.1).expect("a request");
        let response: Response = interface.clone().oneshot(request).await.expect("the API answers");
        let (parts, body) = response.into_parts();
        let kind = parts.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            // A stream does not end.
            return Reply { status: parts.status, headers: parts.headers, body: String::new() };
        }
        let bytes = to_bytes(body, 10 << 20).await.expect("the body is read");
        let body = String::from_utf8(bytes.to_vec()).expect("the body is text");
        Reply { status: parts.status, headers: parts.headers, body }
    }
}

/// Returns the HTTP API on a store with this clock.
pub(crate) fn interface(store: &Store, clock: Clock, access: Access) -> Router {
    let engine = Engine::new(store.clone(), clock, RetryPolicy::None).with_reach(reach());
    router(App::new(Syncs::new(engine, quick()), access))
}

/// Returns lists with the values of the feeds and hooks that the cases define.
fn reach() -> Reach {
    let mut reach = Reach::default();
    for (kind, entry) in [
        (ReachKind::Environment, "FEED_PASSWORD"),
        (ReachKind::Hosts, "127.0.0.1:9"),
        (ReachKind::Tables, "public.*"),
        (ReachKind::HookSecrets, "CARGO_PKG_NAME"),
    ] {
        reach.common.set(kind, [entry]).expect("an entry is valid");
    }
    reach
}

impl AccessFixture {
    pub(crate) async fn open(kind: Kind) -> Self {
        let base = Fixture::open(kind).await;
        let clock = Clock::fixed(at(0));
        let engine = Engine::new(base.store.clone(), clock.clone(), RetryPolicy::None);
        let interface = interface(&base.store, clock, Access::Tokens);
        let (_, secret) = engine.first_admin().await.expect("a token is made").expect("it is the first");
        Self { base, engine, interface, admin: secret.reveal().to_owned() }
    }

    pub(crate) fn wait(&self, secs: i64) {
        self.engine.clock().advance(TimeDelta::seconds(secs));
    }

    pub(crate) async fn make(&self, role: Role, project: Option<&str>, secs: Option<u64>) -> (Token, Secret) {
        let name = format!("{role} of {}", project.unwrap_or("all"));
        let new = NewToken { name, role, projects: ProjectSet::of(project), expires_in_secs: secs };
        self.engine.create_token(new, "ann").await.expect("a token is made")
    }

    /// Creates a token and returns its secret.
    pub(crate) async fn secret(&self, role: Role, project: Option<&str>) -> String {
        self.make(role, project, None).await.1.reveal().to_owned()
    }

    /// Creates a token of the named projects and returns its secret.
    pub(crate) async fn secret_of(&self, role: Role, projects: &[&str]) -> String {
        let name = format!("{role} of {}", projects.join(" and "));
        let new =
            NewToken { name, role, projects: ProjectSet::only(projects.to_vec()), expires_in_secs: None };
        self.engine.create_token(new, "ann").await.expect("a token is made").1.reveal().to_owned()
    }

    pub(crate) async fn get(&self, path: &str, secret: &str) -> Reply {
        get(path).token(secret).at(&self.interface).await
    }

    pub(crate) async fn post(&self, path: &str, secret: &str, body: &Value) -> Reply {
        post(path, body).token(secret).at(&self.interface).await
    }
}
