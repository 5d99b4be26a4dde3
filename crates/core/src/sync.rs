//! The life of a sync: every state, every event, the phases of its consolidation, and when one follows the
//! other.

use crate::label::labelled;

/// The label that a run of this lane asks for. Only schedulers offer it, and a pause of the lane is read from it.
pub const SYNC_LABEL: &str = "tidemill.sync";

labelled! {
    /// Where a sync is in its life.
    "sync state" SyncState {
        /// Planned: its partitions exist, and no worker has taken a page.
        Created = "created",
        /// Workers read its partitions.
        WorkersRunning = "workers_running",
        /// Every partition is read, and a consolidator has yet to begin.
        ConsolidationTriggered = "consolidation_triggered",
        /// Consolidators map, price and write its stones.
        Consolidating = "consolidating",
        /// The table holds it, and the watermark has moved.
        Completed = "completed",
        /// It stopped. Not final: a person may have it retried or resumed, so nothing is frozen here.
        Failed = "failed",
    }
}

labelled! {
    /// What can happen to a sync.
    "sync event" SyncEvent {
        /// A worker takes the first page.
        Start = "start",
        /// The last partition ended, and none failed.
        AllCompleted = "all_completed",
        /// The last open partition ended, and at least one failed: consolidation is skipped.
        SomeFailed = "some_failed",
        /// A consolidator begins.
        Consume = "consume",
        /// Nothing is left to consolidate.
        Complete = "complete",
        /// The consolidation failed for good.
        Exhaust = "exhaust",
        /// A person has the failed partitions read again.
        Retry = "retry",
        /// A person has it consolidated, perhaps by force.
        Resume = "resume",
        /// A person stops it.
        Cancel = "cancel",
    }
}

/// The state `event` leads to, or `None` where it is illegal.
///
/// Nested, never a tuple with `_`: a new state or event does not compile until it is placed here.
pub const fn next(from: SyncState, event: SyncEvent) -> Option<SyncState> {
    use {SyncEvent as E, SyncState as S};
    match from {
        S::Created => match event {
            E::Start => Some(S::WorkersRunning),
            // Messages can expire before any worker takes one: then partitions fail without a start.
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
    /// Whether nothing can leave this state. Derived, so it cannot disagree with [`next`].
    pub fn is_terminal(self) -> bool {
        SyncEvent::ALL.iter().all(|&event| next(self, event).is_none())
    }

    /// Whether something is still to be done without a person: what can be cancelled lives.
    pub const fn is_live(self) -> bool {
        next(self, SyncEvent::Cancel).is_some()
    }
}

/// Every legal change of state, once each: what the database's guard is generated from.
pub fn pairs() -> Vec<(SyncState, SyncState)> {
    crate::lifecycle::pairs(SyncState::ALL, SyncEvent::ALL, next)
}

labelled! {
    /// What a consolidator is doing.
    "consolidation phase" ConsolidationPhase {
        /// Looks whether the sync may be consolidated.
        ValidatingRun = "validating_run",
        /// Reads the pricing rules that are pinned to the sync.
        LoadingPricingRules = "loading_pricing_rules",
        /// Claims the next pages.
        FetchingRawBatch = "fetching_raw_batch",
        /// Reads the records of those pages.
        ProcessingBatch = "processing_batch",
        /// Makes stones of the records.
        MappingDiamonds = "mapping_diamonds",
        /// Prices the stones.
        ApplyingPricing = "applying_pricing",
        /// Writes the stones.
        UpsertingBatch = "upserting_batch",
        /// Marks the pages as done.
        MarkingConsolidated = "marking_consolidated",
        /// Writes the figures and the end.
        UpdatingRunMetadata = "updating_run_metadata",
        /// Moves the watermark, in the same commit.
        AdvancingWatermark = "advancing_watermark",
    }
}

labelled! {
    /// Whether pages are left to be consolidated.
    "rest" Rest {
        /// At least one page is open, locked ones included.
        More = "more",
        /// None is.
        Nothing = "nothing",
    }
}

/// The phase that follows, or `None` after the last. Only after a batch does the rest decide.
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

/// What the counts of a sync's partitions ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Partitions are open: nothing yet.
    Wait,
    /// All are completed: consolidate.
    Trigger,
    /// None is open, and some failed: do not consolidate.
    Skip,
}

/// Decides from counts that were read under the lock of the sync's row, so that two last partitions cannot each
/// see the other as open.
pub const fn evaluate(expected: u32, completed: u32, failed: u32) -> Verdict {
    // More than expected can only be a fault elsewhere; waiting for ever would hide it.
    if completed.saturating_add(failed) < expected {
        Verdict::Wait
    } else if failed == 0 {
        Verdict::Trigger
    } else {
        Verdict::Skip
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use {ConsolidationPhase as P, SyncEvent as E, SyncState as S};

    /// Every legal arrow, written out once more by hand.
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
    fn every_pair_is_in_the_table_or_illegal() {
        for &from in S::ALL {
            for &event in E::ALL {
                let expected = TABLE.iter().find(|row| row.0 == from && row.1 == event).map(|row| row.2);
                assert_eq!(next(from, event), expected, "{from} + {event}");
            }
        }
    }

    #[test]
    fn every_state_is_reachable_and_every_live_state_can_stop() {
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
    fn only_a_completed_sync_is_final() {
        let terminal: Vec<_> = S::ALL.iter().filter(|state| state.is_terminal()).collect();
        assert_eq!(terminal, [&S::Completed]);
    }

    #[test]
    fn only_a_consolidation_completes_a_sync() {
        let into: Vec<_> = TABLE.iter().filter(|row| row.2 == S::Completed).map(|row| row.1).collect();
        assert_eq!(into, [E::Complete]);
    }

    #[test]
    fn the_phases_loop_while_pages_are_left_and_end_with_the_watermark() {
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
    fn consolidation_waits_for_every_partition_and_for_none_that_failed() {
        let table = [
            ((3, 0, 0), Verdict::Wait),
            ((3, 2, 0), Verdict::Wait),
            ((3, 0, 2), Verdict::Wait),
            ((3, 1, 1), Verdict::Wait),
            ((3, 3, 0), Verdict::Trigger),
            ((3, 2, 1), Verdict::Skip),
            ((3, 0, 3), Verdict::Skip),
            ((1, 1, 0), Verdict::Trigger),
        ];
        for ((expected, completed, failed), verdict) in table {
            assert_eq!(evaluate(expected, completed, failed), verdict, "{expected} {completed} {failed}");
        }
    }
}
