//! Schedules: stored, paused, and fired once across all processes.

use crate::Engine;
use crate::retry_policy::chain;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidemill_core::access::NewAuditRecord;
use tidemill_core::alert::{AlertKind, schedule_subject};
use tidemill_core::audit::ActorRole;
use tidemill_core::run::QueueRun;
use tidemill_core::schedule::{self, Decision, MissedPolicy, OverlapPolicy, Pattern, PreviousRun, Schedule};
use tidemill_core::{RunId, Timestamp, json, request};
use tidemill_store::{Class, Error, FireRecord, NewAlert, Refusal, RefusalCode, Tx};

/// A schedule to create or change.
#[derive(Debug, Clone)]
pub struct NewSchedule {
    pub name: String,
    pub cron: String,
    /// IANA time zone of the cron expression.
    pub time_zone: String,
    /// The run that each fire queues.
    pub request: QueueRun,
    pub missed: MissedPolicy,
    pub overlap: OverlapPolicy,
}

impl Engine {
    /// Creates a schedule or changes the one with this name. Its first fire is after the current time.
    pub async fn put_schedule(&self, wanted: NewSchedule) -> Result<Schedule, Error> {
        request::check_name("schedule", &wanted.name)?;
        wanted.request.check()?;
        let pattern = parse(&wanted.cron, &wanted.time_zone)?;
        self.check_environment(&wanted.request).await?;
        let now = self.store().now(self.clock().now()).await?;
        let stored = Schedule {
            schedule_id: wanted.name,
            project_id: wanted.request.project.clone(),
            cron: wanted.cron,
            time_zone: wanted.time_zone,
            request: wanted.request.normalized(),
            missed: wanted.missed,
            overlap: wanted.overlap,
            paused_at: None,
            paused_note: None,
            next_fire_at: pattern.next_after(now),
            last_fire_at: None,
            last_run_id: None,
            created_at: now,
        };
        self.store().put_schedule(stored.clone()).await?;
        // An existing schedule keeps its pause and its history.
        let found = self.store().schedules(Some(stored.schedule_id.clone())).await?;
        Ok(found.into_iter().next().unwrap_or(stored))
    }

    /// Refuses an unknown project or environment, which otherwise would only show up at the first fire.
    async fn check_environment(&self, request: &QueueRun) -> Result<(), Error> {
        let projects = self.store().projects().await?;
        let Some(project) = projects.iter().find(|project| project.project_id == request.project) else {
            return Err(Error::unknown_project(&request.project, Some(&request.env)));
        };
        if project.environments.contains(&request.env) {
            return Ok(());
        }
        Err(Error::Refused(Refusal {
            code: RefusalCode::UnknownEnvironment,
            message: format!("project `{}` has no environment `{}`", request.project, request.env),
            hint: Some(format!("use one of: {}", project.environments.join(", "))),
        }))
    }

    /// Pauses a schedule, with a note for other operators.
    pub async fn pause_schedule(&self, name: &str, note: Option<String>) -> Result<(), Error> {
        let now = self.store().now(self.clock().now()).await?;
        self.store().pause_schedule(name.to_owned(), Some(now), note, None).await
    }

    /// Resumes a schedule from its next fire time. Fires missed during the pause are not made up for.
    pub async fn resume_schedule(&self, name: &str) -> Result<Option<Timestamp>, Error> {
        let found = self.store().schedules(Some(name.to_owned())).await?;
        let now = self.store().now(self.clock().now()).await?;
        let next = match found.first() {
            Some(schedule) => parse(&schedule.cron, &schedule.time_zone)?.next_after(now),
            None => None,
        };
        self.store().pause_schedule(name.to_owned(), None, None, next).await?;
        Ok(next)
    }

