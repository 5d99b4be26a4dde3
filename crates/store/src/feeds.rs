//! Feeds: their settings, watermarks and circuit breakers.

use crate::codec::{Columns, SqlJson, SqlTime, SqlUuid};
use crate::tx::{FromColumns, on};
use crate::{Error, RefusalCode, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::alert::{AlertKind, feed_subject};
use tidemill_core::feed::{Feed, Watermark};
use tidemill_core::records::{FeedRecord, WatermarkChange};

impl FromColumns for FeedRecord {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let feed = Feed {
            feed: row.text("feed")?,
            project_id: row.text("project_id")?,
            kind: row.text("kind")?,
            endpoint: row.text("endpoint")?,
            username: row.text_or_null("username")?,
            password_env: row.text_or_null("password_env")?,
            rate: u32::try_from(row.int("rate")?).unwrap_or(0),
            settings: row.json("settings")?,
            defined_by: row.parsed("defined_by")?,
            created_at: row.time("created_at")?,
        };
        let watermark = match row.watermark_or_null("last_updated_at")? {
            Some(last_updated_at) => Some(Watermark {
                last_updated_at,
                last_run_id: row.uuid_or_null("last_run_id")?.map(|id| id.to_string()),
                last_run_completed_at: row.time_or_null("last_run_completed_at")?,
            }),
            None => None,
        };
        Ok(Self {
            feed,
            watermark,
            copy_url: row.text_or_null("copy_url")?,
            copied_updated_at: row.watermark_or_null("copied_updated_at")?,
            copy_error: row.text_or_null("copy_error")?,
            circuit: row.json("circuit")?,
            circuit_rev: row.int("circuit_rev")?,
            circuit_reason: row.text_or_null("circuit_reason")?,
            refusal: row.text_or_null("refusal")?,
        })
    }
}

impl FromColumns for WatermarkChange {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            changed_at: row.time("changed_at")?,
            before: row.watermark_or_null("before_at")?,
            after: row.watermark_or_null("after_at")?,
            run_id: row.uuid_or_null("run_id")?,
            by: row.text("by_whom")?,
            note: row.text_or_null("note")?,
        })
    }
}

