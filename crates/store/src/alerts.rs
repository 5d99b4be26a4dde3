//! Alerts: raised in the commit that they are about, resolved when they are over, listed for people.

use crate::codec::{At, Columns};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::alert::{Alert, AlertKind, command, feed_subject};
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::{RunId, Timestamp};

/// Bytes of an alert's message.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// Something that people should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAlert {
    /// What it is about.
    pub kind: AlertKind,
    /// Which thing it is about.
    pub subject: String,
    /// The project; that of the feed or the run where none is named.
    pub project_id: Option<String>,
    /// The feed.
    pub feed: Option<String>,
    /// The run.
    pub run_id: Option<RunId>,
    /// What happened, as a sentence.
    pub message: String,
    /// How often it happened.
    pub times: i32,
}

impl NewAlert {
    /// An alert about a subject that belongs to nobody.
    pub fn new(kind: AlertKind, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            subject: subject.into(),
            project_id: None,
            feed: None,
            run_id: None,
            message: message.into(),
            times: 1,
        }
    }
}

/// Which alerts to list, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertFilter {
    /// Of this project.
    pub project: Option<String>,
    /// Of this kind.
    pub kind: Option<AlertKind>,
    /// Those that are over as well.
    pub resolved: bool,
    /// Older than this one: the last of the page before.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: usize,
}

/// Dead letters of one group of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadGroup {
    /// The queue.
    pub queue: String,
    /// The group: for syncs, the feed.
    pub group: String,
    /// How many there are.
    pub dead: i64,
    /// When the last one became one.
    pub last_at: Timestamp,
}

/// What waits in one place, counted up to a bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The place: a project's runs or a queue.
    pub subject: String,
    /// The project, where it is one's.
    pub project_id: Option<String>,
    /// How much waits there.
    pub waiting: i64,
}

/// A sync with partitions that make no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckSync {
    /// Its run.
    pub run_id: RunId,
    /// Its feed.
    pub feed: String,
    /// How many partitions.
    pub stuck: i64,
    /// Since when.
    pub since: Timestamp,
}

impl FromColumns for Alert {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let (kind, subject) = (row.parsed("kind")?, row.text("subject")?);
        let (feed, run_id) = (row.text_or_null("feed")?, row.run_id_or_null("run_id")?);
        let first_at = row.time("created_at")?;
        Ok(Self {
            alert_id: row.long("alert_id")?,
            command: command(kind, &subject, feed.as_deref(), run_id.as_ref()),
            kind,
            subject,
            project_id: row.text_or_null("project_id")?,
            feed,
            run_id,
            message: row.text("message")?,
            first_at,
            last_at: row.time_or_null("last_at")?.unwrap_or(first_at),
            times: row.int("times")?,
            resolved_at: row.time_or_null("resolved_at")?,
        })
    }
}

impl FromColumns for DeadGroup {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            queue: row.text("queue")?,
            group: row.text("grp")?,
            dead: row.long("dead")?,
            last_at: row.time("last_at")?,
        })
    }
}

impl FromColumns for Waiting {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            subject: row.text("subject")?,
            project_id: row.text_or_null("project_id")?,
            waiting: row.long("waiting")?,
        })
    }
}

impl FromColumns for StuckSync {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.run_id("run_id")?,
            feed: row.text("feed")?,
            stuck: row.long("stuck")?,
            since: row.time("since")?,
        })
    }
}

/// How an alert meets one that lasts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// It happened once more, and people hear of it.
    Counts,
    /// It still is so, which is no news.
    IsNoNews,
}

