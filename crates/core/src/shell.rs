//! Quoting of commands for a shell.

/// Quotes a value as one argument of a shell command. Names may contain any characters.
#[must_use]
pub fn quote(value: &str) -> String {
    let is_plain = |symbol: char| symbol.is_ascii_alphanumeric() || "-_./:@+,=%".contains(symbol);
    // zsh expands a word that begins with `=`.
    if !value.is_empty() && !value.starts_with('=') && value.chars().all(is_plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

/// Returns a `tidemill` command with quoted arguments.
#[must_use]
pub fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut command = String::from("tidemill");
    for word in words {
        command.push(' ');
        command.push_str(&quote(word));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_quoted() {
        for plain in ["run-0199", "a/b:c@d", "1.15", "--status", "90%"] {
            assert_eq!(quote(plain), plain);
        }
        assert_eq!(quote(""), "''");
        assert_eq!(quote("=ls"), "'=ls'");
        assert_eq!(quote("two words"), "'two words'");
        assert_eq!(quote("it's $(rm -r ~) `x` \"y\" \\ !z"), r#"'it'\''s $(rm -r ~) `x` "y" \ !z'"#);
        assert_eq!(quote("Grüße"), "'Grüße'");
    }

    #[test]
    fn command_quotes_each_argument() {
        assert_eq!(command(["run", "cancel", "run-1"]), "tidemill run cancel run-1");
        assert_eq!(
            command(["queue", "replay", "work-items", "a b"]),
            "tidemill queue replay work-items 'a b'"
        );
    }
}
