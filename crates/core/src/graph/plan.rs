//! The next step of one job, as a pure function of its state.
//!
//! The order of the decisions is the contract. A request to cancel comes first. Flags come before results, so that a
//! failure caused by maintenance does not count; a success always counts. Results come before waiting.

use crate::Timestamp;
use crate::job::{self, JobEvent, JobState, StatusCode};
use crate::task::{Stage, TaskResult};
use chrono::Duration;

/// Number of failed tasks, not counting failures of the command itself, after which a job fails.
pub const ERRORS_MAX: i32 = 5;
/// Wait before the first new task; it doubles with each task.
const BACKOFF_SECS: i64 = 5;
/// Longest wait before a new task.
const BACKOFF_SECS_MAX: i64 = 3_600;

/// The part of a job that decides its next step. It has fewer fields than a stored job, so that tests can build every
/// combination without a database.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub code: StatusCode,
    /// Whether a caller asked for the job to be cancelled.
    pub cancelled: bool,
    /// Whether the job uses the database and must not run during maintenance.
    pub uses_database: bool,
    /// Failed tasks, not counting failures of the command itself.
    pub errors: i32,
    /// Failures of the command.
    pub failures: i32,
    /// Allowed retries after failures of the command.
    pub retries: i32,
    /// No new task starts before this time.
    pub not_before: Option<Timestamp>,
    /// Whether the order to stop the last task is unconfirmed: its command may still run.
    pub stopping: bool,
}

/// Combined state of the jobs that a job needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// All succeeded, or there are none.
    Met,
    /// Some have not ended, and none failed.
    Open,
    Failed,
    /// All succeeded, but no agent has access to all of their outputs.
    OutOfReach,
}

/// Flags that operators and probes have set for the site.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    /// No new tasks start.
    pub paused: bool,
    /// No job uses the database.
    pub maintenance: bool,
    /// The site is about to restart: no task runs.
    pub reboot: bool,
}

/// Whether an agent and the pool have capacity for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    Free,
    /// No agent has free capacity, or there is no matching agent.
    NoWorker,
    PoolFull,
    /// The weight of the job exceeds the capacity of every matching agent.
    Never,
}

/// The state of a job's active task.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Last stage that the agent reported.
    pub stage: Option<Stage>,
    /// Result, once the task has ended.
    pub result: Option<TaskResult>,
    /// Whether the agent has been silent for longer than the job's `on-agent-lost` policy allows.
    pub lost: bool,
    /// Whether another agent, on which the job has not failed, could take it.
    pub others: OtherAgents,
}

/// Availability of agents that could take a job and on which it has not failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherAgents {
    /// At least one is connected.
    Connected,
    /// At least one is registered, but silent or draining.
    Away,
    None,
}

/// The next step of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Keep,
    /// Set this status code.
    Become(StatusCode),
    /// Create a task and set the status code, in one transaction.
    Start,
    /// Order the agent to stop the task, and set this status code.
    Stop(StatusCode),
    /// End the job with this status code and message.
    End(StatusCode, Option<String>),
    /// The task failed: create another one later.
    Again {
        /// Earliest time of the new task.
        not_before: Timestamp,
        message: String,
        /// Whether the command failed; otherwise the agent or the system did.
        failure: bool,
        /// Whether the command of the old task may still run and must be stopped first.
        stop: bool,
    },
}

/// Returns the next step of a job at `now`.
pub fn plan(
    job: &Job,
    needs: Needs,
    flags: Flags,
    capacity: Capacity,
    report: Option<&Report>,
    now: Timestamp,
) -> Step {
    let state = job.code.state();
    if matches!(state, JobState::Succeeded | JobState::Failed) {
        return Step::Keep;
    }
    let has_task = report.is_some();
    if job.cancelled {
        return stop_or_end(StatusCode::CancelledByUser, has_task);
    }
    // A success counts even if a flag was set in the meantime.
    if let (JobState::Running, Some(Report { result: Some(result), .. })) = (state, report)
        && is_success(result)
    {
        return Step::End(StatusCode::Succeeded, None);
    }
    if flags.reboot && state == JobState::Running {
        return stop_or(StatusCode::WaitingOnReboot, has_task);
    }
    if flags.maintenance && job.uses_database {
        return match state {
            JobState::Running => stop_or(StatusCode::WaitingDbMaintenance, has_task),
            JobState::Pending | JobState::Succeeded | JobState::Failed => step(job.code, JobEvent::Maintain),
        };
    }
    match state {
        JobState::Pending => pending(job, needs, flags, capacity, now),
        JobState::Running => running(job, report, now),
        JobState::Succeeded | JobState::Failed => Step::Keep,
    }
}

fn is_success(result: &TaskResult) -> bool {
    matches!(result, TaskResult::Ended { exit_code: 0, unmatched, .. } if unmatched.is_empty())
}

