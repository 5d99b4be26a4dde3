//! Alerts and test messages.

use crate::access::Caller;
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, Query};
use crate::runs::rows;
use axum::Json;
use axum::extract::State;
use http::Method;
use tidemill_core::alert::Alert;
use tidemill_store::AlertFilter;
use tidemill_wire::Page;
use tidemill_wire::alerts::{AlertTestResult, ListAlerts, TestAlert};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::GET, "/v1/alerts", Permission::Read, list)
            .describe("alerts", "List alerts, newest first")
            .query::<ListAlerts>()
            .responds::<Page<Alert>>(200, "One page of alerts"),
        Endpoint::new(Method::POST, "/v1/alerts/test", Permission::Admin, test)
            .describe("alerts", "Send a test message to one target or to all targets")
            .body::<TestAlert>()
            .responds::<Page<AlertTestResult>>(200, "The result for each target"),
    ]
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(params): Query<ListAlerts>,
) -> Result<Json<Page<Alert>>, ApiError> {
    let limit = rows(params.limit)?;
    let filter = AlertFilter {
        project: caller.narrow_project(params.project)?,
        kind: params.kind,
        resolved: params.resolved.unwrap_or(false),
        before: params.after,
        limit,
    };
    let items = app.engine().store().alerts(filter).await?;
    let next = items.last().filter(|_| items.len() == limit).map(|alert| alert.alert_id.to_string());
    Ok(Json(Page { items, next }))
}

async fn test(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<TestAlert>,
) -> Result<Json<Page<AlertTestResult>>, ApiError> {
    // The targets are shared by all projects.
    caller.require_all_projects()?;
    if let Some(target) = &request.target {
        app.annotate_audit(|line| {
            line.set_subject(target);
        });
    }
    let tested = app.engine().test_targets(request.target.as_deref()).await?;
    let results =
        tested.into_iter().map(|tested| AlertTestResult { target: tested.target, error: tested.error });
    Ok(Json(Page::complete(results.collect())))
}
