//! Stones that are gone: those that a full sync did not see, and those of which the feed tells an incremental sync that
//! it has withdrawn them. Verified, and marked deleted; unless they are so many that it cannot be true.

use super::Syncs;
use super::circuit::Asked;
use super::consolidate::Bench;
use super::plan::say;
use std::collections::{BTreeSet, HashSet};
use tidemill_core::Timestamp;
use tidemill_core::alert::AlertKind;
use tidemill_core::event::Level;
use tidemill_core::feed::RunType;
use tidemill_core::records::Sync;
use tidemill_core::sync::SyncState;
use tidemill_store::{Error, Unseen};
use tokio::sync::watch;

/// Stones that are looked up and marked in one go.
const CHUNK: usize = 500;
/// Withdrawn stones that one sync asks for; more of them are found by the next full sync.
const WITHDRAWN_MAX: usize = 100_000;

impl Syncs {
    /// Marks the stones of a feed that it no longer offers, as far as a sync can know. False: it is too early for that,
    /// because another replica has a batch at hand; or too late, because somebody stopped the sync.
    pub(super) async fn delete_vanished(
        &self,
        sync: &Sync,
        bench: &Bench,
        stop: &watch::Receiver<bool>,
    ) -> Result<bool, Asked> {
        let store = self.engine.store();
        let id = sync.run_id;
        let counts = store.read_counts(id).await?;
        if counts.unconsolidated > 0 {
            return Ok(false);
        }
        if counts.completed < counts.expected {
            return Ok(true);
        }
        match sync.run_type {
            RunType::Full => self.delete_unseen(sync, bench, stop).await,
            RunType::Incremental => self.delete_withdrawn(sync, bench, stop).await,
        }
    }

    /// Marks the stones that a full sync did not see.
    async fn delete_unseen(
        &self,
        sync: &Sync,
        bench: &Bench,
        stop: &watch::Receiver<bool>,
    ) -> Result<bool, Asked> {
        let (store, id) = (self.engine.store(), sync.run_id);
        let found = store.unseen(sync.feed.clone(), id).await?;
        if found.unseen == 0 {
            return Ok(true);
        }
        if self.is_too_many(found) {
            self.refuse_delete(sync, found, "were not seen").await?;
            return Ok(true);
        }
        let mut after = String::new();
        loop {
            let unseen = store.unseen_after(sync.feed.clone(), id, after.clone(), CHUNK).await?;
            let Some(last) = unseen.last() else { return Ok(true) };
            after.clone_from(last);
            let gone = self.verify(sync, bench, unseen, stop).await?;
            if !self.mark_deleted(sync, gone).await? {
                return Ok(false);
            }
        }
    }

