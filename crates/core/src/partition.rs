//! Lifecycles of partitions and of their worker runs.

use crate::label::labelled;

labelled! {
    /// The state of a partition.
    "partition state" PartitionState {
        Pending = "pending",
        /// A worker has received its first message.
        InProgress = "in_progress",
        /// At least one page is stored.
        FetchingPages = "fetching_pages",
        /// Read to its end.
        Completed = "completed",
        /// Stopped. Stored pages remain. Not final: an operator may continue or restart it.
        Failed = "failed",
    }
}

labelled! {
    /// An event in the life of a partition.
    "partition event" PartitionEvent {
        /// A worker receives its message.
        Receive = "receive",
        /// A page is stored and another follows.
        Page = "page",
        /// The feed has nothing more.
        LastPage = "last_page",
        /// It cannot be read, or an operator stopped it.
        Fail = "fail",
        /// An operator continues it where it stopped.
        Retry = "retry",
        /// An operator restarts it from the beginning.
        Restart = "restart",
    }
}

/// Returns the state after `event`, or `None` if the event is illegal in this state.
///
/// The matches are nested and have no `_` arm, so that a new state or event does not compile until it is handled here.
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
    /// Returns whether no event leaves this state. Derived from [`next`].
    pub fn is_terminal(self) -> bool {
        PartitionEvent::ALL.iter().all(|&event| next(self, event).is_none())
    }

    /// Returns the value of the column `completed` of `partition_progress`.
    pub const fn completed(self) -> bool {
        matches!(self, Self::Completed)
    }

    /// Returns the value of the column `failed` of `partition_progress`.
    pub const fn failed(self) -> bool {
        matches!(self, Self::Failed)
    }

    /// Returns whether workers continue to read pages.
    pub const fn is_open(self) -> bool {
        !self.completed() && !self.failed()
    }
}

/// Returns every legal transition once. The database guard is generated from it.
pub fn pairs() -> Vec<(PartitionState, PartitionState)> {
    crate::lifecycle::pairs(PartitionState::ALL, PartitionEvent::ALL, next)
}

labelled! {
    /// The state of a worker run: the row that records the processing of a partition.
    "worker run state" WorkerRunState {
        Running = "running",
        Completed = "completed",
        /// Not final: a retry of the partition uses the same row.
        Failed = "failed",
    }
}

labelled! {
    /// An event in the life of a worker run.
    "worker run event" WorkerRunEvent {
        Complete = "complete",
        Fail = "fail",
        /// A worker receives the partition again after a retry.
        Resume = "resume",
    }
}

/// Returns the state of a worker run after `event`, or `None` if the event is illegal in this state.
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
    /// Returns whether no event leaves this state. Derived from [`next_worker_run`].
    pub fn is_terminal(self) -> bool {
        WorkerRunEvent::ALL.iter().all(|&event| next_worker_run(self, event).is_none())
    }
}

/// Returns every legal transition of a worker run once.
pub fn worker_run_pairs() -> Vec<(WorkerRunState, WorkerRunState)> {
    crate::lifecycle::pairs(WorkerRunState::ALL, WorkerRunEvent::ALL, next_worker_run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use {PartitionEvent as E, PartitionState as S};

    /// Every legal transition, written by hand.
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
    fn transitions_match_the_table() {
        for &from in S::ALL {
            for &event in E::ALL {
                let expected = TABLE.iter().find(|row| row.0 == from && row.1 == event).map(|row| row.2);
                assert_eq!(next(from, event), expected, "{from} + {event}");
            }
        }
    }

    #[test]
    fn partition_is_open_completed_or_failed() {
        for &state in S::ALL {
            let predicates = [state.is_open(), state.completed(), state.failed()];
            assert_eq!(predicates.iter().filter(|holds| **holds).count(), 1, "{state}");
            assert_eq!(state.is_terminal(), state.completed(), "{state}");
        }
    }

    #[test]
    fn second_page_does_not_change_the_state() {
        assert!(pairs().iter().all(|(from, to)| from != to));
        assert_eq!(next(S::FetchingPages, E::Page), Some(S::FetchingPages));
    }

    #[test]
    fn worker_run_ends_and_resumes_after_a_retry() {
        use WorkerRunState as W;
        assert_eq!(
            worker_run_pairs(),
            [(W::Running, W::Completed), (W::Running, W::Failed), (W::Failed, W::Running)]
        );
        assert!(W::Completed.is_terminal() && !W::Failed.is_terminal());
    }
}
