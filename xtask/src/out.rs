//! What people read: the one place of this program that prints, always to standard error.

use std::fmt::Display;

/// Prints one line.
pub(crate) fn line(text: impl Display) {
    eprintln!("{text}");
}

/// Prints a failure with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
