//! Circuit breaker of a feed: during an outage only one probe at a time is sent.
//!
//! ```text
//!             outage, the last of several in a row            probe_at has come
//!   closed ────────────────────────────────────────► open ──────────────────────► probing
//!     ▲                                                ▲                             │ │
//!     │                                                └──────────── outage ─────────┘ │
//!     └───────────────────────────── answer ───────────────────────────────────────────┘
//! ```
//!
//! These are pure state transitions. The caller passes the time and stores the returned state. If the probing process
//! dies, another caller may probe after `probe_timeout`.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidemill_core::Timestamp;

/// When a circuit opens and how long it stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitPolicy {
    /// Consecutive outages that open the circuit.
    pub outages_max: u32,
    /// Wait before the first probe; it doubles with each failed probe.
    pub backoff: Duration,
    pub backoff_max: Duration,
    /// Time limit of a probe. After it, another caller may probe.
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

/// State of the circuit breaker of one feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Circuit {
    /// The feed is up, or the outages do not suffice to open the circuit.
    Closed {
        /// Consecutive outages so far.
        outages: u32,
    },
    /// Requests are blocked until `probe_at`.
    Open {
        /// Start of the outage. The limit for giving up counts from here.
        since: Timestamp,
        probe_at: Timestamp,
        /// Number of failed probes.
        probes: u32,
    },
    /// One caller probes the feed; all others wait for the result.
    Probing {
        /// Start of the outage.
        since: Timestamp,
        /// When the probe counts as lost.
        until: Timestamp,
        /// Number of probes that failed before this one.
        probes: u32,
    },
}

/// Whether a caller may send a request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The request may be sent.
    Allow,
    /// The request may be sent as the only probe, after this state has been stored.
    Probe(Circuit),
    /// No request may be sent before this time.
    Wait(Timestamp),
}

impl Default for Circuit {
    fn default() -> Self {
        Self::Closed { outages: 0 }
    }
}

impl Circuit {
    /// Decides whether a caller may send a request at `now`.
    pub fn admit(self, now: Timestamp, policy: &CircuitPolicy) -> Admission {
        match self {
            Self::Closed { .. } => Admission::Allow,
            Self::Open { probe_at: later, .. } | Self::Probing { until: later, .. } if now < later => {
                Admission::Wait(later)
            }
            Self::Open { since, probes, .. } | Self::Probing { since, probes, .. } => {
                Admission::Probe(Self::Probing { since, until: after(now, policy.probe_timeout), probes })
            }
        }
    }

    /// Returns the state after the feed answered. Any answer ends the outage, even an error response.
    #[must_use]
    pub const fn answered(self) -> Self {
        Self::Closed { outages: 0 }
    }

    /// Returns the state after an outage at `now`. `retry_after` is the wait that the feed requested.
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
            // This request was sent before the circuit opened. It must not restart the wait.
            Self::Open { .. } => self,
            Self::Probing { since, probes, .. } => open(since, probes.saturating_add(1)),
        }
    }

    /// Returns the start of the current outage.
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

    fn opened() -> Circuit {
        (0..3).fold(Circuit::default(), |circuit, _| circuit.outage(at(0), None, &POLICY))
    }

    #[test]
    fn consecutive_outages_open_the_circuit() {
        let two = Circuit::default().outage(at(0), None, &POLICY).outage(at(1), None, &POLICY);
        assert_eq!((two, two.admit(at(1), &POLICY)), (Circuit::Closed { outages: 2 }, Admission::Allow));
        assert_eq!(two.answered(), Circuit::default());
        let open = two.outage(at(2), None, &POLICY);
        assert_eq!(open, Circuit::Open { since: at(2), probe_at: at(7), probes: 0 });
        assert_eq!(open.admit(at(6), &POLICY), Admission::Wait(at(7)));
        assert_eq!(open.open_since(), Some(at(2)));
    }

    #[test]
    fn only_one_caller_probes() {
        let Admission::Probe(probing) = opened().admit(at(5), &POLICY) else {
            panic!("a probe must be allowed")
        };
        assert_eq!(probing, Circuit::Probing { since: at(0), until: at(65), probes: 0 });
        assert_eq!(probing.admit(at(64), &POLICY), Admission::Wait(at(65)));
        assert_eq!(probing.answered(), Circuit::Closed { outages: 0 });
    }

    #[test]
    fn lost_probe_is_repeated_by_another_caller() {
        let Admission::Probe(first) = opened().admit(at(5), &POLICY) else {
            panic!("a probe must be allowed")
        };
        let second = first.admit(at(65), &POLICY);
        assert_eq!(second, Admission::Probe(Circuit::Probing { since: at(0), until: at(125), probes: 0 }));
    }

    #[test]
    fn probe_wait_doubles_up_to_the_cap() {
        let (mut circuit, mut waits) = (opened(), Vec::new());
        for _ in 0..8 {
            let Circuit::Open { probe_at, .. } = circuit else { panic!("{circuit:?}") };
            let Admission::Probe(probing) = circuit.admit(probe_at, &POLICY) else {
                panic!("a probe must be allowed")
            };
            circuit = probing.outage(probe_at, None, &POLICY);
            let Circuit::Open { probe_at: next, since, .. } = circuit else { panic!("{circuit:?}") };
            assert_eq!(since, at(0), "the outage starts at the first failed request");
            waits.push((next - probe_at).num_seconds());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn requests_in_flight_do_not_restart_the_wait() {
        assert_eq!(opened().outage(at(3), None, &POLICY), opened());
    }

    #[test]
    fn retry_after_extends_the_wait_up_to_the_cap() {
        let two = Circuit::Closed { outages: 2 };
        for (requested, wait) in [(1, 5), (30, 30), (9_999, 300)] {
            let open = two.outage(at(0), Some(Duration::from_secs(requested)), &POLICY);
            assert_eq!(open, Circuit::Open { since: at(0), probe_at: at(wait), probes: 0 });
        }
    }

    #[test]
    fn circuit_round_trips_through_json() {
        for circuit in [Circuit::default(), opened()] {
            let text = serde_json::to_string(&circuit).unwrap();
            assert_eq!(serde_json::from_str::<Circuit>(&text).unwrap(), circuit);
        }
        assert_eq!(serde_json::to_string(&Circuit::default()).unwrap(), r#"{"state":"closed","outages":0}"#);
    }
}
