//! The outbox: alerts become messages to targets, and messages are tried until they are told.

use super::target::{Target, Way};
use super::{mail, webhook};
use crate::Engine;
use crate::patience::chain;
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
/// Messages that are tried at once.
const TRIES_MAX: usize = 8;
/// Rounds of tries in one pass.
const ROUNDS_MAX: usize = 20;
/// An alert that nobody was told of for so long is history.
const STALE: chrono::TimeDelta = chrono::TimeDelta::hours(24);
/// Letters of a fault that are kept.
const FAULT_LETTERS_MAX: usize = 300;

/// What became of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Sent {
    /// Told.
    pub sent: u64,
    /// Not told yet, and tried again later.
    pub failed: u64,
    /// Given up.
    pub dead: u64,
}

/// What became of a try to reach a target.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Tested {
    /// The target.
    pub target: String,
    /// Why it was not reached, where it was not.
    pub error: Option<String>,
}

impl Engine {
    /// Hands alerts to the outbox, and tries the messages that are due.
    pub async fn send_alerts(&self) -> Result<Sent, Error> {
        let mut done = Sent::default();
        if self.alerts().targets.is_empty() {
            // Somebody else may know whom to tell.
            return Ok(done);
        }
        let mut failure = None;
        part(&mut failure, self.hand_alerts_over()).await;
        for _ in 0..ROUNDS_MAX {
            let tried = part(&mut failure, self.try_some(&mut done)).await;
            if tried.is_none_or(|tried| tried < TRIES_MAX) {
                break;
            }
        }
        failure.map_or(Ok(done), Err)
    }

    /// Makes messages of alerts. An alert that cannot be read costs itself: it is marked as handed over.
    async fn hand_alerts_over(&self) -> Result<(), Error> {
        match self.hand_some_over(ALERTS_MAX, 0, &AtHand::default()).await {
            Err(error) if error.class() == Class::Permanent => {}
            done => return done,
        }
        let (mut after, mut failure) = (0, None);
        for _ in 0..ALERTS_MAX {
            let at_hand = AtHand::default();
            let done = self.hand_some_over(1, after, &at_hand).await;
            let alert = at_hand.lock().ok().and_then(|mut alert| alert.take());
            let Some(alert) = alert else { return done.and(failure.map_or(Ok(()), Err)) };
            after = alert;
            let Err(error) = done else { continue };
            let error = match error.class() {
                Class::Permanent => self.set_alert_aside(alert, &error).await.err(),
                Class::Transient => Some(error),
            };
            failure = failure.or(error);
        }
        failure.map_or(Ok(()), Err)
    }

    async fn hand_some_over(&self, limit: usize, after: i64, at_hand: &AtHand) -> Result<(), Error> {
        let (targets, now, at_hand) = (self.alerts().targets.clone(), self.clock().now(), at_hand.clone());
        self.store()
            .write(move |mut tx| {
                Box::pin(async move { hand_over(&mut tx, &targets, limit, after, &at_hand, now).await })
            })
            .await
    }

