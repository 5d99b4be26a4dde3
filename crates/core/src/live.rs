//! The position of a reader in the event stream of all runs, without a global sequence.
//!
//! Each event has the number of the transaction that wrote it. Transactions get their numbers at the start but become
//! visible at commit, in another order. Reading "after number N" would therefore skip a transaction that began early
//! and committed late. So a position is a [`Point`]: the set of transactions that have ended, taken from a snapshot.
//! The next batch contains the transactions that have ended by a later point but not by the earlier one. So every
//! event is delivered exactly once, and a long transaction delays only its own events.

use crate::RunId;
use crate::ids::{percent_decoded, percent_encoded_unless};
use std::fmt;
use std::str::FromStr;

/// Maximum number of open transactions in a point, because every event id contains a point and must stay short.
pub const OPEN_MAX: usize = 64;

/// A set of ended transactions: all with a number below `next`, except the open ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Point {
    next: i64,
    /// Sorted, without duplicates, below `next`.
    open: Vec<i64>,
}

/// A text that is not a position in the event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a position in this stream; pass the id of an event from the stream unchanged")]
pub struct InvalidCursorError;

impl Point {
    /// The point before all events.
    pub const START: Self = Self { next: 0, open: Vec::new() };

    /// Makes a point in which everything below `next` has ended, except `open`.
    pub fn new(next: i64, mut open: Vec<i64>) -> Self {
        open.retain(|number| *number < next);
        open.sort_unstable();
        open.dedup();
        Self { next, open }
    }

    /// Parses a snapshot of PostgreSQL: `xmin:xmax:open,open`.
    pub fn of_snapshot(text: &str) -> Result<Self, InvalidCursorError> {
        let mut parts = text.split(':').skip(1);
        let next = parts.next().and_then(|next| next.parse().ok()).ok_or(InvalidCursorError)?;
        let open = parts.next().unwrap_or_default().split(',').filter(|number| !number.is_empty());
        let open =
            open.map(|number| number.parse().map_err(|_| InvalidCursorError)).collect::<Result<_, _>>()?;
        Ok(Self::new(next, open))
    }

    /// Returns the first number that was not assigned.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Returns the open transactions below [`Point::next`].
    pub fn open(&self) -> &[i64] {
        &self.open
    }

    /// Returns the number below which all transactions have ended.
    pub fn least(&self) -> i64 {
        self.open.first().copied().unwrap_or(self.next)
    }

    /// Returns whether the transaction has ended by this point.
    pub fn has(&self, number: i64) -> bool {
        number < self.next && self.open.binary_search(&number).is_err()
    }

    /// Returns whether all transactions that have ended by `other` have ended by this point.
    pub fn covers(&self, other: &Self) -> bool {
        let early = self.open.iter().take_while(|number| **number < other.next);
        self.next >= other.next && early.into_iter().all(|number| !other.has(*number))
    }

    /// Returns the next point of a reader, given the current snapshot `now`.
    ///
    /// If there are too many open transactions to list, transactions after the listed ones wait. If even that point
    /// would not cover this one, the reader stays where it is, so that no event is delivered twice.
    #[must_use]
    pub fn advance(&self, now: &Self) -> Self {
        self.advance_listing(now, OPEN_MAX)
    }

    fn advance_listing(&self, now: &Self, open_max: usize) -> Self {
        let short = match now.open.get(open_max) {
            None => return now.clone(),
            Some(first_unlisted) => Self { next: *first_unlisted, open: now.open[..open_max].to_vec() },
        };
        // After a crash, the server may assign numbers again that were not yet durable. Then the reader must move back.
        if short.covers(self) || now.next < self.next { short } else { self.clone() }
    }
}

/// A position in the event stream, as encoded in the id of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// All events up to a point were delivered.
    At(Point),
    /// The events between two points were delivered up to one event, in the order of run and sequence number.
    Within {
        since: Point,
        until: Point,
        /// Run of the last delivered event.
        run: RunId,
        /// Sequence number of the last delivered event.
        seq: i32,
    },
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.next)?;
        self.open.iter().try_for_each(|number| write!(f, ".{}", self.next - number))
    }
}

impl FromStr for Point {
    type Err = InvalidCursorError;

    fn from_str(text: &str) -> Result<Self, InvalidCursorError> {
        let mut parts = text.split('.').map(natural);
        let next = parts.next().ok_or(InvalidCursorError)??;
        let back = |part: Result<i64, InvalidCursorError>| part.map(|back| next - back);
        let open = parts.map(back).collect::<Result<Vec<_>, _>>()?;
        let point = Self { next, open };
        let in_order = point.open.windows(2).all(|pair| pair[0] < pair[1]);
        let below = point.open.last().is_none_or(|last| *last < next) && point.least() >= 0;
        if in_order && below && point.open.len() <= OPEN_MAX { Ok(point) } else { Err(InvalidCursorError) }
    }
}

/// Parses a number without a sign.
fn natural(text: &str) -> Result<i64, InvalidCursorError> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().map_err(|_| InvalidCursorError)
    } else {
        Err(InvalidCursorError)
    }
}

