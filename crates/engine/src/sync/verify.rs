//! Verification of vanished records: by a lookup at the feed, or by the pages of two full syncs.
//!
//! A lookup that a source answers wrongly reports records as gone that exist: a gateway answers 404 to every path, or
//! the source has renamed a parameter. So after a lookup with missing records, the source is asked for a record that
//! this very sync has read. If the lookup does not find that one either, it proves nothing.

use super::Syncs;
use super::circuit::FeedAccessError;
use super::consolidate::ConsolidationContext;
use std::collections::HashSet;
use tidemill_core::absence::{AbsentRecords, ListEvidence, LookupControl};
use tidemill_core::feed_definition::target::WriteDisposition;
use tidemill_core::records::Sync;
use tidemill_store::Error;
use tokio::sync::watch;

/// Number of records that control a lookup. The source may have removed one since it was read.
const CONTROLS: usize = 3;

/// Outcome of a verification.
pub(super) enum Verified {
    /// The records that are gone.
    Gone(AbsentRecords),
    /// The lookup contradicts the list, as this note explains.
    Doubtful(String),
}

impl Syncs {
    /// Returns the unseen records that a lookup or an earlier full sync confirms to be gone; all of a replaced table.
    pub(super) async fn verify(
        &self,
        sync: &Sync,
        context: &ConsolidationContext,
        unseen: Vec<String>,
        evidence: ListEvidence,
        stop: &watch::Receiver<bool>,
    ) -> Result<Verified, FeedAccessError> {
        let definition = context.source.definition();
        let replaces = definition.is_some_and(|one| one.into.write_disposition == WriteDisposition::Replace);
        if replaces && let Some(absent) = AbsentRecords::replaced(evidence, unseen.clone()) {
            return Ok(Verified::Gone(absent));
        }
        let Some(there) = self.look_up(sync, context, &unseen, stop).await? else {
            // The feed has no lookup: two full syncs, and all syncs between them, must have missed the record.
            let store = self.engine.store();
            let Some(before) = store.whole_sync_before(sync.feed.clone(), sync.run_id).await? else {
                return Ok(Verified::Gone(AbsentRecords::none()));
            };
            let missed = store.filter_unseen_since(before.run_id, unseen).await?;
            let absent = AbsentRecords::missed_twice(before.evidence, evidence, missed);
            return Ok(Verified::Gone(absent.unwrap_or_else(AbsentRecords::none)));
        };
        let asked = unseen.len();
        let gone: Vec<String> = unseen.into_iter().filter(|record| !there.contains(record)).collect();
        if gone.is_empty() || definition.is_none() {
            return Ok(Verified::Gone(AbsentRecords::not_found(LookupControl::BuiltIn, gone)));
        }
        let controls = self.controls(sync, context).await?;
        for control in &controls {
            let found = self.look_up(sync, context, std::slice::from_ref(control), stop).await?;
            if found.is_some_and(|found| found.contains(control)) {
                return Ok(Verified::Gone(AbsentRecords::not_found(LookupControl::Found, gone)));
            }
        }
        let Some(control) = controls.first() else {
            return Ok(Verified::Doubtful(format!(
                "the lookup reports {} of {asked} records as gone, and this sync has read no record that could show \
                 whether the lookup works: no record was deleted",
                gone.len()
            )));
        };
        Ok(Verified::Doubtful(format!(
            "the lookup reports {} of {asked} records as gone, and also `{control}`, which this sync has read: no \
             further record was deleted; correct `deletes.lookup`",
            gone.len()
        )))
    }

    /// Returns which of the records the source still has; `None` if it has no lookup.
    async fn look_up(
        &self,
        sync: &Sync,
        context: &ConsolidationContext,
        records: &[String],
        stop: &watch::Receiver<bool>,
    ) -> Result<Option<HashSet<String>>, FeedAccessError> {
        let Some(answer) = context.source.lookup(records) else { return Ok(None) };
        let answer = context.wait.during(answer);
        let found = self.query_feed_once(&sync.feed, &sync.ops_run_id, stop, answer).await?;
        Ok(Some(found.into_iter().collect()))
    }

    /// Returns active records that this sync has read, from different parts of the list.
    async fn controls(&self, sync: &Sync, context: &ConsolidationContext) -> Result<Vec<String>, Error> {
        let store = self.engine.store();
        let read = store.first_records(sync.run_id, CONTROLS).await?;
        let active = store.active_records(&context.tables, read).await?;
        let step = active.len().div_ceil(CONTROLS).max(1);
        Ok(active.into_iter().step_by(step).collect())
    }
}
