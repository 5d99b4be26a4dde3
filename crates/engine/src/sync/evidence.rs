//! The evidence of a sync: whether its partitions, each read to its end, contain every record of the source.

use super::Syncs;
use super::consolidate::ConsolidationContext;
use super::consolidator::ConsolidationError;
use super::coverage::{Counter, OnOutage, PartitionCoverage};
use tidemill_core::absence::{EvidenceGap, ListEvidence, evidence_of_partitions};
use tidemill_core::feed::RunType;
use tidemill_core::records::{Partition, Sync};
use tokio::sync::watch;

impl Syncs {
    /// Decides whether a sync has read every record of the source, and stores that. Records that are in no partition
    /// fail the sync, before any record is deleted as absent.
    pub(super) async fn sync_evidence(
        &self,
        sync: &Sync,
        context: &ConsolidationContext,
        stop: &watch::Receiver<bool>,
    ) -> Result<ListEvidence, ConsolidationError> {
        let unchecked = ListEvidence::Missing(EvidenceGap::Unchecked);
        // Partitions that failed leave gaps, which are recorded.
        let counts = self.engine.store().read_counts(sync.run_id).await?;
        if counts.completed < counts.expected {
            return Ok(unchecked);
        }
        let counter = Counter {
            feed: sync.feed.clone(),
            run: sync.ops_run_id.clone(),
            source: context.source.clone(),
            updated_from: sync.updated_from,
            outage: OnOutage::GiveBack { stop: stop.clone(), wait: context.wait.clone() },
        };
        let partitions = self.engine.store().partitions(sync.run_id).await?;
        // Partitions of gaps cover other windows of time.
        let own: Vec<&Partition> = partitions.iter().filter(|one| one.gap_id.is_none()).collect();
        let covered = self.check_coverage_at_end(&own, &counter).await?;
        if sync.run_type != RunType::Full {
            return Ok(unchecked);
        }
        let lists = ListEvidence::weakest(own.iter().map(|one| ListEvidence::parse(one.evidence.as_deref())));
        let evidence = match covered {
            PartitionCoverage::Complete(Some(whole)) if lists.gap().is_none() => {
                let read = self.engine.store().count_distinct(sync.run_id).await?;
                evidence_of_partitions(lists, read, whole)
            }
            PartitionCoverage::Complete(_) => lists,
            PartitionCoverage::Unknown if lists.gap().is_some() => lists,
            PartitionCoverage::Unknown => ListEvidence::Missing(EvidenceGap::PartitionsUncounted),
            PartitionCoverage::Gap(error) => return Err(ConsolidationError::Permanent(error.to_string())),
        };
        let (id, word) = (sync.run_id, evidence.gap().is_none().then(|| evidence.as_str()));
        let stored = self
            .engine
            .store()
            .write(move |mut tx| Box::pin(async move { tx.record_evidence(id, word).await }));
        stored.await?;
        Ok(evidence)
    }
}
