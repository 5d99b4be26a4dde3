//! What people should know: ends of runs that were noted, and conditions that only a look can find.

use crate::Engine;
use crate::patience::chain;
use crate::upkeep::part;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemill_core::alert::{AlertKind, Followed, feed_subject, of_run, stalled_subject, subject_of_run};
use tidemill_core::limits::ATTEMPTS_MAX;
use tidemill_core::run::{Run, RunState};
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_store::{Class, DeadGroup, Error, NewAlert, Tx};

/// Notes that are read in one transaction.
const NOTICES_MAX: usize = 200;
/// Letters of a run's own error that are told.
const ERROR_LETTERS_MAX: usize = 200;

impl Engine {
    /// Makes alerts of the ends of runs that were noted; how many ends there were.
    ///
    /// A run that cannot be read costs its own note: the note is removed, and an alert says so.
    pub(crate) async fn hear_of_runs(&self) -> Result<usize, Error> {
        let mut heard = 0;
        loop {
            let taken = match self.hear_some(NOTICES_MAX, String::new(), &Arc::default()).await {
                Ok(taken) => taken,
                Err(error) if error.class() == Class::Permanent => self.hear_one_by_one().await?,
                Err(error) => return Err(error),
            };
            heard += taken;
            if taken < NOTICES_MAX {
                return Ok(heard);
            }
        }
    }

    async fn hear_some(&self, limit: usize, after: String, at_hand: &AtHand) -> Result<usize, Error> {
        let (now, at_hand) = (self.clock().now(), at_hand.clone());
        self.store()
            .write(move |mut tx| Box::pin(async move { hear(&mut tx, limit, &after, &at_hand, now).await }))
            .await
    }

    /// Reads as many notes as one batch has, each in a transaction of its own; the first error is returned at the end.
    async fn hear_one_by_one(&self) -> Result<usize, Error> {
        let (mut after, mut failure) = (String::new(), None);
        for heard in 0..NOTICES_MAX {
            let at_hand = AtHand::default();
            let Err(error) = (match self.hear_some(1, after.clone(), &at_hand).await {
                Ok(0) => return failure.map_or(Ok(heard), Err),
                heard => heard,
            }) else {
                continue;
            };
            let run = at_hand.lock().ok().and_then(|mut run| run.take());
            let Some(run) = run else { return Err(error) };
            let error = match error.class() {
                Class::Permanent => self.set_notice_aside(run.clone(), &error).await.err(),
                Class::Transient => Some(error),
            };
            if error.is_some() {
                failure = failure.or(error);
                after = run;
            }
        }
        failure.map_or(Ok(NOTICES_MAX), Err)
    }

