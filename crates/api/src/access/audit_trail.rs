//! Audit trail of changes by people: who, what, on which object, from where. It never contains request bodies.
//!
//! The entry is committed with the change itself, so the audit log contains every change and no refused one. See
//! [`AuditEntry`].

use crate::access::{AuthContext, Caller};
use crate::app::App;
use crate::endpoint::Route;
use axum::extract::{FromRequestParts as _, RawPathParams};
use http::StatusCode;
use http::request::Parts;
use serde_json::json;
use std::sync::Arc;
use tidemill_core::RunId;
use tidemill_core::access::{NewAuditRecord, Role, action};
use tidemill_engine::retry_policy::chain;
use tidemill_store::AuditEntry;

/// Audit entry of a request in progress.
pub(super) struct AuditTrail {
    app: App,
    entry: Arc<AuditEntry>,
}

impl AuditTrail {
    /// Starts the audit entry of a request. `None` if the request is not audited.
    pub(super) async fn start(
        route: &Route,
        parts: &mut Parts,
        caller: &Caller,
        auth: &AuthContext,
    ) -> Option<Self> {
        let is_person = matches!(caller.role, Role::Viewer | Role::Operator | Role::Admin);
        if !is_person || !route.permission.is_for_people() || !super::csrf::is_mutation(&parts.method) {
            return None;
        }
        let parameters = RawPathParams::from_request_parts(parts, &()).await.ok();
        let parameters: Vec<(&str, &str)> = parameters.iter().flatten().collect();
        let named = |name| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let engine = route.app.engine();
        let mut audit = audit_entry(caller, auth, parts.method.as_str(), route.path, route.success_status);
        audit.set_project(named("project"));
        if let Some((_, value)) = parameters.first() {
            audit.set_subject(value);
        }
        if audit.project_id.is_none()
            && let Some(run) = named("run").and_then(|run| run.parse::<RunId>().ok())
        {
            // A run that cannot be read now cannot be changed now either.
            audit.project_id = engine.run(&run).await.ok().map(|run| run.project_id);
        }
        let entry = AuditEntry::new(audit, engine.clock().now());
        Some(Self { app: route.app.clone(), entry })
    }

    pub(super) fn entry(&self) -> Arc<AuditEntry> {
        self.entry.clone()
    }

    /// Writes the entry of a request that succeeded without a transaction of ours, such as a sent test message.
    pub(super) async fn finish(self, status: StatusCode) {
        let Some(audit) = self.entry.unwritten().filter(|_| status.is_success()) else { return };
        let (who, what) = (audit.who.clone(), audit.action.clone());
        if let Err(error) = self.app.engine().record(audit).await {
            // The change is done, so the request must not fail; the log line replaces the entry.
            tracing::error!(who, action = what, "could not write the audit entry: {}", chain(&error));
        }
    }
}

/// Builds an audit entry. `success_status` is the status of a successful response.
pub(crate) fn audit_entry(
    caller: &Caller,
    auth: &AuthContext,
    method: &str,
    path: &'static str,
    success_status: StatusCode,
) -> NewAuditRecord {
    NewAuditRecord {
        who: caller.name.clone(),
        token_id: auth.token_id,
        role: caller.role,
        action: action(method, path),
        subject: None,
        project_id: caller.project.clone(),
        detail: json!({"method": method, "path": path, "status": success_status.as_u16()}),
        source: auth.source.map(|source| source.to_string()),
    }
}
