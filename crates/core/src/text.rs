//! Characters that a terminal or a browser interprets instead of showing.
//!
//! Short texts such as names, labels and git refs must not contain control characters: a line break would start a line
//! of a caller's choice in logs, headers and environment files. Free texts may contain them, and are escaped where they
//! are shown.

use std::fmt::Write as _;

/// Returns the first control character of a text: C0, DEL and C1.
pub fn first_control(text: &str) -> Option<char> {
    text.chars().find(|symbol| symbol.is_control())
}

/// Whether a character is invisible or changes the display of its neighbours: control characters, bidirectional
/// controls, zero-width characters, separators of lines and paragraphs, and tags.
pub const fn is_hidden(symbol: char) -> bool {
    matches!(symbol,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Returns a text with every hidden character as a visible escape such as `\n` or `\u{1b}`; only tabs remain.
///
/// A backslash of the text itself stays as it is, so the result is for people and cannot be converted back.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for symbol in text.chars() {
        match symbol {
            '\t' => shown.push('\t'),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            symbol if is_hidden(symbol) => {
                let _ = write!(shown, "{}", symbol.escape_unicode());
            }
            symbol => shown.push(symbol),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidi_characters_become_visible_escapes() {
        assert_eq!(escaped("a\u{1b}[31mred\u{7}\u{7f}"), r"a\u{1b}[31mred\u{7}\u{7f}");
        assert_eq!(escaped("one\r\ntwo\tthree\0"), "one\\r\\ntwo\tthree\\u{0}");
        assert_eq!(escaped("\u{9b}31m\u{85}"), r"\u{9b}31m\u{85}");
        for bidi in ('\u{202a}'..='\u{202e}')
            .chain('\u{2066}'..='\u{2069}')
            .chain(['\u{200e}', '\u{200f}', '\u{61c}', '\u{2028}', '\u{2029}'])
        {
            let shown = escaped(&format!("a{bidi}b"));
            assert_eq!(shown, format!("a\\u{{{:x}}}b", u32::from(bidi)));
        }
        assert_eq!(escaped(r"C:\new Grüße, שלום, 你好"), r"C:\new Grüße, שלום, 你好");
    }

    #[test]
    fn first_control_character_is_found() {
        for (text, found) in
            [("main", None), ("a\nb\r", Some('\n')), ("a\u{85}", Some('\u{85}')), ("\u{7f}", Some('\u{7f}'))]
        {
            assert_eq!(first_control(text), found, "{text:?}");
        }
    }
}
