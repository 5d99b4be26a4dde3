//! Alerts: their kinds, subjects, texts and advice.
//!
//! An alert belongs to a subject and lasts until it is resolved. Repeated events increase its counter. An alert is
//! raised in the same transaction as the change that it reports; delivery to the targets happens later.

use crate::label::labelled;
use crate::run::{EndCause, Run, RunState};
use crate::{RunId, Timestamp};
use std::fmt::Write as _;

labelled! {
    /// The kind of an alert.
    "kind of alert" AlertKind {
        /// A run failed and has no successor.
        RunFailed = "run_failed",
        /// A run lost its worker, or its worker never started it.
        RunLost = "run_lost",
        /// A running run is silent and its worker sends no heartbeats: an operator must decide.
        RunStalled = "run_stalled",
        /// A schedule skipped a due run.
        RunSkipped = "run_skipped",
        /// A retry succeeded after a failure or a lost worker.
        RunRecovered = "run_recovered",
        SyncFailed = "sync_failed",
        /// The consolidation of a fetched sync failed for good.
        ConsolidationFailed = "consolidation_failed",
        /// A sync succeeded after a failed one.
        SyncRecovered = "sync_recovered",
        /// So many records are missing from the feed that none was deleted.
        DeleteLimit = "delete_limit",
        /// Records are missing from a list, and nothing shows that the list was read whole, so none was deleted.
        AbsenceUnproven = "absence_unproven",
        /// A sync rejected records, so they have no current row.
        RecordsRejected = "records_rejected",
        /// A sync could not account for all listed records.
        LedgerDifference = "ledger_difference",
        /// The copy of a watermark to its external target is late.
        WatermarkCopy = "watermark_copy",
        /// A watermark has not advanced for too long.
        WatermarkOld = "watermark_old",
        /// A partition makes no progress.
        PartitionStuck = "partition_stuck",
        /// A message became a dead letter.
        DeadLetter = "dead_letter",
        /// Too many messages wait in a queue.
        QueueDeep = "queue_deep",
        /// A test of the alert targets.
        Test = "test",
    }
}

impl AlertKind {
    /// Returns the text for the subject line of a mail.
    pub const fn title(self) -> &'static str {
        match self {
            Self::RunFailed => "a run failed",
            Self::RunLost => "a run lost its worker",
            Self::RunStalled => "a run is stalled",
            Self::RunSkipped => "a scheduled run was skipped",
            Self::RunRecovered => "a run recovered",
            Self::SyncFailed => "a sync failed",
            Self::ConsolidationFailed => "a consolidation failed",
            Self::SyncRecovered => "a sync recovered",
            Self::DeleteLimit => "too many records are missing",
            Self::AbsenceUnproven => "missing records are kept without evidence",
            Self::RecordsRejected => "records were rejected",
            Self::LedgerDifference => "the ledger of a sync does not add up",
            Self::WatermarkCopy => "the copy of a watermark is late",
            Self::WatermarkOld => "a watermark is old",
            Self::PartitionStuck => "a partition is stuck",
            Self::DeadLetter => "a message is a dead letter",
            Self::QueueDeep => "a queue is deep",
            Self::Test => "a test message",
        }
    }

    /// Returns whether the alert reports a recovery or a test. Such an alert is resolved as soon as it is raised.
    pub const fn is_good_news(self) -> bool {
        matches!(self, Self::RunRecovered | Self::SyncRecovered | Self::Test)
    }

    /// Returns the advice, as a sentence that a command may follow.
    pub const fn advice(self) -> Option<&'static str> {
        match self {
            Self::RunFailed => Some("Inspect the run, fix the cause, then retry it"),
            Self::RunLost => Some("No action is needed while a retry follows; show its state with"),
            Self::RunStalled => Some(
                "Check whether its worker still runs. If not, fail the run, or add --retry to queue a successor",
            ),
            Self::RunSkipped => {
                Some("Check how long its runs take, and its missed-fire and overlap policies")
            }
            Self::SyncFailed => {
                Some("Retry the failed partitions; pages that were fetched are not read again")
            }
            Self::ConsolidationFailed => Some("Fix the cause, then resume the consolidation"),
            Self::DeleteLimit => Some("Ask the supplier; nothing was deleted"),
            Self::AbsenceUnproven => Some("Change the definition as the text says; nothing was deleted"),
            Self::RecordsRejected => Some("Read the reasons, then correct the definition or the source"),
            Self::LedgerDifference => {
                Some("The written rows are kept; start a full sync and report the difference as a bug")
            }
            Self::WatermarkCopy => {
                Some("Check the target of the copy; the watermark in the database is correct")
            }
            Self::WatermarkOld => Some("Start a sync of the feed"),
            Self::PartitionStuck => Some("Show what it waits for"),
            Self::DeadLetter => Some("Inspect it, fix the cause, then replay it"),
            Self::QueueDeep => Some("Start more workers, or check why they are slow"),
            Self::RunRecovered | Self::SyncRecovered | Self::Test => None,
        }
    }
}

