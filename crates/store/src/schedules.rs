//! Schedules, and the log of their fires.

use crate::codec::{Columns, SqlJson, SqlTextList, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, RefusalCode, Store, Tx, catalog};
use tidemill_core::run::QueueRun;
use tidemill_core::schedule::{Decision, Schedule};
use tidemill_core::{Json, RunId, Timestamp, json};

impl FromColumns for Schedule {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let project_id = row.text("project_id")?;
        Ok(Self {
            request: request(&project_id, row.json("request")?),
            schedule_id: row.text("schedule_id")?,
            project_id,
            cron: row.text("cron")?,
            time_zone: row.text("time_zone")?,
            missed: row.parsed("missed")?,
            overlap: row.parsed("overlap")?,
            paused_at: row.time_or_null("paused_at")?,
            paused_note: row.text_or_null("paused_note")?,
            next_fire_at: row.time_or_null("next_fire_at")?,
            last_fire_at: row.time_or_null("last_fire_at")?,
            last_run_id: row.run_id_or_null("last_run_id")?,
            created_at: row.time("created_at")?,
        })
    }
}

/// Parses the request of a schedule. An unreadable request gets the placeholder as metadata and no environment.
fn request(project: &str, json: Json) -> QueueRun {
    let reason = json::unreadable_reason(&json).map(str::to_owned);
    serde_json::from_value(json).unwrap_or_else(|error| {
        let mut request = QueueRun::new(project, "");
        request.metadata = json::unreadable(reason.unwrap_or_else(|| format!("is not a request: {error}")));
        request
    })
}

/// The decision about one fire time of a schedule.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct FireRecord {
    pub schedule_id: String,
    pub fire_at: Timestamp,
    pub decision: Decision,
    /// Run that was queued, if any.
    pub run_id: Option<RunId>,
}

impl FromColumns for FireRecord {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            schedule_id: row.text("schedule_id")?,
            fire_at: row.time("fire_at")?,
            decision: row.parsed("decision")?,
            run_id: row.run_id_or_null("run_id")?,
        })
    }
}

struct NextFire(Option<Timestamp>);

impl FromColumns for NextFire {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        row.time_or_null("next_at").map(Self)
    }
}

impl Tx<'_> {
    /// Returns the name of a schedule that is due at `now`, is not in `except`, and is not locked by another scheduler.
    ///
    /// Reads only the name, so that a schedule with an unreadable row can still be reported and paused.
    pub async fn due_schedule(&mut self, now: Timestamp, except: &[String]) -> Result<Option<String>, Error> {
        let except = except.to_vec();
        on!(
            self,
            catalog::SCHEDULE_DUE,
            [SqlTime(now), SqlTextList(except.clone())],
            fetch_optional,
            "find due schedules"
        )?
        .record("find due schedules")
    }

    pub async fn schedule(&mut self, name: &str) -> Result<Option<Schedule>, Error> {
        on!(self, catalog::SCHEDULE_LIST, [Some(name)], fetch_optional, "read a schedule")?
            .record("read a schedule")
    }

    /// Records one fire. Returns false if it was recorded before; the caller must then queue nothing.
    pub async fn record_fire(&mut self, fired: &FireRecord, now: Timestamp) -> Result<bool, Error> {
        let recorded = on!(
            self,
            catalog::FIRE_RECORD,
            [
                fired.schedule_id.as_str(),
                SqlTime(fired.fire_at),
                fired.decision.as_str(),
                fired.run_id.as_ref().map(RunId::as_str),
                SqlTime(now),
            ],
            execute,
            "record a fire"
        )?;
        Ok(recorded.count() > 0)
    }

    /// Moves a schedule to its next fire time.
    pub async fn advance_schedule(
        &mut self,
        schedule: &str,
        next: Option<Timestamp>,
        last_fire: Option<Timestamp>,
        last_run: Option<&RunId>,
    ) -> Result<(), Error> {
        on!(
            self,
            catalog::SCHEDULE_ADVANCE,
            [schedule, next.map(SqlTime), last_fire.map(SqlTime), last_run.map(RunId::as_str)],
            execute,
            "advance a schedule"
        )?;
        Ok(())
    }

    /// Returns whether a run or one of its retries has not ended.
    pub async fn is_live(&mut self, run: &RunId) -> Result<bool, Error> {
        let mut current = run.clone();
        loop {
            match self.run(&current).await? {
                Some(found) if !found.status.is_terminal() => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
            match self.successor(&current).await? {
                Some(next) => current = next,
                None => return Ok(false),
            }
        }
    }
}

