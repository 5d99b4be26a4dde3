//! One page: guard, fetch, judge, and one commit.

mod end;
mod store;

use super::Syncs;
use super::circuit::{Asked, FeedWait};
use super::skip::Skip;
use std::sync::Arc;
use tidemill_core::WorkerId;
use tidemill_core::feed::{FeedPage, FeedQuery};
use tidemill_core::message::{Message, WorkItem};
use tidemill_core::page::{self, AfterLast, Progress, Verdict};
use tidemill_core::partition::PartitionState;
use tidemill_core::queue::{Receipt, Received};
use tidemill_core::records::{Partition, Sync};
use tidemill_core::sync::SyncState;
use tidemill_feeds::Feed as Source;
use tidemill_store::{Error, Place, RefusalCode, Tx};
use uuid::Uuid;

/// Whoever carries out a page.
#[derive(Debug, Clone)]
pub(super) struct Hand {
    /// The process.
    pub(super) worker: WorkerId,
    /// Its name.
    pub(super) name: String,
    /// Notes how long it has waited for the feed.
    pub(super) wait: Arc<FeedWait>,
}

/// What is known of a partition while its pages are carried out in a row.
pub(super) struct Reading {
    pub(super) sync: Sync,
    pub(super) item: WorkItem,
    pub(super) progress: Progress,
    /// Whether the page before was the last, so that the feed need not be asked for another.
    pub(super) is_over: bool,
}

/// What became of one page.
pub(super) enum Paged {
    /// Stored; the next page's message, where this worker keeps it.
    Stored(Option<Receipt>, Box<Reading>),
    /// The partition is read to its end.
    Completed(Uuid),
    /// There was nothing to do: a duplicate, or a partition that has ended.
    Skipped,
    /// The partition failed.
    Failed(Uuid),
}

/// Whether the worker keeps the next page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// It does.
    Next,
    /// Whoever comes may have it.
    Release,
}

/// A page that was fetched and judged.
enum Fetched {
    Store(page::Store, FeedPage),
    Reread(page::RereadReason),
    Ended,
    Fail(page::PageFault),
}

impl Syncs {
    /// Reads the partition of a message. `None`: the page is skipped.
    pub(super) async fn open_page(&self, received: &Received, hand: &Hand) -> Result<Option<Reading>, Error> {
        let Ok(Message::WorkItem(item)) = serde_json::from_value(received.body.clone()) else {
            return Err(Error::refused(RefusalCode::BadValue, "the message is no work item"));
        };
        let (hand, now, body) = (hand.clone(), self.now(), received.body.clone());
        let asked = item.clone();
        let opened = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(sync) = tx.sync(item.run_id).await? else { return Ok(Err(Skip::Gone)) };
                    let Some(partition) = tx.partition(item.run_id, &item.partition_id).await? else {
                        return Ok(Err(Skip::Gone));
                    };
                    let progress = progress_of(&mut tx, &partition).await?;
                    if let Some(skip) = Skip::of(page::guard(item.offset, &progress)) {
                        return Ok(Err(skip));
                    }
                    if !sync.state.is_live() {
                        return Ok(Err(Skip::Failed));
                    }
                    if sync.state == SyncState::Created {
                        let (from, to) = (SyncState::Created, SyncState::WorkersRunning);
                        tx.move_sync(sync.run_id, from, to, None, now).await?;
                    }
                    if partition.state == PartitionState::Pending {
                        tx.receive_partition(sync.run_id, &item.partition_id, now).await?;
                    }
                    let id = Uuid::new_v4();
                    tx.begin_worker_run(id, sync.run_id, &item.partition_id, &hand.name, &body, now).await?;
                    Ok(Ok(Reading { sync, item, progress, is_over: false }))
                })
            })
            .await?;
        Ok(opened.inspect_err(|skip| skip.note(&asked)).ok())
    }

    /// Carries out one page.
    pub(super) async fn carry_page(
        &self,
        source: &Arc<dyn Source>,
        reading: Reading,
        receipt: &Receipt,
        keep: Keep,
        hand: &Hand,
    ) -> Result<Paged, Asked> {
        let item = reading.item.clone();
        let query =
            FeedQuery { prices: item.range(reading.sync.granularity), updated_from: item.updated_from };
        let mut recounts = 0;
        loop {
            let is_over = reading.is_over && recounts == 0;
            let fetched = if is_over {
                Fetched::Ended
            } else {
                let run = &reading.sync.ops_run_id;
                hand.wait.during(self.while_wanted(run, fetch(source, &query, &reading))).await??
            };
            match fetched {
                Fetched::Store(store, page) => {
                    return Ok(self.store_page(reading, store, page, receipt, keep, hand).await?);
                }
                Fetched::Ended => {
                    let run = &reading.sync.ops_run_id;
                    let count = self.while_wanted(run, source.count(&query));
                    let recount = hand.wait.during(count).await??.count;
                    let seen = self.engine.store().seen(reading.place()).await?;
                    match page::after_last(&seen, recount, reading.progress.pass, recounts) {
                        // The count may be ahead of its list for a moment: the list is looked at once more too.
                        AfterLast::CountAgain => {
                            let wait = AfterLast::wait(self.settings.tuning.backoff, recounts);
                            hand.wait.during(tokio::time::sleep(wait)).await;
                            recounts += 1;
                        }
                        after @ (AfterLast::Complete | AfterLast::Again(_) | AfterLast::Fault(_)) => {
                            return Ok(self.end_pass(reading, after, (seen, recount), receipt, hand).await?);
                        }
                    }
                }
                Fetched::Reread(reason) => {
                    tracing::warn!(sync.id = %item.run_id, "{}: {reason}; it is read again", item.partition_id);
                    return Ok(self.read_again(reading, None, receipt, hand).await?);
                }
                Fetched::Fail(fault) => {
                    let reason = fault.to_string();
                    return Ok(self.fail_partition(&reading.item, Some(receipt), &reason, hand).await?);
                }
            }
        }
    }
}

