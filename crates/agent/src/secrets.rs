//! The secrets file: `NAME=value` lines in a file that only the agent's user can read.
//!
//! The server only knows the names.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tidemill_core::limits::VARIABLE_BYTES_MAX;

/// Maximum size of the file.
const BYTES_MAX: u64 = 1024 * 1024;
/// Shorter values cannot be masked in a log, because they occur by chance.
const VALUE_MIN: usize = 4;

/// Reads the file. The error is a message for the user without secret values.
pub(crate) fn read(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let shown = path.display();
    let found =
        fs::metadata(path).map_err(|error| format!("could not read the secrets file {shown}: {error}"))?;
    if found.permissions().mode() & 0o077 != 0 {
        return Err(format!("the secrets file {shown} can be read by others; run `chmod 600 {shown}`"));
    }
    if found.len() > BYTES_MAX {
        return Err(format!("the secrets file {shown} is larger than {BYTES_MAX} bytes"));
    }
    let text = fs::read_to_string(path)
        .map_err(|error| format!("could not read the secrets file {shown}: {error}"))?;
    parse(&text).map_err(|problem| format!("invalid secrets file {shown}: {problem}"))
}

fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut secrets = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or(format!("line {number} is not NAME=value"))?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if name.is_empty() || !is_name || name.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(format!("line {number} does not begin with a valid name"));
        }
        if value.len() < VALUE_MIN {
            return Err(format!(
                "`{name}` has fewer than {VALUE_MIN} characters, which cannot be masked in a log"
            ));
        }
        if name.len() + value.len() + 2 > VARIABLE_BYTES_MAX {
            return Err(format!(
                "`{name}` has {} bytes; name and value together may have at most {VARIABLE_BYTES_MAX}",
                value.len()
            ));
        }
        if value.contains('\0') {
            return Err(format!("`{name}` contains a NUL character"));
        }
        if secrets.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(format!("`{name}` is defined twice"));
        }
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_read() {
        let secrets = parse("# a comment\n\nKEY=a=b c\nOTHER_1=  spaces\n").unwrap();
        assert_eq!(secrets["KEY"], "a=b c");
        assert_eq!(secrets["OTHER_1"], "  spaces");
    }

    #[test]
    fn errors_do_not_contain_secret_values() {
        for bad in ["hunter2hunter2", "=hunter2", "1A=hunter2", "A B=hunter2", "A=hunter2\nA=hunter2"] {
            let problem = parse(bad).unwrap_err();
            assert!(!problem.contains("hunter"), "{problem}");
        }
        assert!(parse("A=abc").unwrap_err().contains("fewer than 4"));
        assert!(
            parse(&format!("A={}", "x".repeat(VARIABLE_BYTES_MAX))).unwrap_err().contains("at most 131072")
        );
    }

    #[test]
    fn secrets_file_readable_by_others_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        fs::write(&path, "KEY=hunter2\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(&path).unwrap_err().contains("can be read by others"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap()["KEY"], "hunter2");
    }
}
