//! Fan-in: each ended partition triggers an evaluation of its sync. Evaluations are idempotent.

use super::Syncs;
use super::plan::record_event;
use tidemill_core::alert::{AlertKind, feed_subject};
use tidemill_core::event::Level;
use tidemill_core::feed::RunType;
use tidemill_core::message::{Consolidate, Message};
use tidemill_core::queue::{CONSOLIDATE, NewMessage};
use tidemill_core::records::{Partition, Sync, failure_reason};
use tidemill_core::run::{EndCause, RunState};
use tidemill_core::sync::{ConsolidationDecision, SyncState, evaluate};
use tidemill_core::{Json, Timestamp};
use tidemill_store::{Error, Tx};
use uuid::Uuid;

impl Syncs {
    /// Counts a sync's partitions and acts on the result.
    pub async fn evaluate(&self, sync: Uuid) -> Result<ConsolidationDecision, Error> {
        let now = self.now();
        let decision = self
            .engine
            .store()
            .write(move |mut tx| Box::pin(async move { decide(&mut tx, sync, now).await }))
            .await?;
        if decision != ConsolidationDecision::Wait {
            self.wake();
        }
        Ok(decision)
    }
}

async fn decide(tx: &mut Tx<'_>, id: Uuid, now: Option<Timestamp>) -> Result<ConsolidationDecision, Error> {
    let Some(found) = tx.sync(id).await? else { return Ok(ConsolidationDecision::Wait) };
    // Locked by separate statements before the count: of two concurrent last partitions, the second waits here and
    // sees the first.
    tx.lock_run(&found.ops_run_id).await?;
    let Some(sync) = tx.lock_sync(id).await? else { return Ok(ConsolidationDecision::Wait) };
    let counts = tx.count_partitions(id).await?;
    tx.write_counts(id, counts, now).await?;
    if !matches!(sync.state, SyncState::Created | SyncState::WorkersRunning) {
        return Ok(ConsolidationDecision::Wait);
    }
    let count = |count: i64| u32::try_from(count).unwrap_or(u32::MAX);
    let decision = evaluate(count(counts.expected), count(counts.completed), count(counts.failed));
    match decision {
        ConsolidationDecision::Wait => {}
        ConsolidationDecision::Trigger => {
            trigger(tx, &sync, false, false, now).await?;
        }
        ConsolidationDecision::Skip => {
            let partitions = tx.partitions(id).await?;
            let failures = partitions.iter().filter_map(Partition::failure);
            let reason = failure_reason(counts.failed, counts.expected, failures);
            fail(tx, &sync, AlertKind::SyncFailed, &reason, now).await?;
        }
    }
    Ok(decision)
}

/// Hands a sync to the consolidators: its state and the message are one commit.
pub(super) async fn trigger(
    tx: &mut Tx<'_>,
    sync: &Sync,
    forced: bool,
    advance: bool,
    now: Option<Timestamp>,
) -> Result<bool, Error> {
    let rules = tx.pin_rules(now).await?;
    if sync.rules_version.is_some_and(|before| before != rules) {
        // An earlier consolidation was interrupted. It restarts with the current rules, so that one sync has one set
        // of prices.
        tx.restart_consolidation(sync.run_id).await?;
    }
    let Some(generation) = tx.trigger_sync(sync.run_id, sync.state, forced, advance, rules, now).await?
    else {
        return Ok(false);
    };
    tx.send_messages(&[order_for(sync, generation, forced)], now).await?;
    Ok(true)
}

/// Creates the message that orders a consolidation.
pub(super) fn order_for(sync: &Sync, generation: i32, forced: bool) -> NewMessage {
    let message = Consolidate {
        run_id: sync.run_id,
        trace_id: sync.trace_id.clone(),
        force: forced.then_some(true),
        updated_to: Some(sync.updated_to),
        feed: sync.feed.clone(),
    };
    let (id, group) = (message.id(), message.feed.clone());
    let body = serde_json::to_value(Message::Consolidate(message)).unwrap_or_default();
    let mut message = NewMessage::new(CONSOLIDATE, id, group, body);
    message.generation = generation;
    message.run_id = Some(sync.run_id.to_string());
    message.trace_id = Some(sync.trace_id.clone());
    message
}

/// Fails a sync and its run, leaves the watermark unchanged, and raises an alert.
pub(super) async fn fail(
    tx: &mut Tx<'_>,
    sync: &Sync,
    alert: AlertKind,
    reason: &str,
    now: Option<Timestamp>,
) -> Result<(), Error> {
    if !tx.move_sync(sync.run_id, sync.state, SyncState::Failed, Some(reason), now).await? {
        return Ok(());
    }
    record_event(tx, sync, Level::Error, &format!("{reason}; the watermark is unchanged"), now).await?;
    let text = format!("sync {} of feed {} failed: {reason}", sync.run_id, sync.feed);
    tx.alert_feed(alert, &sync.feed, Some(&sync.ops_run_id), &text, now).await?;
    let metadata: Json = serde_json::json!({"sync": sync.run_id, "error": reason});
    tx.end_sync_run(&sync.ops_run_id, RunState::Failed, EndCause::Reported, metadata, now).await?;
    tracing::error!(sync.id = %sync.run_id, "{text}");
    Ok(())
}

/// Resolves the alerts of a feed in the commit that completes its sync, and raises a recovery alert.
pub(super) async fn recovered(tx: &mut Tx<'_>, sync: &Sync, now: Option<Timestamp>) -> Result<(), Error> {
    let subject = feed_subject(&sync.feed);
    let mut was_bad = false;
    for kind in [AlertKind::SyncFailed, AlertKind::ConsolidationFailed] {
        was_bad |= tx.resolve_alert(kind, &subject, now).await?;
    }
    if sync.run_type == RunType::Full && sync.delete_note.is_none() {
        tx.resolve_alert(AlertKind::DeleteLimit, &subject, now).await?;
        tx.resolve_alert(AlertKind::AbsenceUnproven, &subject, now).await?;
    }
    if was_bad {
        let text = format!("feed {} has recovered: sync {} is completed", sync.feed, sync.run_id);
        tx.alert_feed(AlertKind::SyncRecovered, &sync.feed, Some(&sync.ops_run_id), &text, now).await?;
    }
    Ok(())
}
