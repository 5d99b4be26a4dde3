//! Lifecycle of a job: its status codes, the coarse state derived from them, and the transition function.

use crate::label::labelled;

labelled! {
    /// The coarse state of a job, which drives the logic.
    "job state" JobState {
        /// The job has no active task.
        Pending = "pending",
        /// A task exists for an agent.
        Running = "running",
        Succeeded = "succeeded",
        Failed = "failed",
    }
}

labelled! {
    /// The detailed status of a job, for people. The coarse state is derived from it.
    "status code" StatusCode {
        /// The controller has not processed it yet.
        Created = "created",
        Paused = "paused",
        /// Jobs that it needs have not succeeded yet.
        WaitingOnDependencies = "waiting_on_dependencies",
        /// No matching agent has free capacity, or none is connected.
        WaitingOnWorkers = "waiting_on_workers",
        WaitingOnPool = "waiting_on_pool",
        /// The database is under maintenance: its task was stopped, or none is created.
        WaitingDbMaintenance = "waiting_db_maintenance",
        /// The site is about to restart: its task was stopped.
        WaitingOnReboot = "waiting_on_reboot",
        /// Its task failed; another follows after the back-off.
        WaitingOnNewTask = "waiting_on_new_task",
        /// A task exists and waits for an agent.
        Initiated = "initiated",
        /// An agent creates its directory.
        Preparing = "preparing",
        /// An agent is ready to start its command.
        Prepared = "prepared",
        Executing = "executing",
        Error = "error",
        Executed = "executed",
        /// An agent collects its outputs.
        Finalizing = "finalizing",
        /// Its outputs are stored; the controller decides.
        Finalized = "finalized",
        Succeeded = "succeeded",
        /// A job that it needs failed.
        DependencyFailed = "dependency_failed",
        /// Its exit code is not 0.
        NonzeroExit = "nonzero_exit",
        CancelledByUser = "cancelled_by_user",
        /// Its command succeeded, but an output is missing.
        UnmatchedPatterns = "unmatched_patterns",
        /// It cannot be executed, or too many tasks failed.
        JobError = "job_error",
    }
}

labelled! {
    /// An event in the life of a job. [`crate::diagram`] describes when each one happens.
    "job event" JobEvent {
        Pause = "pause",
        AwaitDependencies = "await_dependencies",
        AwaitWorkers = "await_workers",
        AwaitPool = "await_pool",
        Maintain = "maintain",
        Reboot = "reboot",
        Start = "start",
        Prepare = "prepare",
        Ready = "ready",
        Execute = "execute",
        Break = "break",
        Leave = "leave",
        Finalize = "finalize",
        Deliver = "deliver",
        Succeed = "succeed",
        ExitBadly = "exit_badly",
        MissOutputs = "miss_outputs",
        GiveUp = "give_up",
        TryAgain = "try_again",
        LoseDependency = "lose_dependency",
        Cancel = "cancel",
    }
}

/// Returns the status code after `event`, or `None` if the event is illegal in this code.
///
/// Stages only advance: late, duplicate and reordered reports of an agent change nothing.
pub fn next(from: StatusCode, event: JobEvent) -> Option<StatusCode> {
    match from.state() {
        JobState::Pending => from_pending(from, event),
        JobState::Running => from_running(from, event),
        JobState::Succeeded | JobState::Failed => None,
    }
}

const fn from_pending(from: StatusCode, event: JobEvent) -> Option<StatusCode> {
    use {JobEvent as E, StatusCode as C};
    match event {
        // A job that waits for the restart keeps this status during a pause.
        E::Pause if matches!(from, C::WaitingOnReboot) => None,
        E::Pause => Some(C::Paused),
        E::AwaitDependencies => Some(C::WaitingOnDependencies),
        E::AwaitWorkers => Some(C::WaitingOnWorkers),
        E::AwaitPool => Some(C::WaitingOnPool),
        E::Maintain => Some(C::WaitingDbMaintenance),
        E::Reboot => Some(C::WaitingOnReboot),
        E::Start => Some(C::Initiated),
        E::LoseDependency => Some(C::DependencyFailed),
        E::Cancel => Some(C::CancelledByUser),
        E::GiveUp => Some(C::JobError),
        E::TryAgain => Some(C::WaitingOnNewTask),
        E::Prepare
        | E::Ready
        | E::Execute
        | E::Break
        | E::Leave
        | E::Finalize
        | E::Deliver
        | E::Succeed
        | E::ExitBadly
        | E::MissOutputs => None,
    }
}

