//! One page: guard, fetch, judge, and one commit.

use super::Syncs;
use super::circuit::{Asked, FeedWait};
use super::plan::{envelope, say};
use super::skip::Skip;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_core::event::Level;
use tidemill_core::feed::{FeedPage, FeedQuery, Item};
use tidemill_core::message::{Message, WorkDone, WorkItem, WorkStatus};
use tidemill_core::page::{self, AfterLast, Progress, Verdict};
use tidemill_core::partition::PartitionState;
use tidemill_core::queue::{NewMessage, Receipt, Received, WORK_DONE};
use tidemill_core::records::{Partition, Stage, Sync};
use tidemill_core::run::Applied;
use tidemill_core::sync::SyncState;
use tidemill_core::{Timestamp, WorkerId};
use tidemill_feeds::Feed as Source;
use tidemill_store::{Answer, Error, NewReject, PageStep, Place, RefusalCode, Tx};
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
        let item = &reading.item;
        let query =
            FeedQuery { prices: item.range(reading.sync.granularity), updated_from: item.updated_from };
        let fetched = if reading.is_over {
            Fetched::Ended
        } else {
            let run = &reading.sync.ops_run_id;
            hand.wait.during(self.while_wanted(run, fetch(source, &query, &reading))).await??
        };
        match fetched {
            Fetched::Store(store, page) => {
                Ok(self.store_page(reading, store, page, receipt, keep, hand).await?)
            }
            Fetched::Ended => {
                let recount = hand.wait.during(source.count(&query)).await?.count;
                Ok(self.end_pass(reading, recount, receipt, hand).await?)
            }
            Fetched::Reread(reason) => {
                tracing::warn!(sync.id = %item.run_id, "{}: {reason}; it is read again", item.partition_id);
                Ok(self.read_again(reading, None, receipt, hand).await?)
            }
            Fetched::Fail(fault) => {
                Ok(self.fail_partition(&reading.item, Some(receipt), &fault.to_string(), hand).await?)
            }
        }
    }

    /// Stores a page: rows, ledger, progress, the next message and the end of this one, in one commit.
    async fn store_page(
        &self,
        reading: Reading,
        store: page::Store,
        page: FeedPage,
        receipt: &Receipt,
        keep: Keep,
        hand: &Hand,
    ) -> Result<Paged, Error> {
        let began = tokio::time::Instant::now();
        let brought = Arc::new(Brought::of(&reading, &store, &page));
        let reading = Arc::new(reading);
        let first = self.commit_page(&reading, store, &brought, &[], receipt, keep, hand).await;
        let kept = match first {
            Err(error) if error.is_bad_value() => {
                // The database cannot hold something on this page: find it, reject it, and go on with the rest.
                let refused = self.refused_records(&reading, &brought).await?;
                if refused.is_empty() {
                    return Err(error);
                }
                self.commit_page(&reading, store, &brought, &refused, receipt, keep, hand).await?
            }
            other => other?,
        };
        let Some(next) = kept else { return Ok(Paged::Skipped) };
        let progress = reading.progress.after(&store, &page);
        let Reading { sync, item, .. } = Arc::into_inner(reading).unwrap_or_else(|| unreachable!());
        let item = item.at(store.next_offset);
        self.steps.add(began.elapsed());
        metrics::histogram!("tidemill_page_seconds", "feed" => sync.feed.clone()).record(began.elapsed());
        metrics::counter!("tidemill_pages_total", "feed" => sync.feed.clone()).increment(1);
        metrics::counter!("tidemill_page_stones_total", "feed" => sync.feed.clone())
            .increment(page.items.len() as u64);
        Ok(Paged::Stored(next, Box::new(Reading { sync, item, progress, is_over: store.ends })))
    }

    /// The commit of a page. `None`: somebody else has carried it out.
    #[expect(clippy::too_many_arguments, reason = "a page is all of this, and committed as one")]
    async fn commit_page(
        &self,
        reading: &Arc<Reading>,
        store: page::Store,
        brought: &Arc<Brought>,
        refused: &[(usize, String)],
        receipt: &Receipt,
        keep: Keep,
        hand: &Hand,
    ) -> Result<Option<Option<Receipt>>, Error> {
        let page = Page {
            reading: reading.clone(),
            store,
            brought: brought.clone(),
            refused: refused.to_vec(),
            receipt: receipt.clone(),
            keep,
            hand: hand.clone(),
            now: self.now(),
        };
        let database = self.engine.store();
        // What is rejected is written by statements of its own, in the same transaction.
        let answer = if page.is_clean() {
            database.step(move |tx| page.commit(tx)).await
        } else {
            database.write(move |tx| page.commit(tx)).await
        };
        match answer {
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::Stale => Ok(None),
            Ok(next) => {
                if keep == Keep::Release {
                    self.ring();
                }
                Ok(Some(next))
            }
            Err(error) => Err(error),
        }
    }

    /// Which records of a page the database refuses, found by halves; nothing of this is committed.
    async fn refused_records(
        &self,
        reading: &Arc<Reading>,
        brought: &Arc<Brought>,
    ) -> Result<Vec<(usize, String)>, Error> {
        let mut refused = Vec::new();
        let mut spans = vec![(0, brought.items.len())];
        while let Some((from, to)) = spans.pop() {
            let (reading, brought, now) = (reading.clone(), brought.clone(), self.now());
            let tried = self
                .engine
                .store()
                .attempt(move |mut tx| {
                    Box::pin(async move {
                        let items: Vec<&Item> = brought.items[from..to].iter().collect();
                        tx.keep_records(&reading.item.feed, reading.sync.run_id, &items, now).await
                    })
                })
                .await;
            match tried {
                Ok(_) => {}
                Err(error) if error.is_bad_value() && to - from == 1 => {
                    refused.push((from, crate::patience::chain(&error)));
                }
                Err(error) if error.is_bad_value() => {
                    let middle = from.midpoint(to);
                    spans.extend([(from, middle), (middle, to)]);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(refused)
    }

    /// The end of a pass: the partition is complete, read again, or does not add up.
    async fn end_pass(
        &self,
        reading: Reading,
        recount: u64,
        receipt: &Receipt,
        hand: &Hand,
    ) -> Result<Paged, Error> {
        let (run_id, partition) = (reading.item.run_id, reading.item.partition_id.clone());
        let seen = self.engine.store().seen_stones(run_id, partition).await?;
        match page::after_last(seen.unsigned_abs(), recount, reading.progress.pass) {
            AfterLast::Complete => self.complete_partition(reading, recount, receipt, hand).await,
            AfterLast::Again(reason) => {
                tracing::info!(sync.id = %run_id, "{}: {reason}; it is read again", reading.item.partition_id);
                self.read_again(reading, Some(recount), receipt, hand).await
            }
            AfterLast::Fault(fault) => {
                self.fail_partition(&reading.item, Some(receipt), &fault.to_string(), hand).await
            }
        }
    }

    async fn complete_partition(
        &self,
        reading: Reading,
        recount: u64,
        receipt: &Receipt,
        hand: &Hand,
    ) -> Result<Paged, Error> {
        let (receipt, hand, now) = (receipt.clone(), hand.clone(), self.now());
        let run_id = reading.item.run_id;
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
                    Ok(true)
                })
            })
            .await?;
        self.ring();
        Ok(if applied { Paged::Completed(run_id) } else { Paged::Skipped })
    }

    /// Begins another pass over the partition.
    async fn read_again(
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
    pub(super) async fn fail_partition(
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

/// What a page brought, in the order in which it is written.
struct Brought {
    /// Each stone once, the last that was given, sorted by stone.
    items: Vec<Item>,
    /// Every stone of the page that is new, in the feed's order.
    stone_ids: Vec<String>,
    /// What could not be read.
    bad: Vec<NewReject>,
    fetched: usize,
    hash: [u8; 32],
}

impl Brought {
    fn of(reading: &Reading, store: &page::Store, page: &FeedPage) -> Self {
        let new = &page.items[store.from_index.min(page.items.len())..];
        let last: BTreeMap<&str, &Item> = new.iter().map(|item| (item.stone_id.as_str(), item)).collect();
        let name = |(number, id): (usize, &Option<String>)| {
            id.clone()
                .unwrap_or_else(|| format!("#{}/{}/{number}", reading.item.partition_id, reading.item.offset))
        };
        let bad_ids: Vec<String> = page.bad.iter().map(|bad| &bad.stone_id).enumerate().map(name).collect();
        let bad = page.bad.iter().zip(&bad_ids).map(|(bad, stone_id)| NewReject {
            stone_id: stone_id.clone(),
            stage: Stage::Fetch,
            reason: bad.reason.clone(),
            payload: bad.payload.clone(),
        });
        Self {
            items: last.into_values().cloned().collect(),
            stone_ids: new.iter().map(|item| item.stone_id.clone()).chain(bad_ids.clone()).collect(),
            bad: bad.collect(),
            fetched: new.len() + page.bad.len(),
            hash: page::page_hash(page),
        }
    }
}

/// A page that is about to be committed.
struct Page {
    reading: Arc<Reading>,
    store: page::Store,
    brought: Arc<Brought>,
    refused: Vec<(usize, String)>,
    receipt: Receipt,
    keep: Keep,
    hand: Hand,
    now: Option<Timestamp>,
}

impl Page {
    /// Whether all of it can be stored.
    fn is_clean(&self) -> bool {
        self.brought.bad.is_empty() && self.refused.is_empty()
    }

    fn commit(self, mut tx: Tx<'_>) -> Answer<'_, Option<Receipt>> {
        Box::pin(async move {
            let (reading, brought) = (&self.reading, &self.brought);
            let is_kept = |index: usize| !self.refused.iter().any(|(refused, _)| *refused == index);
            let kept: Vec<&Item> = brought
                .items
                .iter()
                .enumerate()
                .filter(|(at, _)| is_kept(*at))
                .map(|(_, item)| item)
                .collect();
            let step = PageStep {
                place: reading.place(),
                next_offset: int(self.store.next_offset),
                shift: i32::try_from(self.store.shift).unwrap_or(i32::MAX),
                fetched: int(brought.fetched as u64),
                rejected: int((brought.bad.len() + self.refused.len()) as u64),
                hash: &brought.hash,
                stone_ids: &brought.stone_ids,
                feed: &reading.item.feed,
                items: &kept,
                receipt: &self.receipt,
                next: &envelope_of_generation(reading, self.store.next_offset, self.receipt.generation),
                keeps: self.keep == Keep::Next,
                worker: &self.hand.name,
            };
            let next = tx.store_page(&step, self.now).await?;
            self.reject(&mut tx).await?;
            Ok(next)
        })
    }

    async fn reject(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let item = &self.reading.item;
        let refused = self.refused.iter().map(|(index, reason)| NewReject {
            stone_id: self.brought.items[*index].stone_id.clone(),
            stage: Stage::Store,
            reason: reason.clone(),
            payload: self.brought.items[*index].payload.clone(),
        });
        for reject in self.brought.bad.iter().cloned().chain(refused) {
            tx.reject(&item.feed, item.run_id, Some(&item.partition_id), &reject, self.now).await?;
        }
        Ok(())
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

/// Ends the message of the page; an error where the worker no longer holds it, so that nothing is committed.
async fn finish_message(tx: &mut Tx<'_>, receipt: &Receipt, now: Option<Timestamp>) -> Result<(), Error> {
    let outcome = tx.complete_messages(std::slice::from_ref(receipt), now).await?;
    match outcome.first() {
        Some(Applied::Applied) => Ok(()),
        _ => Err(stale()),
    }
}

fn stale() -> Error {
    Error::refused(RefusalCode::Stale, "somebody else has carried out the page")
}

fn envelope_of_generation(reading: &Reading, offset: u64, generation: i32) -> NewMessage {
    let mut next = envelope(&reading.sync, reading.item.at(offset));
    next.generation = generation;
    next
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

fn int(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
