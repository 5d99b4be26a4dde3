//! What is wrong with a graph that somebody wrote, and where.

/// One thing that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{line}:{column}: {message}")]
pub struct GraphFault {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What is wrong, as a sentence.
    pub message: String,
    /// What to do, where there is one thing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A place in a file: line and column, from 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Collects faults.
#[derive(Debug, Default)]
pub(super) struct Faults(pub(super) Vec<GraphFault>);

/// More faults than this help nobody.
const FAULTS_MAX: usize = 200;

impl Faults {
    pub(super) fn add(&mut self, at: At, message: impl Into<String>) {
        self.put(at, message.into(), None);
    }

    pub(super) fn hint(&mut self, at: At, message: impl Into<String>, hint: impl Into<String>) {
        self.put(at, message.into(), Some(hint.into()));
    }

    fn put(&mut self, at: At, message: String, hint: Option<String>) {
        if self.0.len() < FAULTS_MAX {
            self.0.push(GraphFault { line: at.line, column: at.column, message, hint });
        }
    }
}

/// A name as it is shown in a sentence: cut, and without control characters.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(60).map(|symbol| if symbol.is_control() { '\u{FFFD}' } else { symbol }).collect()
}

/// The word of `known` that is nearest to `word`, if one is near enough to be meant.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|other| (distance(word, other), other)).min()?;
    (near.0 <= word.chars().count().div_ceil(3)).then_some(near.1)
}

/// How many letters have to change.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, left) in one.chars().take(64).enumerate() {
        let mut corner = row[0];
        row[0] = index + 1;
        for (place, right) in other.iter().enumerate() {
            let changed = corner + usize::from(left != *right);
            corner = row[place + 1];
            row[place + 1] = changed.min(corner + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}
