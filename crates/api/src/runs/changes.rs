//! Endpoints that change runs.

use super::leases;
use crate::access::{AuthContext, Caller, audit_entry, invisible_project};
use crate::app::App;
use crate::error::ApiError;
use crate::extract::{Body, Id, IdempotencyKey, ValidBody};
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use std::collections::BTreeSet;
use tidemill_core::RunId;
use tidemill_core::access::Role;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::{ChangeOutcome, FailRun, FinalStatus, QueueOutcome, RetryOutcome};
use tidemill_core::worker::RunLease;
use tidemill_store::{AuditEntry, FinishRun, Holder};
use tidemill_wire::FieldError;
use tidemill_wire::runs::{
    self, Append, AppendResponse, ArtifactResponse, Cancel, CancelResponse, FailResponse, Finish, FinishMany,
    FinishOne, Hold, NewArtifact, NewRun, NewRuns, Outcome, Outcomes, QueuedRuns,
};

pub(super) const FINISH_PATH: &str = "/v1/runs/{run}/finish";
pub(super) const FINISHES_PATH: &str = "/v1/finishes";

pub(super) async fn queue(
    State(app): State<App>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    ValidBody(mut run): ValidBody<NewRun>,
) -> Result<(StatusCode, Json<QueueOutcome>), ApiError> {
    if !caller.can_see(&run.project) {
        return Err(invisible_project(&run.project));
    }
    app.annotate_audit(|line| {
        line.set_project(Some(&run.project));
    });
    let queued = match run.run_id.take() {
        Some(_) if !caller.sees_all_projects() => {
            return Err(chosen_id("run_id".to_owned(), "an Idempotency-Key"));
        }
        Some(id) => app.engine().queue_as(run.into_request(key), id).await?,
        None => app.engine().queue(run.into_request(key)).await?,
    };
    let status = if queued.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(queued)))
}

/// Error for a run id that a caller of one project chose: a conflict would reveal that another project has that run.
fn chosen_id(field: String, instead: &str) -> ApiError {
    let problem = format!("requires a token that sees every project; use {instead} instead");
    ApiError::invalid(vec![FieldError { field, problem }])
}

pub(super) async fn queue_many(
    State(app): State<App>,
    caller: Caller,
    ValidBody(NewRuns { runs }): ValidBody<NewRuns>,
) -> Result<(StatusCode, Json<QueuedRuns>), ApiError> {
    check_batch_size("runs", runs.len())?;
    let mut requests = Vec::with_capacity(runs.len());
    let new_ids = app.engine().clock().run_ids(runs.len());
    let mut projects = BTreeSet::new();
    for (position, (run, new_id)) in runs.into_iter().zip(&new_ids).enumerate() {
        let (request, id) = run.into_request();
        if !caller.can_see(&request.project) {
            return Err(invisible_project(&request.project).at_position(position));
        } else if id.is_some() && !caller.sees_all_projects() {
            return Err(chosen_id(format!("runs[{position}].run_id"), "an idempotency_key"));
        }
        projects.insert(request.project.clone());
        requests.push((request, id.unwrap_or_else(|| new_id.clone())));
    }
    app.annotate_audit(|line| {
        let mut names = projects.iter();
        match (names.next(), names.next()) {
            (Some(project), None) => line.set_project(Some(project)),
            _ => line.add_detail("projects", projects.iter().cloned().collect::<Vec<_>>()),
        };
    });
    let mut queued = app.engine().queue_many_as(requests).await?;
    // If the first answer of the database was lost, the repeated call finds the runs with our ids.
    for (outcome, id) in queued.iter_mut().zip(&new_ids) {
        outcome.created |= outcome.run_id == *id;
    }
    let is_new = queued.iter().any(|outcome| outcome.created);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(QueuedRuns { runs: queued })))
}

pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(cancel): Body<Cancel>,
) -> Result<Json<CancelResponse>, ApiError> {
    caller.check_run_access(&app, &run).await?;
    let outcome = app.engine().cancel(&run, &caller.name, cancel.reason.as_deref()).await?;
    let tries = app.engine().store().tries(run.clone()).await?;
    let live = tries.into_iter().find(|other| !other.status.is_terminal() && other.run_id != run);
    let answer = CancelResponse { run_id: run, outcome, live_successor: live.map(|run| run.run_id) };
    Ok(Json(answer))
}

