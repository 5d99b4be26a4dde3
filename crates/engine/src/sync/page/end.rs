//! Ends a pass over a partition: completed, read again, or failed.

use super::super::Syncs;
use super::super::plan::say;
use super::{Hand, Paged, Reading, int, stale};
use tidemill_core::Timestamp;
use tidemill_core::event::Level;
use tidemill_core::message::{Message, WorkDone, WorkItem, WorkStatus};
use tidemill_core::page::{AfterLast, Seen};
use tidemill_core::queue::{NewMessage, Receipt, WORK_DONE};
use tidemill_core::records::Sync;
use tidemill_core::run::Applied;
use tidemill_store::{Error, RefusalCode, Tx};

impl Syncs {
    /// The end of a pass: the partition is complete, read again, or does not add up.
    pub(super) async fn end_pass(
        &self,
        reading: Reading,
        after: AfterLast,
        (seen, recount): (Seen, u64),
        receipt: &Receipt,
        hand: &Hand,
    ) -> Result<Paged, Error> {
        let (run_id, partition) = (reading.item.run_id, reading.item.partition_id.clone());
        match after {
            AfterLast::Complete => self.complete_partition(reading, (seen, recount), receipt, hand).await,
            AfterLast::Again(reason) => {
                tracing::info!(sync.id = %run_id, "{partition}: {reason}; it is read again");
                self.read_again(reading, Some(recount), receipt, hand).await
            }
            // Whoever counts again does not come here.
            AfterLast::CountAgain => self.read_again(reading, Some(recount), receipt, hand).await,
            AfterLast::Fault(fault) => {
                self.fail_partition(&reading.item, Some(receipt), &fault.to_string(), hand).await
            }
        }
    }

    async fn complete_partition(
        &self,
        reading: Reading,
        (seen, recount): (Seen, u64),
        receipt: &Receipt,
        hand: &Hand,
    ) -> Result<Paged, Error> {
        let (receipt, hand, now) = (receipt.clone(), hand.clone(), self.now());
        let (run_id, feed) = (reading.item.run_id, reading.item.feed.clone());
        let applied = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let place = reading.place();
                    let recount = i64::try_from(recount).unwrap_or(i64::MAX);
                    if !tx.end_partition(place, Some(recount), now).await? {
                        return Ok(false);
                    }
                    finish_message(&mut tx, &receipt, now).await?;
                    tx.count_worker_run(place.run_id, place.partition, &hand.name).await?;
                    tx.complete_worker_run(place.run_id, place.partition, now).await?;
                    let done = done_message(&reading.sync, &reading.item, &hand, None);
                    tx.send_messages(&[done], now).await?;
                    if let Some(oddity) = seen.oddity() {
                        let told = format!("{}: {oddity}", place.partition);
                        say(&mut tx, &reading.sync, Level::Warn, &told, now).await?;
                    }
                    Ok(true)
                })
            })
            .await?;
        self.ring();
        if !applied {
            return Ok(Paged::Skipped);
        }
        for (name, count) in [
            ("tidemill_repeated_stones_total", seen.repeats()),
            ("tidemill_nameless_records_total", seen.nameless),
        ] {
            if count > 0 {
                metrics::counter!(name, "feed" => feed.clone()).increment(count);
            }
        }
        Ok(Paged::Completed(run_id))
    }

    /// Begins another pass over the partition.
    pub(super) async fn read_again(
        &self,
        reading: Reading,
        recount: Option<u64>,
        receipt: &Receipt,
        hand: &Hand,
    ) -> Result<Paged, Error> {
        let (receipt, worker, now) = (receipt.clone(), hand.worker, self.now());
        let next = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let recount = recount.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
                    if !tx.repeat_partition(reading.place(), recount, now).await? {
                        return Ok(None);
                    }
                    // The offset stays, so the message is the same one: it is locked anew, and goes on.
                    let renewed = tx.renew_messages(std::slice::from_ref(&receipt), now).await?;
                    if renewed.first().is_none_or(Option::is_none) {
                        return Err(stale());
                    }
                    let Reading { sync, item, progress, .. } = reading;
                    let again = Reading { sync, item, progress: progress.reread(), is_over: false };
                    Ok(Some((again, receipt, worker)))
                })
            })
            .await;
        match next {
            Ok(Some((reading, receipt, _))) => Ok(Paged::Stored(Some(receipt), Box::new(reading))),
            Ok(None) => Ok(Paged::Skipped),
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::Stale => Ok(Paged::Skipped),
            Err(error) => Err(error),
        }
    }

    /// Fails a partition for good: once, counted once, with its message gone.
    pub(in super::super) async fn fail_partition(
        &self,
        item: &WorkItem,
        receipt: Option<&Receipt>,
        reason: &str,
        hand: &Hand,
    ) -> Result<Paged, Error> {
        let told = format!("{} of sync {} failed: {reason}", item.partition_id, item.run_id);
        let (item, receipt, reason, hand) = (item.clone(), receipt.cloned(), reason.to_owned(), hand.clone());
        let (run_id, now) = (item.run_id, self.now());
        let failed = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(sync) = tx.sync(item.run_id).await? else { return Ok(false) };
                    tx.count_worker_run(item.run_id, &item.partition_id, &hand.name).await?;
                    let failed = tx
                        .fail_partition(item.run_id, &item.partition_id, int(item.offset), &reason, now)
                        .await?;
                    if let Some(receipt) = &receipt {
                        // Whoever no longer holds the page has nothing to say about its partition.
                        finish_message(&mut tx, receipt, now).await?;
                    }
                    if failed {
                        let done = done_message(&sync, &item, &hand, Some(reason.clone()));
                        tx.send_messages(&[done], now).await?;
                        let told = format!("{} failed: {reason}", item.partition_id);
                        say(&mut tx, &sync, Level::Error, &told, now).await?;
                    }
                    Ok(failed)
                })
            })
            .await;
        self.ring();
        match failed {
            Ok(true) => {
                tracing::warn!(sync.id = %run_id, "{told}");
                Ok(Paged::Failed(run_id))
            }
            Ok(false) => Ok(Paged::Skipped),
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::Stale => Ok(Paged::Skipped),
            Err(error) => Err(error),
        }
    }
}

/// Ends the message of the page; an error where the worker no longer holds it, so that nothing is committed.
async fn finish_message(tx: &mut Tx<'_>, receipt: &Receipt, now: Option<Timestamp>) -> Result<(), Error> {
    let outcome = tx.complete_messages(std::slice::from_ref(receipt), now).await?;
    match outcome.first() {
        Some(Applied::Applied) => Ok(()),
        _ => Err(stale()),
    }
}

/// Tells the consolidators that a partition has ended.
fn done_message(sync: &Sync, item: &WorkItem, hand: &Hand, error: Option<String>) -> NewMessage {
    let done = WorkDone {
        run_id: item.run_id,
        trace_id: item.trace_id.clone(),
        worker_id: hand.worker.to_string(),
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
