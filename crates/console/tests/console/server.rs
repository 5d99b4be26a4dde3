//! Server with API and console on a database of its own.

use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode};
use std::net::SocketAddr;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_api::server::Server;
use tidemill_core::access::{NewToken, Role};
use tidemill_core::project_set::ProjectSet;
use tidemill_engine::Engine;
use tidemill_engine::sync::Syncs;
use tidemill_testkit::interface::{Fixture, Kind};
use tidemill_testkit::sync_fixture::{quick, syncs};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Builder of an HTTP client.
pub(crate) fn http() -> reqwest::ClientBuilder {
    // Returns an error if a provider is already installed; that one is used then.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
}

/// A running server with its database.
pub(crate) struct ConsoleServer {
    pub(crate) fixture: Fixture,
    pub(crate) syncs: Syncs,
    pub(crate) address: SocketAddr,
    access: Access,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl ConsoleServer {
    /// Starts a server that requires tokens, on SQLite.
    pub(crate) async fn with_tokens() -> Self {
        Self::with_tokens_on(Kind::Sqlite).await
    }

    /// Starts a server that requires tokens.
    pub(crate) async fn with_tokens_on(kind: Kind) -> Self {
        Self::with(Fixture::open(kind).await, Access::Tokens).await
    }

    /// Starts a server without tokens, on SQLite.
    pub(crate) async fn without_tokens() -> Self {
        Self::without_tokens_on(Kind::Sqlite).await
    }

    /// Starts a server without tokens.
    pub(crate) async fn without_tokens_on(kind: Kind) -> Self {
        Self::with(Fixture::open(kind).await, Access::Open { name: "ann".to_owned() }).await
    }

    /// Starts a server on an existing database.
    pub(crate) async fn with(fixture: Fixture, access: Access) -> Self {
        let syncs = syncs(&fixture, quick());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut console = Self { fixture, syncs, address, access, running: None };
        console.start().await;
        console
    }

    /// Starts serving; after a stop, on the same address.
    pub(crate) async fn start(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("the address is free");
        self.address = listener.local_addr().expect("an address");
        let app = App::new(self.syncs.clone(), self.access.clone());
        let server = Server::new(app.clone()).extra_routes(tidemill_console::router(app));
        let server = server.fallback(tidemill_console::not_found());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.serve(listener, async move {
            let _ = stopped.await;
        }));
        self.running = Some((stop, task));
    }

    /// Stops serving. The database stays open.
    pub(crate) async fn stop(&mut self) {
        if let Some((stop, task)) = self.running.take() {
            let _ = stop.send(());
            task.await.expect("the server stops without a panic");
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.syncs.engine()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Creates a token and returns its secret.
    pub(crate) async fn token(&self, role: Role, project: Option<&str>) -> String {
        let name = format!("{role} <of> \"{}\"", project.unwrap_or("all"));
        let new = NewToken { name, role, projects: ProjectSet::of(project), expires_in_secs: None };
        self.engine().create_token(new, "test").await.expect("the token is created").1.reveal().to_owned()
    }

    /// Client that is signed in with a new token of this role.
    pub(crate) async fn signed_in(&self, role: Role, project: Option<&str>) -> WebClient {
        let token = self.token(role, project).await;
        let mut reader = self.reader();
        let form = [("token", token.as_str()), ("next", "/runs")];
        let response = reader.client.post(self.url("/sign-in")).form(&form).send().await.expect("a response");
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
        assert_eq!(response.headers()["location"], "/runs");
        let cookie = response.headers()["set-cookie"].to_str().expect("a cookie");
        reader.cookie = cookie.split(';').next().map(str::to_owned);
        reader
    }

    /// Client that is not signed in.
    pub(crate) fn reader(&self) -> WebClient {
        let client = http().redirect(Policy::none()).build().expect("a client");
        WebClient { client, base: self.url(""), cookie: None }
    }
}

/// HTTP client with the cookie of a session.
pub(crate) struct WebClient {
    pub(crate) client: Client,
    pub(crate) base: String,
    pub(crate) cookie: Option<String>,
}

impl WebClient {
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.expect("a response")
    }

    /// Requests a page that must exist.
    pub(crate) async fn page(&self, path: &str) -> String {
        let response = self.get(path).await;
        let status = response.status();
        let text = response.text().await.expect("a text");
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        text
    }

    pub(crate) async fn post(&self, path: &str, form: &[(&str, &str)]) -> Response {
        self.request(Method::POST, path).form(form).send().await.expect("a response")
    }

    /// CSRF token of the session, from the sign-out form.
    pub(crate) async fn csrf(&self) -> String {
        let page = self.page("/").await;
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form with a CSRF token");
        rest.split_once('"').expect("a value").0.to_owned()
    }
}
