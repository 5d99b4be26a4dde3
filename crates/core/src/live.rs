//! Where a reader of everybody's events is: no global sequence, and yet nothing is lost or told twice.
//!
//! Every event bears the number of the transaction that wrote it. Numbers are given at the beginning and become
//! visible at the end, in another order; a number to read after would pass over a transaction that began early and
//! committed late. So a place is a [`Point`]: which transactions have ended, as a snapshot says it. What is told next
//! is what has ended by a later point and had not by the one before. A long transaction holds up its own events and
//! nobody else's.

use crate::RunId;
use crate::ids::{percent_decoded, percent_encoded_unless};
use std::fmt;
use std::str::FromStr;

/// Transactions that a point names as unfinished, at most: what stands in every id must stay short.
pub const OPEN_MAX: usize = 64;

/// Which transactions have ended: all with a number below `next`, but for those that are open.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Point {
    next: i64,
    /// Sorted, without repeats, below `next`.
    open: Vec<i64>,
}

/// A text that names no place in the stream of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no place in this stream; pass the id of an event that the stream gave, as it was")]
pub struct BadCursor;

impl Point {
    /// The point before every event.
    pub const START: Self = Self { next: 0, open: Vec::new() };

    /// Everything below `next` has ended, but for what is open.
    pub fn new(next: i64, mut open: Vec<i64>) -> Self {
        open.retain(|number| *number < next);
        open.sort_unstable();
        open.dedup();
        Self { next, open }
    }

    /// A snapshot as PostgreSQL writes it: `xmin:xmax:open,open`.
    pub fn of_snapshot(text: &str) -> Result<Self, BadCursor> {
        let mut parts = text.split(':').skip(1);
        let next = parts.next().and_then(|next| next.parse().ok()).ok_or(BadCursor)?;
        let open = parts.next().unwrap_or_default().split(',').filter(|number| !number.is_empty());
        let open = open.map(|number| number.parse().map_err(|_| BadCursor)).collect::<Result<_, _>>()?;
        Ok(Self::new(next, open))
    }

    /// The first number that had not been given.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// The numbers below it that had not ended.
    pub fn open(&self) -> &[i64] {
        &self.open
    }

    /// A number below which everything has ended.
    pub fn least(&self) -> i64 {
        self.open.first().copied().unwrap_or(self.next)
    }

    /// Whether the transaction had ended.
    pub fn has(&self, number: i64) -> bool {
        number < self.next && self.open.binary_search(&number).is_err()
    }

    /// Whether everything that has ended by `other` has ended by this.
    pub fn covers(&self, other: &Self) -> bool {
        let early = self.open.iter().take_while(|number| **number < other.next);
        self.next >= other.next && early.into_iter().all(|number| !other.has(*number))
    }

    /// The point to go to from here, now that `now` is the state of things.
    ///
    /// With too many open transactions to name, what began after the oldest of them waits; and where even that would
    /// take back what was told, so does everything.
    #[must_use]
    pub fn advance(&self, now: &Self) -> Self {
        self.advance_naming(now, OPEN_MAX)
    }

    fn advance_naming(&self, now: &Self, open_max: usize) -> Self {
        let short = match now.open.get(open_max) {
            None => return now.clone(),
            Some(first_unnamed) => Self { next: *first_unnamed, open: now.open[..open_max].to_vec() },
        };
        // A server that crashed may give numbers again that it had not yet written down: then there is no way on
        // but back.
        if short.covers(self) || now.next < self.next { short } else { self.clone() }
    }
}

/// A place in the stream of everybody's events, as the id of an event says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// Everything up to a point was told.
    At(Point),
    /// Of what ended between two points, everything was told up to an event.
    Within {
        /// The point before.
        since: Point,
        /// The point after.
        until: Point,
        /// The run of the event that was told last; they are told in the order of runs and numbers.
        run: RunId,
        /// Its number.
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
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let mut parts = text.split('.').map(natural);
        let next = parts.next().ok_or(BadCursor)??;
        let back = |part: Result<i64, BadCursor>| part.map(|back| next - back);
        let open = parts.map(back).collect::<Result<Vec<_>, _>>()?;
        let point = Self { next, open };
        let in_order = point.open.windows(2).all(|pair| pair[0] < pair[1]);
        let below = point.open.last().is_none_or(|last| *last < next) && point.least() >= 0;
        if in_order && below && point.open.len() <= OPEN_MAX { Ok(point) } else { Err(BadCursor) }
    }
}

