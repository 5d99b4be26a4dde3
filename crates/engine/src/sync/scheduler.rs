//! The sync scheduler: claims sync runs and plans them.

use super::plan::{PlanError, PlanOutcome};
use super::{SYNC_LABEL, Syncs};
use crate::presence::{Identity, Presence};
use crate::retry_policy::chain;
use crate::trace::of_run;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_core::alert::AlertKind;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::run::{Claim, EndCause, RunState};
use tidemill_core::{Json, RunId, limits};
use tidemill_store::{ClaimRuns, Class, Error, Holder, RefusalCode};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument as _;

/// Feeds that one scheduler plans concurrently.
const PLANS_MAX: usize = 4;
/// The same limit, including feeds that are paused, down or slow.
const PLANS_IN_ALL_MAX: usize = 64;
/// The same limit for one project, so that its runs cannot delay the syncs of others.
const PLANS_OF_PROJECT_MAX: usize = PLANS_IN_ALL_MAX / 2;
/// Time between two polls for queued runs.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// The plans of one scheduler that are in progress. Cloning is cheap.
#[derive(Debug, Clone, Default)]
struct PlansInProgress(Arc<Mutex<HashMap<RunId, PlannedFeed>>>);

/// The feed of a plan, and the project of its run.
#[derive(Debug)]
struct PlannedFeed {
    project: String,
    feed: String,
}

impl PlansInProgress {
    fn plans(&self) -> MutexGuard<'_, HashMap<RunId, PlannedFeed>> {
        // The map is valid after every statement, so a poisoned lock can be used.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a plan until the guard is dropped.
    fn begin(&self, claim: &Claim) -> PlanGuard {
        let planned = PlannedFeed { project: claim.project_id.clone(), feed: feed_of(claim).to_owned() };
        self.plans().insert(claim.run_id.clone(), planned);
        PlanGuard { plans: self.clone(), run: claim.run_id.clone() }
    }

    /// Counts the plans whose feed fulfils the condition, and all plans.
    fn count(&self, is_counted: impl Fn(&str) -> bool) -> (usize, usize) {
        let plans = self.plans();
        (plans.values().filter(|planned| is_counted(&planned.feed)).count(), plans.len())
    }

    fn count_of_project(&self, project: &str) -> usize {
        self.plans().values().filter(|planned| planned.project == project).count()
    }
}

/// Counts one plan while it exists.
struct PlanGuard {
    plans: PlansInProgress,
    run: RunId,
}

impl Drop for PlanGuard {
    fn drop(&mut self) {
        self.plans.plans().remove(&self.run);
    }
}

/// Returns the feed that a run names.
fn feed_of(claim: &Claim) -> &str {
    claim.metadata.get("feed").and_then(Json::as_str).unwrap_or_default()
}

