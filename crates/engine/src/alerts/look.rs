//! What people should know: ends of runs that were noted, and conditions that only a look can find.

use crate::Engine;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tidemill_core::alert::{AlertKind, Followed, feed_subject, of_run, subject_of_run};
use tidemill_core::limits::ATTEMPTS_MAX;
use tidemill_core::run::Run;
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_store::{DeadGroup, Error, NewAlert, Tx};

/// Notes that are read in one transaction.
const NOTICES_MAX: usize = 200;
/// Letters of a run's own error that are told.
const ERROR_LETTERS_MAX: usize = 200;

impl Engine {
    /// Makes alerts of the ends of runs that were noted; how many ends there were.
    pub(super) async fn hear_of_runs(&self) -> Result<usize, Error> {
        let mut heard = 0;
        loop {
            let now = self.clock().now();
            let step = self
                .store()
                .write(move |mut tx| Box::pin(async move { hear(&mut tx, NOTICES_MAX, now).await }));
            let taken = step.await?;
            heard += taken;
            if taken < NOTICES_MAX {
                return Ok(heard);
            }
        }
    }

    /// Looks for what no commit tells: what waits too long or too deep, what is stuck, what is given up.
    pub(super) async fn look_around(&self) -> Result<(), Error> {
        let (store, settings) = (self.store(), self.alerts());
        let now = store.now(self.clock().now()).await?;
        let mut seen = vec![
            (AlertKind::QueueDeep, self.deep().await?),
            (AlertKind::WatermarkOld, self.old_watermarks(now).await?),
        ];
        let stuck = match ago(now, settings.stuck_after) {
            Some(before) => self.stuck(before).await?,
            None => Vec::new(),
        };
        seen.push((AlertKind::PartitionStuck, stuck));
        let dead = store.dead_groups().await?;
        let feeds: BTreeSet<String> = store.feeds().await?.into_iter().map(|feed| feed.feed.feed).collect();
        store
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.lock_alerts().await?;
                    for (kind, alerts) in seen {
                        settle(&mut tx, kind, &alerts, now).await?;
                    }
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

    async fn stuck(&self, before: Timestamp) -> Result<Vec<NewAlert>, Error> {
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

/// Reads notes and makes alerts of them, in one commit: a note is there until its alert is.
async fn hear(tx: &mut Tx<'_>, limit: usize, now: Option<Timestamp>) -> Result<usize, Error> {
    let taken = tx.take_notices(limit).await?;
    for id in &taken {
        let Some(run) = tx.run(id).await? else { continue };
        let followed = if tx.successor(id).await?.is_some() { Followed::Yes } else { Followed::No };
        let Some(kind) = of_run(&run, followed) else { continue };
        let subject = subject_of_run(&run, &first_try(tx, &run).await?);
        if kind == AlertKind::RunRecovered {
            let mut was_bad = false;
            for bad in [AlertKind::RunFailed, AlertKind::RunStalled] {
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
        let Some(found) = tx.run(&id).await? else { break };
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
        AlertKind::RunStalled => format!("run {id} in {env} lost its worker and was ended as {cause}"),
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
