//! Errors of commands: a message, a hint, a code and an exit code.

use http::StatusCode;
use std::borrow::Cow;
use std::process::ExitCode;
use tidemill_store::{Class, Error};

/// The error that ends a command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Stable word for programs.
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    /// Command or advice for the user.
    pub(crate) hint: Option<String>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Outage,
    Usage,
    Refused,
}

impl Failure {
    /// An internal error or an outage; exit code 1.
    pub(crate) fn outage(message: impl Into<String>) -> Self {
        Self { code: "outage".into(), message: message.into(), hint: None, kind: Kind::Outage }
    }

    /// An invalid command line or configuration; exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: "usage".into(), message: message.into(), hint: None, kind: Kind::Usage }
    }

    /// A request that was understood and refused; exit code 3.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { code: "refused".into(), message: message.into(), hint: None, kind: Kind::Refused }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_code(mut self, code: &'static str) -> Self {
        self.code = code.into();
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            Kind::Outage => 1,
            Kind::Usage => 2,
            Kind::Refused => 3,
        })
    }
}

/// Keeps the first paragraph of the parser's error, on one line, without the usage text.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Self::usage("the command is incomplete").with_hint("add --help to see its arguments");
        }
        let text = error.to_string();
        let words = text.strip_prefix("error: ").unwrap_or(&text).lines();
        let words: Vec<&str> = words.map(str::trim).take_while(|line| !line.is_empty()).collect();
        Self::usage(words.join(" "))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let hint = error.hint();
        let message = tidemill_engine::retry_policy::chain(&error);
        let (code, kind) = match &error {
            Error::Refused(refusal) => (refusal.code.as_str(), Kind::Refused),
            Error::Invalid(_) => ("invalid", Kind::Refused),
            Error::BadUrl { .. } => ("bad_url", Kind::Usage),
            Error::Schema { .. } => ("schema", Kind::Refused),
            Error::Foreign { .. } => ("foreign_tables", Kind::Refused),
            Error::Open { class: Class::Permanent, .. } => ("cannot_open", Kind::Refused),
            Error::Open { .. } => ("cannot_open", Kind::Outage),
            Error::Database { .. } | Error::Exhausted { .. } | Error::Locked { .. } => {
                ("database", Kind::Outage)
            }
            Error::Panicked { .. } => ("panicked", Kind::Outage),
        };
        Self { code: code.into(), message, hint, kind }
    }
}

impl From<tidemill_client::Error> for Failure {
    fn from(error: tidemill_client::Error) -> Self {
        use tidemill_client::Error;
        let message = error.to_string();
        let outage = |code: &'static str| Self { code: code.into(), ..Self::outage(message.clone()) };
        match error {
            Error::Refused { status, problem } => {
                let is_busy = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                let kind = if is_busy { Kind::Outage } else { Kind::Refused };
                let token_hint =
                    "set TIDEMILL_TOKEN, or use --token @file, with a token that this server accepts";
                let hint = problem
                    .hint
                    .or_else(|| (status == StatusCode::UNAUTHORIZED).then(|| token_hint.to_owned()));
                Self { code: problem.code.into(), message: problem.message, hint, kind }
            }
            Error::Unreachable { .. } => outage("unreachable"),
            Error::NotTidemill { .. } => outage("no_server"),
            Error::InvalidResponse(_) => outage("unreadable"),
            Error::InvalidConfig(_) => Self { code: "bad_address".into(), ..Self::usage(message) },
        }
    }
}

impl From<crate::remote::RemoteError> for Failure {
    fn from(error: crate::remote::RemoteError) -> Self {
        error.0.into()
    }
}