/// A number without a sign.
fn natural(text: &str) -> Result<i64, BadCursor> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().map_err(|_| BadCursor)
    } else {
        Err(BadCursor)
    }
}

/// A run in a cursor: without `run-`, and with everything encoded that a new run's id cannot contain.
fn named(run: &RunId) -> String {
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
                // The id of an event is one line of printable characters, whatever the id of its run is.
                write!(f, "{since}_{until}_{seq}_{}", named(run))
            }
        }
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let mut parts = text.splitn(4, '_');
        let since: Point = parts.next().unwrap_or_default().parse()?;
        let (Some(until), Some(seq), Some(run)) = (parts.next(), parts.next(), parts.next()) else {
            return if text.contains('_') { Err(BadCursor) } else { Ok(Self::At(since)) };
        };
        if run.is_empty() {
            return Err(BadCursor);
        }
        let decoded = match run.strip_prefix("%-") {
            Some(whole) => percent_decoded(whole),
            None => percent_decoded(run).map(|tail| format!("run-{tail}")),
        };
        let id = decoded.filter(|id| !id.contains('\0')).map(RunId::from_database);
        let run = id.filter(|id| named(id) == run).ok_or(BadCursor)?;
        let seq = i32::try_from(natural(seq)?).map_err(|_| BadCursor)?;
        Ok(Self::Within { since, until: until.parse()?, run, seq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_snapshot_is_read_as_postgresql_writes_it() {
        assert_eq!(Point::of_snapshot("10:20:10,14").unwrap(), Point::new(20, vec![10, 14]));
        assert_eq!(Point::of_snapshot("20:20:").unwrap(), Point::new(20, vec![]));
        for bad in ["", "1", "1:x:", "1:2:x"] {
            assert_eq!(Point::of_snapshot(bad), Err(BadCursor), "{bad}");
        }
    }

    #[test]
    fn what_is_no_place_is_refused() {
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
            assert_eq!(bad.parse::<Cursor>(), Err(BadCursor), "{bad}");
        }
        assert!("99999999999999999999".parse::<Cursor>().is_err());
        let many = (1..=100).rev().map(|n: i32| n.to_string()).collect::<Vec<_>>().join(".");
        assert!(format!("1000.{many}").parse::<Cursor>().is_err(), "a list is bounded");
    }

    fn a_point() -> impl Strategy<Value = Point> {
        (0..1_000_i64, proptest::collection::vec(0..1_000_i64, 0..20))
            .prop_map(|(next, open)| Point::new(next, open))
    }

    proptest! {
        #[test]
        fn a_place_is_read_back_as_it_was_written(
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
        fn a_point_covers_what_its_members_say(one in a_point(), other in a_point()) {
            let each = (0..1_000).all(|number| !other.has(number) || one.has(number));
            prop_assert!(!one.covers(&other) || each);
            // Gaps at the end of `other` may hide in its list; but for those, the two say the same.
            prop_assert!(one.covers(&other) || !each || one.next() < other.next());
        }

        /// Transactions begin and end in any order, and a reader looks now and then.
        #[test]
        fn every_transaction_is_told_exactly_once(
            steps in proptest::collection::vec((0..4_u8, any::<u16>()), 1..200),
            open_max in 0..5_usize,
        ) {
            let (mut next, mut open, mut told) = (0_i64, Vec::new(), Vec::new());
            let mut point = Point::START;
            let mut look = |point: &mut Point, next: i64, open: &[i64]| {
                let to = point.advance_naming(&Point::new(next, open.to_vec()), open_max);
                told.extend((0..next).filter(|number| to.has(*number) && !point.has(*number)));
                *point = to;
            };
            for (step, pick) in steps {
                match step {
                    0 | 1 => { open.push(next); next += 1; }
                    2 if !open.is_empty() => { open.swap_remove(usize::from(pick) % open.len()); }
                    _ => look(&mut point, next, &open),
                }
            }
            look(&mut point, next, &[]);
            told.sort_unstable();
            prop_assert_eq!(told, (0..next).collect::<Vec<_>>());
        }
    }
}
