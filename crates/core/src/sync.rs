//! Lifecycle of a sync: its states, its events, and the phases of its consolidation.

use crate::label::labelled;

/// Label that a run of the sync lane requires. Only schedulers have it. A pause of the lane is derived from it.
pub const SYNC_LABEL: &str = "tidemill.sync";

labelled! {
    /// The state of a sync.
    "sync state" SyncState {
        /// Planned: its partitions exist, and no worker has received a page.
        Created = "created",
        /// Workers are reading its partitions.
        WorkersRunning = "workers_running",
        /// All partitions are read; no consolidator has started.
        ConsolidationTriggered = "consolidation_triggered",
        /// Consolidators are mapping, pricing and writing its records.
        Consolidating = "consolidating",
        /// Its records are in the table and the watermark has advanced.
        Completed = "completed",
        /// Stopped. Not final: an operator may retry or resume it.
        Failed = "failed",
    }
}

labelled! {
    /// An event in the life of a sync.
    "sync event" SyncEvent {
        /// A worker receives the first page.
        Start = "start",
        /// The last partition ended and none failed.
        AllCompleted = "all_completed",
        /// The last open partition ended and at least one failed: consolidation is skipped.
        SomeFailed = "some_failed",
        Consume = "consume",
        /// All records are consolidated.
        Complete = "complete",
        /// The consolidation failed for good.
        Exhaust = "exhaust",
        /// An operator retries the failed partitions.
        Retry = "retry",
        /// An operator resumes or forces the consolidation.
        Resume = "resume",
        Cancel = "cancel",
    }
}

/// Returns the state after `event`, or `None` if the event is illegal in this state.
///
/// The matches are nested and have no `_` arm, so that a new state or event does not compile until it is handled here.
pub const fn next(from: SyncState, event: SyncEvent) -> Option<SyncState> {
    use {SyncEvent as E, SyncState as S};
    match from {
        S::Created => match event {
            E::Start => Some(S::WorkersRunning),
            // Messages can expire before any worker receives one. Then partitions fail without a start.
            E::SomeFailed | E::Cancel => Some(S::Failed),
            E::AllCompleted | E::Consume | E::Complete | E::Exhaust | E::Retry | E::Resume => None,
        },
        S::WorkersRunning => match event {
            E::AllCompleted => Some(S::ConsolidationTriggered),
            E::SomeFailed | E::Cancel => Some(S::Failed),
            E::Start | E::Consume | E::Complete | E::Exhaust | E::Retry | E::Resume => None,
        },
        S::ConsolidationTriggered => match event {
            E::Consume => Some(S::Consolidating),
            E::Exhaust | E::Cancel => Some(S::Failed),
            E::Start | E::AllCompleted | E::SomeFailed | E::Complete | E::Retry | E::Resume => None,
        },
        S::Consolidating => match event {
            E::Complete => Some(S::Completed),
            E::Exhaust | E::Cancel => Some(S::Failed),
            E::Start | E::AllCompleted | E::SomeFailed | E::Consume | E::Retry | E::Resume => None,
        },
        S::Failed => match event {
            E::Retry => Some(S::WorkersRunning),
            E::Resume => Some(S::ConsolidationTriggered),
            E::Start
            | E::AllCompleted
            | E::SomeFailed
            | E::Consume
            | E::Complete
            | E::Exhaust
            | E::Cancel => None,
        },
        S::Completed => None,
    }
}

impl SyncState {
    /// Returns whether no event leaves this state. Derived from [`next`].
    pub fn is_terminal(self) -> bool {
        SyncEvent::ALL.iter().all(|&event| next(self, event).is_none())
    }

    /// Returns whether processing continues without an operator: exactly the states that can be cancelled.
    pub const fn is_live(self) -> bool {
        next(self, SyncEvent::Cancel).is_some()
    }
}

/// Returns every legal transition once. The database guard is generated from it.
pub fn pairs() -> Vec<(SyncState, SyncState)> {
    crate::lifecycle::pairs(SyncState::ALL, SyncEvent::ALL, next)
}

labelled! {
    /// The phase of a consolidation.
    "consolidation phase" ConsolidationPhase {
        /// Checks whether the sync may be consolidated.
        ValidatingRun = "validating_run",
        /// Reads the pricing rules that are pinned to the sync.
        LoadingPricingRules = "loading_pricing_rules",
        /// Claims the next pages.
        FetchingRawBatch = "fetching_raw_batch",
        /// Reads the records of the pages.
        ProcessingBatch = "processing_batch",
        /// Maps the records to rows of the canonical table.
        MappingDiamonds = "mapping_diamonds",
        ApplyingPricing = "applying_pricing",
        UpsertingBatch = "upserting_batch",
        /// Marks the pages as consolidated.
        MarkingConsolidated = "marking_consolidated",
        /// Writes the counters and the end of the sync.
        UpdatingRunMetadata = "updating_run_metadata",
        /// Advances the watermark, in the same transaction.
        AdvancingWatermark = "advancing_watermark",
    }
}

labelled! {
    /// Whether pages remain to be consolidated.
    "rest" Rest {
        /// At least one page is open, including locked ones.
        More = "more",
        /// No page is open.
        Nothing = "nothing",
    }
}

