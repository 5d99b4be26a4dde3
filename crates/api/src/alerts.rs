//! Alerts: what people were told, and whether messages reach them.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Query};
use crate::runs::rows;
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::alert::Alert;
use tidemill_store::{AlertFilter, note};
use tidemill_wire::Page;
use tidemill_wire::alerts::{ListAlerts, TestAlert, Tested};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/alerts", Allowed::Look, list)
            .says("alerts", "List alerts, the newest first")
            .query::<ListAlerts>()
            .answers::<Page<Alert>>(200, "One page of alerts"),
        Endpoint::new(Method::POST, "/v1/alerts/test", Allowed::Admin, test)
            .says("alerts", "Send a test message to one target or to all of them")
            .body::<TestAlert>()
            .answers::<Page<Tested>>(200, "Whether each of them was reached"),
    ]
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(asked): Query<ListAlerts>,
) -> Result<Json<Page<Alert>>, Fail> {
    let limit = rows(asked.limit)?;
    let filter = AlertFilter {
        project: caller.narrow(asked.project)?,
        kind: asked.kind,
        resolved: asked.resolved.unwrap_or(false),
        before: asked.after,
        limit,
    };
    let items = app.engine().store().alerts(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|alert| alert.alert_id.to_string());
    Ok(Json(Page { items, next }))
}

async fn test(
    State(app): State<App>,
    caller: Caller,
    Body(asked): Body<TestAlert>,
) -> Result<Json<Page<Tested>>, Fail> {
    // The targets belong to the whole server, and so does the right to write to them.
    caller.sees_all()?;
    if let Some(target) = &asked.target {
        note(|line| {
            line.names(target);
        });
    }
    let tested = app.engine().test_targets(asked.target.as_deref()).await?;
    let said = tested.into_iter().map(|tested| Tested { target: tested.target, error: tested.error });
    Ok(Json(Page::whole(said.collect())))
}
