//! The circuit of a feed: while nobody is answered, nobody asks, but for one probe at a time.
//!
//! ```text
//!             outage, the last of several in a row            probe_at has come
//!   closed ────────────────────────────────────────► open ──────────────────────► probing
//!     ▲                                                ▲                             │ │
//!     │                                                └──────────── outage ─────────┘ │
//!     └───────────────────────────── answer ───────────────────────────────────────────┘
//! ```
//!
//! This is the pure part: time comes in, the next state comes out, and whoever keeps it decides where. A
//! probe whose process died is given to somebody else when its time is over.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidemill_core::Timestamp;

/// When a circuit opens, and how long it stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitPolicy {
    /// Outages in a row that open it.
    pub outages_max: u32,
    /// Wait before the first probe; it doubles with each probe that fails.
    pub backoff: Duration,
    /// Longest wait before a probe.
    pub backoff_max: Duration,
    /// Time for a probe; afterwards somebody else may probe.
    pub probe_timeout: Duration,
}

impl Default for CircuitPolicy {
    fn default() -> Self {
        Self {
            outages_max: 3,
            backoff: Duration::from_secs(5),
            backoff_max: Duration::from_mins(5),
            probe_timeout: Duration::from_mins(5),
        }
    }
}

/// Whether a feed may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Circuit {
    /// It may.
    Closed {
        /// Outages in a row so far.
        outages: u32,
    },
    /// It may not.
    Open {
        /// Since when nobody has been answered: giving up counts from here.
        since: Timestamp,
        /// When somebody may probe.
        probe_at: Timestamp,
        /// Probes that failed.
        probes: u32,
    },
    /// One caller asks; everybody else waits for what it hears.
    Probing {
        /// Since when nobody has been answered.
        since: Timestamp,
        /// When the probe counts as lost.
        until: Timestamp,
        /// Probes that failed before this one.
        probes: u32,
    },
}

/// What a caller may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Ask.
    Go,
    /// Ask, as the one probe: keep this state first.
    Probe(Circuit),
    /// Ask nothing before this time.
    Wait(Timestamp),
}

impl Default for Circuit {
    fn default() -> Self {
        Self::Closed { outages: 0 }
    }
}

impl Circuit {
    /// What a caller may do at `now`.
    pub fn ask(self, now: Timestamp, policy: &CircuitPolicy) -> Ask {
        match self {
            Self::Closed { .. } => Ask::Go,
            Self::Open { probe_at: later, .. } | Self::Probing { until: later, .. } if now < later => {
                Ask::Wait(later)
            }
            Self::Open { since, probes, .. } | Self::Probing { since, probes, .. } => {
                Ask::Probe(Self::Probing { since, until: after(now, policy.probe_timeout), probes })
            }
        }
    }

    /// The state after the feed answered: an answer to anybody, however bad the answer is, ends an outage.
    #[must_use]
    pub const fn answered(self) -> Self {
        Self::Closed { outages: 0 }
    }

    /// The state after an outage at `now`. `retry_after` is the wait that the feed asked for itself.
    #[must_use]
    pub fn outage(self, now: Timestamp, retry_after: Option<Duration>, policy: &CircuitPolicy) -> Self {
        let open = |since, probes: u32| {
            let factor = 1_u32.checked_shl(probes).unwrap_or(u32::MAX);
            let wait = policy.backoff.saturating_mul(factor).min(policy.backoff_max);
            let wait = wait.max(retry_after.unwrap_or_default().min(policy.backoff_max));
            Self::Open { since, probe_at: after(now, wait), probes }
        };
        match self {
            Self::Closed { outages } if outages + 1 < policy.outages_max => {
                Self::Closed { outages: outages + 1 }
            }
            Self::Closed { .. } => open(now, 0),
            // Somebody who asked before it opened: the wait is not begun anew by everybody who was under way.
            Self::Open { .. } => self,
            Self::Probing { since, probes, .. } => open(since, probes.saturating_add(1)),
        }
    }