fn from_running(from: StatusCode, event: JobEvent) -> Option<StatusCode> {
    use {JobEvent as E, StatusCode as C};
    let forward = |to: C| (from < to).then_some(to);
    match event {
        E::Prepare => forward(C::Preparing),
        E::Ready => forward(C::Prepared),
        E::Execute => forward(C::Executing),
        E::Break => forward(C::Error),
        E::Leave => forward(C::Executed),
        E::Finalize => forward(C::Finalizing),
        E::Deliver => forward(C::Finalized),
        E::Succeed => Some(C::Succeeded),
        E::ExitBadly => Some(C::NonzeroExit),
        E::MissOutputs => Some(C::UnmatchedPatterns),
        E::GiveUp => Some(C::JobError),
        E::TryAgain => Some(C::WaitingOnNewTask),
        E::Maintain => Some(C::WaitingDbMaintenance),
        E::Reboot => Some(C::WaitingOnReboot),
        E::Cancel => Some(C::CancelledByUser),
        E::Pause | E::AwaitDependencies | E::AwaitWorkers | E::AwaitPool | E::Start | E::LoseDependency => {
            None
        }
    }
}

impl StatusCode {
    /// Returns the coarse state.
    pub const fn state(self) -> JobState {
        match self {
            Self::Created
            | Self::Paused
            | Self::WaitingOnDependencies
            | Self::WaitingOnWorkers
            | Self::WaitingOnPool
            | Self::WaitingDbMaintenance
            | Self::WaitingOnReboot
            | Self::WaitingOnNewTask => JobState::Pending,
            Self::Initiated
            | Self::Preparing
            | Self::Prepared
            | Self::Executing
            | Self::Error
            | Self::Executed
            | Self::Finalizing
            | Self::Finalized => JobState::Running,
            Self::Succeeded => JobState::Succeeded,
            Self::DependencyFailed
            | Self::NonzeroExit
            | Self::CancelledByUser
            | Self::UnmatchedPatterns
            | Self::JobError => JobState::Failed,
        }
    }

    /// Returns whether no event leaves this code. Derived from [`next`].
    pub fn is_terminal(self) -> bool {
        JobEvent::ALL.iter().all(|&event| next(self, event).is_none())
    }

    /// Returns whether this code resets the job: the results of its last task are discarded.
    pub const fn is_reset(self) -> bool {
        matches!(self, Self::WaitingDbMaintenance | Self::WaitingOnReboot | Self::WaitingOnNewTask)
    }
}

/// Status codes of the original product that do not exist here, with the reasons.
pub const ABSENT: &[(&str, &str)] = &[
    ("waiting_on_db_workers", "the database is one pool of many: `waiting_on_pool` covers it"),
    ("internal_error", "an error of the controller rolls back its transaction and changes no job"),
    ("killed_by_admin", "every cancel has a named caller: `cancelled_by_user`"),
    ("stale_codelists", "an invalid graph is rejected at submission"),
];

/// Returns every legal transition once. The database guard is generated from it.
pub fn pairs() -> Vec<(StatusCode, StatusCode)> {
    crate::lifecycle::pairs(StatusCode::ALL, JobEvent::ALL, next)
}

