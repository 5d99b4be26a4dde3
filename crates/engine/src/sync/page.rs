//! One page: guard, fetch, decide, and one commit.

mod end;
mod evidence;
mod store;

use super::Syncs;
use super::circuit::{FeedAccessError, FeedWait};
use super::skip_reason::SkipReason;
use end::PassRead;
use std::sync::Arc;
use tidemill_core::WorkerId;
use tidemill_core::absence::decide_evidence;
use tidemill_core::feed::{FeedPage, FeedQuery};
use tidemill_core::feed_definition::{PageAccess, Place};
use tidemill_core::message::{Message, WorkItem};
use tidemill_core::page::{self, ChainDecision, PageDecision, PassEnd, Progress};
use tidemill_core::partition::PartitionState;
use tidemill_core::queue::{Receipt, ReceivedMessage};
use tidemill_core::records::{Partition, Sync};
use tidemill_core::sync::SyncState;
use tidemill_feeds::Feed as Source;
use tidemill_store::{Error, FeedTables, PartitionPosition, RefusalCode, Tx};
use uuid::Uuid;

/// The worker that executes a page.
#[derive(Debug, Clone)]
pub(super) struct PageWorker {
    pub(super) worker: WorkerId,
    pub(super) name: String,
    /// Records how long it waits for the feed.
    pub(super) wait: Arc<FeedWait>,
}

/// State of a partition while its pages are executed one after the other.
pub(super) struct PageContext {
    pub(super) sync: Sync,
    /// Tables of the feed. Pages write only the raw one.
    pub(super) tables: Arc<FeedTables>,
    pub(super) item: WorkItem,
    pub(super) progress: Progress,
    /// Whether the previous page was the last, so that no further page is requested.
    pub(super) is_over: bool,
}

/// Outcome of one page.
pub(super) enum PageOutcome {
    /// The page is stored. Contains the receipt of the next page's message if this worker holds it.
    Stored(Option<Receipt>, Box<PageContext>),
    Completed(Uuid),
    /// The page is a duplicate, or the partition has ended.
    Skipped,
    Failed(Uuid),
}

/// Whether the worker holds the next page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextPage {
    Keep,
    /// Any worker may take it.
    Release,
}

/// Outcome of fetching a page.
enum FetchOutcome {
    Store(PageToStore),
    Reread(page::RereadReason),
    /// Contains whether the end of the list is linked to the last page.
    Ended(bool),
    Fail(page::PageError),
}

/// A fetched page and what to store of it.
pub(super) struct PageToStore {
    write: page::PageWrite,
    page: FeedPage,
    /// Whether it is linked to the page before it, so that no record lies between them.
    is_linked: bool,
}

