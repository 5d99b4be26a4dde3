//! Stores a page: its records, its rejects, and the commit.

use super::super::Syncs;
use super::super::plan::envelope;
use super::{NextPage, PageContext, PageOutcome, PageToStore, PageWorker, int};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_core::Timestamp;
use tidemill_core::feed::{FeedPage, Item, Record};
use tidemill_core::page;
use tidemill_core::queue::{NewMessage, Receipt};
use tidemill_core::records::Stage;
use tidemill_store::{Error, NewReject, PageStep, QueueFuture, RefusalCode, Tx};

impl Syncs {
    /// Stores a page: rows, ledger, progress, the next message and the end of this one, in one commit.
    pub(super) async fn store_page(
        &self,
        context: PageContext,
        PageToStore { write: store, page, is_linked }: PageToStore,
        receipt: &Receipt,
        keep: NextPage,
        worker: &PageWorker,
    ) -> Result<PageOutcome, Error> {
        let began = tokio::time::Instant::now();
        let body = Arc::new(PageContent { is_linked, ..PageContent::of(&context, &store, &page) });
        let context = Arc::new(context);
        let first = self.commit_page(&context, store, &body, &[], receipt, keep, worker).await;
        let next = match first {
            Err(error) if error.is_bad_value() => {
                // The database cannot store a record of this page: find it, reject it, and store the rest.
                let refused = self.refused_records(&context, &body).await?;
                if refused.is_empty() {
                    return Err(error);
                }
                self.commit_page(&context, store, &body, &refused, receipt, keep, worker).await?
            }
            other => other?,
        };
        let Some(next) = next else { return Ok(PageOutcome::Skipped) };
        let progress = context.progress.after(&store, &page);
        let context = Arc::into_inner(context).unwrap_or_else(|| unreachable!());
        let (sync, item) = (&context.sync, context.item.at(store.next_offset));
        self.steps.add(began.elapsed());
        metrics::histogram!("tidemill_page_seconds", "feed" => sync.feed.clone()).record(began.elapsed());
        metrics::counter!("tidemill_pages_total", "feed" => sync.feed.clone()).increment(1);
        metrics::counter!("tidemill_page_records_total", "feed" => sync.feed.clone())
            .increment(page.items.len() as u64);
        let following = PageContext { item, progress, is_over: store.ends, ..context };
        Ok(PageOutcome::Stored(next, Box::new(following)))
    }

    /// Commits a page. Returns `None` if another worker has executed it.
    #[expect(clippy::too_many_arguments, reason = "all parts of a page are committed together")]
    async fn commit_page(
        &self,
        context: &Arc<PageContext>,
        store: page::PageWrite,
        body: &Arc<PageContent>,
        refused: &[(usize, String)],
        receipt: &Receipt,
        keep: NextPage,
        worker: &PageWorker,
    ) -> Result<Option<Option<Receipt>>, Error> {
        let page = PageCommit {
            context: context.clone(),
            store,
            body: body.clone(),
            refused: refused.to_vec(),
            receipt: receipt.clone(),
            keep,
            worker: worker.clone(),
            now: self.now(),
        };
        let database = self.engine.store();
        // Rejects are written by separate statements in the same transaction.
        let answer = if page.is_clean() {
            database.step(move |tx| page.commit(tx)).await
        } else {
            database.write(move |tx| page.commit(tx)).await
        };
        match answer {
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::Stale => Ok(None),
            Ok(next) => {
                if keep == NextPage::Release {
                    self.wake();
                }
                Ok(Some(next))
            }
            Err(error) => Err(error),
        }
    }

