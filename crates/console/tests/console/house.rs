//! A server of the test's own with the console beside the door, on a database of its own.

use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode};
use std::net::SocketAddr;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_api::server::Server;
use tidemill_core::access::{NewToken, Role};
use tidemill_engine::Engine;
use tidemill_engine::sync::Syncs;
use tidemill_testkit::door::{Kind, Stage};
use tidemill_testkit::mill::{quick, syncs};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The beginning of a client of the test's own.
pub(crate) fn http() -> reqwest::ClientBuilder {
    // Installed once per process; a second time changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
}

/// A server, and what is behind it.
pub(crate) struct House {
    pub(crate) stage: Stage,
    pub(crate) syncs: Syncs,
    pub(crate) address: SocketAddr,
    access: Access,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl House {
    /// A house that asks for tokens.
    pub(crate) async fn guarded() -> Self {
        Self::guarded_on(Kind::Sqlite).await
    }

    /// The same on this store.
    pub(crate) async fn guarded_on(kind: Kind) -> Self {
        Self::with(Stage::open(kind).await, Access::Tokens).await
    }

    /// A house that is open to whoever uses this machine.
    pub(crate) async fn open() -> Self {
        Self::open_on(Kind::Sqlite).await
    }

    /// The same on this store.
    pub(crate) async fn open_on(kind: Kind) -> Self {
        Self::with(Stage::open(kind).await, Access::Open { name: "ann".to_owned() }).await
    }

    /// A house on a database that is there.
    pub(crate) async fn with(stage: Stage, access: Access) -> Self {
        let syncs = syncs(&stage, quick());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut house = Self { stage, syncs, address, access, running: None };
        house.start().await;
        house
    }

    /// Serves, again on the same address where there was one.
    pub(crate) async fn start(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("the address is free");
        self.address = listener.local_addr().expect("an address");
        let app = App::new(self.syncs.clone(), self.access.clone());
        let mut server = Server::new(app.clone()).beside(tidemill_console::router(app));
        server = server.nowhere(tidemill_console::nowhere());
        if matches!(self.access, Access::Open { .. }) {
            server = server.local();
        }
        let (stop, told) = oneshot::channel();
        let task = tokio::spawn(server.serve(listener, async move {
            let _ = told.await;
        }));
        self.running = Some((stop, task));
    }

    /// Stops serving. The database stays.
    pub(crate) async fn stop(&mut self) {
        if let Some((stop, task)) = self.running.take() {
            let _ = stop.send(());
            task.await.expect("the server ends well");
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.syncs.engine()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The secret of a new token.
    pub(crate) async fn token(&self, role: Role, project: Option<&str>) -> String {
        let name = format!("{role} <of> \"{}\"", project.unwrap_or("all"));
        let new = NewToken { name, role, project_id: project.map(str::to_owned), expires_in_secs: None };
        self.engine().create_token(new, "test").await.expect("a token is made").1.reveal().to_owned()
    }

    /// A browser without a screen: somebody of this role who signed in.
    pub(crate) async fn signed_in(&self, role: Role, project: Option<&str>) -> Reader {
        let token = self.token(role, project).await;
        let mut reader = self.reader();
        let form = [("token", token.as_str()), ("next", "/runs")];
        let answer = reader.client.post(self.url("/sign-in")).form(&form).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        assert_eq!(answer.headers()["location"], "/runs");
        let cookie = answer.headers()["set-cookie"].to_str().expect("a cookie");
        reader.cookie = cookie.split(';').next().map(str::to_owned);
        reader
    }

    /// A browser that is not signed in.
    pub(crate) fn reader(&self) -> Reader {
        let client = http().redirect(Policy::none()).build().expect("a client");
        Reader { client, base: self.url(""), cookie: None }
    }
}

/// Somebody who reads pages.
pub(crate) struct Reader {
    pub(crate) client: Client,
    pub(crate) base: String,
    pub(crate) cookie: Option<String>,
}

impl Reader {
    pub(crate) fn ask(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.ask(Method::GET, path).send().await.expect("an answer")
    }

    /// A page that is there.
    pub(crate) async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        let status = answer.status();
        let text = answer.text().await.expect("a text");
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        text
    }

    pub(crate) async fn post(&self, path: &str, form: &[(&str, &str)]) -> Response {
        self.ask(Method::POST, path).form(form).send().await.expect("an answer")
    }

    /// What the forms of this reader carry: at the least, there is the one for signing out.
    pub(crate) async fn csrf(&self) -> String {
        let page = self.page("/").await;
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form of ours carries it");
        rest.split_once('"').expect("a value").0.to_owned()
    }
}
