//! Deletion of vanished records: those that a full sync did not see, and those that the feed reports as withdrawn.
//! They are verified and marked as deleted, unless their number exceeds the delete limit.

use super::Syncs;
use super::circuit::FeedAccessError;
use super::consolidate::{ConsolidationContext, IDLE_SECS, LOCK_WAIT_SECS};
use super::delete_rows::delete_rows;
use super::plan::record_event;
use super::verify::Verified;
use std::collections::BTreeSet;
use tidemill_core::Timestamp;
use tidemill_core::absence::{AbsentRecords, EvidenceGap, ListEvidence};
use tidemill_core::alert::AlertKind;
use tidemill_core::event::Level;
use tidemill_core::feed::RunType;
use tidemill_core::feed_definition::target::WriteDisposition;
use tidemill_core::records::Sync;
use tidemill_core::sync::SyncState;
use tidemill_store::{Error, Tx, UnseenCounts};
use tokio::sync::watch;

/// Records that are verified and marked at once.
const CHUNK: usize = 500;
/// Most withdrawn records that one sync reads; the next full sync finds the rest.
const WITHDRAWN_MAX: usize = 100_000;

impl Syncs {
    /// Marks records that this sync finds to be gone. `evidence` says whether it has read every record.
    ///
    /// Returns false if another replica still has a batch in progress, or if the sync was stopped.
    pub(super) async fn delete_vanished(
        &self,
        sync: &Sync,
        context: &ConsolidationContext,
        evidence: ListEvidence,
        stop: &watch::Receiver<bool>,
    ) -> Result<bool, FeedAccessError> {
        let store = self.engine.store();
        let id = sync.run_id;
        let counts = store.read_counts(id).await?;
        if counts.unconsolidated > 0 {
            return Ok(false);
        }
        if counts.completed < counts.expected {
            return Ok(true);
        }
        let into = context
            .source
            .definition()
            .map(|definition| (&definition.deletes, definition.into.write_disposition));
        if into.is_some_and(|(deletes, write)| {
            write == WriteDisposition::Append || !(deletes.absence || write == WriteDisposition::Replace)
        }) {
            return Ok(true);
        }
        match sync.run_type {
            RunType::Full => self.delete_unseen(sync, context, evidence, stop).await,
            RunType::Incremental => self.delete_withdrawn(sync, context, stop).await,
        }
    }

    /// Marks the records that a full sync did not see.
    async fn delete_unseen(
        &self,
        sync: &Sync,
        context: &ConsolidationContext,
        evidence: ListEvidence,
        stop: &watch::Receiver<bool>,
    ) -> Result<bool, FeedAccessError> {
        let (store, tables, id) = (self.engine.store(), &context.tables, sync.run_id);
        let found = store.count_unseen(tables, id).await?;
        if found.unseen == 0 {
            return Ok(true);
        }
        if let Some(gap) = evidence.gap()
            && !has_lookup(context)
        {
            let note = format!(
                "{} of {} records were not seen, and nothing shows that every record was read: {gap}; no record was \
                 deleted; {}",
                found.unseen,
                found.active,
                advice(gap)
            );
            self.note_kept(sync, note, found.unseen, AlertKind::AbsenceUnproven).await?;
            return Ok(true);
        }
        if self.is_too_many(context, found) {
            self.refuse_delete(sync, context, found, "were not seen").await?;
            return Ok(true);
        }
        let mut after = String::new();
        loop {
            let unseen = store.unseen_after(tables, id, after.clone(), CHUNK).await?;
            let Some(last) = unseen.last() else { return Ok(true) };
            after.clone_from(last);
            match self.verify(sync, context, unseen, evidence, stop).await? {
                Verified::Gone(gone) => {
                    if !self.mark_deleted(sync, context, gone).await? {
                        return Ok(false);
                    }
                }
                Verified::Doubtful(note) => {
                    let left = store.count_unseen(tables, id).await?.unseen;
                    self.note_kept(sync, note, left, AlertKind::DeleteLimit).await?;
                    return Ok(true);
                }
            }
        }
    }