/// The transitions in the diagram of the controller; its `Waiting` and `Reset` stand for each of their codes.
///
/// [`next`] allows more: short stages may be skipped, and a job can be cancelled and reset anywhere. The diagram has no
/// pending job that waits for the restart: it has nothing to reset, so it is paused.
pub const DIAGRAM: &[(StatusCode, JobEvent, StatusCode)] = &[
    (StatusCode::Created, JobEvent::Cancel, StatusCode::CancelledByUser),
    (StatusCode::Created, JobEvent::AwaitDependencies, StatusCode::WaitingOnDependencies),
    (StatusCode::Created, JobEvent::AwaitWorkers, StatusCode::WaitingOnWorkers),
    (StatusCode::Created, JobEvent::AwaitPool, StatusCode::WaitingOnPool),
    (StatusCode::Created, JobEvent::Pause, StatusCode::Paused),
    (StatusCode::Created, JobEvent::LoseDependency, StatusCode::DependencyFailed),
    (StatusCode::Created, JobEvent::Maintain, StatusCode::WaitingDbMaintenance),
    (StatusCode::Created, JobEvent::Start, StatusCode::Initiated),
    (StatusCode::WaitingOnDependencies, JobEvent::Start, StatusCode::Initiated),
    (StatusCode::WaitingOnWorkers, JobEvent::Start, StatusCode::Initiated),
    (StatusCode::WaitingOnPool, JobEvent::Start, StatusCode::Initiated),
    (StatusCode::Paused, JobEvent::Start, StatusCode::Initiated),
    (StatusCode::WaitingDbMaintenance, JobEvent::Start, StatusCode::Initiated),
    (StatusCode::WaitingOnReboot, JobEvent::Start, StatusCode::Initiated),
    (StatusCode::Initiated, JobEvent::Ready, StatusCode::Prepared),
    (StatusCode::Prepared, JobEvent::Execute, StatusCode::Executing),
    (StatusCode::Executing, JobEvent::Leave, StatusCode::Executed),
    (StatusCode::Executing, JobEvent::Break, StatusCode::Error),
    (StatusCode::Error, JobEvent::Leave, StatusCode::Executed),
    (StatusCode::Executed, JobEvent::Deliver, StatusCode::Finalized),
    (StatusCode::Finalized, JobEvent::Succeed, StatusCode::Succeeded),
    (StatusCode::Finalized, JobEvent::GiveUp, StatusCode::JobError),
    (StatusCode::Finalized, JobEvent::ExitBadly, StatusCode::NonzeroExit),
    (StatusCode::Finalized, JobEvent::MissOutputs, StatusCode::UnmatchedPatterns),
    (StatusCode::Executing, JobEvent::TryAgain, StatusCode::WaitingOnNewTask),
    (StatusCode::WaitingOnNewTask, JobEvent::Start, StatusCode::Initiated),
    (StatusCode::Executing, JobEvent::Reboot, StatusCode::WaitingOnReboot),
    (StatusCode::Executing, JobEvent::Maintain, StatusCode::WaitingDbMaintenance),
    (StatusCode::Executing, JobEvent::Cancel, StatusCode::CancelledByUser),
];

#[cfg(test)]
mod tests {
    use super::*;
    use {JobEvent as E, StatusCode as C};

    #[test]
    fn every_transition_of_the_diagram_is_legal() {
        for &(from, event, to) in DIAGRAM {
            assert_eq!(next(from, event), Some(to), "{from} + {event}");
        }
    }

    #[test]
    fn codes_are_reachable_and_live_codes_can_be_cancelled() {
        let pairs = pairs();
        let mut reached = vec![C::Created];
        while let Some(&(_, to)) =
            pairs.iter().find(|(from, to)| reached.contains(from) && !reached.contains(to))
        {
            reached.push(to);
        }
        assert_eq!(reached.len(), C::ALL.len());
        for &code in C::ALL {
            let ended = matches!(code.state(), JobState::Succeeded | JobState::Failed);
            assert_eq!(code.is_terminal(), ended, "{code}");
            assert!(ended || pairs.contains(&(code, C::CancelledByUser)), "{code} cannot be cancelled");
        }
    }

    #[test]
    fn absent_codes_do_not_exist() {
        for (name, reason) in ABSENT {
            assert!(name.parse::<C>().is_err(), "{name} exists");
            assert!(!reason.is_empty() && !reason.ends_with('.'), "{reason}");
        }
    }

    #[test]
    fn late_stage_report_changes_nothing() {
        assert_eq!(next(C::Executed, E::Execute), None);
        assert_eq!(next(C::Executed, E::Leave), None);
        assert_eq!(next(C::Finalized, E::Break), None);
    }

    #[test]
    fn pause_keeps_the_status_waiting_on_reboot() {
        assert_eq!(next(C::WaitingOnReboot, E::Pause), None);
    }
}
