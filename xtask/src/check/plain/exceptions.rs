//! Texts that are meant as they stand, each with its reason.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Finding;

const FILE: &str = "xtask/plain-exceptions.txt";

/// The exceptions of the repository.
pub(super) struct Exceptions(Vec<Exception>);

struct Exception {
    line: usize,
    path: String,
    text: String,
    is_used: bool,
}

impl Exceptions {
    /// Reads lines of the form `path | part of the text | reason`; a repository without the file has none.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let Ok(text) = fs::read_to_string(root.join(FILE)) else { return Ok(Self(Vec::new())) };
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let exceptions = lines.map(|(line, text)| {
            let mut parts = text.split(" | ");
            let read = || Some((parts.next()?.to_owned(), parts.next()?.to_owned(), parts.next()?));
            let (path, text, _) = { read }()
                .with_context(|| format!("{FILE}:{line}: write `path | part of the text | reason`"))?;
            Ok(Exception { line, path, text, is_used: false })
        });
        Ok(Self(exceptions.collect::<Result<_>>()?))
    }

    /// Whether an exception names this file and a part of this text.
    pub(super) fn covers(&mut self, path: &str, text: &str) -> bool {
        let found =
            self.0.iter_mut().find(|exception| exception.path == path && text.contains(&exception.text));
        found.map(|exception| exception.is_used = true).is_some()
    }

    /// Returns one finding for each exception that covers no text any more.
    pub(super) fn unused(self) -> impl Iterator<Item = Finding> {
        let unused = self.0.into_iter().filter(|exception| !exception.is_used);
        unused.map(|exception| {
            let message = format!("the exception covers no text of {}; delete it", exception.path);
            Finding::new(FILE, exception.line, message)
        })
    }
}