    /// Fires all due schedules and returns the decisions. Several processes may do this at the same time.
    ///
    /// A schedule that cannot fire does not stop the others. After a permanent error it is paused with the reason as
    /// its note; after a transient error it is skipped until the next call. The first error is returned at the end.
    pub async fn fire_due(&self) -> Result<Vec<FireRecord>, Error> {
        let (mut fired, mut skipped, mut failure) = (Vec::new(), Vec::new(), None);
        loop {
            let (now, clock, except) = (self.clock.now(), self.clock.clone(), skipped.clone());
            let current = Arc::new(Mutex::new(None));
            let current_in_step = current.clone();
            let step = self.store().write(move |mut tx| {
                Box::pin(async move { fire_one(&mut tx, now, &clock, &except, &current_in_step).await })
            });
            let step = tokio::time::timeout(FIRE_MAX, step).await;
            match step.unwrap_or_else(|_| Err(Error::unanswered("fire a schedule"))) {
                Ok(Some(more)) => fired.extend(more),
                Ok(None) => break,
                Err(error) => {
                    let name = current.lock().ok().and_then(|mut name| name.take());
                    let Some(name) = name else {
                        failure.get_or_insert(error);
                        break;
                    };
                    let error = match error.class() {
                        Class::Permanent => self.pause_broken(&name, &error).await.err(),
                        Class::Transient => Some(error),
                    };
                    failure = failure.or(error);
                    skipped.push(name);
                }
            }
        }
        if fired.iter().any(|fire| fire.run_id.is_some()) {
            self.store.wake_soon();
        }
        failure.map_or(Ok(fired), Err)
    }

    /// Pauses a schedule that cannot fire, with the error as its note.
    async fn pause_broken(&self, name: &str, error: &Error) -> Result<(), Error> {
        let reason: String = chain(error).chars().filter(|char| *char != '\0').take(NOTE_CHARS_MAX).collect();
        tracing::error!(schedule.id = %name, "schedule {name} cannot fire and is paused: {reason}");
        self.pause_schedule(name, Some(format!("could not fire: {reason}"))).await
    }
}

/// Time limit for one schedule: a lock held by another session must not delay the others.
const FIRE_MAX: Duration = Duration::from_secs(20);
/// Longest error in the note of a paused schedule, in characters.
const NOTE_CHARS_MAX: usize = 500;

/// Fires one due schedule: its fires, its runs and its next fire time are one commit.
async fn fire_one(
    tx: &mut Tx<'_>,
    now: Option<Timestamp>,
    clock: &crate::Clock,
    except: &[String],
    current: &Mutex<Option<String>>,
) -> Result<Option<Vec<FireRecord>>, Error> {
    let now_here = tx.database_now(now).await?;
    let Some(name) = tx.due_schedule(now_here, except).await? else { return Ok(None) };
    if let Ok(mut current) = current.lock() {
        *current = Some(name.clone());
    }
    let Some(due) = tx.schedule(&name).await? else { return Ok(None) };
    if let Some(reason) = json::unreadable_reason(&due.request.metadata) {
        return Err(Error::refused(RefusalCode::BadValue, format!("the schedule's request {reason}")));
    }
    let Some(first) = due.next_fire_at else { return Ok(None) };
    let previous = match &due.last_run_id {
        Some(run) if tx.is_live(run).await? => PreviousRun::Live,
        Some(_) | None => PreviousRun::Ended,
    };
    let pattern = parse(&due.cron, &due.time_zone)?;
    let plan = schedule::plan(&pattern, due.missed, due.overlap, first, now_here, previous);
    let mut fired = Vec::new();
    for fire in &plan.fires {
        let run_id = (fire.decision == Decision::Queue).then(|| clock.run_id());
        let mut record = FireRecord {
            schedule_id: due.schedule_id.clone(),
            fire_at: fire.fire_at,
            decision: fire.decision,
            run_id,
        };
        if !tx.record_fire(&record, now_here).await? {
            continue;
        }
        if let Some(id) = &record.run_id {
            let request = request_for(&due, fire.fire_at);
            let queued = tx.queue_run(&request, id, now).await?;
            if request.labels.iter().any(|label| label == crate::sync::SYNC_LABEL) {
                tx.mark_sync_run(&queued.run_id).await?;
            }
            tx.add_audit(&fire_entry(&due, &queued.run_id, fire.fire_at), now).await?;
            record.run_id = Some(queued.run_id);
        }
        fired.push(record);
    }
    raise_skip_alert(tx, &due, &fired, plan.forgotten, now).await?;
    let last_run = fired.iter().rev().find_map(|fire| fire.run_id.as_ref());
    let last_fire = fired.last().map(|fire| fire.fire_at);
    tx.advance_schedule(&due.schedule_id, plan.next_fire_at, last_fire, last_run).await?;
    if plan.forgotten > 0 {
        tracing::warn!(schedule.id = %due.schedule_id, "{} fires of schedule {} were missed", plan.forgotten,
            due.schedule_id);
    }
    Ok(Some(fired))
}

