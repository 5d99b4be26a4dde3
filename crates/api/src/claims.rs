//! Claims of one or several runs, with an optional wait.

use crate::access::{AuthContext, Caller};
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::{Body, ValidBody};
use crate::{runs, workers};
use axum::Json;
use axum::extract::State;
use http::Method;
use std::time::Duration;
use tidemill_core::sync::SYNC_LABEL;
use tidemill_store::ClaimRuns;
use tidemill_wire::FieldError;
use tidemill_wire::claims::{ClaimRequest, ClaimResponse, WorkLeft, WorkerScope};

/// Maximum number of runs per claim.
const BATCH_MAX: u16 = 1_000;
/// Longest wait of a claim or a long poll.
pub(crate) const WAIT_SECS_MAX: u16 = 60;
/// Longest lease that a claim may request.
const LEASE_SECS_MAX: u32 = 86_400;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/claims", Permission::Work, claim)
            .describe("work", "Claim one or several runs; with `wait_secs`, wait for them")
            .long_poll()
            .body::<ClaimRequest>()
            .responds::<ClaimResponse>(200, "The runs; empty if there was nothing to claim"),
        Endpoint::new(Method::POST, "/v1/claims/left", Permission::Work, left)
            .describe("work", "Count the runs that a worker could still get without further input")
            .body::<WorkerScope>()
            .responds::<WorkLeft>(200, "The number of runs; with 0, the worker may exit"),
    ]
}

/// Restricts the requested projects to the caller's own.
fn visible_projects(caller: &Caller, requested: Option<Vec<String>>) -> Option<Vec<String>> {
    match (caller.projects.names(), requested) {
        (None, requested) => requested,
        (Some(own), None) => Some(own),
        (Some(_), Some(requested)) => {
            Some(requested.into_iter().filter(|project| caller.can_see(project)).collect())
        }
    }
}

/// Converts a claim request, within the caller's project and the limits.
fn parse_claim(
    request: ClaimRequest,
    caller: &Caller,
    auth: &AuthContext,
    request_id: &str,
) -> Result<(ClaimRuns, Duration), ApiError> {
    let (limit, wait) = (request.limit.unwrap_or(1), request.wait_secs.unwrap_or(0));
    let mut faults = Vec::new();
    let mut range = |field: &str, value: u32, min: u32, max: u32| {
        if !(min..=max).contains(&value) {
            let problem = format!("is {value}; it must be between {min} and {max}");
            faults.push(FieldError { field: field.to_owned(), problem });
        }
    };
    range("limit", limit.into(), 1, BATCH_MAX.into());
    range("wait_secs", wait.into(), 0, WAIT_SECS_MAX.into());
    range("lease_secs", request.lease_secs.unwrap_or(1), 1, LEASE_SECS_MAX);
    if request.labels.iter().any(|label| label == SYNC_LABEL) {
        let problem = format!("contains `{SYNC_LABEL}`; only the server itself claims sync runs");
        faults.push(FieldError { field: "labels".to_owned(), problem });
    }
    if !faults.is_empty() {
        return Err(ApiError::invalid(faults));
    }
    let projects = visible_projects(caller, request.projects);
    let claim = ClaimRuns {
        worker: request.worker,
        worker_id: request.worker_id.map(|worker| workers::stored_id(caller, auth, worker)),
        limit: limit.into(),
        labels: request.labels,
        projects,
        request_id: Some(runs::stored_request_id(caller, auth, request_id)),
        lease_secs: request.lease_secs.map(u64::from),
    };
    Ok((claim, Duration::from_secs(wait.into())))
}

async fn claim(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    ValidBody(mut request): ValidBody<ClaimRequest>,
) -> Result<Json<ClaimResponse>, ApiError> {
    let request_id = request.request_id.take().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let (claim, wait) = parse_claim(request, &caller, &auth, &request_id)?;
    let (runs, reason) = app.claim_waiters().claim(app.engine(), claim, wait).await?;
    Ok(Json(ClaimResponse { request_id, runs, reason }))
}

async fn left(
    State(app): State<App>,
    caller: Caller,
    Body(offer): Body<WorkerScope>,
) -> Result<Json<WorkLeft>, ApiError> {
    tidemill_core::request::check_labels(&offer.labels).map_err(tidemill_store::Error::from)?;
    let (engine, projects) = (app.engine(), visible_projects(&caller, offer.projects));
    let left = engine.store().work_left(offer.labels, projects, engine.clock().now()).await?;
    Ok(Json(WorkLeft { left }))
}
