//! Replaces the values of secrets in output before it is stored.

use crate::report::Part;

/// Replacement for a secret value.
const MASK: &str = "•••";

/// Shows only the number of values, because they are secret.
impl std::fmt::Debug for Mask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Mask").field("values", &self.values.len()).finish_non_exhaustive()
    }
}

/// The secrets of a command, and the unfinished end of one of its streams.
#[derive(Clone, Default)]
pub struct Mask {
    /// Longest first, because one value may be part of another.
    values: Vec<String>,
    /// Number of bytes at the end of a piece that may be the beginning of a secret.
    held_max: usize,
    /// End of the last piece, which may be the beginning of a secret.
    held: String,
}

impl Mask {
    /// Creates a mask for the given secret values.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        // Output is masked line by line, so a value of several lines is split into lines.
        let lines = secrets.into_iter().flat_map(str::lines).filter(|line| !line.trim().is_empty());
        let mut values: Vec<String> = lines.map(str::to_owned).collect();
        values.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        values.dedup();
        let held_max = values.first().map_or(0, |longest| longest.len().saturating_sub(1));
        Self { values, held_max, held: String::new() }
    }

    /// Returns a complete text with all secret values replaced.
    pub fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in &self.values {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), MASK);
            }
        }
        text
    }

    /// Returns the text with secret values replaced. The end of a piece may be returned with the next text.
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
    fn secret_values_are_masked() {
        let mut mask = Mask::new(["hunter2", "hunter2-long", "two\nlines\n"]);
        assert_eq!(mask.pass("a hunter2 b hunter2-long".to_owned(), Part::Whole), "a ••• b •••");
        assert_eq!(mask.pass("two, lines".to_owned(), Part::Whole), "•••, •••");
        assert_eq!(mask.pass("nothing".to_owned(), Part::Whole), "nothing");
    }

    #[test]
    fn secret_split_between_two_pieces_is_masked() {
        let line = "xhünter2y";
        for cut in (1..line.len()).filter(|cut| line.is_char_boundary(*cut)) {
            let mut mask = Mask::new(["hünter2"]);
            let (one, other) = line.split_at(cut);
            let passed = mask.pass(one.to_owned(), Part::Piece) + &mask.pass(other.to_owned(), Part::Last);
            assert_eq!(passed, "x•••y", "{cut}");
        }
    }

    #[test]
    fn mask_without_secrets_passes_text_through() {
        let mut mask = Mask::new([]);
        assert_eq!(mask.pass("piece".to_owned(), Part::Piece), "piece");
    }
}
