//! Finds the texts in a file: comments, headings, paragraphs and string literals.

use std::path::Path;

use crate::workspace::{file_name, has_extension};

/// How texts are written in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Sql,
    Markdown,
    /// Comments open with `#` or `//`.
    Script,
}

impl Language {
    pub(super) fn of(path: &Path) -> Option<Self> {
        let is = |extension| has_extension(path, extension);
        if is("rs") {
            Some(Self::Rust)
        } else if is("sql") {
            Some(Self::Sql)
        } else if is("md") {
            Some(Self::Markdown)
        } else if ["sh", "js", "toml", "yaml", "py"].into_iter().any(is) || file_name(path) == "run" {
            Some(Self::Script)
        } else {
            None
        }
    }
}

/// A text by its kind, with its white space reduced to single spaces.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Text {
    Comment(String),
    Doc(String),
    Message(String),
    Paragraph(String),
    Heading(String),
}

impl Text {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Comment(text)
            | Self::Doc(text)
            | Self::Message(text)
            | Self::Paragraph(text)
            | Self::Heading(text) => text,
        }
    }
}

/// A text and the line on which it begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) line: usize,
    pub(super) text: Text,
}

/// Returns every text of a file.
pub(super) fn texts(language: Language, text: &str) -> Vec<Found> {
    match language {
        Language::Rust => {
            let mut found = blocks(text, doc_comment, Text::Doc);
            found.extend(blocks(text, rust_comment, Text::Comment));
            found.extend(messages(text));
            found
        }
        Language::Sql => blocks(text, |line| line.strip_prefix("--"), Text::Comment),
        Language::Script => {
            blocks(text, |line| line.strip_prefix('#').or_else(|| line.strip_prefix("//")), Text::Comment)
        }
        Language::Markdown => markdown(text),
    }
}

fn doc_comment(line: &str) -> Option<&str> {
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
}

fn rust_comment(line: &str) -> Option<&str> {
    line.strip_prefix("//").filter(|rest| !rest.starts_with(['/', '!']))
}

/// Joins consecutive comment lines to paragraphs.
fn blocks(text: &str, comment: impl Fn(&str) -> Option<&str>, kind: impl Fn(String) -> Text) -> Vec<Found> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        let words = comment(line.trim_start()).map(str::trim).filter(|words| is_prose(words));
        if words.is_some_and(is_item) {
            found.extend(open.take().map(|(line, text)| Found { line, text: kind(squeeze(&text)) }));
        }
        match words {
            Some(words) => match &mut open {
                Some((_, text)) => {
                    text.push(' ');
                    text.push_str(words);
                }
                None => open = Some((number, words.to_owned())),
            },
            None => found.extend(open.take().map(|(line, text)| Found { line, text: kind(squeeze(&text)) })),
        }
    }
    found
}

/// Whether a line belongs to a paragraph: table rows and the names of SQL sections do not.
fn is_prose(line: &str) -> bool {
    !line.is_empty()
        && !line.starts_with('|')
        && !line.starts_with("name: ")
        && !line.starts_with("fragment: ")
}

/// Whether a line starts an item of a list.
fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|character: char| character.is_ascii_digit());
    line.starts_with("- ") || (number.len() < line.len() && number.starts_with(". "))
}

fn markdown(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let is_prose = !is_code && !is_fence && !line.trim().is_empty() && !line.starts_with(['|', '#', '!']);
        if is_prose && is_item(line.trim_start()) {
            found.extend(
                open.take().map(|(line, text)| Found { line, text: Text::Paragraph(squeeze(&text)) }),
            );
        }
        if is_prose {
            let text = &mut open.get_or_insert((number, String::new())).1;
            text.push(' ');
            text.push_str(line);
            continue;
        }
        found.extend(open.take().map(|(line, text)| Found { line, text: Text::Paragraph(squeeze(&text)) }));
        if let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) {
            let heading = squeeze(heading.trim_start_matches('#'));
            found.push(Found { line: number, text: Text::Heading(heading) });
        }
    }
    found
}

fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// String literals of Rust, also those that stand on several lines.
fn messages(text: &str) -> Vec<Found> {
    let bytes = text.as_bytes();
    let (mut at, mut line, mut found) = (0, 1, Vec::new());
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                text[at..].find('\n').map_or(bytes.len(), |length| at + length)
            }
            b'r' if !is_word(bytes, at) && raw_hashes(&bytes[at + 1..]).is_some() => {
                let hashes = raw_hashes(&bytes[at + 1..]).unwrap_or_default();
                let close = format!("\"{}", "#".repeat(hashes));
                let start = at + hashes + 2;
                text[start..].find(&close).map_or(bytes.len(), |length| start + length + close.len())
            }
            b'"' => {
                let end = string_end(bytes, at + 1);
                let literal =
                    text[at + 1..end].replace("\\n", " ").replace("\\\n", " ").replace("\\\"", "\"");
                found.push(Found { line, text: Text::Message(squeeze(&literal)) });
                end + 1
            }
            b'\'' => char_end(bytes, at),
            _ => at + 1,
        };
        let end = end.min(bytes.len());
        line += bytes[at..end].split(|byte| *byte == b'\n').count() - 1;
        at = end;
    }
    found
}

/// Whether the byte before belongs to the same word.
fn is_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// The number of `#` before the quote of a raw string, if these bytes begin one.
fn raw_hashes(bytes: &[u8]) -> Option<usize> {
    let hashes = bytes.iter().take_while(|byte| **byte == b'#').count();
    (bytes.get(hashes) == Some(&b'"')).then_some(hashes)
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

/// The end of a character literal; a lifetime ends after its quote.
fn char_end(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at + 1) {
        Some(b'\\') => {
            bytes[at + 3..].iter().position(|byte| *byte == b'\'').map_or(bytes.len(), |end| at + end + 4)
        }
        Some(_) if bytes.get(at + 2) == Some(&b'\'') => at + 3,
        _ => at + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> Vec<(usize, String)> {
        let found = texts(Language::Rust, text).into_iter();
        found.map(|found| (found.line, found.text.as_str().to_owned())).collect()
    }

    #[test]
    fn comments_are_joined_by_kind_and_paragraph() {
        let text = "//! One\n//! two.\n//!\n//! Three.\nfn f() {} // not alone\n    // four\n    // five\n";
        assert_eq!(
            rust(text),
            [(1, "One two.".to_owned()), (4, "Three.".to_owned()), (6, "four five".to_owned())]
        );
    }

    #[test]
    fn strings_over_several_lines_are_one_message() {
        let text = "fn f<'a>() {\n    let q = '\"';\n    fail(\"one \\\n          two \\\"x\\\"\");\n\
                    r#\"raw \"y\"\"#;\n}\n";
        assert_eq!(rust(text), [(3, "one two \"x\"".to_owned())]);
    }

    #[test]
    fn code_and_tables_of_a_document_are_no_prose() {
        let text = "# Title\n\nOne\ntwo.\n\n```console\n$ # three\n```\n| four |\n";
        let found: Vec<_> = texts(Language::Markdown, text).into_iter().map(|found| found.line).collect();
        assert_eq!(found, [1, 3]);
    }
}
