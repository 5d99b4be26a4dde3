//! What others wrote, as a page shows it: escaped, with nothing that hides or moves other text.
//!
//! Markup is escaped by the templates. What remains are characters that a browser obeys instead of showing:
//! control characters, terminal codes, marks that turn the direction of writing or have no width. They are shown as
//! what they are, and each text stands in an isolate of its own, so that its direction ends where it ends.

use maud::{Markup, html};
use std::fmt::Write as _;

/// Characters that are shown of a text in one line; the rest is in its title.
const LINE_CHARS_MAX: usize = 240;
/// Characters of a title.
const TITLE_CHARS_MAX: usize = 1_024;

/// Whether a character would hide, or move what stands beside it.
const fn is_hidden(letter: char) -> bool {
    matches!(letter,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// A text with everything visible, line breaks and tabs included.
pub(crate) fn visible(text: &str) -> String {
    shown(text, false)
}

/// A text with everything visible but line breaks and tabs, which stay what they are.
pub(crate) fn visible_lines(text: &str) -> String {
    shown(text, true)
}

fn shown(text: &str, lines: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' if lines => shown.push(letter),
            '\u{0}'..='\u{1f}' => named(&mut shown, NAMES.get(letter as usize).copied().unwrap_or("?")),
            '\u{7f}' => named(&mut shown, "DEL"),
            letter if is_hidden(letter) => {
                let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(letter));
            }
            letter => shown.push(letter),
        }
    }
    shown
}

/// What control characters are called, in their order.
const NAMES: [&str; 32] = [
    "NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI",
    "DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS",
    "US",
];

fn named(shown: &mut String, name: &str) {
    let _ = write!(shown, "⟨{name}⟩");
}

/// The first characters of a text, and whether there are more.
pub(crate) fn cut(text: &str, most: usize) -> (&str, bool) {
    match text.char_indices().nth(most) {
        Some((end, _)) => (text.split_at(end).0, true),
        None => (text, false),
    }
}

/// A text of others, in one line.
pub(crate) fn says(text: &str) -> Markup {
    html! { bdi { (visible(text)) } }
}

/// A text of others in one line, no longer than fits; all of it is in the title.
pub(crate) fn line(text: &str) -> Markup {
    line_of(text, LINE_CHARS_MAX)
}

/// The same within so many characters.
pub(crate) fn line_of(text: &str, most: usize) -> Markup {
    let (short, more) = cut(text, most);
    if !more {
        return says(text);
    }
    html! { bdi title=(visible(cut(text, TITLE_CHARS_MAX).0)) { (visible(short)) "…" } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_browser_would_obey_is_shown() {
        assert_eq!(visible("a\u{1b}[31mred\u{7}"), "a⟨ESC⟩[31mred⟨BEL⟩");
        assert_eq!(visible("one\ntwo\t\0\u{7f}"), "one⟨LF⟩two⟨TAB⟩⟨NUL⟩⟨DEL⟩");
        assert_eq!(visible_lines("one\ntwo\t\r"), "one\ntwo\t⟨CR⟩");
        assert_eq!(visible("abc\u{202e}fdp.exe\u{2069}"), "abc⟨U+202E⟩fdp.exe⟨U+2069⟩");
        assert_eq!(visible("zero\u{200b}width\u{feff}\u{9b}1m"), "zero⟨U+200B⟩width⟨U+FEFF⟩⟨U+009B⟩1m");
        assert_eq!(visible("Grüße, שלום, 你好, 👩"), "Grüße, שלום, 你好, 👩");
    }

    #[test]
    fn markup_is_text() {
        let shown = says("<script>alert(1)</script> & \"quotes\"").into_string();
        assert_eq!(shown, "<bdi>&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quotes&quot;</bdi>");
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_its_title_is_escaped() {
        let long = "ä\"<".repeat(400);
        let shown = line_of(&long, 5).into_string();
        assert!(shown.ends_with(">ä&quot;&lt;ä&quot;…</bdi>"), "{shown}");
        assert!(shown.starts_with("<bdi title=\"ä&quot;&lt;ä"), "{shown}");
        assert_eq!(line_of("short", 5).into_string(), "<bdi>short</bdi>");
        assert_eq!(cut("", 0), ("", false));
    }
}