    /// Marks the records that the feed has withdrawn since the last sync started. Sold records do not appear in the
    /// list of changed records.
    async fn delete_withdrawn(
        &self,
        sync: &Sync,
        context: &ConsolidationContext,
        stop: &watch::Receiver<bool>,
    ) -> Result<bool, FeedAccessError> {
        let (store, Some(since)) = (self.engine.store(), sync.updated_from) else { return Ok(true) };
        let ids = self.withdrawn(sync, context, since, stop).await?;
        let mut known = Vec::new();
        for chunk in ids.chunks(CHUNK) {
            known.extend(store.active_records(&context.tables, chunk.to_vec()).await?);
        }
        if known.is_empty() {
            return Ok(true);
        }
        let active = store.count_active(&context.tables).await?;
        let found = UnseenCounts { active, unseen: i64::try_from(known.len()).unwrap_or(i64::MAX) };
        if self.is_too_many(context, found) {
            self.refuse_delete(sync, context, found, "were withdrawn").await?;
            return Ok(true);
        }
        for chunk in known.chunks(CHUNK) {
            let unchecked = ListEvidence::Missing(EvidenceGap::Unchecked);
            match self.verify(sync, context, chunk.to_vec(), unchecked, stop).await? {
                Verified::Gone(gone) => {
                    if !self.mark_deleted(sync, context, gone).await? {
                        return Ok(false);
                    }
                }
                Verified::Doubtful(note) => {
                    self.note_kept(sync, note, 0, AlertKind::DeleteLimit).await?;
                    return Ok(true);
                }
            }
        }
        Ok(true)
    }

    /// Reads the feed's list of records that it has withdrawn since then. If the feed rejects the request, the list
    /// ends: the next full sync finds the rest.
    ///
    /// The list is limited in records and pages, and ends with the first page without a new record: a feed that
    /// ignores the offset would otherwise be read forever.
    async fn withdrawn(
        &self,
        sync: &Sync,
        context: &ConsolidationContext,
        since: Timestamp,
        stop: &watch::Receiver<bool>,
    ) -> Result<Vec<String>, FeedAccessError> {
        let limit = context.source.page_limit();
        let pages_max = 2 * (WITHDRAWN_MAX / limit.max(1) as usize) + 1;
        let (mut ids, mut offset) = (BTreeSet::new(), 0);
        for _ in 0..pages_max {
            let Some(answer) = context.source.withdrawn(since, offset, limit) else { break };
            let answer = context.wait.during(answer);
            let page = match self.query_feed_once(&sync.feed, &sync.ops_run_id, stop, answer).await {
                Err(FeedAccessError::Feed(error)) => {
                    let warning = format!("feed {} does not list its withdrawn records: {error}", sync.feed);
                    self.warn(sync, warning).await?;
                    break;
                }
                page => page?,
            };
            let (known, records) = (ids.len(), page.items.len() + page.rejected.len());
            if records == 0 {
                break;
            }
            offset += records as u64;
            ids.extend(page.items.into_iter().map(|item| item.record_id));
            ids.extend(page.rejected.into_iter().filter_map(|bad| bad.record_id));
            if ids.len() == known {
                let warning =
                    format!("feed {} repeats its list of withdrawn records after {known} of them", sync.feed);
                self.warn(sync, format!("{warning}; the next full sync finds the rest")).await?;
                break;
            }
            if ids.len() >= WITHDRAWN_MAX {
                let warning = format!("feed {} has withdrawn more than {WITHDRAWN_MAX} records", sync.feed);
                self.warn(sync, format!("{warning}; the next full sync finds the rest")).await?;
                break;
            }
        }
        Ok(ids.into_iter().collect())
    }

    /// Logs a warning and adds it to the events of the sync's run.
    async fn warn(&self, sync: &Sync, warning: String) -> Result<(), Error> {
        tracing::warn!(sync.id = %sync.run_id, feed = sync.feed, "{warning}");
        let (sync, now) = (sync.clone(), self.now());
        let recorded = self.engine.store().write(move |mut tx| {
            Box::pin(async move { record_event(&mut tx, &sync, Level::Warn, &warning, now).await })
        });
        recorded.await
    }

    #[expect(clippy::cast_precision_loss, reason = "a share of a count")]
    fn is_too_many(&self, context: &ConsolidationContext, found: UnseenCounts) -> bool {
        found.unseen as f64 > found.active as f64 * self.delete_limit(context)
    }

    /// Returns the largest share of the records that one sync may delete.
    fn delete_limit(&self, context: &ConsolidationContext) -> f64 {
        match context.source.definition() {
            Some(definition) if definition.into.write_disposition == WriteDisposition::Replace => 1.0,
            Some(definition) => f64::from(definition.deletes.threshold_permille) / 1_000.0,
            None => self.settings.delete_limit,
        }
    }