impl Syncs {
    /// Plans queued syncs until `stop` is set, and returns the number of planned runs. With `once`, it plans the
    /// syncs that are queued now and ends.
    pub async fn schedule(
        &self,
        identity: Identity,
        once: bool,
        mut stop: watch::Receiver<bool>,
    ) -> Result<u64, Error> {
        let identity = Identity { labels: vec![SYNC_LABEL.to_owned()], ..identity };
        let presence = Arc::new(
            Presence::begin(&self.engine, identity, self.settings.process, self.settings.heartbeat_every)
                .await?,
        );
        let mut plans: JoinSet<Result<(), Error>> = JoinSet::new();
        let in_progress = PlansInProgress::default();
        let (mut planned, mut failed) = (0, None);
        // With `once`, the caller gets the errors; otherwise the runs are claimed again.
        let record = |done: Result<Result<(), Error>, JoinError>, failed: &mut Option<Error>| {
            if let Ok(Err(error)) = done
                && once
            {
                failed.get_or_insert(error);
            }
        };
        // A new id only after a successful claim: if the answer was lost, the same request returns the same run.
        let mut request = uuid::Uuid::new_v4();
        while !*stop.borrow() {
            while let Some(done) = plans.try_join_next() {
                record(done, &mut failed);
            }
            // An unanswered claim may have assigned a run to this scheduler, so it must not end before it is repeated.
            let mut is_answered = true;
            let claimed = match self.claim_sync(&presence, &in_progress, request).await {
                Ok(Some(claim)) => {
                    request = uuid::Uuid::new_v4();
                    Some(claim)
                }
                Ok(None) => None,
                Err(error) if once && plans.is_empty() => {
                    // A caller that asked for one pass gets the error.
                    failed.get_or_insert(error);
                    break;
                }
                Err(error) => {
                    tracing::warn!("could not claim sync runs: {}", chain(&error));
                    is_answered = false;
                    None
                }
            };
            if let Some(claim) = claimed {
                planned += 1;
                let (syncs, presence) = (self.clone(), presence.clone());
                let guard = in_progress.begin(&claim);
                plans.spawn(async move {
                    let _guard = guard;
                    syncs.plan_claim(&presence, claim).await
                });
                continue;
            }
            if plans.is_empty() && (once || is_answered && presence.is_drained().await) {
                break;
            }
            tokio::select! {
                _ = stop.changed() => {}
                () = self.wakeup.notified() => {}
                Some(done) = plans.join_next() => record(done, &mut failed),
                () = tokio::time::sleep(POLL_EVERY) => {}
            }
        }
        // Scans in progress are cancelled: their runs are only claimed, and another scheduler claims them again.
        plans.shutdown().await;
        if let Some(presence) = Arc::into_inner(presence) {
            presence.end().await;
        }
        failed.map_or(Ok(planned), Err)
    }

    async fn claim_sync(
        &self,
        presence: &Presence,
        in_progress: &PlansInProgress,
        request: uuid::Uuid,
    ) -> Result<Option<Claim>, Error> {
        // A feed that is paused, down or slow must not delay the planning of others.
        let (active, all) = in_progress.count(|feed| !self.feeds.is_waiting(feed));
        if active >= PLANS_MAX || all >= PLANS_IN_ALL_MAX {
            return Ok(None);
        }
        let request_runs = ClaimRuns {
            worker: presence.name().to_owned(),
            worker_id: Some(presence.worker()),
            limit: 1,
            labels: vec![SYNC_LABEL.to_owned()],
            projects: None,
            request_id: Some(request.to_string()),
            lease_secs: Some(limits::LEASE_SECS),
        };
        let mut only = self.sync_projects().await?;
        only.retain(|project| in_progress.count_of_project(project) < PLANS_OF_PROJECT_MAX);
        if only.is_empty() {
            return Ok(None);
        }
        let claims = self
            .engine
            .store()
            .claim_runs(ClaimRuns { projects: Some(only), ..request_runs }, self.now())
            .await?;
        if !claims.is_empty() {
            crate::runs::claimed(&claims);
        }
        Ok(claims.into_iter().next())
    }

    async fn sync_projects(&self) -> Result<Vec<String>, Error> {
        let mut projects: Vec<String> =
            self.engine.store().feeds().await?.into_iter().map(|feed| feed.feed.project_id).collect();
        projects.sort_unstable();
        projects.dedup();
        Ok(projects)
    }