    /// Finds the records of a page that the database refuses, by bisection. Commits nothing.
    async fn refused_records(
        &self,
        context: &Arc<PageContext>,
        body: &Arc<PageContent>,
    ) -> Result<Vec<(usize, String)>, Error> {
        let mut refused = Vec::new();
        let mut spans = vec![(0, body.items.len())];
        while let Some((from, to)) = spans.pop() {
            let (context, body, now) = (context.clone(), body.clone(), self.now());
            let tried = self
                .engine
                .store()
                .dry_run(move |mut tx| {
                    Box::pin(async move {
                        let items: Vec<&Item> = body.items[from..to].iter().collect();
                        tx.store_records(&context.tables, context.sync.run_id, &items, now).await
                    })
                })
                .await;
            match tried {
                Ok(_) => {}
                Err(error) if error.is_bad_value() && to - from == 1 => {
                    refused.push((from, crate::retry_policy::chain(&error)));
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
}

/// Content of a page, in the order in which it is written.
struct PageContent {
    /// The last version of each record, sorted by record id.
    items: Vec<Item>,
    /// The record ids of the new records, in the feed's order.
    record_ids: Vec<String>,
    /// Records that could not be read.
    bad: Vec<NewReject>,
    /// Number of records that were not read before.
    fetched: u64,
    hash: [u8; 32],
    /// Token of the next page.
    next_token: Option<String>,
    /// Largest number of the incremental cursor.
    cursor_max: Option<i64>,
    is_linked: bool,
}

impl PageContent {
    fn of(context: &PageContext, store: &page::PageWrite, page: &FeedPage) -> Self {
        let (mut last, mut bad, mut record_ids) = (BTreeMap::new(), Vec::new(), Vec::new());
        for record in page.records().skip(store.from_index) {
            record_ids.push(record.name().into_owned());
            match record {
                Record::Accepted(item) => drop(last.insert(item.record_id.as_str(), item)),
                Record::Rejected(item) => bad.push(NewReject {
                    record_id: item.name().into_owned(),
                    stage: Stage::Fetch,
                    reason: item.reason.clone(),
                    payload: item.payload.clone(),
                }),
            }
        }
        Self {
            items: last.into_values().cloned().collect(),
            record_ids,
            bad,
            fetched: store.next_offset.saturating_sub(context.progress.next_offset),
            hash: page::page_hash(page),
            next_token: page.next.as_ref().and_then(|next| next.token.clone()),
            cursor_max: page.cursor_max,
            is_linked: false,
        }
    }
}

/// Everything that the commit of a page writes.
struct PageCommit {
    context: Arc<PageContext>,
    store: page::PageWrite,
    body: Arc<PageContent>,
    refused: Vec<(usize, String)>,
    receipt: Receipt,
    keep: NextPage,
    worker: PageWorker,
    now: Option<Timestamp>,
}

impl PageCommit {
    /// Whether no record is rejected.
    fn is_clean(&self) -> bool {
        self.body.bad.is_empty() && self.refused.is_empty()
    }

    fn commit(self, mut tx: Tx<'_>) -> QueueFuture<'_, Option<Receipt>> {
        Box::pin(async move {
            let (context, body) = (&self.context, &self.body);
            let is_storable = |index: usize| !self.refused.iter().any(|(refused, _)| *refused == index);
            let storable: Vec<&Item> = body
                .items
                .iter()
                .enumerate()
                .filter(|(at, _)| is_storable(*at))
                .map(|(_, item)| item)
                .collect();
            let step = PageStep {
                place: context.position(),
                next_offset: int(self.store.next_offset),
                shift: i32::try_from(self.store.shift).unwrap_or(i32::MAX),
                fetched: int(body.fetched),
                rejected: int((body.bad.len() + self.refused.len()) as u64),
                hash: &body.hash,
                record_ids: &body.record_ids,
                feed: &context.item.feed,
                raw: &context.tables.raw,
                next_token: body.next_token.as_deref(),
                cursor_max: body.cursor_max,
                is_linked: body.is_linked,
                items: &storable,
                receipt: &self.receipt,
                next: &envelope_of_generation(context, self.store.next_offset, self.receipt.generation),
                keeps: self.keep == NextPage::Keep,
                worker: &self.worker.name,
            };
            let next = tx.store_page(&step, self.now).await?;
            self.reject(&mut tx).await?;
            Ok(next)
        })
    }

    async fn reject(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let item = &self.context.item;
        let refused = self.refused.iter().map(|(index, reason)| NewReject {
            record_id: self.body.items[*index].record_id.clone(),
            stage: Stage::Store,
            reason: reason.clone(),
            payload: self.body.items[*index].payload.clone(),
        });
        for reject in self.body.bad.iter().cloned().chain(refused) {
            tx.reject(&item.feed, item.run_id, Some(&item.partition_id), &reject, self.now).await?;
        }
        Ok(())
    }
}

fn envelope_of_generation(context: &PageContext, offset: u64, generation: i32) -> NewMessage {
    let mut next = envelope(&context.sync, context.item.at(offset));
    next.generation = generation;
    next
}
