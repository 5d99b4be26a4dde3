//! Stones that a full sync did not see: verified, and marked deleted; unless so many vanished that it cannot be true.

use super::Syncs;
use super::circuit::Asked;
use super::consolidate::Bench;
use super::plan::say;
use std::collections::HashSet;
use tidemill_core::alert::AlertKind;
use tidemill_core::event::Level;
use tidemill_core::feed::RunType;
use tidemill_core::records::Sync;
use tidemill_core::sync::SyncState;
use tidemill_store::{Error, Unseen};
use tokio::sync::watch;

/// Stones that are looked up and marked in one go.
const CHUNK: usize = 500;

impl Syncs {
    /// Marks the stones of a feed that a full sync did not see, and that the feed no longer offers. False: it is too
    /// early for that, because another replica has a batch at hand; or too late, because somebody stopped the sync.
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
        if sync.run_type != RunType::Full || counts.completed < counts.expected {
            return Ok(true);
        }
        let found = store.unseen(sync.feed.clone(), id).await?;
        if found.unseen == 0 {
            return Ok(true);
        }
        if self.is_too_many(found) {
            self.refuse_delete(sync, found).await?;
            return Ok(true);
        }
        let mut after = String::new();
        loop {
            let unseen = store.unseen_after(sync.feed.clone(), id, after.clone(), CHUNK).await?;
            let Some(last) = unseen.last() else { return Ok(true) };
            after.clone_from(last);
            let mut stop = stop.clone();
            // A feed may take minutes to answer; whoever is to end does not wait for it.
            let gone = tokio::select! {
                gone = self.verify(sync, bench, unseen) => Some(gone?),
                Ok(_) = stop.wait_for(|stop| *stop) => None,
            };
            let Some(gone) = gone else {
                self.leave_probe(&sync.feed).await?;
                return Err(Asked::Stopped);
            };
            if !self.mark_deleted(sync, gone).await? {
                return Ok(false);
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share of a count")]
    fn is_too_many(&self, found: Unseen) -> bool {
        found.unseen as f64 > found.active as f64 * self.settings.delete_limit
    }

    /// Those of the stones that the feed really no longer offers.
    async fn verify(&self, sync: &Sync, bench: &Bench, unseen: Vec<String>) -> Result<Vec<String>, Asked> {
        let there = match bench.source.lookup(&unseen) {
            Some(answer) => Some(self.asking_once(&sync.feed, answer).await?),
            None => None,
        };
        if let Some(there) = there {
            let there: HashSet<String> = there.into_iter().map(|item| item.stone_id).collect();
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
    async fn refuse_delete(&self, sync: &Sync, found: Unseen) -> Result<(), Error> {
        let note = format!(
            "{} of {} stones were not seen, more than the limit of {} %: nothing was deleted",
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
                    tx.alert_feed(AlertKind::DeleteLimit, &sync.feed, Some(&sync.ops_run_id), &note, now)
                        .await
                })
            })
            .await
    }
}
