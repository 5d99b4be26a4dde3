//! Rows of bars over time: the tries of a run, the partitions of a sync.

use super::{at, number};
use crate::time::{full, rough};
use chrono::TimeDelta;
use maud::{Markup, html};
use tidemill_core::Timestamp;

/// The width of the whole, of the names on its left, and the height of a row.
const WIDTH: f64 = 960.0;
const NAMES: f64 = 130.0;
const ROW: f64 = 24.0;
const BAR: f64 = 14.0;
/// The narrowest bar that can be seen.
const BAR_MIN: f64 = 2.0;
/// Marks on the axis, at the most.
const MARKS_MAX: i64 = 6;
/// Distances between marks that people can read, in milliseconds.
const DISTANCES: [i64; 24] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
    7_200_000,
    21_600_000,
    86_400_000,
    604_800_000,
];

/// Where the marks of so many milliseconds are.
fn marks(whole: i64) -> impl Iterator<Item = i64> {
    let distance = DISTANCES.into_iter().find(|distance| whole / distance < MARKS_MAX);
    let distance = distance.unwrap_or_else(|| (whole / MARKS_MAX).max(1));
    (0..=whole / distance).map(move |mark| mark * distance)
}

/// A stretch of time in a row.
pub(crate) struct Span {
    /// When it began.
    pub(crate) from: Timestamp,
    /// When it ended, or now.
    pub(crate) to: Timestamp,
    /// What it was: a state, which gives it its colour.
    pub(crate) state: &'static str,
    /// Whether it only waited.
    pub(crate) waiting: bool,
}

/// A row.
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: String,
    /// What happened in it.
    pub(crate) spans: Vec<Span>,
}

/// Rows over one stretch of time.
pub(crate) struct Bars {
    /// What it shows, in a few words.
    pub(crate) title: String,
    /// The rows.
    pub(crate) rows: Vec<Row>,
}

impl Bars {
    /// The picture; nothing where there is nothing to draw.
    pub(crate) fn draw(&self) -> Markup {
        let spans = || self.rows.iter().flat_map(|row| &row.spans);
        let (Some(from), Some(to)) = (spans().map(|span| span.from).min(), spans().map(|span| span.to).max())
        else {
            return html! {};
        };
        let whole = (to - from).num_milliseconds().max(1);
        let place = |moment: Timestamp| {
            NAMES + (WIDTH - NAMES - 2.0) * number((moment - from).num_milliseconds()) / number(whole)
        };
        let height = ROW * number(i64::try_from(self.rows.len()).unwrap_or(0)) + 22.0;
        html! {
            svg role="img" viewBox={ "0 0 " (WIDTH) " " (at(height)) } {
                title { (self.title) }
                desc { (self.words()) }
                @for mark in marks(whole) {
                    @let x = at(place(from + TimeDelta::milliseconds(mark)));
                    line.axis x1=(x) x2=(x) y1="0" y2=(at(height - 18.0)) {}
                    text x=(x) y=(at(height - 4.0)) text-anchor=(anchor(mark, whole)) {
                        @if mark == 0 { "0" } @else { "+" (rough(TimeDelta::milliseconds(mark))) }
                    }
                }
                @for (place_of_row, row) in self.rows.iter().enumerate() {
                    @let middle = ROW * (number(i64::try_from(place_of_row).unwrap_or(0)) + 0.5);
                    text.strong x="0" y=(at(middle + 4.0)) { (row.name) }
                    @for span in &row.spans {
                        @let x = place(span.from);
                        rect class={ "f-" (span.state) @if span.waiting { " soft" } } x=(at(x))
                            y=(at(middle - BAR / 2.0)) width=(at((place(span.to) - x).max(BAR_MIN)))
                            height=(at(BAR)) rx="2" { title { (span.words()) } }
                    }
                }
            }
        }
    }

    /// The same in words.
    fn words(&self) -> String {
        let rows = self.rows.iter().map(|row| {
            let spans: Vec<String> = row.spans.iter().map(Span::words).collect();
            format!("{}: {}", row.name, spans.join(", "))
        });
        rows.collect::<Vec<_>>().join("; ")
    }
}

impl Span {
    fn words(&self) -> String {
        let state = self.state.replace('_', " ");
        format!("{state} for {} from {}", rough(self.to - self.from), full(self.from))
    }
}

/// Marks at the ends keep within the picture.
const fn anchor(mark: i64, whole: i64) -> &'static str {
    if mark == 0 {
        "start"
    } else if mark * 20 > whole * 19 {
        "end"
    } else {
        "middle"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{TimeZone as _, Utc};

    #[test]
    fn bars_lie_where_their_times_are_and_say_so_in_words() {
        let from = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        let span = |start: i64, end: i64, state| Span {
            from: from + TimeDelta::seconds(start),
            to: from + TimeDelta::seconds(end),
            state,
            waiting: false,
        };
        let row = Row { name: "<try>".to_owned(), spans: vec![span(0, 5, "queued"), span(5, 10, "running")] };
        let drawn = Bars { title: "Life".to_owned(), rows: vec![row] }.draw().into_string();
        assert!(drawn.contains("<rect class=\"f-running\" x=\"544.0\" y=\"5.0\" width=\"414.0\""), "{drawn}");
        assert!(drawn.contains("role=\"img\"") && drawn.contains("<title>Life</title>"));
        assert!(
            drawn.contains("&lt;try&gt;: queued for 5 s from 2026-02-14 10:30:00.000 UTC, running for 5 s")
        );
        assert!(!drawn.contains("style="));
    }

    #[test]
    fn marks_are_few_and_easy_to_read() {
        let of = |whole| marks(whole).collect::<Vec<_>>();
        assert_eq!(of(5_000), [0, 1_000, 2_000, 3_000, 4_000, 5_000]);
        assert_eq!(of(1), [0, 1]);
        assert_eq!(of(7_000), [0, 2_000, 4_000, 6_000]);
        for whole in [13, 999, 61_000, 3_700_000, 90_000_000, i64::MAX / 4] {
            assert!((1..=8).contains(&of(whole).len()), "{whole}");
        }
    }

    #[test]
    fn a_moment_is_still_seen_and_nothing_is_no_picture() {
        let now = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        let span = Span { from: now, to: now, state: "queued", waiting: true };
        let bars = Bars { title: String::new(), rows: vec![Row { name: "1".to_owned(), spans: vec![span] }] };
        assert!(
            bars.draw().into_string().contains("class=\"f-queued soft\" x=\"130.0\" y=\"5.0\" width=\"2.0\"")
        );
        assert_eq!(Bars { title: String::new(), rows: Vec::new() }.draw().into_string(), "");
    }
}
