//! Audit trail of privileged calls: who, what, on which object, from where, with which outcome. It never contains
//! request bodies.
//!
//! The entry of a change is committed with the change itself, so the audit log contains every change exactly once. See
//! [`AuditEntry`]. A refused call is recorded after its response is known, a limited number of times per actor.

use crate::access::{Access, AuthContext, Caller};
use crate::app::App;
use crate::endpoint::Route;
use axum::extract::{FromRequestParts as _, RawPathParams};
use http::request::Parts;
use http::{Method, StatusCode, Uri};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_core::access::{NewAuditRecord, action};
use tidemill_core::audit::AuditOutcome;
use tidemill_core::limits::REFUSALS_PER_MINUTE;
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::clock::host_now;
use tidemill_engine::retry_policy::chain;
use tidemill_store::AuditEntry;
use uuid::Uuid;

/// Audit entry of a request in progress.
pub(super) struct AuditTrail {
    app: App,
    entry: Arc<AuditEntry>,
    /// Run in the path, if the path names no project.
    run: Option<RunId>,
}

impl AuditTrail {
    /// Starts the audit entry of a request. `None` if the request is not audited: reads, and the reports of workers and
    /// agents.
    pub(super) async fn start(
        route: &Route,
        parts: &mut Parts,
        caller: &Caller,
        auth: &AuthContext,
    ) -> Option<Self> {
        if !route.permission.is_privileged() || !super::csrf::is_mutation(&parts.method) {
            return None;
        }
        let parameters = RawPathParams::from_request_parts(parts, &()).await.ok();
        let parameters: Vec<(&str, &str)> = parameters.iter().flatten().collect();
        let named = |name| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let mut audit = audit_entry(caller, auth, parts.method.as_str(), route.path);
        audit.set_project(named("project"));
        if let Some((_, value)) = parameters.first() {
            audit.set_subject(value);
        }
        let run = named("run").filter(|_| audit.project_id.is_none()).and_then(|run| run.parse().ok());
        let entry = AuditEntry::new(audit, route.app.engine().clock().now());
        Some(Self { app: route.app.clone(), entry, run })
    }

    pub(super) fn entry(&self) -> Arc<AuditEntry> {
        self.entry.clone()
    }

    /// Adds the project of the run in the path. A run that cannot be read now cannot be changed now either.
    pub(super) async fn find_project(&self) {
        let Some(run) = &self.run else { return };
        if let Ok(run) = self.app.engine().run(run).await {
            self.entry.annotate(|audit| audit.project_id = Some(run.project_id));
        }
    }

    /// Completes the entry after the response.
    ///
    /// A call that succeeded without a transaction of ours, such as a sent test message, is recorded now. A refusal is
    /// recorded unless a change was committed before it.
    pub(super) async fn finish(self, status: StatusCode) {
        if status.is_success() {
            if let Some(audit) = self.entry.unwritten() {
                self.write(audit).await;
            }
        } else if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
            // A command beside its database has every right already: its mistakes are no attempts.
            if matches!(self.app.access(), Access::Open { .. }) {
                return;
            }
            let Some(audit) = self.entry.uncommitted() else { return };
            write_refusal(&self.app, audit, status, REFUSALS_PER_MINUTE, "").await;
        }
    }

    async fn write(&self, audit: NewAuditRecord) {
        write(&self.app, audit).await;
    }
}

async fn write(app: &App, audit: NewAuditRecord) {
    let (who, what) = (audit.who.clone(), audit.action.clone());
    if let Err(error) = app.engine().record(audit).await {
        // The call has its outcome, so the request must not fail; the log line replaces the entry.
        tracing::error!(who, action = what, "could not write the audit entry: {}", chain(&error));
    }
}

/// Records a refused call, at most `limit` times a minute for its actor and `topic`.
async fn write_refusal(app: &App, mut audit: NewAuditRecord, status: StatusCode, limit: u32, topic: &str) {
    let mut actor = audit.token_id.map_or_else(|| audit.who.clone(), |token| token.to_string());
    actor.push_str(topic);
    let now = app.engine().clock().now().unwrap_or_else(host_now);
    let Some(skipped) = app.refusals().admit(&actor, limit, now) else { return };
    audit.outcome = AuditOutcome::Refused;
    audit.add_detail("status", status.as_u16());
    if skipped > 0 {
        audit.add_detail("not_recorded_before", skipped);
    }
    write(app, audit).await;
}

/// Records a refused call of a caller outside the guard, such as a sign-in with a token of a machine.
pub(super) async fn record_refusal(
    app: &App,
    caller: &Caller,
    auth: &AuthContext,
    path: &'static str,
    status: StatusCode,
) {
    let audit = audit_entry(caller, auth, "POST", path);
    write_refusal(app, audit, status, REFUSALS_PER_MINUTE, "").await;
}