    /// Removes the note of a run that cannot be read, and tells people.
    async fn set_notice_aside(&self, run: String, error: &Error) -> Result<(), Error> {
        let (now, error) = (self.clock().now(), chain(error));
        tracing::error!(run.id = %run, "run {run} cannot be read, and its end raises no alert of its own: {error}");
        let message = format!("run {run} ended, and its row cannot be read: {error}");
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

    /// Looks for what no commit tells: what waits too long or too deep, what is stuck, what is given up. A look that
    /// fails does not keep the others from being taken; the first error is returned at the end.
    pub(crate) async fn look_around(&self) -> Result<(), Error> {
        let now = self.store().now(self.clock().now()).await?;
        let mut failure = None;
        part(&mut failure, self.look(AlertKind::QueueDeep, self.deep(), now)).await;
        part(&mut failure, self.look(AlertKind::WatermarkOld, self.old_watermarks(now), now)).await;
        part(&mut failure, self.look(AlertKind::PartitionStuck, self.stuck(now), now)).await;
        part(&mut failure, self.look_for_dead(now)).await;
        part(&mut failure, self.look_at_stalled(now)).await;
        failure.map_or(Ok(()), Err)
    }

    /// Makes the alerts of one kind those that `seen` finds.
    async fn look(
        &self,
        kind: AlertKind,
        seen: impl Future<Output = Result<Vec<NewAlert>, Error>>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let seen = seen.await?;
        self.store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.lock_alerts().await?;
                    settle(&mut tx, kind, &seen, now).await
                })
            })
            .await
    }

    async fn look_at_stalled(&self, now: Timestamp) -> Result<(), Error> {
        self.store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.lock_alerts().await?;
                    resolve_stalled(&mut tx, now).await
                })
            })
            .await
    }

    async fn look_for_dead(&self, now: Timestamp) -> Result<(), Error> {
        let dead = self.store().dead_groups().await?;
        let feeds = self.store().feeds().await?.into_iter().map(|feed| feed.feed.feed);
        let feeds: BTreeSet<String> = feeds.collect();
        self.store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.lock_alerts().await?;
                    tell_of_dead(&mut tx, &dead, &feeds, now).await
                })
            })
            .await
    }

    async fn deep(&self) -> Result<Vec<NewAlert>, Error> {
        let most = i64::from(self.alerts().queue_depth);
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut places: BTreeMap<String, (Option<String>, i64)> = BTreeMap::new();
        for place in self.store().waiting(most + 1).await? {
            let known = places.entry(place.subject).or_insert((place.project_id, 0));
            known.1 += place.waiting;
        }
        let deep = places.into_iter().filter(|(_, (_, waiting))| *waiting > most);
        Ok(deep
            .map(|(subject, (project, _))| {
                let what = match (&project, subject.strip_prefix("queue:")) {
                    (Some(project), _) => format!("runs of project {project} wait for a worker"),
                    (None, Some(queue)) => format!("messages are in queue {queue}"),
                    (None, None) => format!("wait in {subject}"),
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
            (mark < before).then(|| {
                let name = feed.feed.feed;
                let told = mark.format("%Y-%m-%d %H:%M UTC");
                let message = format!("the watermark of feed {name} has not moved past {told}");
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

/// The moment so long ago; nothing where no time at all means never.
fn ago(now: Timestamp, span: Duration) -> Option<Timestamp> {
    let span = chrono::TimeDelta::from_std(span).ok().filter(|span| !span.is_zero())?;
    now.checked_sub_signed(span)
}

/// Makes the alerts of one kind those that were seen: what is new is told, what is over is resolved.
async fn settle(tx: &mut Tx<'_>, kind: AlertKind, seen: &[NewAlert], now: Timestamp) -> Result<(), Error> {
    for alert in seen {
        tx.observe_alert(alert, Some(now)).await?;
    }
    for lasting in tx.lasting_alerts(kind).await? {
        if !seen.iter().any(|alert| alert.subject == lasting.subject) {
            tx.resolve_alert(kind, &lasting.subject, Some(now)).await?;
        }
    }
    Ok(())
}

/// Tells of dead letters that came since the last time; where none is left, it is over.
async fn tell_of_dead(
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

/// Resolves the alerts of stalled runs that gave a sign of life, ended or are gone.
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

/// The run whose note is being read, for a caller that has to set it aside.
type AtHand = Arc<Mutex<Option<String>>>;

/// Reads notes and makes alerts of them, in one commit: a note is there until its alert is.
async fn hear(
    tx: &mut Tx<'_>,
    limit: usize,
    after: &str,
    at_hand: &AtHand,
    now: Option<Timestamp>,
) -> Result<usize, Error> {
    let taken = tx.take_notices(limit, after).await?;
    for text in &taken {
        if let Ok(mut at_hand) = at_hand.lock() {
            *at_hand = Some(text.clone());
        }
        let id = &RunId::from_database(text.clone());
        let Some(run) = tx.run(id).await? else { continue };
        let followed = if tx.successor(id).await?.is_some() { Followed::Yes } else { Followed::No };
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
        let mut alert = NewAlert::new(kind, subject, told(kind, &run));
        (alert.project_id, alert.run_id) = (Some(run.project_id), Some(run.run_id));
        tx.raise_alert(&alert, now).await?;
    }
    Ok(taken.len())
}

/// The first try of a run's request that is still kept.
async fn first_try(tx: &mut Tx<'_>, run: &Run) -> Result<RunId, Error> {
    let mut first = run.run_id.clone();
    let mut before = run.retry_of.clone();
    // A request has so many tries at most, and as many again for the workers that it lost.
    for _ in 0..2 * ATTEMPTS_MAX {
        let Some(id) = before.take() else { break };
        let Some(found) = tx.readable_run(&id).await? else { break };
        before = found.retry_of;
        first = id;
    }
    Ok(first)
}

fn told(kind: AlertKind, run: &Run) -> String {
    let (id, env) = (&run.run_id, &run.env_id);
    let cause = run.end_cause.map_or("unknown", |cause| cause.as_str());
    match kind {
        AlertKind::RunRecovered => format!("run {id} in {env} succeeded, after tries that did not"),
        AlertKind::RunLost => format!("run {id} in {env} lost its worker and was ended as {cause}"),
        AlertKind::RunStalled => {
            let worker = run.claimed_by.as_deref().unwrap_or("unknown");
            format!(
                "run {id} in {env} is stalled: its worker {worker} gives no sign of life and has promised none"
            )
        }
        AlertKind::RunFailed
        | AlertKind::RunSkipped
        | AlertKind::SyncFailed
        | AlertKind::ConsolidationFailed
        | AlertKind::SyncRecovered
        | AlertKind::DeleteLimit
        | AlertKind::WatermarkCopy
        | AlertKind::WatermarkOld
        | AlertKind::PartitionStuck
        | AlertKind::DeadLetter
        | AlertKind::QueueDeep
        | AlertKind::Test => {
            let error = run.metadata.get("error").and_then(Json::as_str).unwrap_or_default();
            let error: String =
                error.lines().next().unwrap_or_default().chars().take(ERROR_LETTERS_MAX).collect();
            let error = if error.is_empty() { error } else { format!(": {error}") };
            format!("run {id} in {env} failed ({cause}){error}")
        }
    }
}