/// Returns the audit entry of a fire that queued a run.
fn fire_entry(schedule: &Schedule, run: &RunId, fire_at: Timestamp) -> NewAuditRecord {
    let (call, name) = (uuid::Uuid::new_v4(), schedule.schedule_id.as_str());
    let mut entry = NewAuditRecord::of(call, name, ActorRole::Schedule, "schedules.fire");
    entry.set_subject(run.as_str()).set_project(Some(&schedule.project_id));
    entry.add_detail("fire_at", fire_at.to_rfc3339());
    entry
}

/// Raises an alert for fires that queued no run. It is resolved when the schedule queues a run.
async fn raise_skip_alert(
    tx: &mut Tx<'_>,
    due: &Schedule,
    fired: &[FireRecord],
    forgotten: u64,
    now: Option<Timestamp>,
) -> Result<(), Error> {
    let count = |decision| fired.iter().filter(|fire| fire.decision == decision).count();
    let (missed, overlapped) = (count(Decision::Missed), count(Decision::Overlapped));
    let subject = schedule_subject(&due.project_id, &due.schedule_id);
    let missed = u64::try_from(missed).unwrap_or(u64::MAX).saturating_add(forgotten);
    let overlapped = u64::try_from(overlapped).unwrap_or(u64::MAX);
    if missed + overlapped == 0 {
        if count(Decision::Queue) > 0 {
            tx.resolve_alert(AlertKind::RunSkipped, &subject, now).await?;
        }
        return Ok(());
    }
    let why = match (missed, overlapped) {
        (0, _) => "the previous run had not ended".to_owned(),
        (_, 0) => "no process was running to fire it".to_owned(),
        (missed, overlapped) => {
            format!(
                "{missed} while no process was running, {overlapped} while the previous run had not ended"
            )
        }
    };
    let times = missed + overlapped;
    let message = format!("schedule {} skipped {times} of its runs: {why}", due.schedule_id);
    let mut alert = NewAlert::new(AlertKind::RunSkipped, subject, message);
    alert.project_id = Some(due.project_id.clone());
    alert.run_id.clone_from(&due.last_run_id);
    alert.times = i32::try_from(times).unwrap_or(i32::MAX);
    tx.raise_alert(&alert, now).await
}

/// Returns the schedule's request, with the fire time in its metadata for the worker and for operators.
fn request_for(due: &Schedule, fire_at: Timestamp) -> QueueRun {
    let mut request = due.request.clone();
    if let Some(metadata) = request.metadata.as_object_mut() {
        metadata.insert("schedule".to_owned(), due.schedule_id.clone().into());
        metadata.insert("fire_at".to_owned(), fire_at.to_rfc3339().into());
    }
    request
}

/// Parses a cron expression in a time zone.
pub fn parse(cron: &str, time_zone: &str) -> Result<Pattern, Error> {
    Pattern::parse(cron, time_zone).map_err(|bad| {
        let hint = Some(bad.hint());
        Error::Refused(Refusal { code: RefusalCode::BadValue, message: bad.to_string(), hint })
    })
}

/// Returns the runs that these fires queued.
pub(crate) fn queued(fired: &[FireRecord]) -> impl Iterator<Item = &RunId> {
    fired.iter().filter_map(|fire| fire.run_id.as_ref())
}
