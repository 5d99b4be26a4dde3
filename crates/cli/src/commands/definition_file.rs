//! Definition files of graphs and feeds: reading them, and reporting their errors.

use crate::failure::Failure;
use crate::out::{Out, Style};
use std::io::Read as _;
use std::path::Path;
use tidemill_core::definition::DefinitionError;

/// Reads a file, or standard input, of at most `bytes_max` bytes.
pub(super) fn read(file: &Path, bytes_max: usize, hint: &str) -> Result<String, Failure> {
    let failed =
        |error: std::io::Error| Failure::usage(format!("could not read {}: {error}", display_name(file)));
    let mut text = String::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(limit + 1).read_to_string(&mut text)
    } else {
        let opened = std::fs::File::open(file).map_err(|error| failed(error).with_hint(hint))?;
        opened.take(limit + 1).read_to_string(&mut text)
    };
    read.map_err(failed)?;
    if text.len() > bytes_max {
        return Err(Failure::refused(format!("{} is larger than {bytes_max} bytes", display_name(file))));
    }
    Ok(text)
}

pub(super) fn display_name(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() }
}

/// Prints every error with its line and column, and returns the summary.
pub(super) fn report(file: &Path, errors: &[DefinitionError], code: &'static str, out: Out) -> Failure {
    for error in errors {
        let position = format!("{}:{}:{}:", display_name(file), error.line, error.column);
        out.inform(out.paint(&position, Style::Bold).and(format!(" {}", error.message)));
        if let Some(hint) = &error.hint {
            out.inform(format!("    hint: {hint}"));
        }
    }
    let count = if errors.len() == 1 { "1 error".to_owned() } else { format!("{} errors", errors.len()) };
    Failure::refused(format!("{} has {count}", display_name(file))).with_code(code)
}
