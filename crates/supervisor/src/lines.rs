//! Splits the output of a command into lines, and long lines into parts.
//!
//! What comes out depends on the bytes only, not on the portions in which they were read. At most one part, one
//! character and the portion at hand are held in memory.

use crate::report::Part;

/// A part holds at least the longest character, so that characters need not be cut.
const LINE_BYTES_MIN: usize = 4;

/// The unfinished line of one stream.
#[derive(Debug)]
pub(crate) struct Lines {
    /// What was read of the line and not yet given out.
    pending: Vec<u8>,
    /// Whether pieces of this line were given out.
    is_split: bool,
    /// How many bytes a part may have.
    bytes_max: usize,
}

impl Lines {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { pending: Vec::new(), is_split: false, bytes_max: bytes_max.max(LINE_BYTES_MIN) }
    }

    /// Takes the next bytes and gives out what they complete.
    pub(crate) fn push(&mut self, bytes: &[u8], emit: &mut dyn FnMut(String, Part)) {
        for segment in bytes.split_inclusive(|&byte| byte == b'\n') {
            if let Some(content) = segment.strip_suffix(b"\n") {
                self.pending.extend_from_slice(content);
                if self.pending.last() == Some(&b'\r') {
                    self.pending.pop();
                }
                self.emit_pieces(self.bytes_max, emit);
                self.emit_rest(emit);
            } else {
                self.pending.extend_from_slice(segment);
                // The next byte may turn a carriage return into a line end, which counts for nothing.
                let spare = usize::from(segment.ends_with(b"\r"));
                self.emit_pieces(self.bytes_max + spare, emit);
            }
        }
    }

    /// Gives out a last line that has no line end.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(String, Part)) {
        self.emit_pieces(self.bytes_max, emit);
        if !self.pending.is_empty() || self.is_split {
            self.emit_rest(emit);
        }
    }

    /// Gives out pieces until no more than `kept_max` bytes are left.
    fn emit_pieces(&mut self, kept_max: usize, emit: &mut dyn FnMut(String, Part)) {
        let mut start = 0;
        while self.pending.len() - start > kept_max {
            let rest = &self.pending[start..];
            let cut = cut_before(rest, self.bytes_max);
            emit(text(&rest[..cut]), Part::Piece);
            self.is_split = true;
            start += cut;
        }
        self.pending.drain(..start);
    }

    fn emit_rest(&mut self, emit: &mut dyn FnMut(String, Part)) {
        let part = if self.is_split { Part::Last } else { Part::Whole };
        emit(text(&self.pending), part);
        self.pending.clear();
        self.is_split = false;
    }
}

/// The largest place up to `max` that does not cut a UTF-8 character; `bytes` is longer than `max`.
fn cut_before(bytes: &[u8], max: usize) -> usize {
    for back in 1..LINE_BYTES_MIN {
        let start = max - back;
        let width = match bytes[start] {
            0x80..=0xBF => continue,
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            _ => 1,
        };
        return if width > back { start } else { max };
    }
    max
}

/// The bytes as text that every database can hold: PostgreSQL refuses NUL.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.contains('\0') { text.replace('\0', "\u{FFFD}") } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(portions: &[&[u8]], bytes_max: usize) -> Vec<(String, Part)> {
        let mut lines = Lines::new(bytes_max);
        let mut all = Vec::new();
        let mut emit = |text, part| all.push((text, part));
        for portion in portions {
            lines.push(portion, &mut emit);
        }
        lines.finish(&mut emit);
        all
    }

    fn whole(texts: &[&str]) -> Vec<(String, Part)> {
        texts.iter().map(|&text| (text.to_owned(), Part::Whole)).collect()
    }

    #[test]
    fn lines_are_split_and_line_ends_are_cut_off() {
        assert_eq!(split(&[b"a\nb\r\n\n\r\nc"], 100), whole(&["a", "b", "", "", "c"]));
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert_eq!(split(&[], 100), []);
        assert_eq!(split(&[b"a\n", b""], 100), whole(&["a"]));
    }

    #[test]
    fn a_carriage_return_inside_a_line_is_kept() {
        assert_eq!(split(&[b"10%\r20%\r\r\nx\r"], 100), whole(&["10%\r20%\r", "x\r"]));
    }

    #[test]
    fn a_long_line_comes_in_parts() {
        let expected = [("abcd", Part::Piece), ("efgh", Part::Piece), ("ij", Part::Last), ("k", Part::Whole)];
        let expected = expected.map(|(text, part)| (text.to_owned(), part));
        assert_eq!(split(&[b"abcdefghij\nk\n"], 4), expected);
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_whole() {
        assert_eq!(split(&[b"abcd\nabcd\r\nabcd"], 4), whole(&["abcd", "abcd", "abcd"]));
        assert_eq!(split(&[b"abcd\r", b"\n"], 4), whole(&["abcd"]));
    }

    #[test]
    fn characters_are_not_cut() {
        let parts = split(&["aé€😀é€😀xyz".as_bytes()], 4);
        assert!(parts.iter().all(|(text, _)| !text.contains('\u{FFFD}')), "{parts:?}");
        assert_eq!(parts.iter().map(|(text, _)| text.as_str()).collect::<String>(), "aé€😀é€😀xyz");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(split(&[b"a\xFFb\0c\n\xE2\x82"], 100), whole(&["a\u{FFFD}b\u{FFFD}c", "\u{FFFD}"]));
    }

    #[test]
    fn the_limit_has_a_floor() {
        assert_eq!(split(&["😀😀\n".as_bytes()], 0).len(), 2);
    }

    /// Shows that the portions do not matter: every cut of a nasty text into three, for many limits.
    #[test]
    fn the_same_bytes_give_the_same_lines_however_they_are_read() {
        let bytes: &[u8] =
            b"ab\r\ncd\xC3\xA9\xE2\x82\xAC\r\r\n\xF0\x9F\x98\x80\xFF\xFE\0\xE2\x82\n\nabcd\r\nabcde\r";
        for bytes_max in 4..12 {
            let expected = split(&[bytes], bytes_max);
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    let portions = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                    assert_eq!(split(&portions, bytes_max), expected, "{first} {second} {bytes_max}");
                }
            }
        }
    }
}