/// A condition that operators are notified of.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Alert {
    /// Number of the alert.
    pub alert_id: i64,
    /// Kind of the alert.
    pub kind: AlertKind,
    /// Object that the alert is about. At most one unresolved alert exists for each kind and subject.
    pub subject: String,
    /// Project of the subject, if it belongs to one.
    pub project_id: Option<String>,
    /// Feed of the subject, if it belongs to one.
    pub feed: Option<String>,
    /// Run of the latest occurrence.
    pub run_id: Option<RunId>,
    /// Description of the latest occurrence.
    pub message: String,
    /// Command that helps to handle the alert.
    pub command: Option<String>,
    /// Time of the first occurrence.
    pub first_at: Timestamp,
    /// Time of the latest occurrence.
    pub last_at: Timestamp,
    pub times: i32,
    /// Time of resolution; null while the alert is open.
    pub resolved_at: Option<Timestamp>,
}

impl Alert {
    /// Returns the key for throttling: each target receives at most one message per group and interval.
    pub fn group(&self) -> &str {
        self.feed.as_deref().or(self.project_id.as_deref()).unwrap_or(&self.subject)
    }

    /// Returns the message text. `held_back` counts the alerts that were throttled since the last message.
    pub fn text(&self, held_back: i32) -> String {
        let mut text = format!("{}\n", sentence(&self.message));
        if self.times > 1 {
            let first = self.first_at.format("%Y-%m-%d %H:%M UTC");
            let _ = writeln!(text, "It has happened {} times since {first}.", self.times);
        }
        if held_back > 0 {
            let verb = if held_back == 1 { "alert of this kind was" } else { "alerts of this kind were" };
            let _ = writeln!(text, "{held_back} more {verb} held back since the last message.");
        }
        if let Some(advice) = self.kind.advice() {
            let end = if self.command.is_some() { ":" } else { "." };
            let _ = write!(text, "\n{advice}{end}\n");
        }
        if let Some(command) = &self.command {
            let _ = write!(text, "\n    {command}\n");
        }
        text
    }

    /// Returns the subject line of a mail.
    pub fn headline(&self) -> String {
        let about = self.group();
        format!("Tidemill: {} ({about})", self.kind.title())
    }
}

/// Turns a message into one line that begins with a capital letter and ends with a full stop.
fn sentence(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut letters = line.chars();
    let first: String = letters.next().map(|letter| letter.to_uppercase().collect()).unwrap_or_default();
    let stop = if line.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

/// Returns the command to handle an alert.
pub fn command(kind: AlertKind, subject: &str, feed: Option<&str>, run: Option<&RunId>) -> Option<String> {
    match kind {
        AlertKind::RunFailed | AlertKind::RunRecovered => {
            run.map(|run| format!("tidemill run show {}", run.in_shell()))
        }
        AlertKind::RunLost | AlertKind::PartitionStuck => {
            run.map(|run| format!("tidemill run why {}", run.in_shell()))
        }
        AlertKind::RunStalled => run.map(|run| format!("tidemill run fail {}", run.in_shell())),
        AlertKind::RunSkipped => Some("tidemill schedule list".to_owned()),
        AlertKind::SyncFailed => run.map(|run| format!("tidemill sync retry {}", run.in_shell())),
        AlertKind::ConsolidationFailed => {
            run.map(|run| format!("tidemill sync consolidate {}", run.in_shell()))
        }
        AlertKind::SyncRecovered
        | AlertKind::DeleteLimit
        | AlertKind::AbsenceUnproven
        | AlertKind::LedgerDifference => run.map(|run| format!("tidemill sync show {}", run.in_shell())),
        AlertKind::RecordsRejected => feed.map(|feed| format!("tidemill feed rejects {feed}")),
        AlertKind::WatermarkCopy => feed.map(|feed| format!("tidemill feed show {feed}")),
        AlertKind::WatermarkOld => feed.map(|feed| format!("tidemill feed sync {feed}")),
        AlertKind::DeadLetter => {
            let queue = subject.strip_prefix("queue:").and_then(|rest| rest.split('/').next());
            queue.map(|queue| format!("tidemill queue dead {queue}"))
        }
        AlertKind::QueueDeep => Some("tidemill stats".to_owned()),
        AlertKind::Test => None,
    }
}

/// Whether a run has a successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HasSuccessor {
    Yes,
    No,
}

