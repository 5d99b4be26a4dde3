//! Display states of jobs: colour, symbol and word.

use maud::{Markup, html};
use tidemill_core::graph::record::{JobCounts, JobRecord};
use tidemill_core::job::{JobState, StatusCode};

/// Display state of a job. It summarizes the status codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobStatus {
    /// Waiting for dependencies or capacity.
    Waiting,
    /// Paused by a flag.
    Held,
    /// An agent has the job.
    Running,
    Succeeded,
    /// Successful in an earlier run.
    Reused,
    Failed,
    /// Not executed because a dependency failed.
    Skipped,
    Cancelled,
}

impl JobStatus {
    /// All states in the order of the counts.
    pub(crate) const ALL: [Self; 8] = [
        Self::Succeeded,
        Self::Reused,
        Self::Running,
        Self::Waiting,
        Self::Held,
        Self::Failed,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// Display state of a job.
    pub(crate) fn from_job(job: &JobRecord) -> Self {
        if job.code == StatusCode::Succeeded && job.reused_from.is_some() {
            return Self::Reused;
        }
        Self::from_code(job.code)
    }

    /// Display state of a status code.
    pub(crate) const fn from_code(code: StatusCode) -> Self {
        if matches!(code, StatusCode::Paused | StatusCode::WaitingDbMaintenance | StatusCode::WaitingOnReboot)
        {
            return Self::Held;
        }
        if matches!(code, StatusCode::DependencyFailed) {
            return Self::Skipped;
        }
        if matches!(code, StatusCode::CancelledByUser) {
            return Self::Cancelled;
        }
        match code.state() {
            JobState::Pending => Self::Waiting,
            JobState::Running => Self::Running,
            JobState::Succeeded => Self::Succeeded,
            JobState::Failed => Self::Failed,
        }
    }

    /// Label, which is also the suffix of the CSS classes.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Reused => "reused",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// Symbol, for users who cannot distinguish the colours.
    pub(crate) const fn symbol(self) -> &'static str {
        match self {
            Self::Waiting => "○",
            Self::Held => "‖",
            Self::Running => "●",
            Self::Succeeded => "✓",
            Self::Reused => "↺",
            Self::Failed => "✕",
            Self::Skipped => "–",
            Self::Cancelled => "⊘",
        }
    }
}

/// Readable form of a status code.
pub(crate) fn code_text(code: StatusCode) -> String {
    code.as_str().replace('_', " ")
}

/// Renders the status code of a job.
pub(crate) fn code(job: &JobRecord) -> Markup {
    let status = JobStatus::from_job(job);
    html! {
        span class={ "state s-" (status.label()) } { i aria-hidden="true" { (status.symbol()) }
            @if status == JobStatus::Reused { "reused" } @else { (code_text(job.code)) } }
        @if job.stopping { " " span.chip { "stopping" } }
    }
}

/// Job counts by display state, as far as the graph's counters distinguish them.
pub(super) fn count_by_status(counts: &JobCounts) -> Vec<(JobStatus, i64)> {
    vec![
        (JobStatus::Succeeded, counts.succeeded),
        (JobStatus::Reused, counts.reused),
        (JobStatus::Running, counts.running),
        (JobStatus::Waiting, counts.pending),
        (JobStatus::Failed, counts.failed),
    ]
}

/// Job counts by display state.
pub(super) fn count_jobs<'a>(jobs: impl Iterator<Item = &'a JobRecord>) -> Vec<(JobStatus, i64)> {
    let mut counts: Vec<(JobStatus, i64)> = JobStatus::ALL.into_iter().map(|status| (status, 0)).collect();
    for job in jobs {
        let status = JobStatus::from_job(job);
        if let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == status) {
            *count += 1;
        }
    }
    counts
}
