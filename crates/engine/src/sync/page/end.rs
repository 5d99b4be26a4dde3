//! Ends a pass over a partition: completed, read again, or failed.

use super::super::Syncs;
use super::super::plan::record_event;
use super::{PageContext, PageOutcome, PageWorker, int, stale};
use tidemill_core::Timestamp;
use tidemill_core::absence::ListEvidence;
use tidemill_core::event::Level;
use tidemill_core::feed::RunType;
use tidemill_core::message::{Message, WorkDone, WorkItem, WorkStatus};
use tidemill_core::page::ReadCounts;
use tidemill_core::queue::{NewMessage, Receipt, WORK_DONE};
use tidemill_core::records::Sync;
use tidemill_core::run::ChangeOutcome;
use tidemill_store::{Error, RefusalCode, Tx};

/// A pass that was read to its end.
pub(super) struct PassRead {
    pub(super) counts: ReadCounts,
    /// The feed's count after the last page, if it counts.
    pub(super) recount: Option<u64>,
    pub(super) evidence: ListEvidence,
}

impl Syncs {
    /// Completes a partition, with the evidence of its last pass.
    pub(super) async fn complete_partition(
        &self,
        context: PageContext,
        PassRead { counts, recount, evidence }: PassRead,
        receipt: &Receipt,
        worker: &PageWorker,
    ) -> Result<PageOutcome, Error> {
        let (receipt, worker, now) = (receipt.clone(), worker.clone(), self.now());
        let (run_id, feed) = (context.item.run_id, context.item.feed.clone());
        let is_full = context.sync.run_type == RunType::Full;
        let applied = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let position = context.position();
                    let recount = recount.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
                    let evidence = is_full.then_some(evidence.as_str());
                    if !tx.end_partition(position, recount, evidence, now).await? {
                        return Ok(false);
                    }
                    finish_message(&mut tx, &receipt, now).await?;
                    tx.count_worker_run(position.run_id, position.partition, &worker.name).await?;
                    tx.complete_worker_run(position.run_id, position.partition, now).await?;
                    let done = done_message(&context.sync, &context.item, &worker, None);
                    tx.send_messages(&[done], now).await?;
                    if let Some(anomaly) = counts.anomaly() {
                        let text = format!("{}: {anomaly}", position.partition);
                        record_event(&mut tx, &context.sync, Level::Warn, &text, now).await?;
                    }
                    Ok(true)
                })
            })
            .await?;
        self.wake();
        if !applied {
            return Ok(PageOutcome::Skipped);
        }
        for (name, count) in [
            ("tidemill_repeated_records_total", counts.repeats()),
            ("tidemill_nameless_records_total", counts.nameless),
        ] {
            if count > 0 {
                metrics::counter!(name, "feed" => feed.clone()).increment(count);
            }
        }
        Ok(PageOutcome::Completed(run_id))
    }

    /// Starts another pass over the partition.
    pub(super) async fn read_again(
        &self,
        context: PageContext,
        recount: Option<u64>,
        receipt: &Receipt,
        worker: &PageWorker,
    ) -> Result<PageOutcome, Error> {
        let (receipt, worker, now) = (receipt.clone(), worker.worker, self.now());
        let next = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let recount = recount.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
                    if !tx.start_next_pass(context.position(), recount, now).await? {
                        return Ok(None);
                    }
                    // The offset is unchanged, so the message stays the same: its lock is renewed.
                    let renewed = tx.renew_messages(std::slice::from_ref(&receipt), now).await?;
                    if renewed.first().is_none_or(Option::is_none) {
                        return Err(stale());
                    }
                    let progress = context.progress.reread();
                    let again = PageContext { progress, is_over: false, ..context };
                    Ok(Some((again, receipt, worker)))
                })
            })
            .await;
        match next {
            Ok(Some((context, receipt, _))) => Ok(PageOutcome::Stored(Some(receipt), Box::new(context))),
            Ok(None) => Ok(PageOutcome::Skipped),
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::Stale => Ok(PageOutcome::Skipped),
            Err(error) => Err(error),
        }
    }

    /// Fails a partition permanently, and removes its message.
    pub(in super::super) async fn fail_partition(
        &self,
        item: &WorkItem,
        receipt: Option<&Receipt>,
        reason: &str,
        worker: &PageWorker,
    ) -> Result<PageOutcome, Error> {
        let text = format!("{} of sync {} failed: {reason}", item.partition_id, item.run_id);
        let (item, receipt, reason, worker) =
            (item.clone(), receipt.cloned(), reason.to_owned(), worker.clone());
        let (run_id, now) = (item.run_id, self.now());
        let failed = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(sync) = tx.sync(item.run_id).await? else { return Ok(false) };
                    tx.count_worker_run(item.run_id, &item.partition_id, &worker.name).await?;
                    let failed = tx
                        .fail_partition(item.run_id, &item.partition_id, int(item.offset), &reason, now)
                        .await?;
                    if let Some(receipt) = &receipt {
                        // Fails if this worker no longer holds the page, so that nothing is committed.
                        finish_message(&mut tx, receipt, now).await?;
                    }
                    if failed {
                        let done = done_message(&sync, &item, &worker, Some(reason.clone()));
                        tx.send_messages(&[done], now).await?;
                        let text = format!("{} failed: {reason}", item.partition_id);
                        record_event(&mut tx, &sync, Level::Error, &text, now).await?;
                    }
                    Ok(failed)
                })
            })
            .await;
        self.wake();
        match failed {
            Ok(true) => {
                tracing::warn!(sync.id = %run_id, "{text}");
                Ok(PageOutcome::Failed(run_id))
            }
            Ok(false) => Ok(PageOutcome::Skipped),
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::Stale => Ok(PageOutcome::Skipped),
            Err(error) => Err(error),
        }
    }
}

/// Completes the message of the page. Returns an error if the worker no longer holds it, so that nothing is committed.
async fn finish_message(tx: &mut Tx<'_>, receipt: &Receipt, now: Option<Timestamp>) -> Result<(), Error> {
    let outcome = tx.complete_messages(std::slice::from_ref(receipt), now).await?;
    match outcome.first() {
        Some(ChangeOutcome::Applied) => Ok(()),
        _ => Err(stale()),
    }
}

/// Creates the message that tells the consolidators that a partition has ended.
fn done_message(sync: &Sync, item: &WorkItem, worker: &PageWorker, error: Option<String>) -> NewMessage {
    let done = WorkDone {
        run_id: item.run_id,
        trace_id: item.trace_id.clone(),
        worker_id: worker.worker.to_string(),
        partition_id: item.partition_id.clone(),
        records_processed: item.offset,
        status: if error.is_none() { WorkStatus::Success } else { WorkStatus::Failed },
        error,
        feed: item.feed.clone(),
    };
    let (id, group) = (done.id(), done.feed.clone());
    let body = serde_json::to_value(Message::WorkDone(done)).unwrap_or_default();
    let mut message = NewMessage::new(WORK_DONE, id, group, body);
    message.generation = sync.generation;
    message.run_id = Some(sync.run_id.to_string());
    message.trace_id = Some(sync.trace_id.clone());
    message
}
