//! Safe display of user-supplied texts.
//!
//! The templates escape markup. This module also replaces characters that browsers interpret instead of showing:
//! control characters, terminal codes, bidirectional marks and zero-width characters. Each text is isolated with
//! `bdi`, so that its writing direction cannot affect the text around it.

use maud::{Markup, html};
use std::fmt::Write as _;
use tidemill_core::text::is_hidden;

/// Maximum length of a text in one line. The rest is in its title.
const LINE_CHARS_MAX: usize = 240;
/// Maximum length of a title.
const TITLE_CHARS_MAX: usize = 1_024;

/// Makes all characters visible, including line breaks and tabs.
pub(crate) fn visible(text: &str) -> String {
    shown(text, false)
}

/// Makes all characters visible, but keeps line breaks and tabs.
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

/// Names of the control characters.
const NAMES: [&str; 32] = [
    "NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI",
    "DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS",
    "US",
];

fn named(shown: &mut String, name: &str) {
    let _ = write!(shown, "⟨{name}⟩");
}

/// The first characters of a text, and whether it was truncated.
pub(crate) fn cut(text: &str, most: usize) -> (&str, bool) {
    match text.char_indices().nth(most) {
        Some((end, _)) => (text.split_at(end).0, true),
        None => (text, false),
    }
}

/// Renders a user-supplied text in one line.
pub(crate) fn safe(text: &str) -> Markup {
    html! { bdi { (visible(text)) } }
}

/// Renders a user-supplied text in one line, truncated, with more of it in the title.
pub(crate) fn line(text: &str) -> Markup {
    clip(text, LINE_CHARS_MAX)
}

/// Renders a user-supplied text in one line with at most `most` characters.
pub(crate) fn clip(text: &str, most: usize) -> Markup {
    let (short, more) = cut(text, most);
    if !more {
        return safe(text);
    }
    html! { bdi title=(visible(cut(text, TITLE_CHARS_MAX).0)) { (visible(short)) "…" } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidi_characters_are_made_visible() {
        assert_eq!(visible("a\u{1b}[31mred\u{7}"), "a⟨ESC⟩[31mred⟨BEL⟩");
        assert_eq!(visible("one\ntwo\t\0\u{7f}"), "one⟨LF⟩two⟨TAB⟩⟨NUL⟩⟨DEL⟩");
        assert_eq!(visible_lines("one\ntwo\t\r"), "one\ntwo\t⟨CR⟩");
        assert_eq!(visible("abc\u{202e}fdp.exe\u{2069}"), "abc⟨U+202E⟩fdp.exe⟨U+2069⟩");
        assert_eq!(visible("zero\u{200b}width\u{feff}\u{9b}1m"), "zero⟨U+200B⟩width⟨U+FEFF⟩⟨U+009B⟩1m");
        assert_eq!(visible("Grüße, שלום, 你好, 👩"), "Grüße, שלום, 你好, 👩");
    }

    #[test]
    fn markup_is_escaped() {
        let shown = safe("<script>alert(1)</script> & \"quotes\"").into_string();
        assert_eq!(shown, "<bdi>&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quotes&quot;</bdi>");
    }

    #[test]
    fn long_text_is_truncated_and_its_title_escaped() {
        let long = "ä\"<".repeat(400);
        let shown = clip(&long, 5).into_string();
        assert!(shown.ends_with(">ä&quot;&lt;ä&quot;…</bdi>"), "{shown}");
        assert!(shown.starts_with("<bdi title=\"ä&quot;&lt;ä"), "{shown}");
        assert_eq!(clip("short", 5).into_string(), "<bdi>short</bdi>");
        assert_eq!(cut("", 0), ("", false));
    }
}