    async fn set_alert_aside(&self, alert: i64, error: &Error) -> Result<(), Error> {
        tracing::error!("alert {alert} cannot be read and is not sent: {}", chain(error));
        let now = self.clock().now();
        self.store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let now = tx.database_now(now).await?;
                    tx.set_alert_aside(alert, now).await
                })
            })
            .await
    }

    async fn try_some(&self, done: &mut Sent) -> Result<usize, Error> {
        let names = self.alerts().targets.iter().map(|target| target.name.clone()).collect();
        let now = self.store().now(self.clock().now()).await?;
        let until = now + chrono::TimeDelta::seconds(DELIVERY_LEASE_SECS);
        let taken = self.store().claim_deliveries(names, TRIES_MAX, now, until).await?;
        let count = taken.len();
        let mut tries = JoinSet::new();
        for delivery in taken {
            let target = self.alerts().targets.iter().find(|target| target.name == delivery.target).cloned();
            tries.spawn(async move {
                let outcome = match &target {
                    // A panic counts as a failed try: it must come to an end as well.
                    Some(target) => catch_panic(send(target, &delivery, now))
                        .await
                        .unwrap_or_else(|panic| Err(format!("sending {panic}"))),
                    None => Err("there is no such target".to_owned()),
                };
                (delivery, outcome)
            });
        }
        let mut failure = None;
        while let Some(tried) = tries.join_next().await {
            // A try that was cut off is tried again when its time is over.
            if let Ok((delivery, outcome)) = tried {
                part(&mut failure, self.note(&delivery, outcome, done)).await;
            }
        }
        failure.map_or(Ok(count), Err)
    }

    /// Notes what became of a try, for whoever comes next.
    async fn note(
        &self,
        delivery: &Delivery,
        outcome: Result<(), String>,
        done: &mut Sent,
    ) -> Result<(), Error> {
        let now = self.store().now(self.clock().now()).await?;
        let (id, target) = (&delivery.delivery_id, &delivery.target);
        let Err(fault) = outcome else {
            self.store().delivery_sent(delivery, now).await?;
            done.sent += 1;
            return Ok(());
        };
        let wait = retry_after_secs(delivery.attempt);
        let next = wait.map(|secs| now + chrono::TimeDelta::seconds(secs));
        self.store().delivery_failed(delivery, fault.clone(), next, now).await?;
        if let Some(secs) = wait {
            done.failed += 1;
            tracing::warn!(delivery.id = %id, "{target} was not told, trying again in {secs} s: {fault}");
        } else {
            done.dead += 1;
            tracing::error!(delivery.id = %id, "{target} was not told, and is not tried again: {fault}");
        }
        Ok(())
    }

    /// Sends a test message to one target or to all of them, at once and past the outbox.
    pub async fn test_targets(&self, name: Option<&str>) -> Result<Vec<Tested>, Error> {
        let now = self.store().now(self.clock().now()).await?;
        let wanted = |target: &&Target| name.is_none_or(|name| target.name == name);
        let targets: Vec<Target> = self.alerts().targets.iter().filter(wanted).cloned().collect();
        if let (Some(name), true) = (name, targets.is_empty()) {
            let message = format!("there is no target `{name}` in the configuration of this process");
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
            tested.push(Tested { target: target.name, error });
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
        message: "this is a test: messages reach you".to_owned(),
        command: None,
        first_at: now,
        last_at: now,
        times: 1,
        resolved_at: Some(now),
    }
}

/// The first alert that is being read, for a caller that has to set it aside.
type AtHand = Arc<Mutex<Option<i64>>>;

/// Makes messages of alerts, at the pace of each target.
async fn hand_over(
    tx: &mut Tx<'_>,
    targets: &[Target],
    limit: usize,
    after: i64,
    at_hand: &AtHand,
    now: Option<Timestamp>,
) -> Result<(), Error> {
    tx.lock_alerts().await?;
    let now = tx.database_now(now).await?;
    let Some(first) = tx.next_unsent_alert(after).await? else { return Ok(()) };
    if let Ok(mut at_hand) = at_hand.lock() {
        *at_hand = Some(first);
    }
    for alert in tx.unsent_alerts(limit, first.saturating_sub(1)).await? {
        let fresh = now - alert.last_at < STALE;
        for target in targets.iter().filter(|target| fresh && target.wants(alert.kind)) {
            let interval =
                chrono::TimeDelta::from_std(target.interval).unwrap_or(chrono::TimeDelta::days(30));
            let last = tx.last_told(&target.name, &alert).await?;
            let due = last.map_or(now, |last| now.max(last + interval));
            let id = Uuid::new_v4().to_string();
            tx.add_delivery(&id, &target.name, &alert, due, now).await?;
        }
        tx.mark_sent(&alert, now).await?;
    }
    Ok(())
}

/// Tries once. What went wrong is said without addresses and without secrets.
async fn send(target: &Target, delivery: &Delivery, now: Timestamp) -> Result<(), String> {
    let authorities = match &target.ca_file {
        Some(path) => {
            let read = tokio::fs::read(path).await;
            Some(read.map_err(|error| format!("could not read `{}`: {error}", path.display()))?)
        }
        None => None,
    };
    let sent = match &target.way {
        Way::Mail(way) => mail::send(way, authorities.as_deref(), delivery).await,
        Way::Webhook(way) => webhook::send(way, authorities.as_deref(), delivery, now).await,
    };
    sent.map_err(|fault| fault.chars().filter(|letter| *letter != '\0').take(FAULT_LETTERS_MAX).collect())
}
