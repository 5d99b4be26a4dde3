//! Errors of a definition file, with their positions in the file.

/// One error in a definition file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{line}:{column}: {message}")]
pub struct DefinitionError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// Description of the error.
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A position in a file, counted from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Collects errors, up to [`ERRORS_MAX`].
#[derive(Debug, Default)]
pub(crate) struct DefinitionErrors(pub(crate) Vec<DefinitionError>);

/// Longer lists of errors do not help the author.
const ERRORS_MAX: usize = 200;

impl DefinitionErrors {
    pub(crate) fn add(&mut self, at: Position, message: impl Into<String>) {
        self.put(at, message.into(), None);
    }

    pub(crate) fn hint(&mut self, at: Position, message: impl Into<String>, hint: impl Into<String>) {
        self.put(at, message.into(), Some(hint.into()));
    }

    fn put(&mut self, at: Position, message: String, hint: Option<String>) {
        if self.0.len() < ERRORS_MAX {
            self.0.push(DefinitionError { line: at.line, column: at.column, message, hint });
        }
    }
}

/// Makes a text safe for a message: truncated and without control characters.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(60).map(|symbol| if symbol.is_control() { '\u{FFFD}' } else { symbol }).collect()
}

/// Returns the word of `known` that is most similar to `word`, if it is similar enough to suggest.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|other| (distance(word, other), other)).min()?;
    (near.0 <= word.chars().count().div_ceil(3)).then_some(near.1)
}

/// Returns the edit distance (Levenshtein) of two words.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, left) in one.chars().take(64).enumerate() {
        let mut corner = row[0];
        row[0] = index + 1;
        for (column, right) in other.iter().enumerate() {
            let changed = corner + usize::from(left != *right);
            corner = row[column + 1];
            row[column + 1] = changed.min(corner + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
