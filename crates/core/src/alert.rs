//! Alerts: what people are told without having asked, in which words, and what they can do about it.
//!
//! An alert is about a subject and lasts until it is resolved. What happens again while it lasts counts on the same
//! alert. Whoever raises one does so in the commit that it is about; who is told, and how, is settled afterwards.

use crate::label::labelled;
use crate::run::{EndCause, Run, RunState};
use crate::{RunId, Timestamp};
use std::fmt::Write as _;

labelled! {
    /// What an alert is about.
    "kind of alert" AlertKind {
        /// A run failed, and no try follows.
        RunFailed = "run_failed",
        /// A run lost its worker, or its worker never began.
        RunLost = "run_lost",
        /// A running run is silent, and its worker has promised no signs of life: a person must decide.
        RunStalled = "run_stalled",
        /// A schedule did not queue a run that was due.
        RunSkipped = "run_skipped",
        /// A request that had failed or lost its worker succeeded.
        RunRecovered = "run_recovered",
        /// A sync failed.
        SyncFailed = "sync_failed",
        /// A sync was fetched, and its consolidation was given up.
        ConsolidationFailed = "consolidation_failed",
        /// A feed whose sync had failed is in the table again.
        SyncRecovered = "sync_recovered",
        /// So many stones vanished that none was deleted.
        DeleteLimit = "delete_limit",
        /// The copy of a watermark is late.
        WatermarkCopy = "watermark_copy",
        /// A watermark has not moved for too long.
        WatermarkOld = "watermark_old",
        /// A partition makes no progress.
        PartitionStuck = "partition_stuck",
        /// A message is given up.
        DeadLetter = "dead_letter",
        /// More waits than should.
        QueueDeep = "queue_deep",
        /// Somebody tries whether messages arrive.
        Test = "test",
    }
}

impl AlertKind {
    /// What it says in the subject line of a mail.
    pub const fn title(self) -> &'static str {
        match self {
            Self::RunFailed => "a run failed",
            Self::RunLost => "a run lost its worker",
            Self::RunStalled => "a run is stalled",
            Self::RunSkipped => "a scheduled run was skipped",
            Self::RunRecovered => "a run recovered",
            Self::SyncFailed => "a sync failed",
            Self::ConsolidationFailed => "a consolidation was given up",
            Self::SyncRecovered => "a sync recovered",
            Self::DeleteLimit => "too many stones vanished",
            Self::WatermarkCopy => "a watermark is not copied",
            Self::WatermarkOld => "a watermark is old",
            Self::PartitionStuck => "a partition is stuck",
            Self::DeadLetter => "a message is a dead letter",
            Self::QueueDeep => "a queue is deep",
            Self::Test => "a test message",
        }
    }

    /// Whether it tells that something is over: such an alert is resolved as soon as it is raised.
    pub const fn is_good_news(self) -> bool {
        matches!(self, Self::RunRecovered | Self::SyncRecovered | Self::Test)
    }

    /// What to do about it, as a sentence that a command may follow.
    pub const fn advice(self) -> Option<&'static str> {
        match self {
            Self::RunFailed => Some("Look at its record, and try it again when the reason is gone"),
            Self::RunLost => Some("Nothing has to be done while another try follows; this says where it is"),
            Self::RunStalled => Some(
                "Check whether its worker still runs. If not, fail the run, or add --retry to queue a successor",
            ),
            Self::RunSkipped => Some("Look at how long its runs take, and at its policies"),
            Self::SyncFailed => Some("Read what failed again; what was fetched is kept"),
            Self::ConsolidationFailed => Some("Mend the reason, and go on where it stopped"),
            Self::DeleteLimit => Some("Ask the supplier; nothing was deleted"),
            Self::WatermarkCopy => Some("Look at the place of the copy; the watermark itself is safe"),
            Self::WatermarkOld => Some("Bring the feed up to date"),
            Self::PartitionStuck => Some("This says what it waits for"),
            Self::DeadLetter => Some("Look at it, and send it again when the reason is gone"),
            Self::QueueDeep => Some("Start more workers, or look at what holds them up"),
            Self::RunRecovered | Self::SyncRecovered | Self::Test => None,
        }
    }
}