impl Syncs {
    /// Reads the partition of a message. Returns `None` if the page is skipped.
    pub(super) async fn open_page(
        &self,
        received: &ReceivedMessage,
        worker: &PageWorker,
    ) -> Result<Option<PageContext>, Error> {
        let Ok(Message::WorkItem(item)) = serde_json::from_value(received.body.clone()) else {
            return Err(Error::refused(RefusalCode::BadValue, "the message is not a work item"));
        };
        let (worker, now, body) = (worker.clone(), self.now(), received.body.clone());
        let requested_item = item.clone();
        let tables = Arc::new(raw_tables(&self.feed_record(&item.feed).await?.feed));
        let opened = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(sync) = tx.sync(item.run_id).await? else { return Ok(Err(SkipReason::Gone)) };
                    let Some(partition) = tx.partition(item.run_id, &item.partition_id).await? else {
                        return Ok(Err(SkipReason::Gone));
                    };
                    let progress = progress_of(&mut tx, &partition).await?;
                    if let Some(skip) = SkipReason::of(page::guard(item.offset, &progress)) {
                        return Ok(Err(skip));
                    }
                    if !sync.state.is_live() {
                        return Ok(Err(SkipReason::Failed));
                    }
                    if sync.state == SyncState::Created {
                        let (from, to) = (SyncState::Created, SyncState::WorkersRunning);
                        tx.move_sync(sync.run_id, from, to, None, now).await?;
                    }
                    if partition.state == PartitionState::Pending {
                        tx.receive_partition(sync.run_id, &item.partition_id, now).await?;
                    }
                    let id = Uuid::new_v4();
                    tx.begin_worker_run(id, sync.run_id, &item.partition_id, &worker.name, &body, now)
                        .await?;
                    Ok(Ok(PageContext { sync, tables, item, progress, is_over: false }))
                })
            })
            .await?;
        Ok(opened.inspect_err(|skip| skip.record(&requested_item)).ok())
    }

    /// Executes one page: fetches it, and stores it or ends the pass.
    pub(super) async fn execute_page(
        &self,
        source: &Arc<dyn Source>,
        context: PageContext,
        receipt: &Receipt,
        keep: NextPage,
        worker: &PageWorker,
    ) -> Result<PageOutcome, FeedAccessError> {
        let item = context.item.clone();
        if context.sync.definition != source.digest() {
            let reason = "the definition of the feed changed during the sync; start a new sync";
            return Ok(self.fail_partition(&context.item, Some(receipt), reason, worker).await?);
        }
        let query =
            FeedQuery { range: item.range(context.sync.granularity), updated_from: item.updated_from };
        self.count_before(source, &query, &context, worker).await?;
        let mut recounts = 0;
        loop {
            let is_over = context.is_over && recounts == 0;
            let fetched = if is_over {
                FetchOutcome::Ended(true)
            } else {
                let run = &context.sync.ops_run_id;
                worker.wait.during(self.unless_cancelled(run, fetch(source, &query, &context))).await??
            };
            match fetched {
                FetchOutcome::Store(page) => {
                    return Ok(self.store_page(context, page, receipt, keep, worker).await?);
                }
                FetchOutcome::Ended(is_linked) if !source.reading().recounts => {
                    let facts = self.pass_facts(&context, None, is_linked).await?.facts;
                    let evidence = decide_evidence(source.reading().list, &facts);
                    let end = PassRead { counts: facts.read, recount: None, evidence };
                    return Ok(self.complete_partition(context, end, receipt, worker).await?);
                }
                FetchOutcome::Ended(is_linked) => {
                    let run = &context.sync.ops_run_id;
                    let count = self.unless_cancelled(run, source.count(&query));
                    let recount = worker.wait.during(count).await??.count;
                    let pass = self.pass_facts(&context, Some(recount), is_linked).await?;
                    let (counts, access) = (pass.facts.read, source.reading().access);
                    match page::decide_pass_end(&counts, recount, context.progress.pass, recounts, access) {
                        // The count may be ahead of the list for a moment, so the list is read once more too.
                        PassEnd::Recount => {
                            let wait = PassEnd::wait(self.settings.tuning.backoff, recounts);
                            worker.wait.during(tokio::time::sleep(wait)).await;
                            recounts += 1;
                        }
                        PassEnd::Complete => {
                            let evidence = self.evidence_of(source, &query, &context, pass, worker).await?;
                            let end = PassRead { counts, recount: Some(recount), evidence };
                            return Ok(self.complete_partition(context, end, receipt, worker).await?);
                        }
                        PassEnd::Reread(reason) => {
                            tracing::info!(sync.id = %item.run_id, "{}: {reason}; reading it again", item.partition_id);
                            return Ok(self.read_again(context, Some(recount), receipt, worker).await?);
                        }
                        PassEnd::Fail(error) => {
                            let reason = error.to_string();
                            return Ok(self
                                .fail_partition(&context.item, Some(receipt), &reason, worker)
                                .await?);
                        }
                    }
                }
                FetchOutcome::Reread(reason) => {
                    tracing::warn!(sync.id = %item.run_id, "{}: {reason}; reading it again", item.partition_id);
                    return Ok(self.read_again(context, None, receipt, worker).await?);
                }
                FetchOutcome::Fail(error) => {
                    let reason = error.to_string();
                    return Ok(self.fail_partition(&context.item, Some(receipt), &reason, worker).await?);
                }
            }
        }
    }
}

/// Fetches the next page: one that overlaps the previous one where the feed allows that, else the one that follows.
async fn fetch(
    source: &Arc<dyn Source>,
    query: &FeedQuery,
    context: &PageContext,
) -> Result<FetchOutcome, FeedAccessError> {
    match source.reading().access {
        PageAccess::Random => fetch_overlapping(source, query, context).await,
        PageAccess::Aligned(_) | PageAccess::Sequential => fetch_chained(source, query, context).await,
    }
}