impl Tx<'_> {
    /// Tells people that something happened, in the commit that it is about.
    pub async fn raise_alert(&mut self, alert: &NewAlert, now: Option<Timestamp>) -> Result<(), Error> {
        self.write_alert(alert, Again::Counts, now).await
    }

    /// Tells people that something is so, once for as long as it is.
    pub async fn observe_alert(&mut self, alert: &NewAlert, now: Option<Timestamp>) -> Result<(), Error> {
        self.write_alert(alert, Again::IsNoNews, now).await
    }

    async fn write_alert(
        &mut self,
        alert: &NewAlert,
        again: Again,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let at = self.time(now);
        let over = if alert.kind.is_good_news() { Some(At(self.database_now(now).await?)) } else { None };
        let added = match again {
            Again::Counts => alert.times,
            Again::IsNoNews => 0,
        };
        let message = shortened(&alert.message);
        on!(
            self,
            catalog::ALERT_ADD,
            [
                alert.kind.as_str(),
                alert.subject.as_str(),
                alert.project_id.as_deref(),
                alert.feed.as_deref(),
                alert.run_id.as_ref().map(RunId::as_str),
                message.as_str(),
                at,
                alert.times,
                added,
                over,
            ],
            execute,
            "write an alert"
        )?;
        Ok(())
    }

    /// Tells people something about a feed, in the commit that it is about.
    pub async fn alert_feed(
        &mut self,
        kind: AlertKind,
        feed: &str,
        run: Option<&RunId>,
        message: &str,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let mut alert = NewAlert::new(kind, feed_subject(feed), message);
        alert.feed = Some(feed.to_owned());
        alert.run_id = run.cloned();
        self.raise_alert(&alert, now).await
    }

    /// Ends an alert; whether there was one.
    pub async fn resolve_alert(
        &mut self,
        kind: AlertKind,
        subject: &str,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let at = self.time(now);
        let over =
            on!(self, catalog::ALERT_RESOLVE, [kind.as_str(), subject, at], execute, "resolve an alert")?;
        Ok(over.count() > 0)
    }

    /// Alerts of a kind that last, by subject.
    pub async fn lasting_alerts(&mut self, kind: AlertKind) -> Result<Vec<Alert>, Error> {
        let limit = i64::try_from(BATCH_MAX).unwrap_or(i64::MAX);
        Ok(on!(self, catalog::ALERT_LASTING, [kind.as_str(), limit], fetch_all, "list alerts")?
            .readable("alerts", "alert_id"))
    }

    /// Lets one process at a time decide what people are told.
    pub async fn lock_alerts(&mut self) -> Result<(), Error> {
        let name = self.context.schema.name().to_owned();
        let _: Option<String> =
            on!(self, catalog::ALERT_LOCK, [name.as_str()], fetch_optional, "lock alerts")?
                .record("lock alerts")?;
        Ok(())
    }

    /// Takes the ids of runs whose end was noted, from `after` on; what is not committed is noted still.
    ///
    /// Ids are given as they are: one that is no run id must be seen by the caller, not dropped here.
    pub async fn take_notices(&mut self, limit: usize, after: &str) -> Result<Vec<String>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::NOTICE_TAKE, [limit, after], fetch_all, "read notices")?.records("read notices")
    }

    /// Removes the note of a run's end without reading the run.
    pub async fn remove_notice(&mut self, run: &str) -> Result<(), Error> {
        on!(self, catalog::NOTICE_REMOVE, [run], execute, "remove a notice")?;
        Ok(())
    }

    /// Dead letters of a group that became ones after `since`.
    pub async fn dead_since(&mut self, queue: &str, group: &str, since: Timestamp) -> Result<i64, Error> {
        let count: Option<i64> =
            on!(self, catalog::LOOK_DEAD_SINCE, [queue, group, At(since)], fetch_optional, "count messages")?
                .record("count messages")?;
        Ok(count.unwrap_or(0))
    }
}

impl Store {
    /// Alerts, the newest first.
    pub async fn alerts(&self, filter: AlertFilter) -> Result<Vec<Alert>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
                Ok(on!(
                    tx,
                    catalog::ALERT_LIST,
                    [
                        filter.project.as_deref(),
                        filter.kind.map(AlertKind::as_str),
                        filter.resolved,
                        filter.before,
                        limit,
                    ],
                    fetch_all,
                    "list alerts"
                )?
                .readable("alerts", "alert_id"))
            })
        })
        .await
    }

    /// Groups of dead letters.
    pub async fn dead_groups(&self) -> Result<Vec<DeadGroup>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::LOOK_DEAD, [], fetch_all, "count messages")?.readable("messages", "grp"))
            })
        })
        .await
    }

    /// What waits, counted up to `most` in each place.
    pub async fn waiting(&self, most: i64) -> Result<Vec<Waiting>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::LOOK_DEEP, [most], fetch_all, "count what waits")?
                    .readable("runs", "subject"))
            })
        })
        .await
    }

    /// Syncs with partitions that have made no progress since `before`.
    pub async fn stuck_syncs(&self, before: Timestamp) -> Result<Vec<StuckSync>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::LOOK_STUCK, [At(before)], fetch_all, "look at partitions")?
                    .readable("run_metadata", "run_id"))
            })
        })
        .await
    }
}

fn shortened(text: &str) -> String {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', "")
}
