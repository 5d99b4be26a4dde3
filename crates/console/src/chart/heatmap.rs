//! Heatmap: larger numbers are darker.

use super::{at, number};
use maud::{Markup, html};

/// Total width, width of the names to the left, and height of a row.
const WIDTH: f64 = 960.0;
const NAMES: f64 = 80.0;
const ROW: f64 = 26.0;
/// Number of shades, without the empty one.
const SHADES: i64 = 5;
/// Minimum width of a column that shows its number.
const NUMBER_WIDTH_MIN: f64 = 26.0;

pub(crate) struct Heatmap {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    /// Rows with a name and one number per column.
    pub(crate) rows: Vec<(&'static str, Vec<i64>)>,
}

/// Formats a number in about four characters.
pub(crate) fn short(count: i64) -> String {
    match count {
        ..1_000 => count.to_string(),
        1_000..10_000 => format!("{:.1}k", number(count) / 1_000.0),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        1_000_000..10_000_000 => format!("{:.1}M", number(count) / 1_000_000.0),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// Shade of a number relative to the maximum.
fn shade(count: i64, most: i64) -> i64 {
    if count <= 0 || most <= 0 { 0 } else { (count.saturating_mul(SHADES) / most).clamp(1, SHADES) }
}

impl Heatmap {
    /// Draws the chart; nothing without columns.
    pub(crate) fn draw(&self) -> Markup {
        if self.columns.is_empty() {
            return html! {};
        }
        let most = self.rows.iter().flat_map(|(_, counts)| counts).copied().max().unwrap_or(0);
        let width = (WIDTH - NAMES) / number(i64::try_from(self.columns.len()).unwrap_or(1));
        let height = ROW * number(i64::try_from(self.rows.len()).unwrap_or(0)) + 18.0;
        let x_of = |column: usize| NAMES + width * number(i64::try_from(column).unwrap_or(0));
        let step = self.columns.len().div_ceil(8).max(1);
        html! {
            svg role="img" viewBox={ "0 0 " (WIDTH) " " (at(height)) } {
                title { (self.title) }
                desc { (self.description()) }
                @for (row, (name, counts)) in self.rows.iter().enumerate() {
                    @let top = ROW * number(i64::try_from(row).unwrap_or(0));
                    text.strong x="0" y=(at(top + 17.0)) { (name) }
                    @for (column, count) in counts.iter().enumerate() {
                        @let shade = shade(*count, most);
                        rect class={ "h" (shade) " grid" } x=(at(x_of(column))) y=(at(top)) width=(at(width))
                            height=(at(ROW)) {
                            title { (self.columns.get(column).map_or("", String::as_str)) ": " (name) " "
                                (count) }
                        }
                        @if width >= NUMBER_WIDTH_MIN {
                            text.cell.inverse[shade >= 4] x=(at(x_of(column) + width / 2.0))
                                y=(at(top + 17.0)) text-anchor="middle" { (short(*count)) }
                        }
                    }
                }
                @for (column, name) in self.columns.iter().enumerate().step_by(step) {
                    text x=(at(x_of(column) + 1.0)) y=(at(height - 4.0)) { (name) }
                }
            }
        }
    }

    fn description(&self) -> String {
        let rows = self.rows.iter().map(|(name, counts)| {
            let cells = self.columns.iter().zip(counts).map(|(column, count)| format!("{column} {count}"));
            format!("{name}: {}", cells.collect::<Vec<_>>().join(", "))
        });
        rows.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_numbers_are_darker_and_nonzero_is_never_empty() {
        assert_eq!(
            [shade(0, 10), shade(1, 1_000), shade(5, 10), shade(10, 10), shade(3, 0)],
            [0, 1, 2, 5, 0]
        );
        assert_eq!(
            [short(999), short(1_234), short(56_789), short(1_500_000)],
            ["999", "1.2k", "56k", "1.5M"]
        );
    }

    #[test]
    fn text_alternative_contains_every_number() {
        let heat = Heatmap {
            title: "Records".to_owned(),
            columns: vec!["$0".to_owned(), "<b>".to_owned()],
            rows: vec![("predicted", vec![3, 4]), ("stored", vec![0, 4])],
        };
        let drawn = heat.draw().into_string();
        assert!(
            drawn.contains("<desc>predicted: $0 3, &lt;b&gt; 4; stored: $0 0, &lt;b&gt; 4</desc>"),
            "{drawn}"
        );
        assert_eq!(drawn.matches("<rect").count(), 4);
    }
}