/// Fetches until a page has records, or the list ends.
async fn fetch_chained(
    source: &Arc<dyn Source>,
    query: &FeedQuery,
    context: &PageContext,
) -> Result<FetchOutcome, FeedAccessError> {
    if context.progress.is_at_end() {
        return Ok(FetchOutcome::Ended(true));
    }
    let (mut place, repeated) = (context.progress.place(), source.reading().repeated);
    let mut attempt = 0;
    loop {
        let mut fetched = source.page(query, &place, context.item.limit).await?;
        match page::decide_chained(&context.progress, &place, &fetched, attempt, repeated) {
            ChainDecision::Store(store) => {
                page::mark_end(&mut fetched, &store);
                let is_linked = fetched.keys_rise;
                return Ok(FetchOutcome::Store(PageToStore { write: store, page: fetched, is_linked }));
            }
            ChainDecision::Next(next) => place = next,
            ChainDecision::Reread(reason) => return Ok(FetchOutcome::Reread(reason)),
            ChainDecision::Ended => return Ok(FetchOutcome::Ended(true)),
            ChainDecision::Fail(error) => return Ok(FetchOutcome::Fail(error)),
        }
        attempt += 1;
    }
}

/// Fetches until the page overlaps the previous one, or it is clear that it does not.
async fn fetch_overlapping(
    source: &Arc<dyn Source>,
    query: &FeedQuery,
    context: &PageContext,
) -> Result<FetchOutcome, FeedAccessError> {
    let repeated = source.reading().repeated;
    let mut request = page::first_fetch(&context.progress, context.item.limit, source.page_limit());
    let mut attempt = 0;
    loop {
        let place = Place { offset: request.offset, token: None };
        let fetched = source.page(query, &place, request.limit).await?;
        let is_linked = page::is_linked(&context.progress, &request, &fetched);
        match page::decide_page(&context.progress, &request, &fetched, attempt, repeated) {
            PageDecision::Store(write) => {
                return Ok(FetchOutcome::Store(PageToStore { write, page: fetched, is_linked }));
            }
            PageDecision::StepBack(next) | PageDecision::StepOn(next) => request = next,
            PageDecision::Reread(reason) => return Ok(FetchOutcome::Reread(reason)),
            PageDecision::Ended => return Ok(FetchOutcome::Ended(is_linked)),
            PageDecision::Fail(error) => return Ok(FetchOutcome::Fail(error)),
        }
        attempt += 1;
    }
}

impl PageContext {
    fn position(&self) -> PartitionPosition<'_> {
        PartitionPosition {
            run_id: self.item.run_id,
            partition: &self.item.partition_id,
            offset: int(self.item.offset),
            pass: i32::try_from(self.progress.pass).unwrap_or(i32::MAX),
        }
    }
}

/// Returns the progress of a partition, with the records that the next page must overlap.
async fn progress_of(tx: &mut Tx<'_>, partition: &Partition) -> Result<Progress, Error> {
    let position = PartitionPosition {
        run_id: partition.run_id,
        partition: &partition.partition_id,
        offset: partition.next_offset,
        pass: partition.pass,
    };
    let mut last_ids = Vec::new();
    let mut page_hash = None;
    if partition.next_offset > 0 {
        let pages = tx.pages_before(position, 4).await?;
        page_hash = pages.first().and_then(|page| page.hash.as_slice().try_into().ok());
        for page in pages.into_iter().rev() {
            last_ids.extend(page.record_ids);
        }
    }
    Ok(Progress {
        next_offset: partition.next_offset.unsigned_abs().into(),
        shift: partition.shift.into(),
        last_ids,
        page_hash,
        token: partition.next_token.clone(),
        pass: partition.pass.unsigned_abs(),
        completed: partition.state.completed(),
        failed: partition.state.failed(),
    })
}

/// Returns the tables of a feed for pages, which write raw records only.
pub(super) fn raw_tables(feed: &tidemill_core::feed::Feed) -> FeedTables {
    FeedTables { feed: feed.feed.clone(), raw: feed.raw_table(), target: None }
}

fn stale() -> Error {
    Error::refused(RefusalCode::Stale, "another worker has already stored the page")
}

fn int(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
