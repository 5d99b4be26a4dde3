//! Coverage: compares the counts of the partitions of a sync with the count of the whole list, before its pages are
//! read and before records are deleted as absent. It does not show whether the pages of a partition were read whole:
//! that is the evidence of each partition.

use super::Syncs;
use super::circuit::{FeedAccessError, FeedWait};
use super::plan::PlanError;
use super::scan::ScanResult;
use std::sync::Arc;
use tidemill_core::coverage::{Coverage, CoverageCounts, CoverageError, decide_coverage};
use tidemill_core::feed::{FeedQuery, FieldRange};
use tidemill_core::feed_definition::paging::CursorKind;
use tidemill_core::feed_definition::{FeedDefinition, Partition as PartitionSpec};
use tidemill_core::page::PassEnd;
use tidemill_core::records::Partition;
use tidemill_core::{RunId, Timestamp};
use tidemill_feeds::{Feed as Source, FeedCount};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The counts of a sync and how an outage of the feed affects them.
#[derive(Clone)]
pub(super) struct Counter {
    pub(super) feed: String,
    pub(super) run: RunId,
    pub(super) source: Arc<dyn Source>,
    pub(super) updated_from: Option<Timestamp>,
    pub(super) outage: OnOutage,
}

#[derive(Clone)]
pub(super) enum OnOutage {
    /// Waits until the feed answers.
    Wait,
    /// Returns an error: the message of the caller is delivered again.
    GiveBack { stop: watch::Receiver<bool>, wait: Arc<FeedWait> },
}

/// Whether the partitions of a sync together are the whole list of the source.
pub(super) enum PartitionCoverage {
    /// Contains the count of the whole list, if several partitions were compared with it.
    Complete(Option<u64>),
    /// The source does not count, or its counts are not trusted.
    Unknown,
    Gap(CoverageError),
}

impl Syncs {
    /// Refuses a plan whose partitions do not contain every record of the source.
    pub(super) async fn check_plan(
        &self,
        (feed, run): (&str, &RunId),
        source: &Arc<dyn Source>,
        updated_from: Option<Timestamp>,
        scanned: &ScanResult,
    ) -> Result<(), PlanError> {
        let ranges: Vec<FieldRange> = scanned.partitions.iter().map(|planned| planned.range).collect();
        if ranges.is_empty() {
            return Ok(());
        }
        let (feed, run, source) = (feed.to_owned(), run.clone(), source.clone());
        let counter = Counter { feed, run, source, updated_from, outage: OnOutage::Wait };
        match self.check_coverage(&counter, &ranges, scanned.counted_each).await? {
            PartitionCoverage::Complete(_) | PartitionCoverage::Unknown => Ok(()),
            PartitionCoverage::Gap(error) => Err(PlanError::Refused(error.to_string())),
        }
    }

    /// Compares the counts of these partitions with the count of the whole list. `first` is the sum of counts that are
    /// known already: if it is large enough, the partitions are not counted again.
    pub(super) async fn check_coverage(
        &self,
        counter: &Counter,
        ranges: &[FieldRange],
        first: Option<u64>,
    ) -> Result<PartitionCoverage, FeedAccessError> {
        if let [range] = ranges
            && counter.source.is_one_range(*range)
        {
            return Ok(PartitionCoverage::Complete(None));
        }
        let Some(definition) = counter.source.definition() else {
            return Ok(PartitionCoverage::Complete(None));
        };
        if counter.source.count_whole(None).is_none() {
            return Ok(PartitionCoverage::Unknown);
        }
        if let Some(partitions) = first {
            let whole = self.count_whole(counter, counter.updated_from).await?.count;
            if (CoverageCounts { before: whole, partitions, after: whole, changed: 0 }).missing() == 0 {
                return Ok(PartitionCoverage::Complete(Some(whole)));
            }
        }
        let mut rounds = 0;
        loop {
            let counts = self.count_round(counter, definition, ranges).await?;
            match decide_coverage(&counts, rounds, ranges.len(), &hint(definition)) {
                Coverage::Complete => return Ok(PartitionCoverage::Complete(Some(counts.after))),
                Coverage::Recount => {
                    tokio::time::sleep(PassEnd::wait(self.settings.tuning.backoff, rounds)).await;
                    rounds += 1;
                }
                Coverage::Gap(error) => return Ok(PartitionCoverage::Gap(error)),
            }
        }
    }

