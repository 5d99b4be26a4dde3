//! A door within this process, and a client of it.

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tidemill_api::access::{Access, Caller};
use tidemill_api::{App, router};
use tidemill_client::{Answer, Call, Client, Error, Later, Transport};
use tidemill_core::access::Role;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Clock, Engine, Patience};
use tidemill_testkit::door::{Kind, Stage, at};
use tower::ServiceExt as _;

/// Requests that never leave this process.
#[derive(Clone)]
pub(crate) struct Here(axum::Router);

impl Transport for Here {
    fn carry(&self, call: Call) -> Later<'_> {
        Box::pin(async move {
            let mut request = Request::builder().method(call.method).uri(call.path);
            if let Some(key) = call.idempotency_key {
                request = request.header("idempotency-key", key);
            }
            let body = axum::body::Body::from(call.body.unwrap_or_default());
            let request = request.body(body).map_err(|error| Error::Unreadable(error.to_string()))?;
            let answer = self.0.clone().oneshot(request).await.expect("a router answers");
            let status = answer.status();
            let body = answer.into_body().collect().await.expect("a body is read").to_bytes();
            Ok(Answer { status, body, retry_after: None })
        })
    }
}

/// The door on a database of its own, and clients of it.
pub(crate) struct Doorway {
    pub(crate) stage: Stage,
    pub(crate) syncs: Syncs,
    /// Somebody who may do everything.
    pub(crate) admin: Client,
    door: Here,
}

impl Doorway {
    /// A door at a clock that stands still.
    pub(crate) async fn open(kind: Kind) -> Self {
        Self::on(Stage::open(kind).await)
    }

    pub(crate) fn on(stage: Stage) -> Self {
        let engine = Engine::new(stage.store.clone(), Clock::fixed(at(0)), Patience::None);
        Self::of(stage, Syncs::new(engine, SyncSettings::default()))
    }

    pub(crate) fn of(stage: Stage, syncs: Syncs) -> Self {
        let access = Access::Open { name: "ann".to_owned() };
        let door = Here(router(App::new(syncs.clone(), access)));
        Self { stage, syncs, admin: Client::new(door.clone()), door }
    }

    /// Somebody of one project.
    pub(crate) fn of_project(&self, project: &str) -> Doorway {
        let caller = Caller { name: "bob".to_owned(), role: Role::Admin, project: Some(project.to_owned()) };
        let door = Here(router(App::new(self.syncs.clone(), Access::As(caller))));
        Doorway {
            stage: self.stage.clone(),
            syncs: self.syncs.clone(),
            admin: Client::new(door.clone()),
            door,
        }
    }

    /// A request as it stands.
    pub(crate) async fn raw(&self, method: Method, path: &str, body: &str) -> (StatusCode, Value) {
        self.keyed(method, path, body, None).await
    }

    /// The same under a key.
    pub(crate) async fn keyed(
        &self,
        method: Method,
        path: &str,
        body: &str,
        key: Option<&str>,
    ) -> (StatusCode, Value) {
        let call = Call {
            method,
            path: path.to_owned(),
            idempotency_key: key.map(str::to_owned),
            body: Some(Bytes::copy_from_slice(body.as_bytes())),
            patience: std::time::Duration::from_secs(30),
        };
        let answer = self.door.carry(call).await.expect("the door answers");
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null))
    }
}

/// The code of a refusal, and its status.
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> (u16, String) {
    let error = answer.expect_err("this is refused");
    let Error::Refused { status, problem } = error else { panic!("{error:?}") };
    (status.as_u16(), problem.code)
}

/// The fields that a problem names, sorted.
pub(crate) fn fields(problem: &Value) -> Vec<String> {
    let faults = problem["faults"].as_array().expect("a problem with faults");
    let mut fields: Vec<String> =
        faults.iter().filter_map(|fault| fault["field"].as_str().map(str::to_owned)).collect();
    fields.sort();
    fields.dedup();
    fields
}
