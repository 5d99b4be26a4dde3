//! Endpoints of the audit log: entries, seals and the head of the hash chain.

use crate::access::Caller;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::Query;
use crate::runs::rows;
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::access::AuditRecord;
use tidemill_core::audit::{AuditHead, SealedBatch};
use tidemill_store::ListPage;
use tidemill_wire::Page;
use tidemill_wire::access::{ListAudit, ListSeals, ListUnsealed};

/// Seals per page. A seal has up to 500 entries.
const SEALS_PER_PAGE: usize = 4;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/audit", Permission::Admin, list)
            .describe("access", "List audit entries, newest first")
            .query::<ListAudit>()
            .responds::<Page<AuditRecord>>(200, "One page of audit entries"),
        Endpoint::new(Method::GET, "/v1/audit/head", Permission::Admin, head)
            .describe("access", "Show the head of the audit log's hash chain")
            .responds::<AuditHead>(200, "The newest seal, and the number of entries after it"),
        Endpoint::new(Method::GET, "/v1/audit/seals", Permission::Admin, seals)
            .describe("access", "List seals of the audit log with their entries, oldest first")
            .query::<ListSeals>()
            .responds::<Page<SealedBatch>>(200, "One page of seals"),
        Endpoint::new(Method::GET, "/v1/audit/unsealed", Permission::Admin, unsealed)
            .describe("access", "List audit entries that are not sealed yet, oldest first")
            .query::<ListUnsealed>()
            .responds::<Page<AuditRecord>>(200, "One page of audit entries"),
    ]
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListAudit>,
) -> Result<Json<Page<AuditRecord>>, ApiError> {
    let limit = rows(params.limit)?;
    let slice = ListPage { project: caller.narrow_project(params.project)?, before: params.after, limit };
    let items = app.engine().store().audit(slice).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|audit| audit.audit_id.to_string());
    Ok(Json(Page { items, next }))
}

async fn head(State(app): State<App>, caller: Caller) -> Result<Json<AuditHead>, ApiError> {
    // The chain covers the entries of every project.
    caller.require_all_projects()?;
    Ok(Json(app.engine().store().audit_head().await?))
}

async fn seals(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListSeals>,
) -> Result<Json<Page<SealedBatch>>, ApiError> {
    caller.require_all_projects()?;
    let store = app.engine().store();
    let items = store.audit_seals(params.after.unwrap_or(0), params.since, SEALS_PER_PAGE).await?;
    let last = items.last().filter(|_| items.len() == SEALS_PER_PAGE);
    let next = last.map(|batch| batch.seal.seal_no.to_string());
    Ok(Json(Page { items, next }))
}

async fn unsealed(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListUnsealed>,
) -> Result<Json<Page<AuditRecord>>, ApiError> {
    caller.require_all_projects()?;
    let limit = rows(params.limit)?;
    let items = app.engine().store().unsealed_audit(params.after.unwrap_or(i64::MIN), limit).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|audit| audit.audit_id.to_string());
    Ok(Json(Page { items, next }))
}
