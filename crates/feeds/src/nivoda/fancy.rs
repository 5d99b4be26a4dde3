//! Names of fancy colours. The source has several spellings for one colour.

/// Values of the colour field that are not colours.
const NOISE: [&str; 2] = ["EVEN", "U-V"];

/// Colours whose order in a pair does not matter. Words such as `Orangy` are modifiers: they tell which of the two
/// colours is stronger, so their order is preserved.
const PLAIN: [&str; 15] = [
    "Black",
    "Blue",
    "Brown",
    "Chameleon",
    "Cognac",
    "Gray",
    "Green",
    "Olive",
    "Orange",
    "Pink",
    "Purple",
    "Red",
    "Violet",
    "White",
    "Yellow",
];

/// Normalises the name of a fancy colour. `None` if the text is not a colour.
pub(super) fn color(raw: &str) -> Option<String> {
    let raw = raw.trim();
    if NOISE.iter().any(|noise| raw.eq_ignore_ascii_case(noise)) {
        return None;
    }
    let mut words: Vec<String> =
        raw.split(|letter: char| letter.is_whitespace() || letter == '-').filter_map(word).collect();
    if words.is_empty() {
        return None;
    }
    if words.iter().any(|word| !PLAIN.contains(&word.as_str())) {
        return Some(words.join(" "));
    }
    if words.len() == 2 {
        words.sort();
    }
    Some(words.join("-"))
}

/// Capitalises a word and uses the American spelling of the trade.
fn word(raw: &str) -> Option<String> {
    if raw.eq_ignore_ascii_case("grey") {
        return Some("Gray".to_owned());
    }
    let mut letters = raw.chars();
    let first = letters.next()?;
    Some(first.to_uppercase().chain(letters.flat_map(char::to_lowercase)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_colour_have_one_name() {
        for (raw, expected) in [
            ("YELLOW", Some("Yellow")),
            ("blue", Some("Blue")),
            ("GREY", Some("Gray")),
            ("Grey Blue", Some("Blue-Gray")),
            ("ORANGE BROWN", Some("Brown-Orange")),
            ("BROWN ORANGE", Some("Brown-Orange")),
            ("Brown-Pink", Some("Brown-Pink")),
            ("PINK-BROWN", Some("Brown-Pink")),
            ("ORANGY BROWN", Some("Orangy Brown")),
            ("brownish  yellow", Some("Brownish Yellow")),
            ("PINK PINK", Some("Pink-Pink")),
            ("EVEN", None),
            ("u-v", None),
            (" ", None),
            ("-", None),
        ] {
            assert_eq!(color(raw).as_deref(), expected, "{raw}");
        }
    }
}
