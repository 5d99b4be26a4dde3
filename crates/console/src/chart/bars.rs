//! Chart with rows of bars over time: tries of a run, partitions of a sync.

use super::{at, number};
use crate::time::{full, rough};
use chrono::TimeDelta;
use maud::{Markup, html};
use tidemill_core::Timestamp;

/// Total width, width of the names to the left, and height of a row and of a bar.
const WIDTH: f64 = 960.0;
const NAMES: f64 = 130.0;
const ROW: f64 = 24.0;
const BAR: f64 = 14.0;
/// Minimum width of a bar.
const BAR_MIN: f64 = 2.0;
/// Maximum number of marks on the axis.
const MARKS_MAX: i64 = 6;
/// Readable distances between marks, in milliseconds.
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

/// Positions of the marks on an axis of this many milliseconds.
fn marks(duration: i64) -> impl Iterator<Item = i64> {
    let distance = DISTANCES.into_iter().find(|distance| duration / distance < MARKS_MAX);
    let distance = distance.unwrap_or_else(|| (duration / MARKS_MAX).max(1));
    (0..=duration / distance).map(move |mark| mark * distance)
}

/// A period in a row.
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    /// End, or now.
    pub(crate) to: Timestamp,
    /// State, which determines the colour.
    pub(crate) state: &'static str,
    /// Whether it is a waiting period.
    pub(crate) waiting: bool,
}

pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) spans: Vec<Span>,
}

/// Bar chart over time.
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
}

impl Bars {
    /// Draws the chart; nothing without bars.
    pub(crate) fn draw(&self) -> Markup {
        let spans = || self.rows.iter().flat_map(|row| &row.spans);
        let (Some(from), Some(to)) = (spans().map(|span| span.from).min(), spans().map(|span| span.to).max())
        else {
            return html! {};
        };
        let duration = (to - from).num_milliseconds().max(1);
        let x_of = |moment: Timestamp| {
            NAMES + (WIDTH - NAMES - 2.0) * number((moment - from).num_milliseconds()) / number(duration)
        };
        let height = ROW * number(i64::try_from(self.rows.len()).unwrap_or(0)) + 22.0;
        html! {
            svg role="img" viewBox={ "0 0 " (WIDTH) " " (at(height)) } {
                title { (self.title) }
                desc { (self.description()) }
                @for mark in marks(duration) {
                    @let x = at(x_of(from + TimeDelta::milliseconds(mark)));
                    line.axis x1=(x) x2=(x) y1="0" y2=(at(height - 18.0)) {}
                    text x=(x) y=(at(height - 4.0)) text-anchor=(anchor(mark, duration)) {
                        @if mark == 0 { "0" } @else { "+" (rough(TimeDelta::milliseconds(mark))) }
                    }
                }
                @for (index, row) in self.rows.iter().enumerate() {
                    @let middle = ROW * (number(i64::try_from(index).unwrap_or(0)) + 0.5);
                    text.strong x="0" y=(at(middle + 4.0)) { (row.name) }
                    @for span in &row.spans {
                        @let x = x_of(span.from);
                        rect class={ "f-" (span.state) @if span.waiting { " soft" } } x=(at(x))
                            y=(at(middle - BAR / 2.0)) width=(at((x_of(span.to) - x).max(BAR_MIN)))
                            height=(at(BAR)) rx="2" { title { (span.description()) } }
                    }
                }
            }
        }
    }

    fn description(&self) -> String {
        let rows = self.rows.iter().map(|row| {
            let spans: Vec<String> = row.spans.iter().map(Span::description).collect();
            format!("{}: {}", row.name, spans.join(", "))
        });
        rows.collect::<Vec<_>>().join("; ")
    }
}

impl Span {
    fn description(&self) -> String {
        let state = self.state.replace('_', " ");
        format!("{state} for {} from {}", rough(self.to - self.from), full(self.from))
    }
}

/// Text anchor of a mark: the first and the last one stay within the chart.
const fn anchor(mark: i64, duration: i64) -> &'static str {
    if mark == 0 {
        "start"
    } else if mark * 20 > duration * 19 {
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
    fn bars_match_their_times_and_text_alternative() {
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
    fn marks_are_few_and_readable() {
        let of = |duration| marks(duration).collect::<Vec<_>>();
        assert_eq!(of(5_000), [0, 1_000, 2_000, 3_000, 4_000, 5_000]);
        assert_eq!(of(1), [0, 1]);
        assert_eq!(of(7_000), [0, 2_000, 4_000, 6_000]);
        for duration in [13, 999, 61_000, 3_700_000, 90_000_000, i64::MAX / 4] {
            assert!((1..=8).contains(&of(duration).len()), "{duration}");
        }
    }

    #[test]
    fn short_bar_has_a_minimum_width_and_no_bars_draw_nothing() {
        let now = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        let span = Span { from: now, to: now, state: "queued", waiting: true };
        let bars = Bars { title: String::new(), rows: vec![Row { name: "1".to_owned(), spans: vec![span] }] };
        assert!(
            bars.draw().into_string().contains("class=\"f-queued soft\" x=\"130.0\" y=\"5.0\" width=\"2.0\"")
        );
        assert_eq!(Bars { title: String::new(), rows: Vec::new() }.draw().into_string(), "");
    }
}