impl Store {
    /// Creates a schedule, or changes the schedule of that name.
    pub async fn put_schedule(&self, schedule: Schedule) -> Result<(), Error> {
        let request = serde_json::to_value(&schedule.request)
            .map_err(|source| Error::database("store a schedule", sqlx::Error::Encode(Box::new(source))))?;
        self.write(move |mut tx| {
            Box::pin(async move {
                let put = on!(
                    tx,
                    catalog::SCHEDULE_PUT,
                    [
                        schedule.schedule_id.as_str(),
                        schedule.project_id.as_str(),
                        schedule.cron.as_str(),
                        schedule.time_zone.as_str(),
                        SqlJson(request.clone()),
                        schedule.missed.as_str(),
                        schedule.overlap.as_str(),
                        schedule.next_fire_at.map(SqlTime),
                        SqlTime(schedule.created_at),
                    ],
                    execute,
                    "store a schedule"
                )?;
                if put.count() == 0 {
                    tx.skip_audit();
                }
                Ok(())
            })
        })
        .await
    }

    /// Returns all schedules by name, or one.
    pub async fn schedules(&self, name: Option<String>) -> Result<Vec<Schedule>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::SCHEDULE_LIST, [name.as_deref()], fetch_all, "list schedules")?
                    .readable("schedules", "schedule_id"))
            })
        })
        .await
    }

    /// Returns the earliest fire time before `before` of the schedules that are not paused.
    pub async fn next_fire(&self, before: Timestamp) -> Result<Option<Timestamp>, Error> {
        let next: Option<NextFire> = self
            .read_one(move |mut tx| {
                Box::pin(async move {
                    on!(tx, catalog::SCHEDULE_NEXT, [SqlTime(before)], fetch_optional, "find the next fire")?
                        .record("find the next fire")
                })
            })
            .await?;
        Ok(next.and_then(|next| next.0))
    }

    /// Deletes a schedule. Its runs and the log of its fires stay.
    pub async fn remove_schedule(&self, name: String) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let removed =
                    on!(tx, catalog::SCHEDULE_REMOVE, [name.as_str()], execute, "remove a schedule")?;
                if removed.count() == 0 { Err(unknown(&name)) } else { Ok(()) }
            })
        })
        .await
    }

    /// Pauses a schedule with a note, or resumes it at its next fire time.
    pub async fn pause_schedule(
        &self,
        name: String,
        paused_at: Option<Timestamp>,
        note: Option<String>,
        next: Option<Timestamp>,
    ) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let changed = on!(
                    tx,
                    catalog::SCHEDULE_PAUSE,
                    [name.as_str(), paused_at.map(SqlTime), note.as_deref(), next.map(SqlTime)],
                    execute,
                    "pause a schedule"
                )?;
                if changed.count() > 0 {
                    return Ok(());
                }
                tx.skip_audit();
                let known = on!(tx, catalog::SCHEDULE_LIST, [Some(&*name)], fetch_all, "pause a schedule")?;
                if known.len() == 0 { Err(unknown(&name)) } else { Ok(()) }
            })
        })
        .await
    }

    /// Returns the last fires of a schedule, latest first.
    pub async fn fires(&self, name: String, limit: usize) -> Result<Vec<FireRecord>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::FIRE_LIST, [name.as_str(), limit], fetch_all, "list fires")?
                    .readable("schedule_fires", "schedule_id"))
            })
        })
        .await
    }

    /// Returns the current time of the database.
    pub async fn now(&self, now: Option<Timestamp>) -> Result<Timestamp, Error> {
        self.read_one(move |mut tx| Box::pin(async move { tx.database_now(now).await })).await
    }
}

fn unknown(name: &str) -> Error {
    Error::refused(RefusalCode::UnknownSchedule, format!("schedule `{name}` does not exist"))
}
