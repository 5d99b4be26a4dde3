//! What people do goes on record: who, what, to what, from where. Never what was in the request.
//!
//! The line is committed with the step that does it, so that nothing that was done is missing from the record, and
//! nothing that was refused is on it. See [`Record`].

use crate::access::{Caller, Visit};
use crate::app::App;
use crate::endpoint::Route;
use axum::extract::{FromRequestParts as _, RawPathParams};
use http::StatusCode;
use http::request::Parts;
use serde_json::json;
use std::future::Future;
use std::sync::Arc;
use tidemill_core::RunId;
use tidemill_core::access::{NewAudit, Role, action};
use tidemill_engine::patience::chain;
use tidemill_store::Record;

/// The record of a call.
pub(super) struct Trail {
    app: App,
    record: Arc<Record>,
}

impl Trail {
    /// The record of a call, where it is one that goes on record.
    pub(super) async fn begin(
        route: &Route,
        parts: &mut Parts,
        caller: &Caller,
        visit: &Visit,
    ) -> Option<Self> {
        let person = matches!(caller.role, Role::Viewer | Role::Operator | Role::Admin);
        if !person || !route.allowed.is_for_people() || !super::forgery::changes(&parts.method) {
            return None;
        }
        let parameters = RawPathParams::from_request_parts(parts, &()).await.ok();
        let parameters: Vec<(&str, &str)> = parameters.iter().flatten().collect();
        let named = |name| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let engine = route.app.engine();
        let mut audit = line(caller, visit, parts.method.as_str(), route.path, route.done);
        audit.belongs_to(named("project"));
        if let Some((_, value)) = parameters.first() {
            audit.names(value);
        }
        if audit.project_id.is_none()
            && let Some(run) = named("run").and_then(|run| run.parse::<RunId>().ok())
        {
            // One that cannot be read now is not changed now either.
            audit.project_id = engine.run(&run).await.ok().map(|run| run.project_id);
        }
        let record = Record::new(audit, engine.clock().now());
        Some(Self { app: route.app.clone(), record })
    }

    /// Does the work of the call.
    pub(super) async fn around<F: Future>(&self, work: F) -> F::Output {
        self.record.around(work).await
    }

    /// Puts on record what was done without a step of ours, such as a message that was sent.
    pub(super) async fn end(self, status: StatusCode) {
        let Some(audit) = self.record.left().filter(|_| status.is_success()) else { return };
        let (who, what) = (audit.who.clone(), audit.action.clone());
        if let Err(error) = self.app.engine().record(audit).await {
            // It is done, and saying otherwise would be wrong; the log is the record that is left.
            tracing::error!(
                who,
                action = what,
                "could not put on record what somebody did: {}",
                chain(&error)
            );
        }
    }
}

/// What is known of a call before its work begins; `done` is what it answers when it does what was asked.
pub(crate) fn line(
    caller: &Caller,
    visit: &Visit,
    method: &str,
    path: &'static str,
    done: StatusCode,
) -> NewAudit {
    NewAudit {
        who: caller.name.clone(),
        token_id: visit.token_id,
        role: caller.role,
        action: action(method, path),
        subject: None,
        project_id: caller.project.clone(),
        detail: json!({"method": method, "path": path, "status": done.as_u16()}),
        source: visit.source.map(|source| source.to_string()),
    }
}
