//! JSON of others, folded away until somebody wants to see it.

use crate::text::{cut, visible_lines};
use crate::words::count;
use maud::{Markup, html};
use tidemill_core::Json;

/// Characters of a document that a page holds; all of it is behind a link.
const SHOWN_CHARS_MAX: usize = 4_000;

/// Whether a document says nothing.
pub(crate) fn is_nothing(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Object(fields) => fields.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

/// A document under a name, and where all of it is.
pub(crate) fn json(name: &str, value: &Json, whole: Option<&str>) -> Markup {
    within(name, value, whole, SHOWN_CHARS_MAX)
}

/// The same with so many characters of it on the page.
pub(crate) fn within(name: &str, value: &Json, whole: Option<&str>, most: usize) -> Markup {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let (short, more) = cut(&text, most);
    html! {
        details {
            summary { (name) @if more { " "
                span.dim { "(" (count(i64::try_from(text.len()).unwrap_or(i64::MAX))) " bytes)" } } }
            pre { bdi { (visible_lines(short)) @if more { "…" } } }
            @if let Some(whole) = whole.filter(|_| more) { a.small href=(whole) { "All of it, as JSON" } }
        }
    }
}

/// A document of others, with so many characters of it on the page. Where that is not all, it says so, and which
/// command prints all.
pub(crate) fn bounded(name: &str, value: &Json, most: usize, command: &str) -> Markup {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let (short, more) = cut(&text, most);
    let number = |size: usize| count(i64::try_from(size).unwrap_or(i64::MAX));
    html! {
        details {
            summary { (name) @if more { " " span.dim { "(" (number(text.len())) " bytes)" } } }
            pre { bdi { (visible_lines(short)) @if more { "…" } } }
            @if more { p.dim.small { "These are its first " (number(most)) " characters. All of it: "
                code { (command) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_cut_says_so_and_how_to_get_all() {
        let shown = bounded("Body", &json!({"text": "<b>"}), 100, "tidemill queue list").into_string();
        assert!(shown.contains("&lt;b&gt;") && !shown.contains("first"), "{shown}");
        let shown = bounded("Body", &json!("x".repeat(5_000)), 1_000, "tidemill queue list").into_string();
        assert!(shown.len() < 1_300 && shown.contains("5,002 bytes"), "{shown}");
        assert!(
            shown.contains("first 1,000 characters. All of it: <code>tidemill queue list</code>"),
            "{shown}"
        );
    }

    #[test]
    fn what_is_folded_is_escaped_and_bounded() {
        let shown = json("Payload", &serde_json::json!({"a": "</pre><script>\u{202e}"}), None).into_string();
        assert!(shown.contains("&lt;/pre&gt;&lt;script&gt;⟨U+202E⟩"), "{shown}");
        let long = json("Payload", &json!("x".repeat(70_000)), Some("/all")).into_string();
        assert!(long.len() < 5_000 && long.contains("href=\"/all\"") && long.contains("70,002 bytes"));
        assert!(is_nothing(&json!({})) && is_nothing(&json!(null)) && !is_nothing(&json!(0)));
    }
}
