//! What people did goes on record, once it is done: who, what, to what, from where. Never what was in the request.

use crate::access::{Caller, Visit};
use crate::app::App;
use crate::endpoint::Route;
use axum::extract::{FromRequestParts as _, RawPathParams};
use http::StatusCode;
use http::request::Parts;
use serde_json::json;
use tidemill_core::access::{NewAudit, Role, action};
use tidemill_core::{Json, RunId};
use tidemill_engine::patience::chain;

/// What a route tells for the record about what it did, where its path does not tell it. It travels with the answer.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    /// What was made or changed.
    pub subject: Option<String>,
    /// The project that it belongs to.
    pub project: Option<String>,
    /// Details. Never a secret.
    pub detail: serde_json::Map<String, Json>,
    /// Nothing was changed after all: there is nothing to record.
    pub unchanged: bool,
}

/// Longest subject that is kept.
const SUBJECT_CHARS_MAX: usize = 256;

/// A line of the record that waits for the call to succeed.
pub(super) struct Trail {
    app: App,
    audit: NewAudit,
    run: Option<RunId>,
}

impl Trail {
    /// The line for a call, where it is one that goes on record.
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
        let named =
            |name| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let method = parts.method.as_str();
        Some(Self {
            app: route.app.clone(),
            run: named("run").and_then(|run| run.parse().ok()),
            audit: NewAudit {
                who: caller.name.clone(),
                token_id: visit.token_id,
                role: caller.role,
                action: action(method, route.path),
                subject: parameters.first().map(|(_, value)| value.chars().take(SUBJECT_CHARS_MAX).collect()),
                project_id: caller.project.clone().or_else(|| named("project")),
                detail: json!({"method": method, "path": route.path}),
                source: visit.source.map(|source| source.to_string()),
            },
        })
    }

    /// Puts the line on record, if the call succeeded.
    pub(super) async fn end(mut self, status: StatusCode, noted: Option<Noted>) {
        let Noted { subject, project, detail, unchanged } = noted.unwrap_or_default();
        if !status.is_success() || unchanged {
            return;
        }
        let subject = subject.map(|subject| subject.chars().take(SUBJECT_CHARS_MAX).collect());
        self.audit.subject = self.audit.subject.or(subject);
        self.audit.project_id = self.audit.project_id.or(project);
        if let Some(fields) = self.audit.detail.as_object_mut() {
            fields.insert("status".to_owned(), status.as_u16().into());
            fields.extend(detail);
        }
        let engine = self.app.engine();
        if self.audit.project_id.is_none()
            && let Some(run) = &self.run
        {
            self.audit.project_id = engine.run(run).await.ok().map(|run| run.project_id);
        }
        let (who, what) = (self.audit.who.clone(), self.audit.action.clone());
        if let Err(error) = engine.record(self.audit).await {
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