pub(super) async fn fail(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
    Body(fail): Body<runs::Fail>,
) -> Result<Json<FailResponse>, ApiError> {
    caller.check_run_access(&app, &run).await?;
    let (reason, retry) = (fail.reason, fail.retry);
    let request = FailRun { run_id: run.clone(), by: caller.name.clone(), reason, retry };
    let failed = app.engine().fail_run(request).await?;
    Ok(Json(FailResponse { run_id: run, outcome: failed.outcome, successor: failed.successor }))
}

pub(super) async fn retry(
    State(app): State<App>,
    caller: Caller,
    Id(run): Id<RunId>,
) -> Result<Json<RetryOutcome>, ApiError> {
    caller.check_run_access(&app, &run).await?;
    Ok(Json(app.engine().retry(&run, &caller.name).await?))
}

/// Error for a caller that no longer holds a run.
async fn stale_error(app: &App, run: &RunId) -> ApiError {
    let current = app.engine().run(run).await.ok().map(|run| run.status);
    let message = match current {
        Some(state) => format!("run {run} is {state} and no longer held by this worker; nothing was changed"),
        None => format!("run {run} is no longer held by this worker; nothing was changed"),
    };
    ApiError::stale(message, current)
}

async fn outcome(app: &App, run: &RunId, applied: ChangeOutcome) -> Result<Json<Outcome>, ApiError> {
    match applied {
        ChangeOutcome::Applied | ChangeOutcome::Duplicate => Ok(Json(Outcome { outcome: applied })),
        ChangeOutcome::Stale => Err(stale_error(app, run).await),
    }
}

/// The fence of a call: the claim that its worker believes to hold.
fn holder(worker: String, epoch: i32) -> Holder {
    Holder { worker: Some(worker), epoch: Some(epoch) }
}

pub(super) async fn start(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Id(run): Id<RunId>,
    Body(hold): Body<Hold>,
) -> Result<Json<Outcome>, ApiError> {
    leases::check(&app, &caller, &auth, &run).await?;
    let holder = holder(hold.worker, hold.epoch);
    let applied = app.engine().start(&run, &holder).await?;
    outcome(&app, &run, applied).await
}

/// Checks the number of items in a request.
fn check_batch_size(field: &str, count: usize) -> Result<(), ApiError> {
    if (1..=BATCH_MAX).contains(&count) {
        return Ok(());
    }
    let problem = format!("has {count} items; it must have 1 to {BATCH_MAX}");
    Err(ApiError::invalid(vec![FieldError { field: field.to_owned(), problem }]))
}

pub(super) async fn append(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Id(run): Id<RunId>,
    Body(append): Body<Append>,
) -> Result<Json<AppendResponse>, ApiError> {
    check_batch_size("events", append.events.len())?;
    leases::check(&app, &caller, &auth, &run).await?;
    let holder = holder(append.worker, append.epoch);
    let events = append.events.into_iter().map(|event| tidemill_core::event::NewEvent {
        level: event.level,
        message: event.message,
        payload: event.payload,
        key: event.key,
    });
    let event_ids = app.engine().append(&run, events.collect(), &holder).await?;
    if event_ids.iter().all(Option::is_none) {
        return Err(stale_error(&app, &run).await);
    }
    Ok(Json(AppendResponse { event_ids }))
}

pub(super) async fn heartbeat(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Id(run): Id<RunId>,
    Body(hold): Body<Hold>,
) -> Result<Json<RunLease>, ApiError> {
    leases::check(&app, &caller, &auth, &run).await?;
    let holder = holder(hold.worker, hold.epoch);
    let answer = app.engine().heartbeat(&run, &holder).await?;
    if answer.held { Ok(Json(answer)) } else { Err(stale_error(&app, &run).await) }
}

impl App {
    /// Adds the ended runs to the audit entry of this request, if it has one: ids, project and new state.
    async fn annotate_finish(&self, runs: &[RunId], status: FinalStatus) {
        let Some(first) = runs.first().filter(|_| self.is_audited()) else { return };
        let project = self.engine().run(first).await.ok().map(|run| run.project_id);
        let ids: Vec<&str> = runs.iter().map(RunId::as_str).collect();
        self.annotate_audit(|line| {
            line.set_subject(&ids.join(","))
                .set_project(project.as_deref())
                .add_detail("run_status", status.as_str());
        });
    }
}

