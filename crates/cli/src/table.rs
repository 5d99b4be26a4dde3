//! Tables for the terminal: long cells are shortened so that a row fits one line.

use crate::out::Style;
use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Color, ColumnConstraint, ContentArrangement, Row, Table};
use tidemill_core::text::escaped;

/// Text with a style.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) style: Style,
    is_id: bool,
}

impl Cell {
    pub(crate) fn new(text: String, style: Style) -> Self {
        Self { text, style, is_id: false }
    }

    /// Creates a cell whose column is never shortened, because its text is pasted into other commands.
    pub(crate) fn id(text: impl Into<String>) -> Self {
        Self { text: text.into(), style: Style::Plain, is_id: true }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text, Style::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text.to_owned(), Style::Plain)
    }
}

/// Spaces between columns, and in a table that is wider than the terminal.
const GAP: u16 = 2;
const GAP_NARROW: u16 = 1;
/// Columns up to this width are shortened only if there is no other way.
const SHORT_WIDTH: u16 = 9;
/// Smallest useful width of a shortened column.
const WIDTH_MIN: u16 = 3;
/// Delimiter that occurs in no cell, so that cells are cut at the exact width instead of between words.
const NO_DELIMITER: char = '\u{1f}';

/// Renders a table, one line per row.
///
/// With a width, cells are shortened with an ellipsis until the rows fit. The first column and columns of ids are
/// never shortened. Without a width, nothing is shortened.
pub(crate) fn render(header: &[&str], rows: &[Vec<Cell>], width: Option<u16>, colour: bool) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(NOTHING).force_no_tty().set_truncation_indicator("…").set_delimiter(NO_DELIMITER);
    if colour {
        table.enforce_styling();
        table.style_text_only();
    }
    let titles = header.iter().map(|title| Cell::new((*title).to_owned(), Style::Bold));
    table.set_header(row(&titles.collect::<Vec<_>>(), width.is_some()));
    table.add_rows(rows.iter().map(|cells| row(cells, width.is_some())));
    let widths = table.column_max_content_widths();
    let is_fixed =
        |index: usize| index == 0 || rows.iter().any(|cells| cells.get(index).is_some_and(|cell| cell.is_id));
    let layout = Layout::new(&widths, &is_fixed, width);
    match width {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    let last = header.len().saturating_sub(1);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == last { 0 } else { layout.gap }));
        let is_short = widths.get(index).is_some_and(|width| *width <= layout.kept_width);
        if is_fixed(index) || is_short {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Gap between columns, and the width up to which columns are not shortened.
struct Layout {
    gap: u16,
    kept_width: u16,
}

impl Layout {
    fn new(widths: &[u16], is_fixed: &dyn Fn(usize) -> bool, width: Option<u16>) -> Self {
        let sum = |widths: &mut dyn Iterator<Item = u16>| widths.map(u32::from).sum::<u32>();
        let gaps = |gap: u16| u32::from(gap) * u32::try_from(widths.len().saturating_sub(1)).unwrap_or(0);
        let fits = |needed: u32| width.is_none_or(|width| needed <= u32::from(width));
        if fits(sum(&mut widths.iter().copied()) + gaps(GAP)) {
            return Self { gap: GAP, kept_width: 0 };
        }
        let smallest = widths
            .iter()
            .enumerate()
            .map(|(index, width)| if is_fixed(index) || *width <= SHORT_WIDTH { *width } else { WIDTH_MIN });
        let has_room = fits(sum(&mut smallest.into_iter()) + gaps(GAP_NARROW));
        Self { gap: GAP_NARROW, kept_width: if has_room { SHORT_WIDTH } else { 0 } }
    }
}

fn row(cells: &[Cell], is_shortened: bool) -> Row {
    let mut row = Row::new();
    if is_shortened {
        row.max_height(1);
    }
    for cell in cells {
        let inner = comfy_table::Cell::new(escaped(&cell.text).replace('\t', " "));
        row.add_cell(match cell.style {
            Style::Plain => inner,
            Style::Bold => inner.add_attribute(Attribute::Bold),
            Style::Dim => inner.add_attribute(Attribute::Dim),
            Style::Success => inner.fg(Color::DarkGreen),
            Style::Error => inner.fg(Color::DarkRed),
            Style::Active => inner.fg(Color::DarkCyan),
            Style::Warning => inner.fg(Color::DarkYellow),
        });
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e";
    const HEADER: [&str; 8] = ["RUN", "STATE", "ENVIRONMENT", "TRY", "QUEUED", "TOOK", "WORKER", "REF"];

    fn rows() -> Vec<Vec<Cell>> {
        let worker = "builder-07.eu-central.example.com-worker";
        let texts = [ID, "running", "shop/production", "1", "3 s ago", "2.1 s", worker, "main 0a1b2c3d4"];
        vec![texts.iter().map(|text| (*text).into()).collect()]
    }

    fn lines(width: Option<u16>) -> Vec<String> {
        render(&HEADER, &rows(), width, false)
    }

    #[test]
    fn narrow_terminal_shortens_cells_but_never_the_id() {
        for width in [80, 110] {
            let lines = lines(Some(width));
            assert_eq!(lines.len(), 2, "{lines:#?}");
            assert!(lines.iter().all(|line| line.chars().count() <= usize::from(width)), "{lines:#?}");
            assert!(lines[1].starts_with(&format!("{ID} ")), "{lines:#?}");
            assert!(lines[1].contains('…'), "{lines:#?}");
            assert!(lines[1].contains(" running ") && lines[1].contains(" 3 s ago "), "{lines:#?}");
        }
    }

    #[test]
    fn wide_terminal_shortens_nothing() {
        let lines = lines(Some(200));
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(!lines[1].contains('…'), "{lines:#?}");
        assert!(
            lines[1].contains("example.com-worker") && lines[1].ends_with("main 0a1b2c3d4"),
            "{lines:#?}"
        );
    }

    #[test]
    fn without_a_terminal_nothing_is_shortened() {
        let long = "x".repeat(500);
        let rows = vec![vec![ID.into(), long.as_str().into(), "end".into()]];
        let lines = render(&["RUN", "ERROR", "LAST"], &rows, None, false);
        assert_eq!(lines[1], format!("{ID}  {long}  end"));
    }

    #[test]
    fn id_cells_are_never_shortened_in_any_column() {
        let rows = vec![vec!["1".into(), Cell::id(ID), "long text ".repeat(20).into()]];
        let lines = render(&["TRY", "RUN", "CERTAIN"], &rows, Some(80), false);
        assert!(lines[1].contains(ID) && lines[1].ends_with('…'), "{lines:#?}");
    }

    #[test]
    fn cells_are_escaped() {
        let rows = vec![vec!["a\u{1b}[31m\u{202e}".into(), "two\nlines\tend".into()]];
        let lines = render(&["ID", "NOTE"], &rows, None, true);
        assert!(lines[1].contains("a\\u{1b}[31m\\u{202e}"), "{lines:?}");
        assert!(lines[1].contains("two\\nlines end"), "{lines:?}");
    }

    #[test]
    fn colours_do_not_change_the_layout() {
        let rows = vec![vec!["a".into(), Cell::new("failed".to_owned(), Style::Error), "end".into()]];
        let plain = render(&["ID", "STATE", "NOTE"], &rows, None, false);
        let coloured = render(&["ID", "STATE", "NOTE"], &rows, None, true);
        assert!(coloured[1].contains("\u{1b}["), "{coloured:?}");
        let mut text = String::new();
        let mut is_escape = false;
        for character in coloured[1].chars() {
            match character {
                '\u{1b}' => is_escape = true,
                'm' if is_escape => is_escape = false,
                _ if is_escape => {}
                other => text.push(other),
            }
        }
        assert_eq!(text.trim_end(), plain[1]);
    }
}