/// Returns the next phase, or `None` after the last. `rest` matters only at the end of a batch.
pub const fn next_phase(phase: ConsolidationPhase, rest: Rest) -> Option<ConsolidationPhase> {
    use ConsolidationPhase as P;
    match phase {
        P::ValidatingRun => Some(P::LoadingPricingRules),
        P::LoadingPricingRules => Some(P::FetchingRawBatch),
        P::FetchingRawBatch => Some(P::ProcessingBatch),
        P::ProcessingBatch => Some(P::MappingDiamonds),
        P::MappingDiamonds => Some(P::ApplyingPricing),
        P::ApplyingPricing => Some(P::UpsertingBatch),
        P::UpsertingBatch => Some(P::MarkingConsolidated),
        P::MarkingConsolidated => match rest {
            Rest::More => Some(P::FetchingRawBatch),
            Rest::Nothing => Some(P::UpdatingRunMetadata),
        },
        P::UpdatingRunMetadata => Some(P::AdvancingWatermark),
        P::AdvancingWatermark => None,
    }
}

/// The decision about a consolidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsolidationDecision {
    /// Some partitions are open.
    Wait,
    /// All partitions are completed: consolidate.
    Trigger,
    /// No partition is open and some failed: do not consolidate.
    Skip,
}

/// Decides whether to consolidate. The counts must be read under the lock of the sync's row; otherwise two partitions
/// that end at the same time could each see the other as open.
pub const fn evaluate(expected: u32, completed: u32, failed: u32) -> ConsolidationDecision {
    // More than expected would be a bug elsewhere; waiting forever would hide it.
    if completed.saturating_add(failed) < expected {
        ConsolidationDecision::Wait
    } else if failed == 0 {
        ConsolidationDecision::Trigger
    } else {
        ConsolidationDecision::Skip
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use {ConsolidationPhase as P, SyncEvent as E, SyncState as S};

    /// Every legal transition, written by hand.
    const TABLE: &[(S, E, S)] = &[
        (S::Created, E::Start, S::WorkersRunning),
        (S::Created, E::SomeFailed, S::Failed),
        (S::Created, E::Cancel, S::Failed),
        (S::WorkersRunning, E::AllCompleted, S::ConsolidationTriggered),
        (S::WorkersRunning, E::SomeFailed, S::Failed),
        (S::WorkersRunning, E::Cancel, S::Failed),
        (S::ConsolidationTriggered, E::Consume, S::Consolidating),
        (S::ConsolidationTriggered, E::Exhaust, S::Failed),
        (S::ConsolidationTriggered, E::Cancel, S::Failed),
        (S::Consolidating, E::Complete, S::Completed),
        (S::Consolidating, E::Exhaust, S::Failed),
        (S::Consolidating, E::Cancel, S::Failed),
        (S::Failed, E::Retry, S::WorkersRunning),
        (S::Failed, E::Resume, S::ConsolidationTriggered),
    ];

    #[test]
    fn transitions_match_the_table() {
        for &from in S::ALL {
            for &event in E::ALL {
                let expected = TABLE.iter().find(|row| row.0 == from && row.1 == event).map(|row| row.2);
                assert_eq!(next(from, event), expected, "{from} + {event}");
            }
        }
    }

    #[test]
    fn states_are_reachable_and_live_states_can_be_cancelled() {
        let mut reached = vec![S::Created];
        while let Some(&(_, to)) =
            pairs().iter().find(|(from, to)| reached.contains(from) && !reached.contains(to))
        {
            reached.push(to);
        }
        assert_eq!(reached.len(), S::ALL.len());
        for &state in S::ALL {
            assert_eq!(state.is_live(), !matches!(state, S::Completed | S::Failed), "{state}");
        }
    }

    #[test]
    fn only_completed_is_terminal() {
        let terminal: Vec<_> = S::ALL.iter().filter(|state| state.is_terminal()).collect();
        assert_eq!(terminal, [&S::Completed]);
    }

    #[test]
    fn only_consolidation_completes_a_sync() {
        let into: Vec<_> = TABLE.iter().filter(|row| row.2 == S::Completed).map(|row| row.1).collect();
        assert_eq!(into, [E::Complete]);
    }

    #[test]
    fn phases_loop_until_no_pages_remain_then_advance_watermark() {
        let mut phase = P::ValidatingRun;
        let mut passed = vec![phase];
        let mut batches = 0;
        loop {
            batches += u32::from(phase == P::MarkingConsolidated);
            let rest = if batches < 2 { Rest::More } else { Rest::Nothing };
            match next_phase(phase, rest) {
                Some(next) => phase = next,
                None => break,
            }
            passed.push(phase);
        }
        let batch = [
            P::FetchingRawBatch,
            P::ProcessingBatch,
            P::MappingDiamonds,
            P::ApplyingPricing,
            P::UpsertingBatch,
            P::MarkingConsolidated,
        ];
        let mut expected = vec![P::ValidatingRun, P::LoadingPricingRules];
        expected.extend(batch);
        expected.extend(batch);
        expected.extend([P::UpdatingRunMetadata, P::AdvancingWatermark]);
        assert_eq!(passed, expected);
    }

    #[test]
    fn consolidation_needs_every_partition_completed() {
        let table = [
            ((3, 0, 0), ConsolidationDecision::Wait),
            ((3, 2, 0), ConsolidationDecision::Wait),
            ((3, 0, 2), ConsolidationDecision::Wait),
            ((3, 1, 1), ConsolidationDecision::Wait),
            ((3, 3, 0), ConsolidationDecision::Trigger),
            ((3, 2, 1), ConsolidationDecision::Skip),
            ((3, 0, 3), ConsolidationDecision::Skip),
            ((1, 1, 0), ConsolidationDecision::Trigger),
        ];
        for ((expected, completed, failed), decision) in table {
            assert_eq!(evaluate(expected, completed, failed), decision, "{expected} {completed} {failed}");
        }
    }
}