    /// Since when nobody has been answered.
    pub const fn open_since(self) -> Option<Timestamp> {
        match self {
            Self::Closed { .. } => None,
            Self::Open { since, .. } | Self::Probing { since, .. } => Some(since),
        }
    }
}

fn after(now: Timestamp, wait: Duration) -> Timestamp {
    chrono::Duration::from_std(wait).ok().and_then(|wait| now.checked_add_signed(wait)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000 + secs, 0).unwrap()
    }

    const POLICY: CircuitPolicy = CircuitPolicy {
        outages_max: 3,
        backoff: Duration::from_secs(5),
        backoff_max: Duration::from_mins(5),
        probe_timeout: Duration::from_mins(1),
    };

    /// A circuit that has just opened.
    fn opened() -> Circuit {
        (0..3).fold(Circuit::default(), |circuit, _| circuit.outage(at(0), None, &POLICY))
    }

    #[test]
    fn it_opens_after_several_outages_in_a_row() {
        let two = Circuit::default().outage(at(0), None, &POLICY).outage(at(1), None, &POLICY);
        assert_eq!((two, two.ask(at(1), &POLICY)), (Circuit::Closed { outages: 2 }, Ask::Go));
        assert_eq!(two.answered(), Circuit::default());
        let open = two.outage(at(2), None, &POLICY);
        assert_eq!(open, Circuit::Open { since: at(2), probe_at: at(7), probes: 0 });
        assert_eq!(open.ask(at(6), &POLICY), Ask::Wait(at(7)));
        assert_eq!(open.open_since(), Some(at(2)));
    }

    #[test]
    fn one_caller_probes_and_the_others_wait() {
        let Ask::Probe(probing) = opened().ask(at(5), &POLICY) else { panic!("nobody may probe") };
        assert_eq!(probing, Circuit::Probing { since: at(0), until: at(65), probes: 0 });
        assert_eq!(probing.ask(at(64), &POLICY), Ask::Wait(at(65)));
        assert_eq!(probing.answered(), Circuit::Closed { outages: 0 });
    }

    #[test]
    fn a_probe_that_is_lost_goes_to_somebody_else() {
        let Ask::Probe(first) = opened().ask(at(5), &POLICY) else { panic!("nobody may probe") };
        let second = first.ask(at(65), &POLICY);
        assert_eq!(second, Ask::Probe(Circuit::Probing { since: at(0), until: at(125), probes: 0 }));
    }

    #[test]
    fn the_wait_doubles_with_each_probe_that_fails_and_is_capped() {
        let (mut circuit, mut waits) = (opened(), Vec::new());
        for _ in 0..8 {
            let Circuit::Open { probe_at, .. } = circuit else { panic!("{circuit:?}") };
            let Ask::Probe(probing) = circuit.ask(probe_at, &POLICY) else { panic!("nobody may probe") };
            circuit = probing.outage(probe_at, None, &POLICY);
            let Circuit::Open { probe_at: next, since, .. } = circuit else { panic!("{circuit:?}") };
            assert_eq!(since, at(0), "giving up counts from the first outage");
            waits.push((next - probe_at).num_seconds());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn those_who_were_under_way_do_not_begin_the_wait_anew() {
        assert_eq!(opened().outage(at(3), None, &POLICY), opened());
    }

    #[test]
    fn the_feed_may_ask_for_a_longer_wait_within_the_cap() {
        let two = Circuit::Closed { outages: 2 };
        for (asked, wait) in [(1, 5), (30, 30), (9_999, 300)] {
            let open = two.outage(at(0), Some(Duration::from_secs(asked)), &POLICY);
            assert_eq!(open, Circuit::Open { since: at(0), probe_at: at(wait), probes: 0 });
        }
    }

    #[test]
    fn it_is_kept_as_json() {
        for circuit in [Circuit::default(), opened()] {
            let text = serde_json::to_string(&circuit).unwrap();
            assert_eq!(serde_json::from_str::<Circuit>(&text).unwrap(), circuit);
        }
        assert_eq!(serde_json::to_string(&Circuit::default()).unwrap(), r#"{"state":"closed","outages":0}"#);
    }
}