    /// Marks the stones that the feed says it has withdrawn since the last sync began: what was sold after it had been
    /// read is in no list of changes.
    async fn delete_withdrawn(
        &self,
        sync: &Sync,
        bench: &Bench,
        stop: &watch::Receiver<bool>,
    ) -> Result<bool, Asked> {
        let (store, Some(since)) = (self.engine.store(), sync.updated_from) else { return Ok(true) };
        let told = self.withdrawn(sync, bench, since, stop).await?;
        let mut known = Vec::new();
        for some in told.chunks(CHUNK) {
            known.extend(store.active_stones(sync.feed.clone(), some.to_vec()).await?);
        }
        if known.is_empty() {
            return Ok(true);
        }
        let active = store.count_active(sync.feed.clone()).await?;
        let found = Unseen { active, unseen: i64::try_from(known.len()).unwrap_or(i64::MAX) };
        if self.is_too_many(found) {
            self.refuse_delete(sync, found, "were withdrawn").await?;
            return Ok(true);
        }
        for some in known.chunks(CHUNK) {
            let gone = self.verify(sync, bench, some.to_vec(), stop).await?;
            if !self.mark_deleted(sync, gone).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the feed's list of records that it has withdrawn since then. A feed that does not understand the question
    /// is not asked again: the next full sync finds out.
    ///
    /// The list is bounded in records and pages, and ends with the first page that brings no new record: a feed that
    /// ignores the offset would otherwise be read for ever.
    async fn withdrawn(
        &self,
        sync: &Sync,
        bench: &Bench,
        since: Timestamp,
        stop: &watch::Receiver<bool>,
    ) -> Result<Vec<String>, Asked> {
        let limit = bench.source.page_limit();
        let pages_max = 2 * (WITHDRAWN_MAX / limit.max(1) as usize) + 1;
        let (mut told, mut offset) = (BTreeSet::new(), 0);
        for _ in 0..pages_max {
            let Some(answer) = bench.source.withdrawn(since, offset, limit) else { break };
            let answer = bench.wait.during(answer);
            let page = match self.asking_once(&sync.feed, &sync.ops_run_id, stop, answer).await {
                Err(Asked::Feed(error)) => {
                    let odd = format!("feed {} does not list what it has withdrawn: {error}", sync.feed);
                    self.warn(sync, odd).await?;
                    break;
                }
                page => page?,
            };
            let (known, records) = (told.len(), page.items.len() + page.bad.len());
            if records == 0 {
                break;
            }
            offset += records as u64;
            told.extend(page.items.into_iter().map(|item| item.stone_id));
            told.extend(page.bad.into_iter().filter_map(|bad| bad.stone_id));
            if told.len() == known {
                let odd =
                    format!("feed {} repeats its list of withdrawn records after {known} of them", sync.feed);
                self.warn(sync, format!("{odd}; the next full sync finds the rest")).await?;
                break;
            }
            if told.len() >= WITHDRAWN_MAX {
                let odd = format!("feed {} has withdrawn more than {WITHDRAWN_MAX} records", sync.feed);
                self.warn(sync, format!("{odd}; the next full sync finds the rest")).await?;
                break;
            }
        }
        Ok(told.into_iter().collect())
    }

    /// Notes something odd about a feed in the log and in the record of the sync's run.
    async fn warn(&self, sync: &Sync, odd: String) -> Result<(), Error> {
        tracing::warn!(sync.id = %sync.run_id, feed = sync.feed, "{odd}");
        let (sync, now) = (sync.clone(), self.now());
        let noted = self
            .engine
            .store()
            .write(move |mut tx| Box::pin(async move { say(&mut tx, &sync, Level::Warn, &odd, now).await }));
        noted.await
    }

    #[expect(clippy::cast_precision_loss, reason = "a share of a count")]
    fn is_too_many(&self, found: Unseen) -> bool {
        found.unseen as f64 > found.active as f64 * self.settings.delete_limit
    }

    /// Those of the stones that the feed really no longer offers.
    async fn verify(
        &self,
        sync: &Sync,
        bench: &Bench,
        unseen: Vec<String>,
        stop: &watch::Receiver<bool>,
    ) -> Result<Vec<String>, Asked> {
        let there = match bench.source.lookup(&unseen) {
            Some(answer) => {
                let answer = bench.wait.during(answer);
                Some(self.asking_once(&sync.feed, &sync.ops_run_id, stop, answer).await?)
            }
            None => None,
        };
        if let Some(there) = there {
            let there: HashSet<String> = there.into_iter().collect();
            return Ok(unseen.into_iter().filter(|stone| !there.contains(stone)).collect());
        }
        // A feed that cannot be asked: two full syncs in a row must have missed the stone.
        let store = self.engine.store();
        let before = store.full_sync_before(sync.feed.clone(), sync.run_id).await?;
        let Some(before) = before else { return Ok(Vec::new()) };
        Ok(store.also_unseen(before, unseen).await?)
    }

    /// Marks stones as deleted. False: the sync is not being consolidated any more.
    async fn mark_deleted(&self, sync: &Sync, gone: Vec<String>) -> Result<bool, Error> {
        if gone.is_empty() {
            return Ok(true);
        }
        let (feed, id, now) = (sync.feed.clone(), sync.run_id, self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let locked = tx.lock_sync(id).await?;
                    if locked.is_none_or(|sync| sync.state != SyncState::Consolidating) {
                        return Ok(false);
                    }
                    let deleted = tx.delete_stones(&feed, gone, now).await?;
                    tx.add_deleted(id, i64::try_from(deleted).unwrap_or(i64::MAX), now).await
                })
            })
            .await
    }

    /// So many vanished that something else must be wrong: nothing is deleted, and people are told.
    async fn refuse_delete(&self, sync: &Sync, found: Unseen, what: &str) -> Result<(), Error> {
        let note = format!(
            "{} of {} stones {what}, more than the limit of {} %: nothing was deleted",
            found.unseen,
            found.active,
            self.settings.delete_limit * 100.0
        );
        let (sync, now) = (sync.clone(), self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    if sync.delete_note.as_deref() == Some(note.as_str()) {
                        return Ok(());
                    }
                    tx.note_delete(sync.run_id, Some(&note)).await?;
                    say(&mut tx, &sync, Level::Warn, &note, now).await?;
                    let told = format!("feed {}: {note}", sync.feed);
                    tx.alert_feed(AlertKind::DeleteLimit, &sync.feed, Some(&sync.ops_run_id), &told, now)
                        .await
                })
            })
            .await
    }
}
