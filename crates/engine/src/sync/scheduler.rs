//! The scheduler: claims sync runs, and plans them.

use super::plan::{PlanFault, Planned};
use super::{SYNC_LABEL, Syncs};
use crate::patience::chain;
use crate::presence::{Identity, Presence};
use crate::trace::of_run;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::alert::AlertKind;
use tidemill_core::run::{Claim, EndCause, RunState};
use tidemill_core::{Json, limits};
use tidemill_store::{ClaimRuns, Class, Error, Holder, RefusalCode};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tracing::Instrument as _;

/// Feeds that one scheduler plans at a time.
const PLANS_MAX: usize = 4;
/// Feeds that it plans or waits for because they are down or slow, in all.
const PLANS_IN_ALL_MAX: usize = 64;
/// Time between two looks for runs that nobody told of.
const LOOK: Duration = Duration::from_millis(500);

impl Syncs {
    /// Plans what is queued, until told to stop; once: what is queued now, and then it ends.
    ///
    /// How many runs were planned.
    pub async fn schedule(
        &self,
        identity: Identity,
        once: bool,
        mut stop: watch::Receiver<bool>,
    ) -> Result<u64, Error> {
        let identity = Identity { labels: vec![SYNC_LABEL.to_owned()], ..identity };
        let presence = Arc::new(
            Presence::begin(&self.engine, identity, self.settings.process, self.settings.beat).await?,
        );
        let mut plans: JoinSet<Result<(), Error>> = JoinSet::new();
        let (mut planned, mut failed) = (0, None);
        // Whoever asked for one look hears of what could not be planned; others look again.
        let note = |done: Result<Result<(), Error>, JoinError>, failed: &mut Option<Error>| {
            if let Ok(Err(error)) = done
                && once
            {
                failed.get_or_insert(error);
            }
        };
        // Named anew only after a claim: one whose answer was lost is asked for again, and is the same.
        let mut request = uuid::Uuid::new_v4();
        while !*stop.borrow() {
            while let Some(done) = plans.try_join_next() {
                note(done, &mut failed);
            }
            // A claim that was not answered may have brought a run that nobody told us of: ask before ending.
            let mut is_answered = true;
            let claimed = match self.claim_sync(&presence, plans.len(), request).await {
                Ok(Some(claim)) => {
                    request = uuid::Uuid::new_v4();
                    Some(claim)
                }
                Ok(None) => None,
                Err(error) if once && plans.is_empty() => {
                    // Whoever asked for one look hears that there was none.
                    failed.get_or_insert(error);
                    break;
                }
                Err(error) => {
                    tracing::warn!("could not look for syncs: {}", chain(&error));
                    is_answered = false;
                    None
                }
            };
            if let Some(claim) = claimed {
                planned += 1;
                let (syncs, presence) = (self.clone(), presence.clone());
                plans.spawn(async move { syncs.plan_claim(&presence, claim).await });
                continue;
            }
            if plans.is_empty() && (once || is_answered && presence.is_drained().await) {
                break;
            }
            tokio::select! {
                _ = stop.changed() => {}
                () = self.bell.notified() => {}
                Some(done) = plans.join_next() => note(done, &mut failed),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        // What is being scanned is given up: the run was only claimed, and goes to the next scheduler.
        plans.shutdown().await;
        if let Some(presence) = Arc::into_inner(presence) {
            presence.end().await;
        }
        failed.map_or(Ok(planned), Err)
    }

    async fn claim_sync(
        &self,
        presence: &Presence,
        busy: usize,
        request: uuid::Uuid,
    ) -> Result<Option<Claim>, Error> {
        // A feed that is down or slow does not keep others from being planned.
        if busy.saturating_sub(self.feeds.waited_for()) >= PLANS_MAX || busy >= PLANS_IN_ALL_MAX {
            return Ok(None);
        }
        let ask = ClaimRuns {
            worker: presence.name().to_owned(),
            worker_id: Some(presence.worker()),
            limit: 1,
            labels: vec![SYNC_LABEL.to_owned()],
            projects: None,
            request_id: Some(request.to_string()),
            lease_secs: Some(limits::LEASE_SECS),
        };
        let only = self.sync_projects().await?;
        if only.is_empty() {
            return Ok(None);
        }
        let claims =
            self.engine.store().claim_runs(ClaimRuns { projects: Some(only), ..ask }, self.now()).await?;
        if !claims.is_empty() {
            crate::runs::claimed(&claims);
        }
        Ok(claims.into_iter().next())
    }

    /// The projects that have feeds.
    async fn sync_projects(&self) -> Result<Vec<String>, Error> {
        let mut projects: Vec<String> =
            self.engine.store().feeds().await?.into_iter().map(|feed| feed.feed.project_id).collect();
        projects.sort_unstable();
        projects.dedup();
        Ok(projects)
    }

    /// Plans a run, or fails it; an error where the database let us do neither.
    async fn plan_claim(&self, presence: &Presence, claim: Claim) -> Result<(), Error> {
        presence.hold(&claim.run_id);
        let holder = Holder { worker: Some(presence.name().to_owned()), epoch: Some(claim.epoch) };
        let done = match self.plan_patiently(&claim, &holder).instrument(of_run!("plan", claim.run_id)).await
        {
            Ok(planned) => {
                let feed = claim.metadata.get("feed").and_then(Json::as_str).unwrap_or_default();
                tracing::info!(run.id = %claim.run_id, "{}", planned.sentence(feed));
                Ok(())
            }
            Err(PlanFault::Refused(reason)) => {
                tracing::error!(run.id = %claim.run_id, "sync {} cannot begin: {reason}", claim.run_id);
                self.refuse(&claim, &holder, &reason).await.inspect_err(|error| {
                    tracing::error!(run.id = %claim.run_id, "could not fail the run: {}", chain(error));
                })
            }
            Err(PlanFault::Cancelled) => {
                tracing::info!(run.id = %claim.run_id, "sync {} was cancelled while it was planned", claim.run_id);
                self.cancel_claim(&claim, &holder).await
            }
            // The lease ends by itself, and another scheduler goes on.
            Err(PlanFault::Store(error)) => {
                tracing::error!(run.id = %claim.run_id, "could not plan {}: {}", claim.run_id, chain(&error));
                Err(error)
            }
        };
        presence.release(&claim.run_id);
        done
    }

    /// Fails a run that cannot be planned, and tells people, in one commit.
    async fn refuse(&self, claim: &Claim, holder: &Holder, reason: &str) -> Result<(), Error> {
        let feed = claim.metadata.get("feed").and_then(Json::as_str).unwrap_or_default().to_owned();
        let told = format!("sync {} of feed {feed} cannot begin: {reason}", claim.run_id);
        let (run, holder, now) = (claim.run_id.clone(), holder.clone(), self.now());
        let notes = serde_json::json!({"error": reason});
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let end = (RunState::Failed, EndCause::Reported);
                    if tx.end_sync_claim(&run, &holder, end, notes, now).await? {
                        tx.alert_feed(AlertKind::SyncFailed, &feed, Some(&run), &told, now).await?;
                    }
                    Ok(())
                })
            })
            .await
    }

    /// Ends a run that somebody cancelled while it was planned.
    async fn cancel_claim(&self, claim: &Claim, holder: &Holder) -> Result<(), Error> {
        let (run, holder, now) = (claim.run_id.clone(), holder.clone(), self.now());
        let notes = serde_json::json!({"reason": "cancelled while the feed was counted"});
        let end = (RunState::Cancelled, EndCause::Cancelled);
        let ended = self.engine.store().write(move |mut tx| {
            Box::pin(async move { tx.end_sync_claim(&run, &holder, end, notes, now).await })
        });
        ended.await.map(|_| ())
    }

    /// Plans, and begins again where the database went away meanwhile: the lease is ours for as long as we beat.
    async fn plan_patiently(&self, claim: &Claim, holder: &Holder) -> Result<Planned, PlanFault> {
        let feed = claim.metadata.get("feed").and_then(Json::as_str).unwrap_or_default();
        loop {
            let planned = match self.until_resumed(feed, &claim.run_id).await {
                Ok(()) => self.plan(claim, holder).await,
                // A feed that is not there is told of by the plan.
                Err(error) if error.refusal_code() == Some(RefusalCode::UnknownFeed) => {
                    self.plan(claim, holder).await
                }
                Err(error) => Err(error.into()),
            };
            match planned {
                Err(PlanFault::Store(error)) if error.class() == Class::Transient => {
                    tracing::warn!(run.id = %claim.run_id, "planning begins again: {}", chain(&error));
                    tokio::time::sleep(LOOK).await;
                }
                done => return done,
            }
        }
    }
}
