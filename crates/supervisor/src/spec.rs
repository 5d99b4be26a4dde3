//! Specification of a command: everything that the supervisor receives before the command starts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::boot_instant::BootInstant;

/// A command and its limits.
#[derive(Clone, PartialEq, Eq)]
pub struct Spec {
    /// The program and its arguments; the program is looked up in `PATH` unless it contains a slash.
    pub command: Vec<String>,
    /// Variables added to the worker's environment. They take precedence over `env_remove`.
    pub env: Vec<(String, String)>,
    /// Variables of the worker's environment that the command does not inherit.
    pub env_remove: Vec<String>,
    /// Working directory; the worker's directory if absent.
    pub dir: Option<PathBuf>,
    /// Standard input of the command, followed by end-of-file.
    pub stdin: Vec<u8>,
    /// Time at which the lease was last known to be held: taken *before* the claim was sent to the database.
    ///
    /// A worker that is frozen between the claim and the start must not gain time.
    pub contact: BootInstant,
    /// Time after the last contact at which the command is killed.
    ///
    /// It must be shorter than the lease, so that the kill completes before the lease expires.
    pub contact_max: Duration,
    /// Maximum number of output bytes per report; longer lines are split. At least 4.
    ///
    /// The bytes are counted as the command wrote them. An invalid byte becomes three bytes of text.
    pub line_bytes_max: usize,
}

/// Omits values of the environment and the standard input, which may be secret.
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
    fn debug_output_omits_secrets() {
        let spec = Spec {
            command: vec!["true".to_owned()],
            env: vec![("TOKEN".to_owned(), "hunter2".to_owned())],
            env_remove: Vec::new(),
            dir: None,
            stdin: b"hunter3".to_vec(),
            contact: BootInstant::now(),
            contact_max: Duration::from_secs(1),
            line_bytes_max: 100,
        };
        let shown = format!("{spec:?}");
        assert!(shown.contains("TOKEN"));
        assert!(!shown.contains("hunter"));
    }
}