/// Fetches until the page meets the one before, or it is clear that it does not.
async fn fetch(source: &Arc<dyn Source>, query: &FeedQuery, reading: &Reading) -> Result<Fetched, Asked> {
    let mut ask = page::ask(&reading.progress, reading.item.limit, source.page_limit());
    let mut attempt = 0;
    loop {
        let fetched = source.page(query, ask.offset, ask.limit).await?;
        match page::judge(&reading.progress, &ask, &fetched, attempt) {
            Verdict::Store(store) => return Ok(Fetched::Store(store, fetched)),
            Verdict::StepBack(next) | Verdict::StepOn(next) => ask = next,
            Verdict::Reread(reason) => return Ok(Fetched::Reread(reason)),
            Verdict::Ended => return Ok(Fetched::Ended),
            Verdict::Fail(fault) => return Ok(Fetched::Fail(fault)),
        }
        attempt += 1;
    }
}

impl Reading {
    fn place(&self) -> Place<'_> {
        Place {
            run_id: self.item.run_id,
            partition: &self.item.partition_id,
            offset: int(self.item.offset),
            pass: i32::try_from(self.progress.pass).unwrap_or(i32::MAX),
        }
    }
}

/// How far a partition is, with the stones that the next page must meet.
async fn progress_of(tx: &mut Tx<'_>, partition: &Partition) -> Result<Progress, Error> {
    let place = Place {
        run_id: partition.run_id,
        partition: &partition.partition_id,
        offset: partition.next_offset,
        pass: partition.pass,
    };
    let mut last_ids = Vec::new();
    let mut page_hash = None;
    if partition.next_offset > 0 {
        let pages = tx.pages_before(place, 4).await?;
        page_hash = pages.first().and_then(|page| page.hash.as_slice().try_into().ok());
        for page in pages.into_iter().rev() {
            last_ids.extend(page.stone_ids);
        }
    }
    Ok(Progress {
        next_offset: partition.next_offset.unsigned_abs().into(),
        shift: partition.shift.into(),
        last_ids,
        page_hash,
        pass: partition.pass.unsigned_abs(),
        completed: partition.state.completed(),
        failed: partition.state.failed(),
    })
}

fn stale() -> Error {
    Error::refused(RefusalCode::Stale, "somebody else has carried out the page")
}

fn int(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