/// Returns the kind of alert that the state of a run calls for; `None` if there is nothing to report.
pub fn of_run(run: &Run, successor: HasSuccessor) -> Option<AlertKind> {
    match (run.status, run.end_cause, successor) {
        (RunState::Running, _, _) if run.stalled_at.is_some() => Some(AlertKind::RunStalled),
        (RunState::Success, _, _) => Some(AlertKind::RunRecovered),
        (RunState::Failed, Some(EndCause::Lost), HasSuccessor::Yes)
        | (RunState::Cancelled, Some(EndCause::Stale), _) => Some(AlertKind::RunLost),
        (RunState::Failed, _, HasSuccessor::No) => Some(AlertKind::RunFailed),
        (
            RunState::Failed | RunState::Cancelled | RunState::Queued | RunState::Claimed | RunState::Running,
            _,
            _,
        ) => None,
    }
}

/// Returns the subject of a run's alerts: its schedule, so that the next fire can resolve the alert, or the first
/// attempt of the run.
pub fn subject_of_run(run: &Run, first: &RunId) -> String {
    match run.metadata.get("schedule").and_then(crate::Json::as_str) {
        Some(schedule) if crate::ids::is_name(schedule) => schedule_subject(&run.project_id, schedule),
        Some(_) | None => format!("run:{first}"),
    }
}

/// Returns the subject of a stalled run's alert: the run itself, because each stalled run needs its own decision.
pub fn stalled_subject(run: &RunId) -> String {
    format!("run:{run}")
}

/// Returns the subject of a schedule's alerts.
pub fn schedule_subject(project: &str, schedule: &str) -> String {
    format!("schedule:{project}/{schedule}")
}

/// Returns the subject of a feed's alerts.
pub fn feed_subject(feed: &str) -> String {
    format!("feed:{feed}")
}

/// Returns the wait before the next delivery after `attempt` failures; `None` if no attempts remain.
pub fn retry_after_secs(attempt: i32) -> Option<i64> {
    use crate::limits::{DELIVERY_ATTEMPTS_MAX, DELIVERY_BACKOFF_SECS};
    if attempt >= DELIVERY_ATTEMPTS_MAX {
        return None;
    }
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(0).min(7);
    Some((DELIVERY_BACKOFF_SECS << doublings).min(3_600))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(kind: AlertKind) -> Alert {
        let run: RunId = "run-1".parse().unwrap();
        Alert {
            alert_id: 1,
            kind,
            subject: "run:run-1".to_owned(),
            project_id: Some("shop".to_owned()),
            feed: None,
            command: command(kind, "queue:work-items/x", Some("f"), Some(&run)),
            run_id: Some(run),
            message: "run run-1 failed:\r\nBcc: all@example.com".to_owned(),
            first_at: Timestamp::UNIX_EPOCH,
            last_at: Timestamp::UNIX_EPOCH,
            times: 3,
            resolved_at: None,
        }
    }

    #[test]
    fn alert_text_has_message_advice_and_command() {
        assert_eq!(
            alert(AlertKind::RunFailed).text(2),
            "Run run-1 failed: Bcc: all@example.com.\nIt has happened 3 times since 1970-01-01 00:00 UTC.\n\
             2 more alerts of this kind were held back since the last message.\n\n\
             Inspect the run, fix the cause, then retry it:\n\n    tidemill run show run-1\n"
        );
        for kind in AlertKind::ALL {
            let alert = alert(*kind);
            assert!(!alert.headline().contains(['\r', '\n']), "{kind}");
            assert_eq!(kind.advice().is_none(), kind.is_good_news(), "{kind}");
            assert!(kind.advice().is_none() || alert.command.is_some(), "{kind} has nothing to paste");
        }
    }

    #[test]
    fn delivery_backoff_doubles_and_ends() {
        let waits: Vec<_> = (1..=11).map(retry_after_secs).collect();
        assert_eq!(waits[..3], [Some(30), Some(60), Some(120)]);
        assert_eq!((waits[8], waits[9], waits[10]), (Some(3_600), None, None));
    }
}
