//! What to run and how: everything the supervisor is told before the command starts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::moment::Moment;

/// One command, and the limits it runs under.
#[derive(Clone, PartialEq, Eq)]
pub struct Spec {
    /// The program and its arguments; the program is looked up in `PATH` unless it contains a slash.
    pub command: Vec<String>,
    /// Variables added to the worker's environment; they win over `env_remove`.
    pub env: Vec<(String, String)>,
    /// Variables of the worker's environment that the command must not see.
    pub env_remove: Vec<String>,
    /// Where the command runs; the worker's directory if absent.
    pub dir: Option<PathBuf>,
    /// What the command finds on its standard input, followed by the end of the file.
    pub stdin: Vec<u8>,
    /// When the lease was last known to be held: taken *before* the claim was sent to the database.
    ///
    /// A worker that is frozen between the claim and the start must not thereby gain time.
    pub contact: Moment,
    /// How long after the last contact the command is killed.
    ///
    /// Shorter than the lease, by enough for the kill itself.
    pub contact_max: Duration,
    /// How many bytes of output make one report at most; longer lines arrive in parts. At least 4.
    ///
    /// Counted as the command wrote them: a byte that is not UTF-8 becomes three bytes of text.
    pub line_bytes_max: usize,
}

/// Values of the environment and the standard input may be secret, so they are not shown.
impl fmt::Debug for Spec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        formatter
            .debug_struct("Spec")
            .field("command", &self.command)
            .field("env", &names)
            .field("env_remove", &self.env_remove)
            .field("dir", &self.dir)
            .field("stdin_bytes", &self.stdin.len())
            .field("contact", &self.contact)
            .field("contact_max", &self.contact_max)
            .field("line_bytes_max", &self.line_bytes_max)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let spec = Spec {
            command: vec!["true".to_owned()],
            env: vec![("TOKEN".to_owned(), "hunter2".to_owned())],
            env_remove: Vec::new(),
            dir: None,
            stdin: b"hunter3".to_vec(),
            contact: Moment::now(),
            contact_max: Duration::from_secs(1),
            line_bytes_max: 100,
        };
        let shown = format!("{spec:?}");
        assert!(shown.contains("TOKEN"));
        assert!(!shown.contains("hunter"));
    }
}
