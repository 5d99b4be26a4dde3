//! Claims: one or a batch, at once or as soon as there is something.

use crate::access::Caller;
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::{Body, Checked};
use crate::workers;
use axum::Json;
use axum::extract::State;
use http::Method;
use std::time::Duration;
use tidemill_store::ClaimRuns;
use tidemill_wire::Fault;
use tidemill_wire::claims::{Ask, Claimed, Left, Offer};

/// The most runs of one claim.
const BATCH_MAX: u16 = 1_000;
/// The longest wait of one claim.
pub(crate) const WAIT_SECS_MAX: u16 = 60;
/// The longest lease that a claim may ask for.
const LEASE_SECS_MAX: u32 = 86_400;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, "/v1/claims", Allowed::Work, claim)
            .says("work", "Claim runs, one or a batch, and wait for them where asked")
            .waits()
            .body::<Ask>()
            .answers::<Claimed>(200, "The runs; none where there was nothing to claim"),
        Endpoint::new(Method::POST, "/v1/claims/left", Allowed::Work, left)
            .says("work", "Count what could still come to a worker without anybody doing anything")
            .body::<Offer>()
            .answers::<Left>(200, "How much is left; nothing, and the worker may end"),
    ]
}

/// A caller of one project gets that project's runs and no others, whatever it asks for.
fn own(caller: &Caller, asked: Option<Vec<String>>) -> Option<Vec<String>> {
    match (&caller.project, asked) {
        (None, asked) => asked,
        (Some(own), None) => Some(vec![own.clone()]),
        (Some(own), Some(asked)) => Some(asked.into_iter().filter(|project| project == own).collect()),
    }
}

/// What the caller asks for, within its project and the limits.
fn asked(ask: Ask, caller: &Caller) -> Result<(ClaimRuns, Duration), Fail> {
    let (limit, wait) = (ask.limit.unwrap_or(1), ask.wait_secs.unwrap_or(0));
    let mut faults = Vec::new();
    let mut range = |field: &str, value: u32, min: u32, max: u32| {
        if !(min..=max).contains(&value) {
            let problem = format!("is {value}; it must be between {min} and {max}");
            faults.push(Fault { field: field.to_owned(), problem });
        }
    };
    range("limit", limit.into(), 1, BATCH_MAX.into());
    range("wait_secs", wait.into(), 0, WAIT_SECS_MAX.into());
    range("lease_secs", ask.lease_secs.unwrap_or(1), 1, LEASE_SECS_MAX);
    if !faults.is_empty() {
        return Err(Fail::invalid(faults));
    }
    let projects = own(caller, ask.projects);
    let claim = ClaimRuns {
        worker: ask.worker,
        worker_id: ask.worker_id.map(|worker| workers::kept(caller, worker)),
        limit: limit.into(),
        labels: ask.labels,
        projects,
        request_id: Some(ask.request_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string())),
        lease_secs: ask.lease_secs.map(u64::from),
    };
    Ok((claim, Duration::from_secs(wait.into())))
}

async fn claim(
    State(app): State<App>,
    caller: Caller,
    Checked(ask): Checked<Ask>,
) -> Result<Json<Claimed>, Fail> {
    let (mut claim, wait) = asked(ask, &caller)?;
    let request_id = claim.request_id.clone().unwrap_or_default();
    if let Some(own) = &caller.project {
        // An id is asked again by its project alone: another's would give its runs away.
        claim.request_id = Some(format!("{own}/{request_id}"));
    }
    let (runs, reason) = app.room().claim(app.engine(), claim, wait).await?;
    Ok(Json(Claimed { request_id, runs, reason }))
}

async fn left(State(app): State<App>, caller: Caller, Body(offer): Body<Offer>) -> Result<Json<Left>, Fail> {
    tidemill_core::request::check_labels(&offer.labels).map_err(tidemill_store::Error::from)?;
    let (engine, projects) = (app.engine(), own(&caller, offer.projects));
    let left = engine.store().work_left(offer.labels, projects, engine.clock().now()).await?;
    Ok(Json(Left { left }))
}