/// Encodes a run id for a cursor: without `run-`, and with all characters encoded that a new run id cannot contain.
fn encode_run(run: &RunId) -> String {
    let encoded = |text| {
        percent_encoded_unless(text, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')).into_owned()
    };
    match run.as_str().strip_prefix("run-").filter(|tail| !tail.is_empty()) {
        Some(tail) => encoded(tail),
        None => format!("%-{}", encoded(run.as_str())),
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(point) => point.fmt(f),
            Self::Within { since, until, run, seq } => {
                // An event id must be one line of printable characters, even if the run id is not.
                write!(f, "{since}_{until}_{seq}_{}", encode_run(run))
            }
        }
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursorError;

    fn from_str(text: &str) -> Result<Self, InvalidCursorError> {
        let mut parts = text.splitn(4, '_');
        let since: Point = parts.next().unwrap_or_default().parse()?;
        let (Some(until), Some(seq), Some(run)) = (parts.next(), parts.next(), parts.next()) else {
            return if text.contains('_') { Err(InvalidCursorError) } else { Ok(Self::At(since)) };
        };
        if run.is_empty() {
            return Err(InvalidCursorError);
        }
        let decoded = match run.strip_prefix("%-") {
            Some(encoded) => percent_decoded(encoded),
            None => percent_decoded(run).map(|tail| format!("run-{tail}")),
        };
        let id = decoded.filter(|id| !id.contains('\0')).map(RunId::from_database);
        let run = id.filter(|id| encode_run(id) == run).ok_or(InvalidCursorError)?;
        let seq = i32::try_from(natural(seq)?).map_err(|_| InvalidCursorError)?;
        Ok(Self::Within { since, until: until.parse()?, run, seq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn snapshot_of_postgresql_is_parsed() {
        assert_eq!(Point::of_snapshot("10:20:10,14").unwrap(), Point::new(20, vec![10, 14]));
        assert_eq!(Point::of_snapshot("20:20:").unwrap(), Point::new(20, vec![]));
        for bad in ["", "1", "1:x:", "1:2:x"] {
            assert_eq!(Point::of_snapshot(bad), Err(InvalidCursorError), "{bad}");
        }
    }

    #[test]
    fn malformed_cursor_is_rejected() {
        for bad in [
            "",
            "x",
            "-1",
            "+1",
            "1.",
            "1.0",
            "1.2",
            "5.1.2",
            "1_2",
            "1_2_3",
            "1_2_3_",
            "1_2_3_%",
            "1_2_3_A",
            "1_2_3_%00",
            "1_2_3_%61",
            "1_2_-3_a",
        ] {
            assert_eq!(bad.parse::<Cursor>(), Err(InvalidCursorError), "{bad}");
        }
        assert!("99999999999999999999".parse::<Cursor>().is_err());
        let many = (1..=100).rev().map(|n: i32| n.to_string()).collect::<Vec<_>>().join(".");
        assert!(format!("1000.{many}").parse::<Cursor>().is_err(), "the list is bounded");
    }

    fn a_point() -> impl Strategy<Value = Point> {
        (0..1_000_i64, proptest::collection::vec(0..1_000_i64, 0..20))
            .prop_map(|(next, open)| Point::new(next, open))
    }

    proptest! {
        #[test]
        fn cursor_round_trips_through_text(
            since in a_point(), until in a_point(), seq in 0..i32::MAX,
            run in "(run-)?[a-zA-Z0-9_%\n é-]{0,8}",
        ) {
            let run = RunId::from_database(run);
            for cursor in [Cursor::At(since.clone()), Cursor::Within { since, until, run, seq }] {
                let text = cursor.to_string();
                prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{}", text);
                prop_assert_eq!(text.parse::<Cursor>(), Ok(cursor));
            }
        }

        #[test]
        fn covers_agrees_with_membership(one in a_point(), other in a_point()) {
            let each = (0..1_000).all(|number| !other.has(number) || one.has(number));
            prop_assert!(!one.covers(&other) || each);
            // `other` may list open transactions at its end, which `each` cannot see.
            prop_assert!(one.covers(&other) || !each || one.next() < other.next());
        }

        /// Transactions begin and end in any order, and a reader reads from time to time.
        #[test]
        fn every_transaction_is_delivered_exactly_once(
            steps in proptest::collection::vec((0..4_u8, any::<u16>()), 1..200),
            open_max in 0..5_usize,
        ) {
            let (mut next, mut open, mut delivered) = (0_i64, Vec::new(), Vec::new());
            let mut point = Point::START;
            let mut read = |point: &mut Point, next: i64, open: &[i64]| {
                let to = point.advance_listing(&Point::new(next, open.to_vec()), open_max);
                delivered.extend((0..next).filter(|number| to.has(*number) && !point.has(*number)));
                *point = to;
            };
            for (step, pick) in steps {
                match step {
                    0 | 1 => { open.push(next); next += 1; }
                    2 if !open.is_empty() => { open.swap_remove(usize::from(pick) % open.len()); }
                    _ => read(&mut point, next, &open),
                }
            }
            read(&mut point, next, &[]);
            delivered.sort_unstable();
            prop_assert_eq!(delivered, (0..next).collect::<Vec<_>>());
        }
    }
}
