//! Detection of alerts: recorded ends of runs, and conditions that a periodic check finds.

use crate::Engine;
use crate::retry_policy::chain;
use crate::upkeep::part;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemill_core::alert::{AlertKind, HasSuccessor, feed_subject, of_run, stalled_subject, subject_of_run};
use tidemill_core::feed::CursorUnit;
use tidemill_core::limits::ATTEMPTS_MAX;
use tidemill_core::run::{Run, RunState};
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_store::{Class, DeadGroup, Error, NewAlert, Tx};

/// Notices that are read in one transaction.
const NOTICES_MAX: usize = 200;
/// Longest part of a run's own error in an alert, in characters.
const ERROR_CHARS_MAX: usize = 200;

impl Engine {
    /// Raises alerts for the recorded ends of runs. Returns the number of notices.
    ///
    /// If a run cannot be read, its notice is removed and an alert reports it.
    pub(crate) async fn raise_run_alerts(&self) -> Result<usize, Error> {
        let mut raised = 0;
        loop {
            let taken = match self.raise_batch(NOTICES_MAX, String::new(), &Arc::default()).await {
                Ok(taken) => taken,
                Err(error) if error.class() == Class::Permanent => self.raise_one_by_one().await?,
                Err(error) => return Err(error),
            };
            raised += taken;
            if taken < NOTICES_MAX {
                return Ok(raised);
            }
        }
    }

    async fn raise_batch(&self, limit: usize, after: String, current: &Current) -> Result<usize, Error> {
        let (now, current) = (self.clock().now(), current.clone());
        self.store()
            .write(move |mut tx| Box::pin(async move { raise(&mut tx, limit, &after, &current, now).await }))
            .await
    }

    /// Reads up to one batch of notices, each in a transaction of its own. The first error is returned at the end.
    async fn raise_one_by_one(&self) -> Result<usize, Error> {
        let (mut after, mut failure) = (String::new(), None);
        for raised in 0..NOTICES_MAX {
            let current = Current::default();
            let Err(error) = (match self.raise_batch(1, after.clone(), &current).await {
                Ok(0) => return failure.map_or(Ok(raised), Err),
                raised => raised,
            }) else {
                continue;
            };
            let run = current.lock().ok().and_then(|mut run| run.take());
            let Some(run) = run else { return Err(error) };
            let error = match error.class() {
                Class::Permanent => self.discard_notice(run.clone(), &error).await.err(),
                Class::Transient => Some(error),
            };
            if error.is_some() {
                failure = failure.or(error);
                after = run;
            }
        }
        failure.map_or(Ok(NOTICES_MAX), Err)
    }

