//! Lines for people. Text becomes a line only through this file, which escapes it, so that data of a feed, a run or a
//! log cannot control the terminal.

use crate::out::Style;
use tidemill_core::text::escaped;

/// A line for people: its text is escaped, and only styles add terminal codes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line(String);

impl Line {
    /// A text in a style.
    pub(crate) fn styled(text: &str, style: Style) -> Self {
        match style.code() {
            "" => text.into(),
            code => Self(format!("\x1b[{code}m{}\x1b[0m", escaped(text))),
        }
    }

    /// A line of a command's output for a program that reads it, not for a terminal: it is not escaped.
    pub(crate) fn unescaped(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn and(mut self, part: impl Into<Self>) -> Self {
        self.0.push_str(part.into().as_str());
        self
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        Self(escaped(text))
    }
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_styles_are_kept() {
        let line = Line::from("a\u{1b}[2Jb ").and(Line::styled("c\u{202e}\n", Style::Error)).and("\u{9b}1m");
        assert_eq!(line.as_str(), "a\\u{1b}[2Jb \u{1b}[31mc\\u{202e}\\n\u{1b}[0m\\u{9b}1m");
        assert_eq!(Line::styled("a\u{7}", Style::Plain).as_str(), "a\\u{7}");
    }
}
