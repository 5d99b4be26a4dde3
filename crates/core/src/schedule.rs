//! Schedules: queue runs at times given by cron patterns.
//!
//! A [`Pattern`] determines when a schedule fires; a [`Plan`] contains the decision about each due fire. The store
//! queues [`Schedule::request`] accordingly.
//!
//! # Daylight saving time
//!
//! A pattern applies to the wall clock of its time zone, to the minute. When clocks change, the hour field decides.
//!
//! **Fixed hours** (`30 2 * * *`, `*/15 2 * * *`, `0 1-3,14 * * *`): a time that is skipped in spring fires at the
//! first instant after the gap. A time that is repeated in autumn fires on the first pass only. Several times in one
//! gap are one fire, and so is a time that is due at that instant anyway.
//!
//! **Running hours** (a `*` or a step in the hour field, or all 24 hours): a repeated time fires on both passes, so
//! that the intervals stay even. A skipped time fires at the first instant after the gap too, unless the pattern fires
//! by itself within the length of the gap. Two examples in Berlin: `30 * * * *` goes from 01:30 to 03:30, one hour
//! later, so a fire at 03:00 would be one too many. The pattern `0 */2 * * *` fires at 03:00, because otherwise three
//! hours would pass.
//!
//! So no fire is lost or doubled, and [`Pattern::next_after`] depends only on its argument. Rejected alternatives:
//! skipping times in a gap (a nightly run would be missing once a year), and the search of the `croner` crate. It
//! treats a pattern with several minutes or hours as an interval, so it loses `0 2,14 * * *` in spring and fires it
//! twice in autumn. Only its parser and its calendar are used.

mod error;
mod pattern;
mod plan;

pub use error::ScheduleError;
pub use pattern::{CRON_BYTES_MAX, Pattern};
pub use plan::{Decision, FIRES_MAX, FORGOTTEN_MAX, Fire, ON_TIME_SECS, Plan, PreviousRun, plan};

use crate::label::labelled;
use crate::run::QueueRun;
use crate::{RunId, Timestamp};

labelled! {
    /// Policy for fires that were missed because no scheduler was running.
    "missed-fire policy" MissedPolicy {
        /// Record them as missed.
        Skip = "skip",
        /// Queue a run for the latest one only. A fire that is on time replaces all missed ones before it.
        Once = "once",
        /// Queue a run for each, oldest first, but at most for the newest [`FIRES_MAX`].
        All = "all",
    }
}

labelled! {
    /// Policy for a fire while the run of an earlier fire has not ended.
    "overlap policy" OverlapPolicy {
        /// Queue a run anyway.
        Allow = "allow",
        /// Record the fire as overlapped.
        Skip = "skip",
    }
}

/// A schedule that queues runs by a cron pattern.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Schedule {
    /// Name of the schedule within the project.
    pub schedule_id: String,
    /// Project of the schedule.
    pub project_id: String,
    /// Cron pattern with five fields, or a short form such as `@daily`.
    pub cron: String,
    /// IANA name of the time zone of the pattern.
    pub time_zone: String,
    /// Request that each fire queues.
    pub request: QueueRun,
    /// Policy for missed fires.
    pub missed: MissedPolicy,
    /// Policy for fires while an earlier run has not ended.
    pub overlap: OverlapPolicy,
    /// Time at which it was paused; null if it is active.
    pub paused_at: Option<Timestamp>,
    /// Reason of the pause.
    pub paused_note: Option<String>,
    /// Time of the next fire; null if the pattern has no further times.
    pub next_fire_at: Option<Timestamp>,
    /// Time of the last fire, including missed and overlapped ones.
    pub last_fire_at: Option<Timestamp>,
    /// Last run that it queued; the overlap policy checks it.
    pub last_run_id: Option<RunId>,
    pub created_at: Timestamp,
}

impl Schedule {
    /// Parses the cron pattern and the time zone.
    pub fn pattern(&self) -> Result<Pattern, ScheduleError> {
        Pattern::parse(&self.cron, &self.time_zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_round_trips_through_json() {
        let at = "2026-03-01T00:00:00Z".parse().unwrap();
        let schedule = Schedule {
            schedule_id: "nightly".to_owned(),
            project_id: "shop".to_owned(),
            cron: "30 2 * * *".to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
            request: QueueRun::new("shop", "staging"),
            missed: MissedPolicy::Once,
            overlap: OverlapPolicy::Skip,
            paused_at: None,
            paused_note: None,
            next_fire_at: Some(at),
            last_fire_at: None,
            last_run_id: None,
            created_at: at,
        };
        let json = serde_json::to_value(&schedule).unwrap();
        assert_eq!((&json["missed"], &json["overlap"]), (&"once".into(), &"skip".into()));
        assert_eq!(serde_json::from_value::<Schedule>(json).unwrap(), schedule);
        assert!(schedule.pattern().is_ok());
    }
}
