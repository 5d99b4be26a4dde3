//! The outbox: alerts become messages to targets, and messages are retried until they are delivered.

use super::target::{Channel, Target};
use super::{mail, webhook};
use crate::Engine;
use crate::retry_policy::chain;
use crate::upkeep::part;
use std::sync::{Arc, Mutex};
use tidemill_core::Timestamp;
use tidemill_core::alert::{Alert, AlertKind, retry_after_secs};
use tidemill_core::limits::DELIVERY_LEASE_SECS;
use tidemill_store::{Class, Delivery, Error, RefusalCode, Tx, catch_panic};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Alerts that become messages in one transaction.
const ALERTS_MAX: usize = 200;
/// Maximum number of concurrent delivery attempts.
const ATTEMPTS_AT_ONCE: usize = 8;
/// Rounds of delivery attempts in one pass.
const ROUNDS_MAX: usize = 20;
/// An alert that was not sent for this long is no longer sent.
const STALE: chrono::TimeDelta = chrono::TimeDelta::hours(24);
/// Longest stored error of a delivery, in characters.
const ERROR_CHARS_MAX: usize = 300;

/// Counts of delivery attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct DeliveryCounts {
    pub sent: u64,
    /// Failed attempts that will be retried.
    pub failed: u64,
    /// Messages that were given up.
    pub dead: u64,
}

/// Result of a test message to one target.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TargetTest {
    pub target: String,
    /// Why the delivery failed, if it did.
    pub error: Option<String>,
}

impl Engine {
    /// Moves alerts to the outbox and attempts the due deliveries.
    pub async fn send_alerts(&self) -> Result<DeliveryCounts, Error> {
        let mut done = DeliveryCounts::default();
        if self.alerts().targets.is_empty() {
            // Another process may have targets.
            return Ok(done);
        }
        let mut failure = None;
        part(&mut failure, self.fill_outbox()).await;
        for _ in 0..ROUNDS_MAX {
            let attempted = part(&mut failure, self.attempt_deliveries(&mut done)).await;
            if attempted.is_none_or(|attempted| attempted < ATTEMPTS_AT_ONCE) {
                break;
            }
        }
        failure.map_or(Ok(done), Err)
    }

    /// Creates messages for alerts. An alert that cannot be read is skipped: it is marked as sent.
    async fn fill_outbox(&self) -> Result<(), Error> {
        match self.fill_outbox_batch(ALERTS_MAX, 0, &Current::default()).await {
            Err(error) if error.class() == Class::Permanent => {}
            done => return done,
        }
        let (mut after, mut failure) = (0, None);
        for _ in 0..ALERTS_MAX {
            let current = Current::default();
            let done = self.fill_outbox_batch(1, after, &current).await;
            let alert = current.lock().ok().and_then(|mut alert| alert.take());
            let Some(alert) = alert else { return done.and(failure.map_or(Ok(()), Err)) };
            after = alert;
            let Err(error) = done else { continue };
            let error = match error.class() {
                Class::Permanent => self.skip_alert(alert, &error).await.err(),
                Class::Transient => Some(error),
            };
            failure = failure.or(error);
        }
        failure.map_or(Ok(()), Err)
    }

    async fn fill_outbox_batch(&self, limit: usize, after: i64, current: &Current) -> Result<(), Error> {
        let (targets, now, current) = (self.alerts().targets.clone(), self.clock().now(), current.clone());
        self.store()
            .write(move |mut tx| {
                Box::pin(async move { add_deliveries(&mut tx, &targets, limit, after, &current, now).await })
            })
            .await
    }