    /// Plans a run or fails it. Returns an error if the database allowed neither.
    async fn plan_claim(&self, presence: &Presence, claim: Claim) -> Result<(), Error> {
        presence.hold(&claim.run_id);
        let holder = Holder { worker: Some(presence.name().to_owned()), epoch: Some(claim.epoch) };
        let done = match self
            .plan_with_retries(&claim, &holder)
            .instrument(of_run!("plan", claim.run_id))
            .await
        {
            Ok(planned) => {
                let feed = feed_of(&claim);
                tracing::info!(run.id = %claim.run_id, "{}", planned.sentence(feed));
                Ok(())
            }
            Err(PlanError::Refused(reason)) => {
                tracing::error!(run.id = %claim.run_id, "sync {} cannot start: {reason}", claim.run_id);
                self.refuse(&claim, &holder, &reason, Some(feed_of(&claim))).await.inspect_err(|error| {
                    tracing::error!(run.id = %claim.run_id, "could not fail the run: {}", chain(error));
                })
            }
            Err(PlanError::Cancelled) => {
                tracing::info!(run.id = %claim.run_id, "sync {} was cancelled during planning", claim.run_id);
                let notes = serde_json::json!({"reason": "cancelled while the feed was counted"});
                self.end_claim(&claim, &holder, (RunState::Cancelled, EndCause::Cancelled), notes).await
            }
            // Without an alert: it would go to the project of the feed, which has nothing to do with this run.
            Err(PlanError::OtherProject(feed)) => {
                let error = format!("feed `{feed}` does not exist");
                tracing::warn!(run.id = %claim.run_id, "run {} names a feed of another project", claim.run_id);
                self.refuse(&claim, &holder, &error, None).await
            }
            // The lease expires by itself, and another scheduler takes over.
            Err(PlanError::Store(error)) => {
                tracing::error!(run.id = %claim.run_id, "could not plan run {}: {}", claim.run_id, chain(&error));
                Err(error)
            }
        };
        presence.release(&claim.run_id);
        done
    }

    /// Fails a run that cannot be planned and raises an alert about the feed `alerted`, in one commit.
    async fn refuse(
        &self,
        claim: &Claim,
        holder: &Holder,
        reason: &str,
        alerted: Option<&str>,
    ) -> Result<(), Error> {
        let alerted = alerted.map(|feed| {
            (feed.to_owned(), format!("sync {} of feed {feed} cannot start: {reason}", claim.run_id))
        });
        let (run, holder, now) = (claim.run_id.clone(), holder.clone(), self.now());
        let notes = serde_json::json!({"error": reason});
        let event = NewEvent::new(Level::Error, format!("the sync cannot start: {reason}"));
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.append_events(&run, std::slice::from_ref(&event), &holder, now).await?;
                    let end = (RunState::Failed, EndCause::Reported);
                    if tx.end_sync_claim(&run, &holder, end, notes, now).await?
                        && let Some((feed, text)) = &alerted
                    {
                        tx.alert_feed(AlertKind::SyncFailed, feed, Some(&run), text, now).await?;
                    }
                    Ok(())
                })
            })
            .await
    }

    /// Ends a run during planning, without an alert.
    async fn end_claim(
        &self,
        claim: &Claim,
        holder: &Holder,
        end: (RunState, EndCause),
        notes: Json,
    ) -> Result<(), Error> {
        let (run, holder, now) = (claim.run_id.clone(), holder.clone(), self.now());
        let ended = self.engine.store().write(move |mut tx| {
            Box::pin(async move { tx.end_sync_claim(&run, &holder, end, notes, now).await })
        });
        ended.await.map(|_| ())
    }

    /// Plans, and restarts after transient database errors: heartbeats keep the lease meanwhile.
    async fn plan_with_retries(&self, claim: &Claim, holder: &Holder) -> Result<PlanOutcome, PlanError> {
        let feed = feed_of(claim);
        loop {
            let planned = match self.until_resumed(feed, claim).await {
                Ok(()) => self.plan(claim, holder).await,
                // The plan itself reports an unknown feed.
                Err(error) if error.refusal_code() == Some(RefusalCode::UnknownFeed) => {
                    self.plan(claim, holder).await
                }
                Err(error) => Err(error.into()),
            };
            match planned {
                Err(PlanError::Store(error)) if error.class() == Class::Transient => {
                    tracing::warn!(run.id = %claim.run_id, "planning restarts: {}", chain(&error));
                    tokio::time::sleep(POLL_EVERY).await;
                }
                done => return done,
            }
        }
    }
}
