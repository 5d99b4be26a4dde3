//! A column chart drawn as SVG.

use super::{at, number};
use maud::{Markup, html};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 90.0;
const FOOT: f64 = 18.0;

pub(crate) struct Columns {
    pub(crate) title: String,
    /// Name and count of each column.
    pub(crate) items: Vec<(String, i64)>,
}

impl Columns {
    /// Draws the chart; nothing without columns.
    pub(crate) fn draw(&self) -> Markup {
        let most = self.items.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
        if self.items.is_empty() {
            return html! {};
        }
        let width = WIDTH / number(i64::try_from(self.items.len()).unwrap_or(1));
        let x_of = |column: usize| width * number(i64::try_from(column).unwrap_or(0));
        let step = self.items.len().div_ceil(8).max(1);
        let descriptions: Vec<String> =
            self.items.iter().map(|(name, count)| format!("{name}: {count}")).collect();
        html! {
            svg role="img" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } {
                title { (self.title) }
                desc { (descriptions.join(", ")) }
                @for (column, (name, count)) in self.items.iter().enumerate() {
                    @let tall = (HEIGHT - FOOT) * number(*count) / number(most);
                    rect.base x=(at(x_of(column) + 1.0)) y="0" width=(at((width - 2.0).max(1.0)))
                        height=(at(HEIGHT - FOOT)) {}
                    rect.f-running x=(at(x_of(column) + 1.0)) y=(at(HEIGHT - FOOT - tall))
                        width=(at((width - 2.0).max(1.0)))
                        height=(at(tall)) { title { (name) ": " (count) } }
                    @if column % step == 0 { text x=(at(x_of(column) + 1.0)) y=(at(HEIGHT - 4.0)) { (name) }
                        }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_column_has_full_height_and_zero_has_none() {
        let drawn =
            Columns { title: "Scan".to_owned(), items: vec![("a".to_owned(), 0), ("b".to_owned(), 8)] };
        let drawn = drawn.draw().into_string();
        assert!(
            drawn.contains("height=\"72.0\"><title>b: 8</title>")
                && drawn.contains("height=\"0.0\"><title>a: 0")
        );
        assert_eq!(Columns { title: String::new(), items: Vec::new() }.draw().into_string(), "");
    }
}
