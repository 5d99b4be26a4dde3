//! Audit trail of privileged calls: who, what, on which object, from where, with which outcome. It never contains
//! request bodies.
//!
//! The entry of a change is committed with the change itself, so the audit log contains every change exactly once. See
//! [`AuditEntry`]. A refused call is recorded after its response is known, a limited number of times per actor.

use crate::access::{Access, AuthContext, Caller};
use crate::app::App;
use crate::endpoint::Route;
use axum::extract::{FromRequestParts as _, RawPathParams};
use http::StatusCode;
use http::request::Parts;
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
            let Some(mut audit) = self.entry.uncommitted() else { return };
            let actor = audit.token_id.map_or_else(|| audit.who.clone(), |token| token.to_string());
            let now = self.app.engine().clock().now().unwrap_or_else(host_now);
            let Some(skipped) = self.app.refusals().admit(&actor, now) else { return };
            audit.outcome = AuditOutcome::Refused;
            audit.add_detail("status", status.as_u16());
            if skipped > 0 {
                audit.add_detail("not_recorded_before", skipped);
            }
            self.write(audit).await;
        }
    }

    async fn write(&self, audit: NewAuditRecord) {
        let (who, what) = (audit.who.clone(), audit.action.clone());
        if let Err(error) = self.app.engine().record(audit).await {
            // The call has its outcome, so the request must not fail; the log line replaces the entry.
            tracing::error!(who, action = what, "could not write the audit entry: {}", chain(&error));
        }
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
        project_id: caller.project.clone(),
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
    fn admit(&self, actor: &str, now: Timestamp) -> Option<u64> {
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
        if window.recorded >= REFUSALS_PER_MINUTE {
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
        for _ in 0..REFUSALS_PER_MINUTE {
            assert_eq!(limiter.admit("ann", now), Some(0));
        }
        assert_eq!((limiter.admit("ann", now), limiter.admit("ann", now)), (None, None));
        assert_eq!(limiter.admit("bob", now), Some(0));
        let later = now + TimeDelta::seconds(60);
        assert_eq!((limiter.admit("ann", later), limiter.admit("ann", later)), (Some(2), Some(0)));
    }
}
