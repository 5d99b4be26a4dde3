//! Alerts: raised in the transaction that they report, resolved when the problem ends, and listed.

use crate::codec::{Columns, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::alert::{Alert, AlertKind, command, feed_subject};
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::{RunId, Timestamp};

/// Maximum length of an alert's message in bytes.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// The content of an alert to raise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAlert {
    pub kind: AlertKind,
    pub subject: String,
    /// Defaults to the project of the feed or the run.
    pub project_id: Option<String>,
    pub feed: Option<String>,
    pub run_id: Option<RunId>,
    pub message: String,
    pub times: i32,
}

impl NewAlert {
    /// Returns an alert without a project.
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

/// Which alerts to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertFilter {
    pub project: Option<String>,
    pub kind: Option<AlertKind>,
    pub resolved: bool,
    /// Returns only alerts older than this one, the last of the previous page.
    pub before: Option<i64>,
    pub limit: usize,
}

/// Dead letters of one group of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadGroup {
    pub queue: String,
    /// For syncs, the feed.
    pub group: String,
    pub dead: i64,
    /// Time of the newest dead letter.
    pub last_at: Timestamp,
}

/// The number of waiting runs of a project or messages of a queue, up to a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backlog {
    /// A project's runs or a queue.
    pub subject: String,
    pub project_id: Option<String>,
    pub waiting: i64,
}

/// A sync with partitions that make no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckSync {
    pub run_id: RunId,
    pub feed: String,
    /// Number of stuck partitions.
    pub stuck: i64,
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

impl FromColumns for Backlog {
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

/// How a new alert affects an open one of the same subject.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// Another occurrence: it is counted and sent.
    Counts,
    /// The same condition still holds: it is not sent again.
    IsSilent,
}

impl Tx<'_> {
    /// Raises an alert in the transaction that it reports.
    pub async fn raise_alert(&mut self, alert: &NewAlert, now: Option<Timestamp>) -> Result<(), Error> {
        self.write_alert(alert, Repeat::Counts, now).await
    }

    /// Raises an alert for a lasting condition, once for as long as it lasts.
    pub async fn observe_alert(&mut self, alert: &NewAlert, now: Option<Timestamp>) -> Result<(), Error> {
        self.write_alert(alert, Repeat::IsSilent, now).await
    }

    async fn write_alert(
        &mut self,
        alert: &NewAlert,
        repeat: Repeat,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let at = self.time(now);
        let over =
            if alert.kind.is_good_news() { Some(SqlTime(self.database_now(now).await?)) } else { None };
        let added = match repeat {
            Repeat::Counts => alert.times,
            Repeat::IsSilent => 0,
        };
        let message = truncate(&alert.message);
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

    /// Raises an alert about a feed in the transaction that it reports.
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

    /// Resolves an alert; returns whether it was open.
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

    /// Returns open alerts of a kind, by subject.
    pub async fn lasting_alerts(&mut self, kind: AlertKind) -> Result<Vec<Alert>, Error> {
        let limit = i64::try_from(BATCH_MAX).unwrap_or(i64::MAX);
        Ok(on!(self, catalog::ALERT_LASTING, [kind.as_str(), limit], fetch_all, "list alerts")?
            .readable("alerts", "alert_id"))
    }

    /// Lets only one process at a time decide which alerts to send.
    pub async fn lock_alerts(&mut self) -> Result<(), Error> {
        let name = self.context.schema.name().to_owned();
        let _: Option<String> =
            on!(self, catalog::ALERT_LOCK, [name.as_str()], fetch_optional, "lock alerts")?
                .record("lock alerts")?;
        Ok(())
    }

    /// Takes the ids of ended runs that need an alert decision, after `after`. Without a commit they stay queued.
    ///
    /// Returns ids unparsed: the caller must see an id that is malformed, and it must not be dropped here.
    pub async fn take_notices(&mut self, limit: usize, after: &str) -> Result<Vec<String>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::NOTICE_TAKE, [limit, after], fetch_all, "read notices")?.records("read notices")
    }

    /// Removes the notice of an ended run without reading the run.
    pub async fn remove_notice(&mut self, run: &str) -> Result<(), Error> {
        on!(self, catalog::NOTICE_REMOVE, [run], execute, "remove a notice")?;
        Ok(())
    }

    /// Counts the dead letters of a group since `since`.
    pub async fn dead_since(&mut self, queue: &str, group: &str, since: Timestamp) -> Result<i64, Error> {
        let count: Option<i64> = on!(
            self,
            catalog::LOOK_DEAD_SINCE,
            [queue, group, SqlTime(since)],
            fetch_optional,
            "count messages"
        )?
        .record("count messages")?;
        Ok(count.unwrap_or(0))
    }
}

impl Store {
    /// Lists alerts, newest first.
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

    /// Returns the groups with dead letters.
    pub async fn dead_groups(&self) -> Result<Vec<DeadGroup>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::LOOK_DEAD, [], fetch_all, "count messages")?.readable("messages", "grp"))
            })
        })
        .await
    }

    /// Returns the backlogs, each counted up to `most`.
    pub async fn backlogs(&self, most: i64) -> Result<Vec<Backlog>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::LOOK_DEEP, [most], fetch_all, "count waiting work")?
                    .readable("runs", "subject"))
            })
        })
        .await
    }

    /// Returns syncs with partitions that made no progress since `before`.
    pub async fn stuck_syncs(&self, before: Timestamp) -> Result<Vec<StuckSync>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::LOOK_STUCK, [SqlTime(before)], fetch_all, "find stuck partitions")?
                    .readable("run_metadata", "run_id"))
            })
        })
        .await
    }
}

fn truncate(text: &str) -> String {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', "")
}
