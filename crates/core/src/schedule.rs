//! Schedules: when a run is queued by the clock, decided without a clock.
//!
//! A [`Pattern`] says when a schedule fires, a [`Plan`] says what becomes of the fires that are due. What to
//! queue is in [`Schedule::request`]; writing it down is the store's part.
//!
//! # When the clocks change
//!
//! A pattern is read on the wall clock of its time zone, to the minute. What follows depends on its hour field.
//!
//! - **Fixed hours** (`30 2 * * *`, `*/15 2 * * *`, `0 1-3,14 * * *`): a time that is skipped in spring fires at
//!   the first instant after the gap; a time that is repeated in autumn fires on the first pass alone. Several
//!   times in one gap are one fire, and it is the same fire as one that is due at that instant anyway.
//! - **Running hours** (a `*` or a step in the hour field, or all 24 hours): a time that is repeated fires on
//!   both passes, so that the intervals stay even. A skipped time fires at the first instant after the gap too,
//!   unless the pattern fires by itself before as much time has passed as the gap took away: `30 * * * *` goes
//!   from 01:30 to 03:30 in Berlin, one hour later, and a fire at 03:00 would be one too many; `0 */2 * * *` fires
//!   at 03:00, for otherwise three hours would pass.
//!
//! Hence nothing is lost and nothing is doubled, and [`Pattern::next_after`] depends on nothing but the moment.
//! Rejected: skipping what falls into a gap (a nightly run would be missing once a year), and the search of the
//! `croner` crate, which treats a pattern with more than one minute or hour as an interval, and so loses
//! `0 2,14 * * *` in spring and fires it twice in autumn. Only its parser and its calendar are used.

mod bad;
mod pattern;
mod plan;

pub use bad::BadSchedule;
pub use pattern::{CRON_BYTES_MAX, Pattern};
pub use plan::{Decision, FIRES_MAX, FORGOTTEN_MAX, Fire, ON_TIME_SECS, Plan, Previous, plan};

use crate::label::labelled;
use crate::run::QueueRun;
use crate::{RunId, Timestamp};

labelled! {
    /// What to do with fire times that passed while nothing was running.
    "missed-fire policy" Missed {
        /// Nothing: they are recorded as missed.
        Skip = "skip",
        /// Only the latest is made up for; a fire that is on time makes up for all before it.
        Once = "once",
        /// Each is made up for, oldest first, but at most the newest [`FIRES_MAX`].
        All = "all",
    }
}

labelled! {
    /// What to do with a fire while the run of an earlier fire has not ended.
    "overlap policy" Overlap {
        /// Queue its run all the same.
        Allow = "allow",
        /// Record it as overlapped.
        Skip = "skip",
    }
}

/// A schedule as it is kept.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Schedule {
    /// Its name within the project.
    pub schedule_id: String,
    /// The project that it belongs to.
    pub project_id: String,
    /// When it fires, as [`Pattern::parse`] takes it.
    pub cron: String,
    /// The IANA name of the time zone whose wall clock the pattern is read on.
    pub time_zone: String,
    /// What each fire asks for.
    pub request: QueueRun,
    /// What becomes of fires that were missed.
    pub missed: Missed,
    /// What becomes of fires while an earlier run is live.
    pub overlap: Overlap,
    /// Since when it does not fire, if somebody paused it.
    pub paused_at: Option<Timestamp>,
    /// Why it was paused, for whoever wonders.
    pub paused_note: Option<String>,
    /// When it fires next, unless it is paused; nothing if its pattern has come to an end.
    pub next_fire_at: Option<Timestamp>,
    /// When it last fired, whatever was decided then.
    pub last_fire_at: Option<Timestamp>,
    /// The last run that it queued: what the overlap policy looks at.
    pub last_run_id: Option<RunId>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl Schedule {
    /// When it fires, ready to be asked.
    pub fn pattern(&self) -> Result<Pattern, BadSchedule> {
        Pattern::parse(&self.cron, &self.time_zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_as_it_is_written() {
        let at = "2026-03-01T00:00:00Z".parse().unwrap();
        let schedule = Schedule {
            schedule_id: "nightly".to_owned(),
            project_id: "shop".to_owned(),
            cron: "30 2 * * *".to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
            request: QueueRun::new("shop", "staging"),
            missed: Missed::Once,
            overlap: Overlap::Skip,
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