    /// Removes the notice of a run that cannot be read, and raises an alert.
    async fn discard_notice(&self, run: String, error: &Error) -> Result<(), Error> {
        let (now, error) = (self.clock().now(), chain(error));
        tracing::error!(run.id = %run, "run {run} cannot be read, so its end raises no specific alert: {error}");
        let message = format!("run {run} ended, but its row cannot be read: {error}");
        let mut alert = NewAlert::new(AlertKind::RunFailed, format!("run:{run}"), message);
        alert.run_id = run.parse().ok();
        self.store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.remove_notice(&run).await?;
                    tx.raise_alert(&alert, now).await
                })
            })
            .await
    }

    /// Checks for conditions that no commit reports: backlogs, old watermarks, stuck partitions, dead letters. A
    /// check that fails does not stop the others; the first error is returned at the end.
    pub(crate) async fn check_conditions(&self) -> Result<(), Error> {
        let now = self.store().now(self.clock().now()).await?;
        let mut failure = None;
        part(&mut failure, self.update_kind(AlertKind::QueueDeep, self.deep_backlogs(), now)).await;
        part(&mut failure, self.update_kind(AlertKind::WatermarkOld, self.old_watermarks(now), now)).await;
        part(&mut failure, self.update_kind(AlertKind::PartitionStuck, self.stuck(now), now)).await;
        part(&mut failure, self.check_dead_letters(now)).await;
        part(&mut failure, self.check_stalled(now)).await;
        failure.map_or(Ok(()), Err)
    }

    /// Replaces the open alerts of one kind by those that `observed` finds.
    async fn update_kind(
        &self,
        kind: AlertKind,
        observed: impl Future<Output = Result<Vec<NewAlert>, Error>>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let observed = observed.await?;
        self.store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.lock_alerts().await?;
                    update_alerts(&mut tx, kind, &observed, now).await
                })
            })
            .await
    }

    async fn check_stalled(&self, now: Timestamp) -> Result<(), Error> {
        self.store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.lock_alerts().await?;
                    resolve_stalled(&mut tx, now).await
                })
            })
            .await
    }

    async fn check_dead_letters(&self, now: Timestamp) -> Result<(), Error> {
        let dead = self.store().dead_groups().await?;
        let feeds = self.store().feeds().await?.into_iter().map(|feed| feed.feed.feed);
        let feeds: BTreeSet<String> = feeds.collect();
        self.store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.lock_alerts().await?;
                    raise_dead_letters(&mut tx, &dead, &feeds, now).await
                })
            })
            .await
    }

    async fn deep_backlogs(&self) -> Result<Vec<NewAlert>, Error> {
        let most = i64::from(self.alerts().queue_depth);
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut backlogs: BTreeMap<String, (Option<String>, i64)> = BTreeMap::new();
        for backlog in self.store().backlogs(most + 1).await? {
            let known = backlogs.entry(backlog.subject).or_insert((backlog.project_id, 0));
            known.1 += backlog.waiting;
        }
        let deep = backlogs.into_iter().filter(|(_, (_, waiting))| *waiting > most);
        Ok(deep
            .map(|(subject, (project, _))| {
                let what = match (&project, subject.strip_prefix("queue:")) {
                    (Some(project), _) => format!("runs of project {project} wait for a worker"),
                    (None, Some(queue)) => format!("messages are in queue {queue}"),
                    (None, None) => format!("items wait in {subject}"),
                };
                let message = format!("more than {most} {what}");
                NewAlert { project_id: project, ..NewAlert::new(AlertKind::QueueDeep, subject, message) }
            })
            .collect())
    }

    async fn old_watermarks(&self, now: Timestamp) -> Result<Vec<NewAlert>, Error> {
        let Some(before) = ago(now, self.alerts().watermark_after) else { return Ok(Vec::new()) };
        let feeds = self.store().feeds().await?;
        let old = feeds.into_iter().filter_map(|feed| {
            let mark = feed.watermark.as_ref()?.last_updated_at;
            // A watermark that holds a number has no age.
            (mark < before && feed.feed.cursor_unit() == CursorUnit::Time).then(|| {
                let name = feed.feed.feed;
                let time = mark.format("%Y-%m-%d %H:%M UTC");
                let message = format!("the watermark of feed {name} has not moved past {time}");
                let mut alert = NewAlert::new(AlertKind::WatermarkOld, feed_subject(&name), message);
                (alert.project_id, alert.feed) = (Some(feed.feed.project_id), Some(name));
                alert
            })
        });
        Ok(old.collect())
    }

    async fn stuck(&self, now: Timestamp) -> Result<Vec<NewAlert>, Error> {
        let Some(before) = ago(now, self.alerts().stuck_after) else { return Ok(Vec::new()) };
        let stuck = self.store().stuck_syncs(before).await?;
        Ok(stuck
            .into_iter()
            .map(|sync| {
                let since = sync.since.format("%Y-%m-%d %H:%M UTC");
                let count = sync.stuck;
                let verb = if count == 1 { "partition of feed" } else { "partitions of feed" };
                let message = format!("{count} {verb} {} made no progress since {since}", sync.feed);
                let mut alert = NewAlert::new(AlertKind::PartitionStuck, feed_subject(&sync.feed), message);
                (alert.feed, alert.run_id) = (Some(sync.feed), Some(sync.run_id));
                alert
            })
            .collect())
    }
}

/// Returns the time `span` ago; `None` if `span` is zero, which disables the check.
fn ago(now: Timestamp, span: Duration) -> Option<Timestamp> {
    let span = chrono::TimeDelta::from_std(span).ok().filter(|span| !span.is_zero())?;
    now.checked_sub_signed(span)
}

/// Raises the alerts in `observed` and resolves all other open alerts of this kind.
async fn update_alerts(
    tx: &mut Tx<'_>,
    kind: AlertKind,
    observed: &[NewAlert],
    now: Timestamp,
) -> Result<(), Error> {
    for alert in observed {
        tx.observe_alert(alert, Some(now)).await?;
    }
    for lasting in tx.lasting_alerts(kind).await? {
        if !observed.iter().any(|alert| alert.subject == lasting.subject) {
            tx.resolve_alert(kind, &lasting.subject, Some(now)).await?;
        }
    }
    Ok(())
}

/// Raises alerts for dead letters that arrived since the last alert, and resolves those of empty groups.
async fn raise_dead_letters(
    tx: &mut Tx<'_>,
    dead: &[DeadGroup],
    feeds: &BTreeSet<String>,
    now: Timestamp,
) -> Result<(), Error> {
    let kind = AlertKind::DeadLetter;
    let lasting = tx.lasting_alerts(kind).await?;
    let mut subjects = BTreeSet::new();
    for group in dead {
        let subject = format!("queue:{}/{}", group.queue, group.group);
        let known = lasting.iter().find(|alert| alert.subject == subject);
        let since = known.map_or(Timestamp::UNIX_EPOCH, |alert| alert.last_at);
        let fresh = tx.dead_since(&group.queue, &group.group, since).await?;
        if fresh > 0 {
            let (verb, count) =
                if group.dead == 1 { ("is", "a dead letter") } else { ("are", "dead letters") };
            let shown = if group.dead == 1 { count.to_owned() } else { format!("{} {count}", group.dead) };
            let message = format!("there {verb} {shown} of {} in queue {}", group.group, group.queue);
            let mut alert = NewAlert::new(kind, subject.as_str(), message);
            alert.feed = feeds.contains(&group.group).then(|| group.group.clone());
            alert.times = i32::try_from(fresh).unwrap_or(i32::MAX);
            tx.raise_alert(&alert, Some(group.last_at)).await?;
        }
        subjects.insert(subject);
    }
    for alert in lasting.iter().filter(|alert| !subjects.contains(&alert.subject)) {
        tx.resolve_alert(kind, &alert.subject, Some(now)).await?;
    }
    Ok(())
}

