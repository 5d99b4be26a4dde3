//! What went wrong, as a sentence, a hint and an exit code.

use http::StatusCode;
use std::borrow::Cow;
use std::process::ExitCode;
use tidemill_store::{Class, Error};

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What programs read.
    pub(crate) code: Cow<'static, str>,
    /// What people read.
    pub(crate) message: String,
    /// What to do, where there is one thing to do.
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
    /// Something broke, here or in the database.
    pub(crate) fn outage(message: impl Into<String>) -> Self {
        Self { code: "outage".into(), message: message.into(), hint: None, kind: Kind::Outage }
    }

    /// The command line or the configuration is not understood.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: "usage".into(), message: message.into(), hint: None, kind: Kind::Usage }
    }

    /// The product says no.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { code: "refused".into(), message: message.into(), hint: None, kind: Kind::Refused }
    }

    /// The same with a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with another code.
    pub(crate) fn coded(mut self, code: &'static str) -> Self {
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

/// The parser's own words, without how to use the command: its first paragraph, on one line.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Self::usage("a part of the command is missing").hint("add --help to see what there is");
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
        let message = tidemill_engine::patience::chain(&error);
        let (code, kind) = match &error {
            Error::Refused(refusal) => (refusal.code.as_str(), Kind::Refused),
            Error::Invalid(_) => ("invalid", Kind::Refused),
            Error::BadUrl { .. } => ("bad_url", Kind::Usage),
            Error::Schema { .. } => ("schema", Kind::Refused),
            Error::Foreign { .. } => ("foreign_tables", Kind::Refused),
            Error::Open { class: Class::Permanent, .. } => ("cannot_open", Kind::Refused),
            Error::Open { .. } => ("cannot_open", Kind::Outage),
            Error::Database { .. } | Error::Exhausted { .. } => ("database", Kind::Outage),
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
                let busy = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
                let kind = if busy { Kind::Outage } else { Kind::Refused };
                let token = "give a token that this server knows: TIDEMILL_TOKEN, or --token @file";
                let hint =
                    problem.hint.or_else(|| (status == StatusCode::UNAUTHORIZED).then(|| token.to_owned()));
                Self { code: problem.code.into(), message: problem.message, hint, kind }
            }
            Error::Unreachable { .. } => outage("unreachable"),
            Error::NotTidemill { .. } => outage("no_server"),
            Error::Unreadable(_) => outage("unreadable"),
            Error::BadAddress(_) => Self { code: "bad_address".into(), ..Self::usage(message) },
        }
    }
}

impl From<crate::remote::Trouble> for Failure {
    fn from(trouble: crate::remote::Trouble) -> Self {
        trouble.0.into()
    }
}