    async fn skip_alert(&self, alert: i64, error: &Error) -> Result<(), Error> {
        tracing::error!("alert {alert} cannot be read and is not sent: {}", chain(error));
        let now = self.clock().now();
        self.store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let now = tx.database_now(now).await?;
                    tx.skip_alert(alert, now).await
                })
            })
            .await
    }

    async fn attempt_deliveries(&self, done: &mut DeliveryCounts) -> Result<usize, Error> {
        let names = self.alerts().targets.iter().map(|target| target.name.clone()).collect();
        let now = self.store().now(self.clock().now()).await?;
        let until = now + chrono::TimeDelta::seconds(DELIVERY_LEASE_SECS);
        let taken = self.store().claim_deliveries(names, ATTEMPTS_AT_ONCE, now, until).await?;
        let count = taken.len();
        let mut tries = JoinSet::new();
        for delivery in taken {
            let target = self.alerts().targets.iter().find(|target| target.name == delivery.target).cloned();
            tries.spawn(async move {
                let outcome = match &target {
                    // A panic counts as a failed attempt, so that the attempts are used up eventually.
                    Some(target) => catch_panic(send(target, &delivery, now))
                        .await
                        .unwrap_or_else(|panic| Err(format!("sending {panic}"))),
                    None => Err("the target is not configured in this process".to_owned()),
                };
                (delivery, outcome)
            });
        }
        let mut failure = None;
        while let Some(attempted) = tries.join_next().await {
            // A cancelled attempt is retried when its lease expires.
            if let Ok((delivery, outcome)) = attempted {
                part(&mut failure, self.record_attempt(&delivery, outcome, done)).await;
            }
        }
        failure.map_or(Ok(count), Err)
    }

    /// Records the outcome of an attempt.
    async fn record_attempt(
        &self,
        delivery: &Delivery,
        outcome: Result<(), String>,
        done: &mut DeliveryCounts,
    ) -> Result<(), Error> {
        let now = self.store().now(self.clock().now()).await?;
        let (id, target) = (&delivery.delivery_id, &delivery.target);
        let Err(error) = outcome else {
            self.store().delivery_sent(delivery, now).await?;
            done.sent += 1;
            return Ok(());
        };
        let wait = retry_after_secs(delivery.attempt);
        let next = wait.map(|secs| now + chrono::TimeDelta::seconds(secs));
        self.store().delivery_failed(delivery, error.clone(), next, now).await?;
        if let Some(secs) = wait {
            done.failed += 1;
            tracing::warn!(delivery.id = %id, "delivery to {target} failed, retrying in {secs} s: {error}");
        } else {
            done.dead += 1;
            tracing::error!(delivery.id = %id, "delivery to {target} failed and is given up: {error}");
        }
        Ok(())
    }

    /// Sends a test message to one target or to all, directly and not through the outbox.
    pub async fn test_targets(&self, name: Option<&str>) -> Result<Vec<TargetTest>, Error> {
        let now = self.store().now(self.clock().now()).await?;
        let wanted = |target: &&Target| name.is_none_or(|name| target.name == name);
        let targets: Vec<Target> = self.alerts().targets.iter().filter(wanted).cloned().collect();
        if let (Some(name), true) = (name, targets.is_empty()) {
            let message = format!("no alert target `{name}` is configured in this process");
            return Err(Error::refused(RefusalCode::BadValue, message));
        }
        let mut tested = Vec::new();
        for target in targets {
            let delivery = Delivery {
                delivery_id: Uuid::new_v4().to_string(),
                target: target.name.clone(),
                alert: test_alert(&target.name, now),
                held: 0,
                attempt: 1,
            };
            let error = send(&target, &delivery, now).await.err();
            tested.push(TargetTest { target: target.name, error });
        }
        Ok(tested)
    }
}

fn test_alert(target: &str, now: Timestamp) -> Alert {
    Alert {
        alert_id: 0,
        kind: AlertKind::Test,
        subject: format!("target:{target}"),
        project_id: None,
        feed: None,
        run_id: None,
        message: "this is a test message: alerts reach this target".to_owned(),
        command: None,
        first_at: now,
        last_at: now,
        times: 1,
        resolved_at: Some(now),
    }
}

/// The alert that is being read, for a caller that has to skip it after an error.
type Current = Arc<Mutex<Option<i64>>>;

/// Creates messages for alerts, at most one per target, group and interval.
async fn add_deliveries(
    tx: &mut Tx<'_>,
    targets: &[Target],
    limit: usize,
    after: i64,
    current: &Current,
    now: Option<Timestamp>,
) -> Result<(), Error> {
    tx.lock_alerts().await?;
    let now = tx.database_now(now).await?;
    let Some(first) = tx.next_unsent_alert(after).await? else { return Ok(()) };
    if let Ok(mut current) = current.lock() {
        *current = Some(first);
    }
    for alert in tx.unsent_alerts(limit, first.saturating_sub(1)).await? {
        let fresh = now - alert.last_at < STALE;
        for target in targets.iter().filter(|target| fresh && target.wants(alert.kind)) {
            let interval =
                chrono::TimeDelta::from_std(target.interval).unwrap_or(chrono::TimeDelta::days(30));
            let last = tx.last_delivery_at(&target.name, &alert).await?;
            let due = last.map_or(now, |last| now.max(last + interval));
            let id = Uuid::new_v4().to_string();
            tx.add_delivery(&id, &target.name, &alert, due, now).await?;
        }
        tx.mark_sent(&alert, now).await?;
    }
    Ok(())
}

/// Attempts a delivery once. The error text contains no URLs and no secrets.
async fn send(target: &Target, delivery: &Delivery, now: Timestamp) -> Result<(), String> {
    let authorities = match &target.ca_file {
        Some(path) => {
            let read = tokio::fs::read(path).await;
            Some(read.map_err(|error| format!("could not read `{}`: {error}", path.display()))?)
        }
        None => None,
    };
    let sent = match &target.channel {
        Channel::Mail(mail) => mail::send(mail, authorities.as_deref(), delivery).await,
        Channel::Webhook(webhook) => webhook::send(webhook, authorities.as_deref(), delivery, now).await,
    };
    sent.map_err(|error| error.chars().filter(|letter| *letter != '\0').take(ERROR_CHARS_MAX).collect())
}
