//! Stores a page: the records, what is rejected of them, and the commit.

use super::super::Syncs;
use super::super::plan::envelope;
use super::{Hand, Keep, Paged, Reading, int};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_core::Timestamp;
use tidemill_core::feed::{FeedPage, Item, Record};
use tidemill_core::page;
use tidemill_core::queue::{NewMessage, Receipt};
use tidemill_core::records::Stage;
use tidemill_store::{Answer, Error, NewReject, PageStep, RefusalCode, Tx};

impl Syncs {
    /// Stores a page: rows, ledger, progress, the next message and the end of this one, in one commit.
    pub(super) async fn store_page(
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
}

/// What a page brought, in the order in which it is written.
struct Brought {
    /// Each stone once, the last that was given, sorted by stone.
    items: Vec<Item>,
    /// The name at every place of the page from the first new one on, in the feed's order.
    stone_ids: Vec<String>,
    /// What could not be read.
    bad: Vec<NewReject>,
    /// Places of the list that were not read before.
    fetched: u64,
    hash: [u8; 32],
}

impl Brought {
    fn of(reading: &Reading, store: &page::Store, page: &FeedPage) -> Self {
        let (mut last, mut bad, mut stone_ids) = (BTreeMap::new(), Vec::new(), Vec::new());
        for record in page.records().skip(store.from_index) {
            stone_ids.push(record.name().into_owned());
            match record {
                Record::Good(item) => drop(last.insert(item.stone_id.as_str(), item)),
                Record::Bad(item) => bad.push(NewReject {
                    stone_id: item.name().into_owned(),
                    stage: Stage::Fetch,
                    reason: item.reason.clone(),
                    payload: item.payload.clone(),
                }),
            }
        }
        Self {
            items: last.into_values().cloned().collect(),
            stone_ids,
            bad,
            fetched: store.next_offset.saturating_sub(reading.progress.next_offset),
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
                fetched: int(brought.fetched),
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

fn envelope_of_generation(reading: &Reading, offset: u64, generation: i32) -> NewMessage {
    let mut next = envelope(&reading.sync, reading.item.at(offset));
    next.generation = generation;
    next
}