/// A report of a worker or an agent in progress. Only its refusal is recorded, once per token, route and minute.
pub(super) struct ReportTrail {
    app: App,
    caller: Caller,
    auth: AuthContext,
    method: Method,
    uri: Uri,
    path: &'static str,
}

impl ReportTrail {
    /// Returns `None` for other requests than reports.
    pub(super) fn start(route: &Route, parts: &Parts, caller: &Caller, auth: &AuthContext) -> Option<Self> {
        if !route.permission.is_report() || matches!(route.app.access(), Access::Open { .. }) {
            return None;
        }
        Some(Self {
            app: route.app.clone(),
            caller: caller.clone(),
            auth: auth.clone(),
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            path: route.path,
        })
    }

    /// Records the report if it was refused.
    pub(super) async fn finish(self, status: StatusCode) {
        if !status.is_client_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return;
        }
        let mut audit = audit_entry(&self.caller, &self.auth, self.method.as_str(), self.path);
        let parts = self.path.split('/').zip(self.uri.path().split('/'));
        if let Some((_, value)) = parts.into_iter().find(|(name, _)| name.starts_with('{')) {
            audit.set_subject(value);
        }
        let topic = format!(" {} {}", self.method, self.path);
        write_refusal(&self.app, audit, status, 1, &topic).await;
    }
}

/// Builds an audit entry of a caller.
pub(crate) fn audit_entry(
    caller: &Caller,
    auth: &AuthContext,
    method: &str,
    path: &'static str,
) -> NewAuditRecord {
    NewAuditRecord {
        token_id: auth.token_id,
        project_id: caller.projects.single().map(str::to_owned),
        detail: json!({"method": method, "path": path}),
        source: auth.source.map(|source| source.to_string()),
        ..NewAuditRecord::of(Uuid::new_v4(), &caller.name, caller.role.into(), &action(method, path))
    }
}

/// Actors with a counter of their own. Refusals of further actors are not recorded until a counter is free.
const ACTORS_MAX: usize = 4_096;
const WINDOW_SECS: i64 = 60;

/// Limits the recorded refusals per actor, so that a caller cannot fill the audit log.
#[derive(Debug, Default)]
pub(crate) struct RefusalLimiter {
    actors: Mutex<HashMap<String, Window>>,
}

/// Refusals of one actor in the current minute.
#[derive(Debug, Clone, Copy)]
struct Window {
    since: Timestamp,
    recorded: u32,
    skipped: u64,
}

impl Window {
    fn is_over(&self, now: Timestamp) -> bool {
        // After the clock was set back, a window must not last longer.
        (now - self.since).num_seconds().unsigned_abs() >= WINDOW_SECS.unsigned_abs()
    }
}

impl RefusalLimiter {
    /// Returns the number of refusals that were not recorded before this one, or `None` if this one is not recorded
    /// either.
    fn admit(&self, actor: &str, limit: u32, now: Timestamp) -> Option<u64> {
        let mut actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        if actors.len() >= ACTORS_MAX && !actors.contains_key(actor) {
            actors.retain(|_, window| !window.is_over(now));
            if actors.len() >= ACTORS_MAX {
                return None;
            }
        }
        let window = actors.entry(actor.to_owned()).or_insert(Window { since: now, recorded: 0, skipped: 0 });
        if window.is_over(now) {
            (window.since, window.recorded) = (now, 0);
        }
        if window.recorded >= limit {
            window.skipped += 1;
            return None;
        }
        window.recorded += 1;
        Some(std::mem::take(&mut window.skipped))
    }
}

#[cfg(test)]
mod tests {
    use super::RefusalLimiter;
    use chrono::{TimeDelta, TimeZone as _, Utc};
    use tidemill_core::limits::REFUSALS_PER_MINUTE;

    #[test]
    fn refusals_are_limited_per_actor_and_minute() {
        let (limiter, now) = (RefusalLimiter::default(), Utc.timestamp_opt(0, 0).unwrap());
        let admit = |actor, now| limiter.admit(actor, REFUSALS_PER_MINUTE, now);
        for _ in 0..REFUSALS_PER_MINUTE {
            assert_eq!(admit("ann", now), Some(0));
        }
        assert_eq!((admit("ann", now), admit("ann", now)), (None, None));
        assert_eq!(admit("bob", now), Some(0));
        let later = now + TimeDelta::seconds(60);
        assert_eq!((admit("ann", later), admit("ann", later)), (Some(2), Some(0)));
    }
}