fn pending(job: &Job, needs: Needs, flags: Flags, capacity: Capacity, now: Timestamp) -> Step {
    if flags.paused || flags.reboot {
        return step(job.code, JobEvent::Pause);
    }
    match needs {
        Needs::Failed => return Step::End(StatusCode::DependencyFailed, None),
        Needs::Open => return step(job.code, JobEvent::AwaitDependencies),
        Needs::OutOfReach => return Step::End(StatusCode::JobError, None),
        Needs::Met => {}
    }
    // The command of the last task may still run: a second task would do the work twice.
    if job.stopping {
        return Step::Keep;
    }
    // The status may still say `paused`; after a pause, the job waits for the end of its back-off.
    if job.not_before.is_some_and(|at| at > now) {
        return step(job.code, JobEvent::TryAgain);
    }
    match capacity {
        Capacity::Free => Step::Start,
        Capacity::NoWorker => step(job.code, JobEvent::AwaitWorkers),
        Capacity::PoolFull => step(job.code, JobEvent::AwaitPool),
        Capacity::Never => {
            let reason = "its weight exceeds the capacity of every agent that could take it";
            Step::End(StatusCode::JobError, Some(reason.to_owned()))
        }
    }
}

fn running(job: &Job, report: Option<&Report>, now: Timestamp) -> Step {
    let Some(report) = report else {
        // A running job must have a task. If it is missing, treat that like a failure of the agent.
        return again(job, "its task no longer exists".to_owned(), false, false, now);
    };
    match &report.result {
        Some(result) if is_success(result) => Step::End(StatusCode::Succeeded, None),
        Some(TaskResult::Ended { exit_code: 0, unmatched, hint, .. }) => {
            let mut message = format!("no file matches {}", unmatched.join(", "));
            if !hint.is_empty() {
                message.push_str("; new files are ");
                message.push_str(&hint.join(", "));
            }
            Step::End(StatusCode::UnmatchedPatterns, Some(message))
        }
        Some(TaskResult::Ended { exit_code, message, .. }) => {
            let message = message.clone().unwrap_or_else(|| format!("its command ended with {exit_code}"));
            if job.failures < job.retries {
                again(job, message, true, false, now)
            } else {
                Step::End(StatusCode::NonzeroExit, Some(message))
            }
        }
        Some(TaskResult::Failed { fatal: true, elsewhere: true, message }) => {
            retry_elsewhere(job, message, report.others, now)
        }
        Some(TaskResult::Failed { fatal: true, message, .. }) => {
            Step::End(StatusCode::JobError, Some(message.clone()))
        }
        Some(TaskResult::Failed { fatal: false, message, .. }) => {
            again(job, message.clone(), false, false, now)
        }
        Some(TaskResult::Stopped) => {
            again(job, "its command was stopped by its agent".to_owned(), false, false, now)
        }
        None if report.lost => {
            again(job, "its agent has been silent for too long".to_owned(), false, true, now)
        }
        None => report.stage.map_or(Step::Keep, |stage| step(job.code, stage.event())),
    }
}

/// Decides the next step after an agent reported that it can never execute the job, but another agent may.
///
/// Each agent fails at most once, so the attempts are bounded by the number of agents. An agent that is away may
/// return; the job waits for it within the usual error budget.
fn retry_elsewhere(job: &Job, message: &str, others: OtherAgents, now: Timestamp) -> Step {
    let message = message.to_owned();
    match others {
        OtherAgents::Connected => Step::Again { not_before: now, message, failure: false, stop: false },
        OtherAgents::Away => again(job, message, false, false, now),
        OtherAgents::None => Step::End(StatusCode::JobError, Some(message)),
    }
}

/// Returns a new task after the back-off, or the end if the error budget is used up.
fn again(job: &Job, message: String, failure: bool, stop: bool, now: Timestamp) -> Step {
    if !failure && job.errors + 1 >= ERRORS_MAX {
        let message = format!("{ERRORS_MAX} tasks failed; the last error: {message}");
        return Step::End(StatusCode::JobError, Some(message));
    }
    let before = if failure { job.failures } else { job.errors };
    let wait = BACKOFF_SECS.saturating_mul(1 << before.clamp(0, 20)).min(BACKOFF_SECS_MAX);
    Step::Again { not_before: now + Duration::seconds(wait), message, failure, stop }
}

/// Returns the transition for an event, or [`Step::Keep`] if the code would not change.
fn step(code: StatusCode, event: JobEvent) -> Step {
    match job::next(code, event) {
        Some(to) if to != code => Step::Become(to),
        Some(_) | None => Step::Keep,
    }
}

fn stop_or(code: StatusCode, has_task: bool) -> Step {
    if has_task { Step::Stop(code) } else { Step::Become(code) }
}

fn stop_or_end(code: StatusCode, has_task: bool) -> Step {
    if has_task { Step::Stop(code) } else { Step::End(code, None) }
}

#[cfg(test)]
mod tests;
