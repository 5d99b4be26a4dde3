//! Converts the output of a command into events, limited in size, each with its own key.

use std::collections::VecDeque;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::limits;
use tidemill_supervisor::{Part, Stream};

/// Lines of standard error that go into the metadata of a failure.
const TAIL_LINES: usize = 20;
/// Maximum number of characters of each of these lines.
const TAIL_CHARS: usize = 1_000;

/// Output of one command.
pub(super) struct Output {
    /// Number of lines so far, which is the key of each line.
    lines: u64,
    /// Remaining bytes. Output beyond them is dropped.
    remaining: u64,
    is_full: bool,
    tail: VecDeque<String>,
}

impl Output {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { lines: 0, remaining: bytes_max, is_full: false, tail: VecDeque::new() }
    }

    /// Converts one report of the supervisor. Output beyond the limit is dropped, with one event that records it.
    pub(super) fn events(&mut self, stream: Stream, text: &str, part: Part) -> Vec<NewEvent> {
        if stream == Stream::Stderr {
            if self.tail.len() == TAIL_LINES {
                self.tail.pop_front();
            }
            self.tail.push_back(text.chars().take(TAIL_CHARS).collect());
        }
        if self.is_full {
            return Vec::new();
        }
        let pieces = split_text(text, limits::MESSAGE_BYTES_MAX);
        let last = pieces.len() - 1;
        let mut events = Vec::with_capacity(pieces.len());
        for (index, piece) in pieces.into_iter().enumerate() {
            let bytes = piece.len() as u64 + limits::RUN_LOG_LINE_BYTES;
            if bytes > self.remaining {
                self.is_full = true;
                events.push(limit_event());
                break;
            }
            self.remaining -= bytes;
            self.lines += 1;
            let part = match part {
                Part::Whole if last == 0 => None,
                Part::Whole | Part::Last if index == last => Some("last"),
                Part::Whole | Part::Last | Part::Piece => Some("piece"),
            };
            events.push(line(stream, piece, part, self.lines));
        }
        events
    }

    /// Returns the last lines of standard error, including those beyond the limit.
    pub(super) fn tail(self) -> Option<String> {
        let lines: Vec<String> = self.tail.into();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

fn line(stream: Stream, text: &str, part: Option<&str>, number: u64) -> NewEvent {
    let level = match stream {
        Stream::Stdout => Level::Info,
        Stream::Stderr => Level::Warn,
    };
    let mut event = NewEvent::new(level, text).keyed(format!("line-{number}"));
    event.payload = match part {
        None => serde_json::json!({"stream": stream.as_str()}),
        Some(part) => serde_json::json!({"stream": stream.as_str(), "part": part}),
    };
    event
}

/// Event that replaces all dropped output.
fn limit_event() -> NewEvent {
    let megabytes = limits::RUN_LOG_BYTES_MAX / (1024 * 1024);
    let message = format!("Output is larger than {megabytes} MB; the rest is not recorded");
    NewEvent::new(Level::Warn, message).keyed("output-limit")
}

/// Splits a text between characters into pieces of at most `bytes_max` bytes. Returns at least one piece.
fn split_text(text: &str, bytes_max: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.len() > bytes_max {
        let cut = rest.floor_char_boundary(bytes_max);
        let (piece, more) = rest.split_at(cut);
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_split_between_characters() {
        let text = "äöü".repeat(10);
        let cut = split_text(&text, 7);
        assert!(cut.iter().all(|piece| piece.len() <= 7) && cut.len() > 8);
        assert_eq!(cut.concat(), text);
        assert_eq!(split_text("", 7), [""]);
    }

    #[test]
    fn output_beyond_the_limit_keeps_one_event_and_the_tail() {
        let mut output = Output::new(3 * limits::RUN_LOG_LINE_BYTES + 3);
        let mut messages = Vec::new();
        for number in 0..100 {
            let events = output.events(Stream::Stderr, &(number % 10).to_string(), Part::Whole);
            messages.extend(events.into_iter().map(|event| event.message));
        }
        assert_eq!(messages.len(), 4);
        assert_eq!(messages[..3], ["0", "1", "2"]);
        assert_eq!(messages[3], "Output is larger than 50 MB; the rest is not recorded");
        assert_eq!(output.tail().unwrap(), ["0 1 2 3 4 5 6 7 8 9"; 2].join(" ").replace(' ', "\n"));
    }

    #[test]
    fn empty_lines_count_towards_the_limit() {
        let mut output = Output::new(10 * limits::RUN_LOG_LINE_BYTES);
        let count: usize = (0..1_000).map(|_| output.events(Stream::Stdout, "", Part::Whole).len()).sum();
        assert_eq!(count, 11);
    }
}
