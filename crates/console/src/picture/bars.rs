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
/// Marks on the axis.
const MARKS: i32 = 5;

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
                @for mark in 0..=MARKS {
                    @let moment = from + TimeDelta::milliseconds(whole / i64::from(MARKS) * i64::from(mark));
                    @let x = at(place(moment));
                    line.axis x1=(x) x2=(x) y1="0" y2=(at(height - 18.0)) {}
                    text x=(x) y=(at(height - 4.0)) text-anchor=(anchor(mark)) { "+" (rough(moment - from)) }
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
const fn anchor(mark: i32) -> &'static str {
    match mark {
        0 => "start",
        MARKS => "end",
        _ => "middle",
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
