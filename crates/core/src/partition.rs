//! The life of a partition, and of the worker run that stands for it.

use crate::label::labelled;

labelled! {
    /// Where a partition is in its life.
    "partition state" PartitionState {
        /// Waits for a worker.
        Pending = "pending",
        /// A worker has its first message.
        InProgress = "in_progress",
        /// At least one page is stored.
        FetchingPages = "fetching_pages",
        /// Read to its end.
        Completed = "completed",
        /// Stopped; what is stored stays. Not final: a person may have it read on, or read again.
        Failed = "failed",
    }
}

labelled! {
    /// What can happen to a partition.
    "partition event" PartitionEvent {
        /// A worker receives its message.
        Receive = "receive",
        /// A page is stored, and another follows.
        Page = "page",
        /// The feed has nothing more.
        LastPage = "last_page",
        /// It cannot be read on, or somebody stopped it.
        Fail = "fail",
        /// A person has it read on from where it stopped.
        Retry = "retry",
        /// A person has it read again from the beginning.
        Restart = "restart",
    }
}

/// The state `event` leads to, or `None` where it is illegal.
///
/// Nested, never a tuple with `_`: a new state or event does not compile until it is placed here.
pub const fn next(from: PartitionState, event: PartitionEvent) -> Option<PartitionState> {
    use {PartitionEvent as E, PartitionState as S};
    match from {
        S::Pending => match event {
            E::Receive => Some(S::InProgress),
            E::Fail => Some(S::Failed),
            E::Page | E::LastPage | E::Retry | E::Restart => None,
        },
        S::InProgress | S::FetchingPages => match event {
            E::Page => Some(S::FetchingPages),
            E::LastPage => Some(S::Completed),
            E::Fail => Some(S::Failed),
            E::Receive | E::Retry | E::Restart => None,
        },
        S::Failed => match event {
            E::Retry | E::Restart => Some(S::Pending),
            E::Receive | E::Page | E::LastPage | E::Fail => None,
        },
        S::Completed => None,
    }
}

impl PartitionState {
    /// Whether nothing can leave this state. Derived, so it cannot disagree with [`next`].
    pub fn is_terminal(self) -> bool {
        PartitionEvent::ALL.iter().all(|&event| next(self, event).is_none())
    }

    /// The column `completed` of `partition_progress`.
    pub const fn completed(self) -> bool {
        matches!(self, Self::Completed)
    }

    /// The column `failed` of `partition_progress`.
    pub const fn failed(self) -> bool {
        matches!(self, Self::Failed)
    }

    /// Whether pages are still to be read without a person.
    pub const fn is_open(self) -> bool {
        !self.completed() && !self.failed()
    }
}

/// Every legal change of state, once each: what the database's guard is generated from.
pub fn pairs() -> Vec<(PartitionState, PartitionState)> {
    crate::lifecycle::pairs(PartitionState::ALL, PartitionEvent::ALL, next)
}

labelled! {
    /// Where a worker run is: the one row per partition that says how its reading goes.
    "worker run state" WorkerRunState {
        /// Its partition is being read.
        Running = "running",
        /// Its partition is read.
        Completed = "completed",
        /// Its partition failed. Not final: a retry of the partition takes the same row again.
        Failed = "failed",
    }
}

labelled! {
    /// What can happen to a worker run.
    "worker run event" WorkerRunEvent {
        /// The partition is read to its end.
        Complete = "complete",
        /// The partition failed.
        Fail = "fail",
        /// The partition is received again after a retry.
        Resume = "resume",
    }
}

/// The state `event` leads a worker run to, or `None` where it is illegal.
pub const fn next_worker_run(from: WorkerRunState, event: WorkerRunEvent) -> Option<WorkerRunState> {
    use {WorkerRunEvent as E, WorkerRunState as S};
    match from {
        S::Running => match event {
            E::Complete => Some(S::Completed),
            E::Fail => Some(S::Failed),
            E::Resume => None,
        },
        S::Failed => match event {
            E::Resume => Some(S::Running),
            E::Complete | E::Fail => None,
        },
        S::Completed => None,
    }
}

impl WorkerRunState {
    /// Whether nothing can leave this state. Derived, so it cannot disagree with [`next_worker_run`].
    pub fn is_terminal(self) -> bool {
        WorkerRunEvent::ALL.iter().all(|&event| next_worker_run(self, event).is_none())
    }
}

/// Every legal change of a worker run's state, once each.
pub fn worker_run_pairs() -> Vec<(WorkerRunState, WorkerRunState)> {
    crate::lifecycle::pairs(WorkerRunState::ALL, WorkerRunEvent::ALL, next_worker_run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use {PartitionEvent as E, PartitionState as S};

    /// Every legal arrow, written out once more by hand.
    const TABLE: &[(S, E, S)] = &[
        (S::Pending, E::Receive, S::InProgress),
        (S::Pending, E::Fail, S::Failed),
        (S::InProgress, E::Page, S::FetchingPages),
        (S::InProgress, E::LastPage, S::Completed),
        (S::InProgress, E::Fail, S::Failed),
        (S::FetchingPages, E::Page, S::FetchingPages),
        (S::FetchingPages, E::LastPage, S::Completed),
        (S::FetchingPages, E::Fail, S::Failed),
        (S::Failed, E::Retry, S::Pending),
        (S::Failed, E::Restart, S::Pending),
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
    fn a_partition_is_open_completed_or_failed_and_only_completed_is_final() {
        for &state in S::ALL {
            let ways = [state.is_open(), state.completed(), state.failed()];
            assert_eq!(ways.iter().filter(|way| **way).count(), 1, "{state}");
            assert_eq!(state.is_terminal(), state.completed(), "{state}");
        }
    }

    #[test]
    fn a_page_after_a_page_is_no_change_of_state() {
        assert!(pairs().iter().all(|(from, to)| from != to));
        assert_eq!(next(S::FetchingPages, E::Page), Some(S::FetchingPages));
    }

    #[test]
    fn a_worker_run_goes_from_running_to_an_end_and_back_by_a_retry() {
        use WorkerRunState as W;
        assert_eq!(
            worker_run_pairs(),
            [(W::Running, W::Completed), (W::Running, W::Failed), (W::Failed, W::Running)]
        );
        assert!(W::Completed.is_terminal() && !W::Failed.is_terminal());
    }
}
