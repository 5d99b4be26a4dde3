//! The outbox of alerts: what is to be told to whom, tried until it is told, with an id that stays the same.

use crate::codec::{At, Columns, Doc, Words};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::alert::Alert;

/// A message on its way to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The same at every try.
    pub delivery_id: String,
    /// To whom, by name.
    pub target: String,
    /// What is told.
    pub alert: Alert,
    /// How many more alerts of its group it stands for.
    pub held: i32,
    /// The number of this try.
    pub attempt: i32,
}

/// A message that was taken, and whose alert may not be readable.
struct Claimed {
    delivery_id: String,
    target: String,
    alert: Result<Alert, String>,
    held: i32,
    attempt: i32,
}

impl FromColumns for Claimed {
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

/// A time that may not be there.
struct Last(Option<Timestamp>);

impl FromColumns for Last {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        row.time_or_null("last_at").map(Self)
    }
}

impl Tx<'_> {
    /// Alerts after `after` that were not handed to the outbox, the oldest first.
    pub async fn unsent_alerts(&mut self, limit: usize, after: i64) -> Result<Vec<Alert>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::ALERT_UNSENT, [limit, after], fetch_all, "list alerts")?.records("list alerts")
    }

    /// The id of the first alert after `after` that was not handed to the outbox.
    pub async fn next_unsent_alert(&mut self, after: i64) -> Result<Option<i64>, Error> {
        on!(self, catalog::ALERT_UNSENT_NEXT, [after], fetch_optional, "list alerts")?.record("list alerts")
    }

    /// Marks an alert that cannot be read as handed over, so that nobody tries it again.
    pub async fn set_alert_aside(&mut self, alert: i64, now: Timestamp) -> Result<(), Error> {
        on!(self, catalog::ALERT_SET_ASIDE, [alert, At(now)], execute, "set an alert aside")?;
        Ok(())
    }

    /// Notes that an alert is in the outbox, as far as it has happened.
    pub async fn mark_sent(&mut self, alert: &Alert, now: Timestamp) -> Result<(), Error> {
        on!(self, catalog::ALERT_SENT, [alert.alert_id, alert.times, At(now)], execute, "note an alert")?;
        Ok(())
    }

    /// When a target was, or will be, last told of a group.
    pub async fn last_told(&mut self, target: &str, alert: &Alert) -> Result<Option<Timestamp>, Error> {
        let last: Option<Last> = on!(
            self,
            catalog::DELIVERY_LAST,
            [target, alert.kind.as_str(), alert.group()],
            fetch_optional,
            "read the outbox"
        )?
        .record("read the outbox")?;
        Ok(last.and_then(|last| last.0))
    }

    /// Puts an alert into the outbox, or lets the message that waits for its group stand for it too.
    pub async fn add_delivery(
        &mut self,
        delivery: &str,
        target: &str,
        alert: &Alert,
        due: Timestamp,
        now: Timestamp,
    ) -> Result<(), Error> {
        let told = serde_json::to_value(alert)
            .map_err(|source| Error::database("keep a message", sqlx::Error::Encode(Box::new(source))))?;
        on!(
            self,
            catalog::DELIVERY_ADD,
            [
                delivery,
                target,
                alert.kind.as_str(),
                alert.group(),
                alert.alert_id,
                Doc(told.clone()),
                At(due),
                At(now),
            ],
            execute,
            "keep a message"
        )?;
        Ok(())
    }
}

impl Tx<'_> {
    /// Gives up a message that cannot be read.
    async fn give_up_delivery(
        &mut self,
        id: &str,
        attempt: i32,
        error: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        tracing::error!(delivery.id = %id, "message {id} cannot be read and is given up: {error}");
        let error = format!("the message cannot be read: {error}");
        let none: Option<At> = None;
        on!(
            self,
            catalog::DELIVERY_FAILED,
            [id, attempt, error.as_str(), none, Some(At(now))],
            execute,
            "note a message"
        )?;
        Ok(())
    }
}

impl Store {
    /// Takes messages to these targets that are due. Until `until` nobody else tries them. A message that cannot be
    /// read is given up, and keeps nobody from the others.
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
                let claimed: Vec<Claimed> = on!(
                    tx,
                    catalog::DELIVERY_CLAIM,
                    [Words(targets.clone()), At(now), At(until), limit],
                    fetch_all,
                    "take messages"
                )?
                .records("take messages")?;
                let mut readable = Vec::new();
                for Claimed { delivery_id, target, alert, held, attempt } in claimed {
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

    /// Notes that a try has succeeded. False: another try has taken its place.
    pub async fn delivery_sent(&self, delivery: &Delivery, now: Timestamp) -> Result<bool, Error> {
        let (id, attempt) = (delivery.delivery_id.clone(), delivery.attempt);
        self.write(move |mut tx| {
            Box::pin(async move {
                let noted = on!(
                    tx,
                    catalog::DELIVERY_SENT,
                    [id.as_str(), attempt, At(now)],
                    execute,
                    "note a message"
                )?;
                Ok(noted.count() > 0)
            })
        })
        .await
    }

    /// Notes that a try has failed, and when the next one is; none where `next` is nothing.
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
                let dead = if next.is_none() { Some(At(now)) } else { None };
                let noted = on!(
                    tx,
                    catalog::DELIVERY_FAILED,
                    [id.as_str(), attempt, error.as_str(), next.map(At), dead],
                    execute,
                    "note a message"
                )?;
                Ok(noted.count() > 0)
            })
        })
        .await
    }
}
