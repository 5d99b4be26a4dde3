//! The one place that prints. Data goes to standard output, everything else to standard error.

use crate::fail::Failure;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use tidemill_core::event::Level;
use tidemill_core::run::RunState;

/// How often a command that takes long says so.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Where and how a command prints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    json: bool,
    colour: bool,
}

/// The few styles that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Busy,
    Odd,
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Busy => "36",
            Self::Odd => "33",
        }
    }

    /// The style of a state.
    pub(crate) const fn of_state(state: RunState) -> Self {
        match state {
            RunState::Queued => Self::Plain,
            RunState::Claimed | RunState::Running => Self::Busy,
            RunState::Success => Self::Good,
            RunState::Failed => Self::Bad,
            RunState::Cancelled => Self::Odd,
        }
    }

    /// The style of a level.
    pub(crate) const fn of_level(level: Level) -> Self {
        match level {
            Level::Debug => Self::Dim,
            Level::Info => Self::Plain,
            Level::Warn => Self::Odd,
            Level::Error => Self::Bad,
        }
    }
}

/// Text with a style.
#[derive(Debug, Clone)]
pub(crate) struct Cell(pub(crate) String, pub(crate) Style);

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self(text, Style::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self(text.to_owned(), Style::Plain)
    }
}

pub(crate) fn is_terminal(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !crate::environment::no_colour()
}

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, colour: is_terminal(&std::io::stdout()) }
    }

    /// Whether machines read this.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Whether a person looks at this on a terminal.
    pub(crate) fn is_live(self) -> bool {
        !self.json && std::io::stdout().is_terminal()
    }

    /// One line of data.
    #[expect(clippy::unused_self, reason = "whoever may print was handed the way to")]
    pub(crate) fn line(self, text: impl AsRef<str>) {
        // A reader that went away has seen enough.
        let _ = writeln!(std::io::stdout().lock(), "{}", text.as_ref());
    }

    /// One JSON document on one line.
    pub(crate) fn json(self, value: &impl serde::Serialize) {
        if let Ok(text) = serde_json::to_string(value) {
            self.line(text);
        }
    }

    /// One sentence for a person, beside the data.
    pub(crate) fn say(self, text: impl AsRef<str>) {
        if !self.json {
            let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
        }
    }

    /// Waits for something that may take long, and says now and then that it goes on, and how far it is.
    pub(crate) async fn wait<T>(self, how_far: impl Fn() -> String, work: impl Future<Output = T>) -> T {
        let (begun, mut work) = (tokio::time::Instant::now(), std::pin::pin!(work));
        loop {
            match tokio::time::timeout(PROGRESS_EVERY, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.say(format!("{} after {} s", how_far(), begun.elapsed().as_secs())),
            }
        }
    }

    /// A styled piece of text.
    pub(crate) fn paint(self, text: &str, style: Style) -> String {
        if self.colour && style != Style::Plain {
            format!("\x1b[{}m{text}\x1b[0m", style.code())
        } else {
            text.to_owned()
        }
    }

    /// A table; the last column is as wide as it likes.
    pub(crate) fn table(self, header: &[&str], rows: &[Vec<Cell>]) {
        let widths: Vec<usize> = header
            .iter()
            .enumerate()
            .map(|(column, title)| {
                let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.0.chars().count());
                cells.chain([title.chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let line = |cells: &[Cell]| {
            let mut text = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let clean = printable(&cell.0);
                let pad = widths.get(column).copied().unwrap_or(0).saturating_sub(clean.chars().count());
                text.push_str(&self.paint(&clean, cell.1));
                if column + 1 < cells.len() {
                    text.push_str(&" ".repeat(pad + 2));
                }
            }
            self.line(text);
        };
        line(&header.iter().map(|title| Cell((*title).to_owned(), Style::Bold)).collect::<Vec<_>>());
        for row in rows {
            line(row);
        }
    }

    /// A failure: for people on standard error, for machines on standard output too.
    pub(crate) fn failure(self, failure: &Failure) {
        if self.json {
            let body = match &failure.hint {
                Some(hint) => {
                    serde_json::json!({"code": failure.code, "message": failure.message, "hint": hint})
                }
                None => serde_json::json!({"code": failure.code, "message": failure.message}),
            };
            let _ = writeln!(std::io::stderr().lock(), "{body}");
            return;
        }
        let mut errors = std::io::stderr().lock();
        let _ = writeln!(errors, "error: {}", failure.message);
        if let Some(hint) = &failure.hint {
            let _ = writeln!(errors, "hint: {hint}");
        }
    }
}

/// Text from outside without what would drive the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() && character != '\t' { '\u{fffd}' } else { character })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn terminal_codes_from_outside_are_not_printed() {
        assert_eq!(printable("a\x1b[31mb\r\nc\td"), "a\u{fffd}[31mb\u{fffd}\u{fffd}c\td");
    }
}