/// Something that people should know.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Alert {
    /// Its number.
    pub alert_id: i64,
    /// What it is about.
    pub kind: AlertKind,
    /// Which thing it is about: while it lasts, there is one alert of a kind for it.
    pub subject: String,
    /// The project that it belongs to, if it belongs to one.
    pub project_id: Option<String>,
    /// The feed.
    pub feed: Option<String>,
    /// The run that it was last about.
    pub run_id: Option<RunId>,
    /// What happened, as a sentence.
    pub message: String,
    /// A command to paste.
    pub command: Option<String>,
    /// When it began.
    pub first_at: Timestamp,
    /// When it last happened.
    pub last_at: Timestamp,
    /// How often it has happened since it began.
    pub times: i32,
    /// When it was over.
    pub resolved_at: Option<Timestamp>,
}

impl Alert {
    /// What messages are paced by: one of these is told at most once in an interval.
    pub fn group(&self) -> &str {
        self.feed.as_deref().or(self.project_id.as_deref()).unwrap_or(&self.subject)
    }

    /// What is told, as text for people.
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

    /// The subject line of a mail.
    pub fn headline(&self) -> String {
        let about = self.group();
        format!("Tidemill: {} ({about})", self.kind.title())
    }
}

/// A message as a whole sentence, on one line.
fn sentence(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut letters = line.chars();
    let first: String = letters.next().map(|letter| letter.to_uppercase().collect()).unwrap_or_default();
    let stop = if line.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

/// The command that goes with an alert.
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
        AlertKind::SyncRecovered | AlertKind::DeleteLimit => {
            run.map(|run| format!("tidemill sync show {}", run.in_shell()))
        }
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

/// Whether a try follows a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// One does.
    Yes,
    /// None does.
    No,
}

/// What the end of a run is to people; nothing where its request goes on as it should. A stalled run is an alert too.
pub fn of_run(run: &Run, followed: Followed) -> Option<AlertKind> {
    match (run.status, run.end_cause, followed) {
        (RunState::Running, _, _) if run.stalled_at.is_some() => Some(AlertKind::RunStalled),
        (RunState::Success, _, _) => Some(AlertKind::RunRecovered),
        (RunState::Failed, Some(EndCause::Lost), Followed::Yes)
        | (RunState::Cancelled, Some(EndCause::Stale), _) => Some(AlertKind::RunLost),
        (RunState::Failed, _, Followed::No) => Some(AlertKind::RunFailed),
        (
            RunState::Failed | RunState::Cancelled | RunState::Queued | RunState::Claimed | RunState::Running,
            _,
            _,
        ) => None,
    }
}

/// The subject of a request's alerts: its schedule where it has one, so that the next fire can make it good, and
/// otherwise the request itself, by its first try.
pub fn subject_of_run(run: &Run, first: &RunId) -> String {
    match run.metadata.get("schedule").and_then(crate::Json::as_str) {
        Some(schedule) if crate::ids::is_name(schedule) => schedule_subject(&run.project_id, schedule),
        Some(_) | None => format!("run:{first}"),
    }
}

/// The subject of a stalled run's alert. It is the run itself, because each stalled run needs a decision of its own.
pub fn stalled_subject(run: &RunId) -> String {
    format!("run:{run}")
}

/// The subject of a schedule's alerts.
pub fn schedule_subject(project: &str, schedule: &str) -> String {
    format!("schedule:{project}/{schedule}")
}

/// The subject of a feed's alerts.
pub fn feed_subject(feed: &str) -> String {
    format!("feed:{feed}")
}

/// When to try a delivery again after so many tries that failed; nothing where there were enough.
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
    fn a_text_has_a_sentence_what_to_do_and_a_command() {
        assert_eq!(
            alert(AlertKind::RunFailed).text(2),
            "Run run-1 failed: Bcc: all@example.com.\nIt has happened 3 times since 1970-01-01 00:00 UTC.\n\
             2 more alerts of this kind were held back since the last message.\n\n\
             Look at its record, and try it again when the reason is gone:\n\n    tidemill run show run-1\n"
        );
        for kind in AlertKind::ALL {
            let alert = alert(*kind);
            assert!(!alert.headline().contains(['\r', '\n']), "{kind}");
            assert_eq!(kind.advice().is_none(), kind.is_good_news(), "{kind}");
            assert!(kind.advice().is_none() || alert.command.is_some(), "{kind} has nothing to paste");
        }
    }

    #[test]
    fn tries_wait_longer_and_come_to_an_end() {
        let waits: Vec<_> = (1..=11).map(retry_after_secs).collect();
        assert_eq!(waits[..3], [Some(30), Some(60), Some(120)]);
        assert_eq!((waits[8], waits[9], waits[10]), (Some(3_600), None, None));
    }
}