/// Returns the app for ending runs. A person that ends a run as cancelled does not report but act: that is audited.
async fn app_for_finish(
    app: &App,
    caller: &Caller,
    auth: &AuthContext,
    path: &'static str,
    ends: &[FinishOne],
) -> App {
    let is_person = matches!(caller.role, Role::Viewer | Role::Operator | Role::Admin);
    if !is_person || ends.iter().all(|end| end.status != FinalStatus::Cancelled) {
        return app.clone();
    }
    let app =
        app.for_call(AuditEntry::new(audit_entry(caller, auth, "POST", path), app.engine().clock().now()));
    let runs: Vec<RunId> = ends.iter().map(|end| end.run_id.clone()).collect();
    app.annotate_finish(&runs, FinalStatus::Cancelled).await;
    app
}

pub(super) async fn finish(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Id(run): Id<RunId>,
    Body(finish): Body<Finish>,
) -> Result<Json<Outcome>, ApiError> {
    let Finish { status, metadata, worker, epoch } = finish;
    let end = FinishOne { run_id: run.clone(), status, metadata, epoch };
    let applied = finish_all(&app, &caller, &auth, FINISH_PATH, vec![end], &worker).await?;
    let applied = applied.first().copied().ok_or_else(|| ApiError::internal("the finish has no outcome"))?;
    outcome(&app, &run, applied).await
}

pub(super) async fn finish_many(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Body(finish): Body<FinishMany>,
) -> Result<Json<Outcomes>, ApiError> {
    check_batch_size("ends", finish.ends.len())?;
    let outcomes = finish_all(&app, &caller, &auth, FINISHES_PATH, finish.ends, &finish.worker).await?;
    Ok(Json(Outcomes { outcomes }))
}

/// Finishes runs that the caller's token claimed. If one of them belongs to another token, nothing is changed.
async fn finish_all(
    app: &App,
    caller: &Caller,
    auth: &AuthContext,
    path: &'static str,
    ends: Vec<FinishOne>,
    worker: &str,
) -> Result<Vec<ChangeOutcome>, ApiError> {
    let app = &app_for_finish(app, caller, auth, path, &ends).await;
    let runs: Vec<RunId> = ends.iter().map(|end| end.run_id.clone()).collect();
    let claims = leases::check_all(app, caller, auth, &runs).await?;
    let mut outcomes = vec![ChangeOutcome::Stale; ends.len()];
    let (mut places, mut held) = (Vec::new(), Vec::new());
    for ((end, claim), place) in ends.into_iter().zip(&claims).zip(0..) {
        // The verb lets any caller cancel. Over HTTP that is the right of operators, with another route.
        if end.status == FinalStatus::Cancelled && !leases::is_claim_of(claim, worker, end.epoch) {
            continue;
        }
        places.push((place, end.status, &claim.kind));
        held.push(FinishRun {
            run_id: end.run_id,
            status: end.status,
            metadata: end.metadata,
            epoch: Some(end.epoch),
        });
    }
    if !held.is_empty() {
        let applied = app.engine().finish(held, Some(worker)).await?;
        for ((place, status, kind), applied) in places.into_iter().zip(applied) {
            tidemill_engine::count_end(status, kind, applied);
            if let Some(outcome) = outcomes.get_mut::<usize>(place) {
                *outcome = applied;
            }
        }
    }
    Ok(outcomes)
}

pub(super) async fn add_artifact(
    State(app): State<App>,
    caller: Caller,
    auth: AuthContext,
    Id(run): Id<RunId>,
    Body(artifact): Body<NewArtifact>,
) -> Result<(StatusCode, Json<ArtifactResponse>), ApiError> {
    let claim = leases::check(&app, &caller, &auth, &run).await?;
    let (worker, epoch) = (&artifact.worker, artifact.epoch);
    if !leases::is_claim_of(&claim, worker, epoch) && !leases::is_unclaimed_for(&claim, &auth, worker) {
        return Err(stale_error(&app, &run).await);
    }
    let artifact = tidemill_core::artifact::NewArtifact {
        artifact_type: artifact.artifact_type,
        url: artifact.url,
        digest: artifact.digest,
        size_bytes: artifact.size_bytes,
        metadata: artifact.metadata,
    };
    let artifact_id = app.engine().add_artifact(&run, artifact).await?;
    Ok((StatusCode::CREATED, Json(ArtifactResponse { artifact_id, run_id: run })))
}
