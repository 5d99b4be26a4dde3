//! Evidence that a pass over a partition read every record: counts before the first page and after the last one.

use super::super::Syncs;
use super::super::circuit::FeedAccessError;
use super::{PageContext, PageWorker};
use chrono::TimeDelta;
use std::sync::Arc;
use tidemill_core::absence::{ListEvidence, PassFacts, decide_evidence};
use tidemill_core::feed::{FeedQuery, RunType};
use tidemill_feeds::Feed as Source;
use tidemill_store::{Error, PassRecord};

impl Syncs {
    /// Counts a list before the first page of a pass, if its pages cannot show that none was skipped.
    pub(super) async fn count_before(
        &self,
        source: &Arc<dyn Source>,
        query: &FeedQuery,
        context: &PageContext,
        worker: &PageWorker,
    ) -> Result<(), FeedAccessError> {
        let is_first = context.progress.page_hash.is_none() && !context.is_over;
        let is_full = context.sync.run_type == RunType::Full;
        if !(is_first && is_full && source.reading().list.needs_first_count()) {
            return Ok(());
        }
        let run = &context.sync.ops_run_id;
        let counted = worker.wait.during(self.unless_cancelled(run, source.count(query))).await??;
        let position = context.position();
        let (run_id, partition) = (position.run_id, position.partition.to_owned());
        let (offset, pass) = (position.offset, position.pass);
        let recorded = self.engine.store().write(move |mut tx| {
            Box::pin(async move {
                let position =
                    tidemill_store::PartitionPosition { run_id, partition: &partition, offset, pass };
                let count = i64::try_from(counted.count).unwrap_or(i64::MAX);
                tx.record_first_count(position, count, counted.source_time).await
            })
        });
        // If the partition has moved on, the commit of the page finds that out.
        recorded.await?;
        Ok(())
    }

    /// Returns what a pass has found. `after` is the count after its last page; `is_linked`: the end of the list is
    /// linked to its last page.
    pub(super) async fn pass_facts(
        &self,
        context: &PageContext,
        after: Option<u64>,
        is_linked: bool,
    ) -> Result<PassRecord, Error> {
        let pass = self.engine.store().read_pass(context.position()).await?;
        let is_linked = is_linked && pass.facts.is_linked;
        Ok(PassRecord { facts: PassFacts { after, is_linked, ..pass.facts }, ..pass })
    }

    /// Decides whether a pass read every record. Counts the records that changed meanwhile, if that decides it.
    pub(super) async fn evidence_of(
        &self,
        source: &Arc<dyn Source>,
        query: &FeedQuery,
        context: &PageContext,
        pass: PassRecord,
        worker: &PageWorker,
    ) -> Result<ListEvidence, FeedAccessError> {
        let (list, mut facts) = (source.reading().list, pass.facts);
        let is_full = context.sync.run_type == RunType::Full;
        if is_full
            && list.needs_first_count()
            && facts.is_same_size()
            && let Some(since) = pass.counted_at
        {
            // The source's clock shows whole seconds, and its filter may exclude the time itself.
            let since = since - TimeDelta::seconds(1);
            let changes = FeedQuery { range: query.range, updated_from: Some(since) };
            let run = &context.sync.ops_run_id;
            let counted = worker.wait.during(self.unless_cancelled(run, source.count(&changes))).await??;
            facts.changed = Some(counted.count);
        }
        Ok(decide_evidence(list, &facts))
    }
}
