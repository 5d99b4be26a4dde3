//! What is to be done about one job, as a pure function of what is known about it.
//!
//! The order of the decisions is the contract: a wish to stop comes before everything, flags come before results
//! (so that what failed because of a maintenance is not taken for a failure; a success is one), and results before
//! waiting.

use crate::Timestamp;
use crate::job::{self, JobEvent, JobState, StatusCode};
use crate::task::{Stage, TaskResult};
use chrono::Duration;

/// Tasks of one job that may come to nothing by no fault of the job, before it is given up.
pub const ERRORS_MAX: i32 = 5;
/// Wait before the first new task; doubles each time.
const BACKOFF_SECS: i64 = 5;
/// Longest wait before a new task.
const BACKOFF_SECS_MAX: i64 = 3_600;

/// A job, as far as decisions need it.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Where it is.
    pub code: StatusCode,
    /// Whether somebody wants it to stop.
    pub cancelled: bool,
    /// Whether it uses the database, and so must not run during maintenance.
    pub uses_database: bool,
    /// Tasks that came to nothing by no fault of its own.
    pub errors: i32,
    /// Times its command ended badly.
    pub failures: i32,
    /// Times it may be tried again after its command ended badly.
    pub retries: i32,
    /// No new task before this time.
    pub not_before: Option<Timestamp>,
    /// Whether an order to stop its last task is not confirmed yet: something of it may still run.
    pub stopping: bool,
}

/// How the jobs that it needs stand, taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// All have succeeded, or there are none.
    Met,
    /// Some are not there yet, and none failed.
    Open,
    /// One failed.
    Failed,
    /// All have succeeded, and no agent can bring together what they left.
    OutOfReach,
}

/// What people and probes have switched on for its site.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    /// Nothing new begins.
    pub paused: bool,
    /// Nothing touches the database.
    pub maintenance: bool,
    /// The site is about to restart: nothing runs.
    pub reboot: bool,
}

/// Whether there is room for it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Yes.
    Free,
    /// Not with any agent, or there is none.
    NoWorker,
    /// Not in its pool.
    PoolFull,
    /// Never: it is wider than every agent.
    Never,
}

/// What is known of its active task.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// How far the agent is, as it last said.
    pub stage: Option<Stage>,
    /// What came of it, once it is over.
    pub result: Option<TaskResult>,
    /// Whether its agent has been silent for longer than the job lets it be.
    pub lost: bool,
    /// Whether another agent could take the job that has not failed at it.
    pub others: Others,
}

/// Agents that could take a job and have not failed at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// One is there.
    There,
    /// One is known, and is away for now.
    Away,
    /// There are none.
    Nobody,
}

/// What is to be done about a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing: it is where it belongs.
    Keep,
    /// Another code, and nothing else.
    Become(StatusCode),
    /// A new task, and the code that says so, in one transaction.
    Start,
    /// Its task is over by our will: an order to stop it, and the code.
    Stop(StatusCode),
    /// It ended, for this reason.
    End(StatusCode, Option<String>),
    /// Its task came to nothing: a new one, not before this time.
    Again {
        /// When.
        not_before: Timestamp,
        /// Why.
        message: String,
        /// Whether the command ended badly; otherwise it was no fault of the job.
        failure: bool,
        /// Whether something of the old task may still run, and must be stopped first.
        stop: bool,
    },
}

/// What is to be done about a job at `now`.
pub fn plan(
    job: &Job,
    needs: Needs,
    flags: Flags,
    room: Room,
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
    // What succeeded has succeeded, whatever was switched on meanwhile.
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
        JobState::Pending => pending(job, needs, flags, room, now),
        JobState::Running => running(job, report, now),
        JobState::Succeeded | JobState::Failed => Step::Keep,
    }
}

fn is_success(result: &TaskResult) -> bool {
    matches!(result, TaskResult::Ended { exit_code: 0, unmatched, .. } if unmatched.is_empty())
}

fn pending(job: &Job, needs: Needs, flags: Flags, room: Room, now: Timestamp) -> Step {
    if flags.paused || flags.reboot {
        return step(job.code, JobEvent::Pause);
    }
    match needs {
        Needs::Failed => return Step::End(StatusCode::DependencyFailed, None),
        Needs::Open => return step(job.code, JobEvent::AwaitDependencies),
        Needs::OutOfReach => return Step::End(StatusCode::JobError, None),
        Needs::Met => {}
    }
    // Something of the last task may still run: a second one beside it would do the work twice.
    if job.stopping {
        return Step::Keep;
    }
    // A pause that is over is no reason any more: what is waited for now is the end of the back-off.
    if job.not_before.is_some_and(|at| at > now) {
        return step(job.code, JobEvent::TryAgain);
    }
    match room {
        Room::Free => Step::Start,
        Room::NoWorker => step(job.code, JobEvent::AwaitWorkers),
        Room::PoolFull => step(job.code, JobEvent::AwaitPool),
        Room::Never => {
            let why = "it is wider than every agent that could take it";
            Step::End(StatusCode::JobError, Some(why.to_owned()))
        }
    }
}

fn running(job: &Job, report: Option<&Report>, now: Timestamp) -> Step {
    let Some(report) = report else {
        // A running job has a task; one without is given another, like one whose agent failed.
        return again(job, "its task is gone".to_owned(), false, false, now);
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
            let words = message.clone().unwrap_or_else(|| format!("its command ended with {exit_code}"));
            if job.failures < job.retries {
                again(job, words, true, false, now)
            } else {
                Step::End(StatusCode::NonzeroExit, Some(words))
            }
        }
        Some(TaskResult::Failed { fatal: true, elsewhere: true, message }) => {
            not_here(job, message, report.others, now)
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

/// What follows where this agent will never carry the job out, and another may.
///
/// Each agent fails at it once, so that tries are bounded by themselves. One that is away may come back, and is waited
/// for as long as a job is tried again at all.
fn not_here(job: &Job, message: &str, others: Others, now: Timestamp) -> Step {
    let message = message.to_owned();
    match others {
        Others::There => Step::Again { not_before: now, message, failure: false, stop: false },
        Others::Away => again(job, message, false, false, now),
        Others::Nobody => Step::End(StatusCode::JobError, Some(message)),
    }
}

/// A new task after a while, or the end where there were too many.
fn again(job: &Job, message: String, failure: bool, stop: bool, now: Timestamp) -> Step {
    if !failure && job.errors + 1 >= ERRORS_MAX {
        let message = format!("{ERRORS_MAX} tasks came to nothing; the last one: {message}");
        return Step::End(StatusCode::JobError, Some(message));
    }
    let before = if failure { job.failures } else { job.errors };
    let wait = BACKOFF_SECS.saturating_mul(1 << before.clamp(0, 20)).min(BACKOFF_SECS_MAX);
    Step::Again { not_before: now + Duration::seconds(wait), message, failure, stop }
}

/// Where an event leads, unless the job is there already.
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
