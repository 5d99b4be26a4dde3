//! Keeps secrets out of what is written down: wherever the value of one appears in the output, something else
//! stands.

use crate::report::Part;

/// What stands in the place of a secret.
const MASK: &str = "•••";

/// Values are secret, so they are not shown.
impl std::fmt::Debug for Mask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Mask").field("values", &self.values.len()).finish_non_exhaustive()
    }
}

/// The secrets of a command, and what is held back of one of its streams.
#[derive(Clone, Default)]
pub struct Mask {
    /// Their values, the longest first: one may be a part of another.
    values: Vec<String>,
    /// How much may be the beginning of one.
    held_max: usize,
    /// The end of a piece, which may be the beginning of a secret.
    held: String,
}

impl Mask {
    /// A mask for the values of secrets.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        // A line is never longer than itself: a value of several lines is masked line by line.
        let lines = secrets.into_iter().flat_map(str::lines).filter(|line| !line.trim().is_empty());
        let mut values: Vec<String> = lines.map(str::to_owned).collect();
        values.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        values.dedup();
        let held_max = values.first().map_or(0, |longest| longest.len().saturating_sub(1));
        Self { values, held_max, held: String::new() }
    }

    /// A whole text without secrets.
    pub fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in &self.values {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), MASK);
            }
        }
        text
    }

    /// The text without secrets; the end of a piece may come with the next one.
    pub(crate) fn pass(&mut self, text: String, part: Part) -> String {
        if self.values.is_empty() {
            return text;
        }
        let whole = std::mem::take(&mut self.held) + &text;
        let mut text = self.hide(&whole);
        if part == Part::Piece {
            let cut = text.floor_char_boundary(text.len().saturating_sub(self.held_max));
            self.held = text.split_off(cut);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_do_not_pass() {
        let mut mask = Mask::new(["hunter2", "hunter2-long", "two\nlines\n"]);
        assert_eq!(mask.pass("a hunter2 b hunter2-long".to_owned(), Part::Whole), "a ••• b •••");
        assert_eq!(mask.pass("two, lines".to_owned(), Part::Whole), "•••, •••");
        assert_eq!(mask.pass("nothing".to_owned(), Part::Whole), "nothing");
    }

    /// Shows that a line which comes in pieces hides a value wherever it is cut.
    #[test]
    fn a_value_that_is_cut_does_not_pass() {
        let line = "xhünter2y";
        for cut in (1..line.len()).filter(|cut| line.is_char_boundary(*cut)) {
            let mut mask = Mask::new(["hünter2"]);
            let (one, other) = line.split_at(cut);
            let passed = mask.pass(one.to_owned(), Part::Piece) + &mask.pass(other.to_owned(), Part::Last);
            assert_eq!(passed, "x•••y", "{cut}");
        }
    }

    #[test]
    fn without_secrets_nothing_is_held_back() {
        let mut mask = Mask::new([]);
        assert_eq!(mask.pass("piece".to_owned(), Part::Piece), "piece");
    }
}
