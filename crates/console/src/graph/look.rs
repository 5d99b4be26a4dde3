//! How a job looks: a colour, a sign and a word for everything that people tell apart.

use maud::{Markup, html};
use tidemill_core::graph::record::{JobCounts, JobRecord};
use tidemill_core::job::{JobState, StatusCode};

/// What people tell apart at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// It waits for its turn.
    Waiting,
    /// Somebody holds it.
    Held,
    /// An agent has it.
    Running,
    /// It ended well.
    Succeeded,
    /// It ended well in an earlier run.
    Reused,
    /// It ended badly.
    Failed,
    /// It never ran, because something that it needs failed.
    Skipped,
    /// Somebody stopped it.
    Cancelled,
}

impl Look {
    /// All of them, in the order in which they are counted.
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

    /// How a job looks.
    pub(crate) fn of(job: &JobRecord) -> Self {
        if job.code == StatusCode::Succeeded && job.reused_from.is_some() {
            return Self::Reused;
        }
        Self::of_code(job.code)
    }

    /// How a code looks.
    pub(crate) const fn of_code(code: StatusCode) -> Self {
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

    /// The word for it, which also names its colours.
    pub(crate) const fn word(self) -> &'static str {
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

    /// A sign: colour alone would not do for everybody.
    pub(crate) const fn sign(self) -> &'static str {
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

/// A code in words.
pub(crate) fn words(code: StatusCode) -> String {
    code.as_str().replace('_', " ")
}

/// The code of a job, with its colour and sign.
pub(crate) fn code(job: &JobRecord) -> Markup {
    let look = Look::of(job);
    html! {
        span class={ "state s-" (look.word()) } { i aria-hidden="true" { (look.sign()) }
            @if look == Look::Reused { "reused" } @else { (words(job.code)) } }
        @if job.stopping { " " span.chip { "stopping" } }
    }
}

/// How many jobs look how: what can be said without reading them all.
pub(super) fn of_counts(counts: &JobCounts) -> Vec<(Look, i64)> {
    vec![
        (Look::Succeeded, counts.succeeded),
        (Look::Reused, counts.reused),
        (Look::Running, counts.running),
        (Look::Waiting, counts.pending),
        (Look::Failed, counts.failed),
    ]
}

/// How many of these jobs look how.
pub(super) fn of_jobs<'a>(jobs: impl Iterator<Item = &'a JobRecord>) -> Vec<(Look, i64)> {
    let mut counts: Vec<(Look, i64)> = Look::ALL.into_iter().map(|look| (look, 0)).collect();
    for job in jobs {
        let look = Look::of(job);
        if let Some((_, count)) = counts.iter_mut().find(|(known, _)| *known == look) {
            *count += 1;
        }
    }
    counts
}