    /// Compares the counts of partitions that were read to their ends, taken after the last page of each.
    pub(super) async fn check_coverage_at_end(
        &self,
        partitions: &[&Partition],
        counter: &Counter,
    ) -> Result<PartitionCoverage, FeedAccessError> {
        let ranges: Vec<FieldRange> = partitions.iter().map(|one| one.range).collect();
        let counts = partitions.iter().map(|one| one.recount.map(i64::unsigned_abs));
        self.check_coverage(counter, &ranges, counts.sum()).await
    }

    async fn count_round(
        &self,
        counter: &Counter,
        definition: &FeedDefinition,
        ranges: &[FieldRange],
    ) -> Result<CoverageCounts, FeedAccessError> {
        let before = self.count_whole(counter, counter.updated_from).await?;
        let mut partitions: u64 = 0;
        for together in ranges.chunks(self.settings.count_concurrency.max(1)) {
            let mut tasks = JoinSet::new();
            for &range in together {
                let (syncs, counter) = (self.clone(), counter.clone());
                tasks.spawn(async move { syncs.count_range(&counter, range).await });
            }
            while let Some(answer) = tasks.join_next().await {
                let one = answer.map_err(|_| FeedAccessError::Stopped)??;
                partitions = partitions.saturating_add(one.count);
            }
        }
        let after = self.count_whole(counter, counter.updated_from).await?.count;
        let counts = CoverageCounts { before: before.count, partitions, after, changed: 0 };
        let has_time = definition
            .incremental
            .as_ref()
            .is_some_and(|incremental| matches!(incremental.kind, CursorKind::Time { .. }));
        let changed = match before.source_time.filter(|_| has_time && counts.missing() > 0) {
            Some(began) => self.count_whole(counter, Some(began)).await?.count,
            None => 0,
        };
        Ok(CoverageCounts { changed, ..counts })
    }

    async fn count_whole(
        &self,
        counter: &Counter,
        updated_from: Option<Timestamp>,
    ) -> Result<FeedCount, FeedAccessError> {
        let whole = FeedQuery { range: counter.source.range(), updated_from };
        let count = || async {
            match counter.source.count_whole(updated_from) {
                Some(count) => count.await,
                None => counter.source.count(&whole).await,
            }
        };
        self.count_with(counter, count).await
    }

    async fn count_range(&self, counter: &Counter, range: FieldRange) -> Result<FeedCount, FeedAccessError> {
        let query = FeedQuery { range, updated_from: counter.updated_from };
        self.count_with(counter, || counter.source.count(&query)).await
    }

    async fn count_with<F>(
        &self,
        counter: &Counter,
        count: impl Fn() -> F,
    ) -> Result<FeedCount, FeedAccessError>
    where
        F: Future<Output = Result<FeedCount, tidemill_feeds::FeedError>>,
    {
        match &counter.outage {
            OnOutage::Wait => self.query_feed(&counter.feed, &counter.run, count).await,
            OnOutage::GiveBack { stop, wait } => {
                let answer = wait.during(count());
                self.query_feed_once(&counter.feed, &counter.run, stop, answer).await
            }
        }
    }
}

/// Returns how to change a definition whose partitions do not contain every record.
fn hint(definition: &FeedDefinition) -> String {
    let whole = "remove `partition` from the definition to read the whole list";
    match &definition.partition {
        PartitionSpec::None => whole.to_owned(),
        PartitionSpec::Values { .. } => {
            format!("add the missing values to `partition.values`, or {whole}")
        }
        PartitionSpec::Heatmap { range, .. } | PartitionSpec::TimeWindows { range, .. } => {
            let field =
                range.field.as_ref().map_or_else(|| "the field".to_owned(), |path| format!("`{path}`"));
            format!("{field} may be empty in them, or have more decimals than the boundaries; {whole}")
        }
    }
}