    /// Marks records as deleted, except those whose rows the table refuses to delete. Returns false if the sync is no
    /// longer being consolidated.
    async fn mark_deleted(
        &self,
        sync: &Sync,
        context: &ConsolidationContext,
        gone: AbsentRecords,
    ) -> Result<bool, Error> {
        if gone.is_empty() {
            return Ok(true);
        }
        let (tables, id, now) = (context.tables.clone(), sync.run_id, self.now());
        let run = sync.ops_run_id.clone();
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    tx.limit_idle(IDLE_SECS).await?;
                    tx.limit_locks(LOCK_WAIT_SECS).await?;
                    // The note about refused rows is an event of the run, which is locked before its sync.
                    tx.lock_run(&run).await?;
                    let locked = tx.lock_sync(id).await?;
                    let Some(sync) = locked.filter(|sync| sync.state == SyncState::Consolidating) else {
                        return Ok(false);
                    };
                    tx.hold_table(&tables).await?;
                    let counts = delete_rows(&mut tx, &tables, id, gone, now).await?;
                    if counts.refused > 0 {
                        note_refused(&mut tx, &sync, now).await?;
                    }
                    tx.add_deleted(id, i64::try_from(counts.deleted).unwrap_or(i64::MAX), now).await
                })
            })
            .await
    }

    /// Deletes nothing and raises an alert, because so many vanished records indicate an error of the feed.
    async fn refuse_delete(
        &self,
        sync: &Sync,
        context: &ConsolidationContext,
        found: UnseenCounts,
        what: &str,
    ) -> Result<(), Error> {
        let note = format!(
            "{} of {} records {what}, more than the limit of {} %: no record was deleted",
            found.unseen,
            found.active,
            self.delete_limit(context) * 100.0
        );
        self.note_kept(sync, note, found.unseen, AlertKind::DeleteLimit).await
    }

    /// Records once why this number of rows is kept although their records were not seen, and raises an alert.
    async fn note_kept(&self, sync: &Sync, note: String, kept: i64, alert: AlertKind) -> Result<(), Error> {
        let (sync, now) = (sync.clone(), self.now());
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    if sync.delete_note.as_deref() == Some(note.as_str()) {
                        return Ok(());
                    }
                    // The event locks the run, which is locked before its sync.
                    record_event(&mut tx, &sync, Level::Warn, &note, now).await?;
                    tx.record_delete_note(sync.run_id, Some(&note)).await?;
                    tx.set_absent_kept(sync.run_id, i32::try_from(kept).unwrap_or(i32::MAX)).await?;
                    let text = format!("feed {}: {note}", sync.feed);
                    tx.alert_feed(alert, &sync.feed, Some(&sync.ops_run_id), &text, now).await
                })
            })
            .await
    }
}

/// Records once per sync that the table refused to delete rows.
async fn note_refused(tx: &mut Tx<'_>, sync: &Sync, now: Option<Timestamp>) -> Result<(), Error> {
    let note = format!(
        "the table refused to delete rows of vanished records, and the next full sync tries again; see `tidemill feed \
         rejects {}`",
        sync.feed
    );
    if sync.delete_note.as_deref() == Some(note.as_str()) {
        return Ok(());
    }
    tx.record_delete_note(sync.run_id, Some(&note)).await?;
    record_event(tx, sync, Level::Warn, &note, now).await
}

/// Returns whether the feed can be asked for single records. A lookup needs no evidence of a list.
fn has_lookup(context: &ConsolidationContext) -> bool {
    context.source.lookup(&[]).is_some()
}

/// Returns how to change a definition whose absent records are kept.
const fn advice(gap: EvidenceGap) -> &'static str {
    match gap {
        // A total alone would not help: it does not show which records changed.
        EvidenceGap::NoTotal | EvidenceGap::KeysUnordered | EvidenceGap::ChangesUncounted => {
            "add `deletes.lookup` to the definition, or declare `trust: {complete: true}`"
        }
        EvidenceGap::EmptyList | EvidenceGap::ShortEnd => {
            "add `trust.total_path` or `deletes.lookup` to the definition, or declare `trust: {complete: true}`"
        }
        EvidenceGap::PartitionsUncounted => "add `trust.total_path` or `deletes.lookup` to the definition",
        EvidenceGap::PagesApart
        | EvidenceGap::ListChanged
        | EvidenceGap::CountIsHigher
        | EvidenceGap::Repeats
        | EvidenceGap::Nameless
        | EvidenceGap::PartitionsChanged
        | EvidenceGap::Unchecked => {
            "the next full sync tries again; `deletes.lookup` decides without reading the list"
        }
    }
}
