//! Output of commands: data on standard output, messages on standard error.
//!
//! Every text for people is a [`Line`], which escapes it. JSON is printed exactly.

use crate::failure::Failure;
pub(crate) use crate::line::Line;
use crate::table;
pub(crate) use crate::table::Cell;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use tidemill_core::event::Level;
use tidemill_core::run::RunState;

/// Interval of progress messages.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Output format of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    json: bool,
    colour: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Success,
    Error,
    Active,
    Warning,
}

impl Style {
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Success => "32",
            Self::Error => "31",
            Self::Active => "36",
            Self::Warning => "33",
        }
    }

    pub(crate) const fn of_state(state: RunState) -> Self {
        match state {
            RunState::Queued => Self::Plain,
            RunState::Claimed | RunState::Running => Self::Active,
            RunState::Success => Self::Success,
            RunState::Failed => Self::Error,
            RunState::Cancelled => Self::Warning,
        }
    }

    pub(crate) const fn of_level(level: Level) -> Self {
        match level {
            Level::Debug => Self::Dim,
            Level::Info => Self::Plain,
            Level::Warn => Self::Warning,
            Level::Error => Self::Error,
        }
    }
}

/// Returns whether colours are used on this stream.
pub(crate) fn has_colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !crate::environment::no_colour()
}

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, colour: has_colours(&std::io::stdout()) }
    }

    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Returns whether standard output is a terminal and the format is not JSON.
    pub(crate) fn is_live(self) -> bool {
        !self.json && std::io::stdout().is_terminal()
    }

    /// Prints one line of data.
    pub(crate) fn print(self, line: impl Into<Line>) {
        self.write(line.into().as_str());
    }

    #[expect(clippy::unused_self, reason = "only code that was given an `Out` may print")]
    fn write(self, text: &str) {
        // A closed pipe is not an error: the reader needs no more.
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// Prints a text of several lines.
    pub(crate) fn print_document(self, text: &str) {
        for line in text.lines() {
            self.print(line);
        }
    }

    /// Prints one JSON document on one line.
    pub(crate) fn print_json(self, value: &impl serde::Serialize) {
        if let Ok(text) = serde_json::to_string(value) {
            self.write(&text);
        }
    }

    /// Prints a message on standard error, unless the format is JSON.
    pub(crate) fn inform(self, line: impl Into<Line>) {
        if !self.json {
            let _ = writeln!(std::io::stderr().lock(), "{}", line.into().as_str());
        }
    }

    /// Waits for a future, and prints `progress` at intervals.
    pub(crate) async fn wait_with_progress<T>(
        self,
        progress: impl Fn() -> String,
        work: impl Future<Output = T>,
    ) -> T {
        let (started, mut work) = (tokio::time::Instant::now(), std::pin::pin!(work));
        loop {
            match tokio::time::timeout(PROGRESS_EVERY, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.inform(format!("{} after {} s", progress(), started.elapsed().as_secs())),
            }
        }
    }

    /// Makes a text in a style, if colours are on.
    pub(crate) fn paint(self, text: &str, style: Style) -> Line {
        if self.colour { Line::styled(text, style) } else { text.into() }
    }

    /// Makes a line of a command's output: escaped on a terminal, unchanged for another program.
    pub(crate) fn output_line(self, text: &str, style: Style) -> Line {
        if self.is_live() { self.paint(text, style) } else { Line::unescaped(text.to_owned()) }
    }

    /// Prints a table. On a terminal, cells are shortened so that a row fits one line.
    pub(crate) fn print_table(self, header: &[&str], rows: &[Vec<Cell>]) {
        let width = terminal_size().map(|(width, _)| width);
        for line in table::render(header, rows, width, self.colour) {
            self.write(&line);
        }
    }

    /// Prints an error and its hint on standard error.
    pub(crate) fn print_failure(self, failure: &Failure) {
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
        let _ = writeln!(errors, "error: {}", Line::from(failure.message.as_str()).as_str());
        if let Some(hint) = &failure.hint {
            let _ = writeln!(errors, "hint: {}", Line::from(hint.as_str()).as_str());
        }
    }
}

/// Width and height of the terminal on standard output, if it is one and its size is known.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}
