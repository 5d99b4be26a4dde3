//! Output of this program, always to standard error.

use std::fmt::Display;

/// Prints one line to standard error.
pub(crate) fn line(text: impl Display) {
    eprintln!("{text}");
}

/// Prints a failure with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
