//! The record of what people did.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::Query;
use crate::runs::rows;
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::access::Audit;
use tidemill_store::Slice;
use tidemill_wire::Page;
use tidemill_wire::access::ListAudit;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/audit", Allowed::Admin, list)
            .says("access", "Read the record of what people did, the latest first")
            .query::<ListAudit>()
            .answers::<Page<Audit>>(200, "One page of the record"),
    ]
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<ListAudit>,
) -> Result<Json<Page<Audit>>, Fail> {
    let limit = rows(asked.limit)?;
    let slice = Slice { project: caller.narrow(asked.project)?, before: asked.after, limit };
    let items = app.engine().store().audit(slice).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|audit| audit.audit_id.to_string());
    Ok(Json(Page { items, next }))
}
