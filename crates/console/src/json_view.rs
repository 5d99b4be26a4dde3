//! JSON documents in collapsible sections.

use crate::text::{cut, visible_lines};
use crate::widgets::count;
use maud::{Markup, html};
use tidemill_core::Json;

/// Maximum number of characters of a document on a page. The rest is behind a link.
const SHOWN_CHARS_MAX: usize = 4_000;

/// Whether a document is null or empty.
pub(crate) fn is_empty(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Object(fields) => fields.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

/// Renders a collapsed document, with a link to the complete one.
pub(crate) fn json(name: &str, value: &Json, full_url: Option<&str>) -> Markup {
    truncated(name, value, full_url, SHOWN_CHARS_MAX)
}

/// Renders a collapsed document with at most `chars_max` characters.
pub(crate) fn truncated(name: &str, value: &Json, full_url: Option<&str>, chars_max: usize) -> Markup {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let (short, more) = cut(&text, chars_max);
    html! {
        details {
            summary { (name) @if more { " "
                span.dim { "(" (count(i64::try_from(text.len()).unwrap_or(i64::MAX))) " bytes)" } } }
            pre { bdi { (visible_lines(short)) @if more { "…" } } }
            @if let Some(full_url) = full_url.filter(|_| more) { a.small href=(full_url) { "Complete JSON" } }
        }
    }
}

/// Renders a collapsed document with at most `chars_max` characters. If it is truncated, names the command that prints
/// all of it.
pub(crate) fn truncated_with_command(name: &str, value: &Json, chars_max: usize, command: &str) -> Markup {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let (short, more) = cut(&text, chars_max);
    let number = |size: usize| count(i64::try_from(size).unwrap_or(i64::MAX));
    html! {
        details {
            summary { (name) @if more { " " span.dim { "(" (number(text.len())) " bytes)" } } }
            pre { bdi { (visible_lines(short)) @if more { "…" } } }
            @if more { p.dim.small { "Only the first " (number(chars_max)) " characters. Complete document: "
                code { (command) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn truncated_document_names_the_command_for_all_of_it() {
        let shown =
            truncated_with_command("Body", &json!({"text": "<b>"}), 100, "tidemill queue list").into_string();
        assert!(shown.contains("&lt;b&gt;") && !shown.contains("first"), "{shown}");
        let shown = truncated_with_command("Body", &json!("x".repeat(5_000)), 1_000, "tidemill queue list")
            .into_string();
        assert!(shown.len() < 1_300 && shown.contains("5,002 bytes"), "{shown}");
        assert!(
            shown.contains("first 1,000 characters. Complete document: <code>tidemill queue list</code>"),
            "{shown}"
        );
    }

    #[test]
    fn document_is_escaped_and_bounded() {
        let shown = json("Payload", &serde_json::json!({"a": "</pre><script>\u{202e}"}), None).into_string();
        assert!(shown.contains("&lt;/pre&gt;&lt;script&gt;⟨U+202E⟩"), "{shown}");
        let long = json("Payload", &json!("x".repeat(70_000)), Some("/all")).into_string();
        assert!(long.len() < 5_000 && long.contains("href=\"/all\"") && long.contains("70,002 bytes"));
        assert!(is_empty(&json!({})) && is_empty(&json!(null)) && !is_empty(&json!(0)));
    }
}
