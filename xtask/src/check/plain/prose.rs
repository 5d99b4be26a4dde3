//! The rules for one text.

use super::source::Text;

const PRONOUNS: [&str; 8] = ["what", "who", "whoever", "whatever", "whose", "nobody", "nothing", "somebody"];
const VAGUE: [&str; 13] = [
    "whoever",
    "whomever",
    "whatever",
    "nobody",
    "somebody",
    "anew",
    "thereof",
    "hindrance",
    "astray",
    "let go of",
    "lets go of",
    "for nothing",
    "made good",
];
const HOUSEHOLD: [&str; 6] = ["door", "doors", "shelf", "shelves", "desk", "mill"];
const SENTENCE_WORDS_MAX: usize = 34;
/// Words of a short doc comment, with a determiner.
const SHORT_DOC_WORDS: usize = 4;
const DETERMINERS: [&str; 10] = ["Its", "His", "Their", "The", "A", "An", "How", "Where", "When", "Why"];
/// A message has at least this many words; shorter strings are names and keys.
const MESSAGE_WORDS_MIN: usize = 3;

/// Describes each rule that the text breaks.
pub(super) fn broken_rules(text: &Text) -> Vec<String> {
    let prose = text.as_str();
    if let Text::Message(message) = text
        && !is_message(message)
    {
        return Vec::new();
    }
    let mut broken = Vec::new();
    if opens_with_pronoun(prose) && !prose.starts_with("What happens when") {
        let word = prose.split_whitespace().next().unwrap_or_default();
        broken.push(format!("opens with `{word}`; name the subject"));
    }
    if matches!(text, Text::Heading(_)) {
        return broken;
    }
    let without_names = without_code(prose);
    let lower = without_names.to_lowercase();
    broken.extend(
        VAGUE
            .into_iter()
            .filter(|word| has_word(&lower, word))
            .map(|word| format!("vague word `{word}`; name the actor or the thing")),
    );
    broken.extend(
        HOUSEHOLD
            .into_iter()
            .filter(|word| has_word(&lower, word))
            .map(|word| format!("household word `{word}`; use the standard term")),
    );
    if !matches!(text, Text::Message(_)) {
        let long = sentences(&without_names).into_iter().map(words).find(|count| *count > SENTENCE_WORDS_MAX);
        broken.extend(long.map(|count| format!("a sentence of {count} words; split it")));
    }
    if matches!(text, Text::Doc(_)) && is_short_doc(&without_names) {
        broken.push("a doc comment of four words or fewer; say more, or delete it".to_owned());
    }
    broken
}

/// Whether the first word is a pronoun that hides the subject.
pub(super) fn opens_with_pronoun(text: &str) -> bool {
    let first: String = text.chars().take_while(|character| character.is_alphabetic()).collect();
    PRONOUNS.contains(&first.to_lowercase().as_str())
}

fn is_message(text: &str) -> bool {
    words(text) >= MESSAGE_WORDS_MIN
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '`' || first == '{')
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Replaces text in backticks, which holds names and not words.
fn without_code(text: &str) -> String {
    text.split('`').enumerate().map(|(index, part)| if index % 2 == 0 { part } else { "X" }).collect()
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_part)
            && !text[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(['.', '!', '?']) {
        let mut rest = text[at + 1..].chars();
        let is_end = rest.next().is_some_and(char::is_whitespace)
            && text[at + 1..]
                .trim_start()
                .starts_with(|next: char| next.is_uppercase() || "`*[(".contains(next));
        if is_end {
            sentences.push(&text[start..=at]);
            start = at + 1;
        }
    }
    sentences.push(&text[start..]);
    sentences
}

fn is_short_doc(text: &str) -> bool {
    let is_plain =
        |character: char| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_' | '.');
    let first = text.split_whitespace().next().unwrap_or_default();
    let max = if DETERMINERS.contains(&first) { SHORT_DOC_WORDS } else { SHORT_DOC_WORDS - 1 };
    text.ends_with('.') && words(text) <= max && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> usize {
        broken_rules(&Text::Doc(text.to_owned())).len()
    }

    #[test]
    fn plain_sentence_breaks_no_rule() {
        assert_eq!(broken("Claims up to `limit` runs in order of priority."), 0);
        assert_eq!(broken("Doorbell, millisecond and whosever are other words."), 0);
        assert_eq!(broken("Reads the column `shelf` of an older table."), 0);
    }

    #[test]
    fn each_rule_is_counted_once_per_word() {
        assert_eq!(broken("What is left."), 2, "an opening, and three words");
        assert_eq!(broken("The worker tells nobody, and nobody answers it."), 1);
        assert_eq!(broken("The door and the desk of the house stand here."), 2);
        assert_eq!(broken(&format!("The {} ends.", "word ".repeat(40))), 1);
    }

    #[test]
    fn short_strings_are_names_not_messages() {
        assert!(broken_rules(&Text::Message("nobody".to_owned())).is_empty());
        assert!(broken_rules(&Text::Message("--nobody is here".to_owned())).is_empty());
        assert_eq!(broken_rules(&Text::Message("the worker tells nobody".to_owned())).len(), 1);
    }
}