/// Resolves alerts of stalled runs that sent a heartbeat, ended, or were removed.
async fn resolve_stalled(tx: &mut Tx<'_>, now: Timestamp) -> Result<(), Error> {
    for alert in tx.lasting_alerts(AlertKind::RunStalled).await? {
        let run = match &alert.run_id {
            Some(id) => tx.run(id).await?,
            None => None,
        };
        if !run.is_some_and(|run| run.status == RunState::Running && run.stalled_at.is_some()) {
            tx.resolve_alert(AlertKind::RunStalled, &alert.subject, Some(now)).await?;
        }
    }
    Ok(())
}

/// The run whose notice is being read, for a caller that has to skip it after an error.
type Current = Arc<Mutex<Option<String>>>;

/// Reads notices and raises their alerts in one commit.
async fn raise(
    tx: &mut Tx<'_>,
    limit: usize,
    after: &str,
    current: &Current,
    now: Option<Timestamp>,
) -> Result<usize, Error> {
    let taken = tx.take_notices(limit, after).await?;
    for text in &taken {
        if let Ok(mut current) = current.lock() {
            *current = Some(text.clone());
        }
        let id = &RunId::from_database(text.clone());
        let Some(run) = tx.run(id).await? else { continue };
        let followed = if tx.successor(id).await?.is_some() { HasSuccessor::Yes } else { HasSuccessor::No };
        if run.stalled_at.is_none() || run.status.is_terminal() {
            tx.resolve_alert(AlertKind::RunStalled, &stalled_subject(id), now).await?;
        }
        let Some(kind) = of_run(&run, followed) else { continue };
        let subject = if kind == AlertKind::RunStalled {
            stalled_subject(id)
        } else {
            subject_of_run(&run, &first_try(tx, &run).await?)
        };
        if kind == AlertKind::RunRecovered {
            let mut was_bad = false;
            for bad in [AlertKind::RunFailed, AlertKind::RunLost] {
                was_bad |= tx.resolve_alert(bad, &subject, now).await?;
            }
            if !was_bad {
                continue;
            }
        }
        let mut alert = NewAlert::new(kind, subject, run_message(kind, &run));
        (alert.project_id, alert.run_id) = (Some(run.project_id), Some(run.run_id));
        tx.raise_alert(&alert, now).await?;
    }
    Ok(taken.len())
}

/// Returns the first attempt of a run's request that still exists.
async fn first_try(tx: &mut Tx<'_>, run: &Run) -> Result<RunId, Error> {
    let mut first = run.run_id.clone();
    let mut before = run.retry_of.clone();
    // A request has at most this many attempts, and as many again for lost workers.
    for _ in 0..2 * ATTEMPTS_MAX {
        let Some(id) = before.take() else { break };
        let Some(found) = tx.readable_run(&id).await? else { break };
        before = found.retry_of;
        first = id;
    }
    Ok(first)
}

fn run_message(kind: AlertKind, run: &Run) -> String {
    let (id, env) = (&run.run_id, &run.env_id);
    let cause = run.end_cause.map_or("unknown", |cause| cause.as_str());
    match kind {
        AlertKind::RunRecovered => format!("run {id} in {env} succeeded after failed attempts"),
        AlertKind::RunLost => format!("run {id} in {env} lost its worker and was ended as {cause}"),
        AlertKind::RunStalled => {
            let worker = run.claimed_by.as_deref().unwrap_or("unknown");
            format!(
                "run {id} in {env} is stalled: worker {worker} sends no heartbeat and the run has no lease"
            )
        }
        AlertKind::RunFailed
        | AlertKind::RunSkipped
        | AlertKind::SyncFailed
        | AlertKind::ConsolidationFailed
        | AlertKind::SyncRecovered
        | AlertKind::DeleteLimit
        | AlertKind::AbsenceUnproven
        | AlertKind::RecordsRejected
        | AlertKind::LedgerDifference
        | AlertKind::WatermarkCopy
        | AlertKind::WatermarkOld
        | AlertKind::PartitionStuck
        | AlertKind::DeadLetter
        | AlertKind::QueueDeep
        | AlertKind::Test => {
            let error = run.metadata.get("error").and_then(Json::as_str).unwrap_or_default();
            let error: String =
                error.lines().next().unwrap_or_default().chars().take(ERROR_CHARS_MAX).collect();
            let error = if error.is_empty() { error } else { format!(": {error}") };
            format!("run {id} in {env} failed ({cause}){error}")
        }
    }
}
