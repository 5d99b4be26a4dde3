//! Splits the output of a command into lines, and long lines into parts.
//!
//! The result depends on the bytes only, not on how they were split into reads. Memory holds at most one part, one
//! character and the bytes of the current read.

use crate::report::Part;

/// A part must fit the longest UTF-8 character, so that no character is split.
const LINE_BYTES_MIN: usize = 4;

/// The unfinished line of one stream.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Bytes of the line that were read and not yet emitted.
    pending: Vec<u8>,
    /// Whether pieces of this line were emitted.
    is_split: bool,
    /// Maximum size of a part.
    bytes_max: usize,
}

impl Lines {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { pending: Vec::new(), is_split: false, bytes_max: bytes_max.max(LINE_BYTES_MIN) }
    }

    /// Adds bytes and emits the lines and pieces that they complete.
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
                // A carriage return does not count if the next byte is the line feed.
                let spare = usize::from(segment.ends_with(b"\r"));
                self.emit_pieces(self.bytes_max + spare, emit);
            }
        }
    }

    /// Emits the last line if it has no line end.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(String, Part)) {
        self.emit_pieces(self.bytes_max, emit);
        if !self.pending.is_empty() || self.is_split {
            self.emit_rest(emit);
        }
    }

    /// Emits pieces until at most `pending_max` bytes are pending.
    fn emit_pieces(&mut self, pending_max: usize, emit: &mut dyn FnMut(String, Part)) {
        let mut start = 0;
        while self.pending.len() - start > pending_max {
            let rest = &self.pending[start..];
            let cut = cut_at(rest, self.bytes_max);
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

/// Returns the largest offset up to `max` that does not split a UTF-8 character; `bytes` is longer than `max`.
fn cut_at(bytes: &[u8], max: usize) -> usize {
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

/// Converts bytes to text that every database can store: PostgreSQL rejects NUL.
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
    fn output_is_split_into_lines_without_line_ends() {
        assert_eq!(split(&[b"a\nb\r\n\n\r\nc"], 100), whole(&["a", "b", "", "", "c"]));
    }

    #[test]
    fn empty_input_gives_no_lines() {
        assert_eq!(split(&[], 100), []);
        assert_eq!(split(&[b"a\n", b""], 100), whole(&["a"]));
    }

    #[test]
    fn carriage_return_inside_a_line_stays() {
        assert_eq!(split(&[b"10%\r20%\r\r\nx\r"], 100), whole(&["10%\r20%\r", "x\r"]));
    }

    #[test]
    fn long_line_is_split_into_parts() {
        let expected = [("abcd", Part::Piece), ("efgh", Part::Piece), ("ij", Part::Last), ("k", Part::Whole)];
        let expected = expected.map(|(text, part)| (text.to_owned(), part));
        assert_eq!(split(&[b"abcdefghij\nk\n"], 4), expected);
    }

    #[test]
    fn line_of_exactly_the_limit_is_not_split() {
        assert_eq!(split(&[b"abcd\nabcd\r\nabcd"], 4), whole(&["abcd", "abcd", "abcd"]));
        assert_eq!(split(&[b"abcd\r", b"\n"], 4), whole(&["abcd"]));
    }

    #[test]
    fn characters_are_not_split() {
        let parts = split(&["aé€😀é€😀xyz".as_bytes()], 4);
        assert!(parts.iter().all(|(text, _)| !text.contains('\u{FFFD}')), "{parts:?}");
        assert_eq!(parts.iter().map(|(text, _)| text.as_str()).collect::<String>(), "aé€😀é€😀xyz");
    }

    #[test]
    fn invalid_utf8_and_nul_are_replaced() {
        assert_eq!(split(&[b"a\xFFb\0c\n\xE2\x82"], 100), whole(&["a\u{FFFD}b\u{FFFD}c", "\u{FFFD}"]));
    }

    #[test]
    fn limit_below_the_minimum_is_raised() {
        assert_eq!(split(&["😀😀\n".as_bytes()], 0).len(), 2);
    }

    /// Tries every split of a difficult text into three reads, for several limits.
    #[test]
    fn lines_do_not_depend_on_read_boundaries() {
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