impl Tx<'_> {
    /// Adds a feed, or changes its settings. The project and the kind of a feed cannot change.
    /// Returns false if it has these settings already.
    pub async fn put_feed(
        &mut self,
        feed: &Feed,
        copy_url: Option<&str>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let rate = i32::try_from(feed.rate).unwrap_or(i32::MAX);
        let written = on!(
            self,
            catalog::FEED_ADD,
            [
                feed.feed.as_str(),
                feed.project_id.as_str(),
                feed.kind.as_str(),
                feed.endpoint.as_str(),
                feed.username.as_deref(),
                feed.password_env.as_deref(),
                rate,
                SqlJson(feed.settings.clone()),
                copy_url,
                feed.defined_by.as_str(),
                now,
            ],
            execute,
            "add a feed"
        )?;
        if written.count() > 0 {
            self.create_raw_table(&feed.raw_table()).await?;
            return Ok(true);
        }
        let stored = self.feed(&feed.feed).await?;
        if stored
            .is_some_and(|stored| stored.feed.project_id == feed.project_id && stored.feed.kind == feed.kind)
        {
            return Ok(false);
        }
        Err(Error::refused(
            RefusalCode::KeyConflict,
            format!("feed `{}` already exists in another project or with another kind", feed.feed),
        ))
    }

    pub async fn feed(&mut self, feed: &str) -> Result<Option<FeedRecord>, Error> {
        on!(self, catalog::FEED_LIST, [Some(feed)], fetch_optional, "read a feed")?.record("read a feed")
    }

    /// Returns every feed, by name.
    pub async fn feeds(&mut self) -> Result<Vec<FeedRecord>, Error> {
        Ok(on!(self, catalog::FEED_LIST, [None::<&str>], fetch_all, "list feeds")?.readable("feeds", "feed"))
    }

    /// Locks a feed until the transaction ends, and reads it.
    pub async fn lock_feed(&mut self, feed: &str) -> Result<Option<FeedRecord>, Error> {
        let _: Option<String> =
            on!(self, catalog::FEED_LOCK, [feed], fetch_optional, "lock a feed")?.record("lock a feed")?;
        self.feed(feed).await
    }

    /// Moves a feed's watermark and records the change. The caller has locked the feed and has checked the direction.
    pub async fn set_watermark(
        &mut self,
        feed: &str,
        change: &WatermarkChange,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        let run = change.run_id.map(SqlUuid);
        on!(
            self,
            catalog::FEED_WATERMARK,
            [feed, change.after.map(SqlTime), run, now],
            execute,
            "move a watermark"
        )?;
        on!(
            self,
            catalog::WATERMARK_NOTE,
            [
                feed,
                now,
                change.before.map(SqlTime),
                change.after.map(SqlTime),
                run,
                change.by.as_str(),
                change.note.as_deref(),
            ],
            execute,
            "record a watermark"
        )?;
        Ok(())
    }

    /// Writes the state of a feed's circuit breaker. Returns false if another process changed it first.
    pub async fn set_circuit(
        &mut self,
        feed: &str,
        believed_rev: i32,
        circuit: &tidemill_core::Json,
        reason: Option<&str>,
    ) -> Result<bool, Error> {
        let circuit = SqlJson(circuit.clone());
        let binds = (feed, believed_rev, reason);
        let written = on!(
            self,
            catalog::FEED_CIRCUIT,
            [binds.0, binds.1, circuit.clone(), binds.2],
            execute,
            "write the circuit of a feed"
        )?;
        Ok(written.count() > 0)
    }
}

impl Store {
    /// Returns a feed that must exist.
    pub async fn feed(&self, feed: String) -> Result<FeedRecord, Error> {
        let name = feed.clone();
        let found = self.read(move |mut tx| Box::pin(async move { tx.feed(&name).await })).await?;
        found.ok_or_else(|| Error::unknown_feed(&feed))
    }

    /// Returns every feed, by name.
    pub async fn feeds(&self) -> Result<Vec<FeedRecord>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.feeds().await })).await
    }

    /// Records that a process refused to reach a feed, or clears that.
    pub async fn record_refusal(&self, feed: String, reason: Option<String>) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let binds = (feed.as_str(), reason.as_deref());
                on!(tx, catalog::FEED_REFUSED, [binds.0, binds.1], execute, "record a refusal")?;
                Ok(())
            })
        })
        .await
    }

    /// Returns the last changes of a feed's watermark, newest first.
    pub async fn watermark_changes(&self, feed: String, limit: usize) -> Result<Vec<WatermarkChange>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                Ok(on!(tx, catalog::WATERMARK_LIST, [feed.as_str(), limit], fetch_all, "list watermarks")?
                    .readable("watermark_changes", "changed_by"))
            })
        })
        .await
    }

    /// Records the result of copying a watermark. A failed copy raises an alert.
    pub async fn record_copy(
        &self,
        feed: String,
        copied: Option<Timestamp>,
        error: Option<String>,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let at = tx.time(now);
                let binds = (feed.as_str(), copied.map(SqlTime), error.as_deref());
                on!(
                    tx,
                    catalog::FEED_COPIED,
                    [binds.0, binds.1, at, binds.2],
                    execute,
                    "record a watermark copy"
                )?;
                if let Some(error) = &error {
                    let message = format!("copying the watermark of feed {feed} failed: {error}");
                    return tx.alert_feed(AlertKind::WatermarkCopy, &feed, None, &message, now).await;
                }
                tx.resolve_alert(AlertKind::WatermarkCopy, &feed_subject(&feed), now).await?;
                Ok(())
            })
        })
        .await
    }
}
