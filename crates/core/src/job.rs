//! The life of a job: every code that explains it, the coarse state that drives the logic, and the one function that
//! joins codes and events.

use crate::label::labelled;

labelled! {
    /// What drives the logic.
    "job state" JobState {
        /// No agent has been asked yet, or not again.
        Pending = "pending",
        /// A task exists that an agent takes or has taken.
        Running = "running",
        /// Ended well.
        Succeeded = "succeeded",
        /// Ended badly, or was stopped.
        Failed = "failed",
    }
}

labelled! {
    /// Where a job is, and why: for people. The state is computed from it.
    "status code" StatusCode {
        /// Nobody has looked at it yet.
        Created = "created",
        /// Its site is paused.
        Paused = "paused",
        /// Jobs that it needs have not succeeded yet.
        WaitingOnDependencies = "waiting_on_dependencies",
        /// No agent has room for it, or none is there.
        WaitingOnWorkers = "waiting_on_workers",
        /// Its pool is full.
        WaitingOnPool = "waiting_on_pool",
        /// The database is under maintenance: its task was stopped, or none is made.
        WaitingDbMaintenance = "waiting_db_maintenance",
        /// The site is about to restart: its task was stopped.
        WaitingOnReboot = "waiting_on_reboot",
        /// Its task came to nothing, and another is made after a while.
        WaitingOnNewTask = "waiting_on_new_task",
        /// A task exists, and waits for an agent.
        Initiated = "initiated",
        /// An agent makes its directory.
        Preparing = "preparing",
        /// An agent is ready to start its command.
        Prepared = "prepared",
        /// Its command runs.
        Executing = "executing",
        /// Its command ended badly.
        Error = "error",
        /// Its command is over.
        Executed = "executed",
        /// An agent collects what it left.
        Finalizing = "finalizing",
        /// What it left is kept; the controller decides.
        Finalized = "finalized",
        /// It did what was asked.
        Succeeded = "succeeded",
        /// A job that it needs failed.
        DependencyFailed = "dependency_failed",
        /// Its command ended with another code than 0.
        NonzeroExit = "nonzero_exit",
        /// It was stopped by a person.
        CancelledByUser = "cancelled_by_user",
        /// Its command ended well, and an output is missing.
        UnmatchedPatterns = "unmatched_patterns",
        /// It cannot be carried out, or could not be too often.
        JobError = "job_error",
    }
}

labelled! {
    /// What can happen to a job.
    "job event" JobEvent {
        /// Its site is paused.
        Pause = "pause",
        /// Something that it needs is not there yet.
        AwaitDependencies = "await_dependencies",
        /// No agent has room.
        AwaitWorkers = "await_workers",
        /// Its pool is full.
        AwaitPool = "await_pool",
        /// The database goes under maintenance.
        Maintain = "maintain",
        /// The site is about to restart.
        Reboot = "reboot",
        /// A task is made for it.
        Start = "start",
        /// The agent begins to prepare it.
        Prepare = "prepare",
        /// The agent has prepared it.
        Ready = "ready",
        /// The agent starts its command.
        Execute = "execute",
        /// The command ends badly.
        Break = "break",
        /// The command is over.
        Leave = "leave",
        /// The agent begins to collect what it left.
        Finalize = "finalize",
        /// The agent has collected it.
        Deliver = "deliver",
        /// The result is good.
        Succeed = "succeed",
        /// The command's exit code is not 0, and it is not tried again.
        ExitBadly = "exit_badly",
        /// An output is missing.
        MissOutputs = "miss_outputs",
        /// It cannot be carried out, or could not be too often.
        GiveUp = "give_up",
        /// The task came to nothing, and another may do better.
        TryAgain = "try_again",
        /// A job that it needs failed.
        LoseDependency = "lose_dependency",
        /// A person stops it.
        Cancel = "cancel",
    }
}

/// The code `event` leads to, or `None` where it is illegal.
///
/// Stages only go forward: an agent that reports late, twice or out of order changes nothing.
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
        // Whoever waits for the restart goes on waiting for it.
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
    /// The coarse state.
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

    /// Whether nothing can leave this code. Derived, so it cannot disagree with [`next`].
    pub fn is_terminal(self) -> bool {
        JobEvent::ALL.iter().all(|&event| next(self, event).is_none())
    }

    /// Whether reaching it puts the job back to the start: what its last task did does not count.
    pub const fn is_reset(self) -> bool {
        matches!(self, Self::WaitingDbMaintenance | Self::WaitingOnReboot | Self::WaitingOnNewTask)
    }
}

/// The codes that the product whose list this was had and that do not exist here, and why.
pub const ABSENT: &[(&str, &str)] = &[
    ("waiting_on_db_workers", "the database is one pool of many: `waiting_on_pool` says that a pool is full"),
    ("internal_error", "a fault of the controller takes its step back, and changes no job"),
    ("killed_by_admin", "whoever stops a job is a person with a name: `cancelled_by_user`"),
    ("stale_codelists", "a graph that cannot run is refused when it is submitted"),
];

/// Every legal change of code, once each: what the database's guard is generated from.
pub fn pairs() -> Vec<(StatusCode, StatusCode)> {
    crate::lifecycle::pairs(StatusCode::ALL, JobEvent::ALL, next)
}

/// What the diagram of the controller draws, arrow by arrow; its `Waiting` and `Reset` stand for each of their codes.
///
/// [`next`] allows more: a stage that lasts no time is not seen, and a job can be stopped and reset anywhere. Drawn
/// nowhere is a job that waits for the restart before it has begun: there is nothing of it to reset, and it is paused.
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
    fn every_arrow_of_the_diagram_exists() {
        for &(from, event, to) in DIAGRAM {
            assert_eq!(next(from, event), Some(to), "{from} + {event}");
        }
    }

    #[test]
    fn every_code_is_reachable_and_every_live_code_can_end() {
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
    fn a_code_is_here_or_absent() {
        for (name, reason) in ABSENT {
            assert!(name.parse::<C>().is_err(), "{name} exists");
            assert!(!reason.is_empty() && !reason.ends_with('.'), "{reason}");
        }
    }

    #[test]
    fn a_stage_that_is_reported_late_changes_nothing() {
        assert_eq!(next(C::Executed, E::Execute), None);
        assert_eq!(next(C::Executed, E::Leave), None);
        assert_eq!(next(C::Finalized, E::Break), None);
    }

    #[test]
    fn a_job_that_waits_for_the_restart_keeps_saying_so() {
        assert_eq!(next(C::WaitingOnReboot, E::Pause), None);
    }
}
