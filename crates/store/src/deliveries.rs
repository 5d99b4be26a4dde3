//! The outbox of alerts: each message is retried under the same id until it is delivered.

use crate::codec::{Columns, SqlJson, SqlTextList, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::alert::Alert;

/// A message on its way to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The same for every attempt.
    pub delivery_id: String,
    /// Name of the target.
    pub target: String,
    pub alert: Alert,
    /// Number of further alerts of the group that this message stands for.
    pub held: i32,
    pub attempt: i32,
}

/// A claimed message whose alert may be unreadable.
struct ClaimedMessage {
    delivery_id: String,
    target: String,
    alert: Result<Alert, String>,
    held: i32,
    attempt: i32,
}

impl FromColumns for ClaimedMessage {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let alert = row.json("alert").map_err(|error| error.to_string());
        Ok(Self {
            delivery_id: row.text("delivery_id")?,
            target: row.text("target")?,
            alert: alert.and_then(|alert| serde_json::from_value(alert).map_err(|error| error.to_string())),
            held: row.int("held")?,
            attempt: row.int("attempt")?,
        })
    }
}

struct LastAt(Option<Timestamp>);

impl FromColumns for LastAt {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        row.time_or_null("last_at").map(Self)
    }
}

impl Tx<'_> {
    /// Returns alerts after `after` that are not in the outbox yet, oldest first.
    pub async fn unsent_alerts(&mut self, limit: usize, after: i64) -> Result<Vec<Alert>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::ALERT_UNSENT, [limit, after], fetch_all, "list alerts")?.records("list alerts")
    }

    /// Returns the id of the first alert after `after` that is not in the outbox yet.
    pub async fn next_unsent_alert(&mut self, after: i64) -> Result<Option<i64>, Error> {
        on!(self, catalog::ALERT_UNSENT_NEXT, [after], fetch_optional, "list alerts")?.record("list alerts")
    }

    /// Marks an unreadable alert as sent, so that it is not tried again.
    pub async fn skip_alert(&mut self, alert: i64, now: Timestamp) -> Result<(), Error> {
        on!(self, catalog::ALERT_SET_ASIDE, [alert, SqlTime(now)], execute, "skip an alert")?;
        Ok(())
    }

    /// Marks the occurrences of an alert so far as added to the outbox.
    pub async fn mark_sent(&mut self, alert: &Alert, now: Timestamp) -> Result<(), Error> {
        on!(
            self,
            catalog::ALERT_SENT,
            [alert.alert_id, alert.times, SqlTime(now)],
            execute,
            "record an alert"
        )?;
        Ok(())
    }

    /// Returns the time of the last message of this alert's group to a target, sent or planned.
    pub async fn last_delivery_at(
        &mut self,
        target: &str,
        alert: &Alert,
    ) -> Result<Option<Timestamp>, Error> {
        let last: Option<LastAt> = on!(
            self,
            catalog::DELIVERY_LAST,
            [target, alert.kind.as_str(), alert.group()],
            fetch_optional,
            "read the outbox"
        )?
        .record("read the outbox")?;
        Ok(last.and_then(|last| last.0))
    }

    /// Adds an alert to the outbox, or counts it in the waiting message of its group.
    pub async fn add_delivery(
        &mut self,
        delivery: &str,
        target: &str,
        alert: &Alert,
        due: Timestamp,
        now: Timestamp,
    ) -> Result<(), Error> {
        let payload = serde_json::to_value(alert)
            .map_err(|source| Error::database("store a message", sqlx::Error::Encode(Box::new(source))))?;
        on!(
            self,
            catalog::DELIVERY_ADD,
            [
                delivery,
                target,
                alert.kind.as_str(),
                alert.group(),
                alert.alert_id,
                SqlJson(payload.clone()),
                SqlTime(due),
                SqlTime(now),
            ],
            execute,
            "store a message"
        )?;
        Ok(())
    }
}

impl Tx<'_> {
    /// Gives up an unreadable message.
    async fn give_up_delivery(
        &mut self,
        id: &str,
        attempt: i32,
        error: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        tracing::error!(delivery.id = %id, "message {id} is unreadable and is given up: {error}");
        let error = format!("the message is unreadable: {error}");
        let none: Option<SqlTime> = None;
        on!(
            self,
            catalog::DELIVERY_FAILED,
            [id, attempt, error.as_str(), none, Some(SqlTime(now))],
            execute,
            "record a delivery"
        )?;
        Ok(())
    }
}

impl Store {
    /// Claims due messages to these targets. No other process tries them until `until`. Unreadable messages are given
    /// up, so that they do not block the others.
    pub async fn claim_deliveries(
        &self,
        targets: Vec<String>,
        limit: usize,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<Delivery>, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let claimed: Vec<ClaimedMessage> = on!(
                    tx,
                    catalog::DELIVERY_CLAIM,
                    [SqlTextList(targets.clone()), SqlTime(now), SqlTime(until), limit],
                    fetch_all,
                    "claim messages"
                )?
                .records("claim messages")?;
                let mut readable = Vec::new();
                for ClaimedMessage { delivery_id, target, alert, held, attempt } in claimed {
                    match alert {
                        Ok(alert) => readable.push(Delivery { delivery_id, target, alert, held, attempt }),
                        Err(error) => tx.give_up_delivery(&delivery_id, attempt, &error, now).await?,
                    }
                }
                Ok(readable)
            })
        })
        .await
    }

    /// Records a successful attempt. Returns false if a newer attempt has replaced it.
    pub async fn delivery_sent(&self, delivery: &Delivery, now: Timestamp) -> Result<bool, Error> {
        let (id, attempt) = (delivery.delivery_id.clone(), delivery.attempt);
        self.write(move |mut tx| {
            Box::pin(async move {
                let recorded = on!(
                    tx,
                    catalog::DELIVERY_SENT,
                    [id.as_str(), attempt, SqlTime(now)],
                    execute,
                    "record a delivery"
                )?;
                Ok(recorded.count() > 0)
            })
        })
        .await
    }

    /// Records a failed attempt and the time of the next one. Without `next` the message is given up.
    pub async fn delivery_failed(
        &self,
        delivery: &Delivery,
        error: String,
        next: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let (id, attempt) = (delivery.delivery_id.clone(), delivery.attempt);
        self.write(move |mut tx| {
            Box::pin(async move {
                let dead = if next.is_none() { Some(SqlTime(now)) } else { None };
                let recorded = on!(
                    tx,
                    catalog::DELIVERY_FAILED,
                    [id.as_str(), attempt, error.as_str(), next.map(SqlTime), dead],
                    execute,
                    "record a delivery"
                )?;
                Ok(recorded.count() > 0)
            })
        })
        .await
    }
}
