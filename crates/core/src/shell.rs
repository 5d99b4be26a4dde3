//! Commands that somebody pastes into a shell: what is shown is taken as it was meant.

/// A value as a shell takes it: names are for people, and may hold anything.
#[must_use]
pub fn pasted(value: &str) -> String {
    let is_plain = |symbol: char| symbol.is_ascii_alphanumeric() || "-_./:@+,=%".contains(symbol);
    // Some shells look up what begins with `=`.
    if !value.is_empty() && !value.starts_with('=') && value.chars().all(is_plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

/// A command of ours, from its words. Each is one word for the shell too.
#[must_use]
pub fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut command = String::from("tidemill");
    for word in words {
        command.push(' ');
        command.push_str(&pasted(word));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_obey_is_quoted() {
        for plain in ["run-0199", "a/b:c@d", "1.15", "--status", "90%"] {
            assert_eq!(pasted(plain), plain);
        }
        assert_eq!(pasted(""), "''");
        assert_eq!(pasted("=ls"), "'=ls'");
        assert_eq!(pasted("two words"), "'two words'");
        assert_eq!(pasted("it's $(rm -r ~) `x` \"y\" \\ !z"), r#"'it'\''s $(rm -r ~) `x` "y" \ !z'"#);
        assert_eq!(pasted("Grüße"), "'Grüße'");
    }

    #[test]
    fn a_command_has_the_words_that_it_was_made_of() {
        assert_eq!(command(["run", "cancel", "run-1"]), "tidemill run cancel run-1");
        assert_eq!(
            command(["queue", "replay", "work-items", "a b"]),
            "tidemill queue replay work-items 'a b'"
        );
    }
}
