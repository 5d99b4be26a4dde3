//! Leases over HTTP: a claimed run belongs to the token that claimed it.
//!
//! A claim stores the caller's token at the beginning of its request id, so a repeated request id of another token
//! finds no runs, and every later call can be compared with the claim. A run is claimed at most once, so its claim
//! cannot change between the check and the call. Callers without a token (a server without tokens, and commands beside
//! their database) share the runs that were claimed without a token, by SQL or by themselves.
//!
//! There is no exception for admins: they end a run with a cancel, which is audited.

use crate::access::{AuthContext, Caller, unknown_run};
use crate::app::App;
use crate::error::ApiError;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidemill_core::RunId;
use tidemill_core::run::Lane;
use tidemill_store::{Error, Refusal, RefusalCode, RunClaim, Store};
use uuid::Uuid;

/// Claims in the cache of a process.
const CLAIMS_MAX: usize = 8_192;

/// Claims that this process has read, so that the reports of one run read its claim once.
///
/// A run is claimed at most once, so the claim of a claimed run never changes, and an entry never becomes outdated. The
/// cache decides nothing: every call compares the claim with its caller, and the statement of the call checks worker,
/// epoch and state again.
#[derive(Debug, Default)]
pub(crate) struct ClaimCache(Mutex<HashMap<RunId, RunClaim>>);

impl ClaimCache {
    fn claims(&self) -> MutexGuard<'_, HashMap<RunId, RunClaim>> {
        // The map is valid after every statement, so a poisoned lock can be used.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the claims of these runs. Unknown runs are left out.
    async fn read(&self, store: &Store, runs: &[RunId]) -> Result<HashMap<RunId, RunClaim>, Error> {
        let mut found: HashMap<RunId, RunClaim> = {
            let claims = self.claims();
            runs.iter().filter_map(|run| Some((run.clone(), claims.get(run)?.clone()))).collect()
        };
        let missing: Vec<RunId> = runs.iter().filter(|run| !found.contains_key(*run)).cloned().collect();
        if missing.is_empty() {
            return Ok(found);
        }
        for claim in store.run_claims(missing).await? {
            if claim.claimed_by.is_some() {
                let mut claims = self.claims();
                if claims.len() >= CLAIMS_MAX {
                    claims.clear();
                }
                claims.insert(claim.run_id.clone(), claim.clone());
            }
            found.insert(claim.run_id.clone(), claim);
        }
        Ok(found)
    }
}

/// Returns the stored form of a claim's request id: the caller's token, and the id that the caller sent.
pub(crate) fn stored_request_id(caller: &Caller, auth: &AuthContext, request_id: &str) -> String {
    match (auth.token_id, caller.projects.names()) {
        (Some(token), _) => format!("{token}/{request_id}"),
        (None, Some(projects)) => format!("project:{}/{request_id}", projects.join(",")),
        (None, None) => format!("local/{request_id}"),
    }
}

/// Returns the token of a claim; `None` if it was claimed without a token.
fn token_of(claim: &RunClaim) -> Option<Uuid> {
    let (token, _) = claim.claim_request.as_deref()?.split_once('/')?;
    Uuid::parse_str(token).ok()
}

/// Returns whether a worker names the claim of a run.
pub(super) fn is_claim_of(claim: &RunClaim, worker: &str, epoch: i32) -> bool {
    claim.claimed_by.as_deref() == Some(worker) && claim.epoch == epoch
}

/// Returns whether a run has no claim, and the caller has no token either. Such a caller may record artifacts of it,
/// with an empty worker and the epoch 0.
pub(super) fn is_unclaimed_for(claim: &RunClaim, auth: &AuthContext, worker: &str) -> bool {
    claim.claimed_by.is_none() && auth.token_id.is_none() && worker.is_empty()
}

/// Returns the claim of a run that the caller may report on.
pub(super) async fn check(
    app: &App,
    caller: &Caller,
    auth: &AuthContext,
    run: &RunId,
) -> Result<RunClaim, ApiError> {
    let claims = check_all(app, caller, auth, std::slice::from_ref(run)).await?;
    claims.into_iter().next().ok_or_else(|| unknown_run(run))
}

/// Returns the claims of the runs, in their order, or the error of the first run that the caller may not report on.
pub(super) async fn check_all(
    app: &App,
    caller: &Caller,
    auth: &AuthContext,
    runs: &[RunId],
) -> Result<Vec<RunClaim>, ApiError> {
    let found = app.claim_cache().read(app.engine().store(), runs).await?;
    let mut claims = Vec::with_capacity(runs.len());
    for run in runs {
        let claim = found.get(run).filter(|claim| caller.can_see(&claim.project_id));
        let claim = claim.ok_or_else(|| unknown_run(run))?;
        check_holder(claim, auth)?;
        claims.push((*claim).clone());
    }
    Ok(claims)
}

fn check_holder(claim: &RunClaim, auth: &AuthContext) -> Result<(), ApiError> {
    let run = &claim.run_id;
    let problem = match claim.lane {
        Lane::Graph => format!("run {run} is a graph run, which only the server itself reports on"),
        Lane::Sync => format!("run {run} is a sync run, which only the server itself reports on"),
        Lane::Ops if claim.claimed_by.is_some() && token_of(claim) != auth.token_id => {
            tracing::warn!(run.id = %run, token = ?auth.token_id, "refused a report of another token on run {run}");
            format!("run {run} was claimed with another token")
        }
        Lane::Ops => return Ok(()),
    };
    Err(Error::Refused(Refusal {
        code: RefusalCode::WrongHolder,
        message: format!("{problem}; nothing was changed"),
        hint: Some(format!("to end it: tidemill run cancel {}", run.in_shell())),
    })
    .into())
}
