//! The endpoint that lists the audit log.

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
use tidemill_store::ListPage;
use tidemill_wire::Page;
use tidemill_wire::access::ListAudit;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/audit", Permission::Admin, list)
            .describe("access", "List audit entries, newest first")
            .query::<ListAudit>()
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
