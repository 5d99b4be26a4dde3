//! Errors of the store, classified by how the caller can react.

use crate::error_class::{classify, is_hopeless};
use crate::{LockHolder, Resource};
use tidemill_core::project::unknown_project_hint;
use tidemill_core::reach::ReachError;
use tidemill_core::request::ValidationError;

/// How a caller can react to an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Transient,
    Permanent,
}

/// The rule that refused a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    UnknownProject,
    UnknownEnvironment,
    UnknownRun,
    /// The idempotency key belongs to a different request.
    KeyConflict,
    /// The lease has expired, or the worker was declared dead.
    Stale,
    BadValue,
    TooLarge,
    /// Ended runs and recorded events cannot be changed.
    Frozen,
    /// The run is not in a state that can be retried.
    NotRetryable,
    UnknownSchedule,
    UnknownFeed,
    UnknownSync,
    /// A newer sync has replaced this one.
    Superseded,
    UnknownToken,
    UnknownHook,
    UnknownJob,
    UnknownTask,
    UnknownAgent,
    UnknownPool,
    /// The worker does not exist or has ended.
    UnknownWorker,
    /// The operator's lists do not let the project use something that the definition names.
    OutOfReach,
    /// The credential or the lease belongs to another holder.
    WrongHolder,
}

impl RefusalCode {
    /// Returns the SQLSTATE that the SQL functions raise.
    pub const fn sqlstate(self) -> &'static str {
        match self {
            Self::UnknownProject => "TM001",
            Self::UnknownEnvironment => "TM002",
            Self::UnknownRun => "TM003",
            Self::KeyConflict => "TM004",
            Self::Stale => "TM005",
            Self::BadValue => "TM006",
            Self::TooLarge => "TM007",
            Self::Frozen => "TM008",
            Self::NotRetryable => "TM009",
            Self::UnknownSchedule => "TM010",
            Self::UnknownFeed => "TM011",
            Self::UnknownSync => "TM012",
            Self::Superseded => "TM013",
            Self::UnknownToken => "TM020",
            Self::UnknownHook => "TM016",
            Self::UnknownJob => "TM021",
            Self::UnknownTask => "TM022",
            Self::UnknownAgent => "TM023",
            Self::UnknownPool => "TM024",
            Self::UnknownWorker => "TM025",
            Self::OutOfReach => "TM040",
            Self::WrongHolder => "TM029",
        }
    }

    /// Returns the code of the HTTP API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownProject => "unknown_project",
            Self::UnknownEnvironment => "unknown_environment",
            Self::UnknownRun => "unknown_run",
            Self::KeyConflict => "key_conflict",
            Self::Stale => "stale",
            Self::BadValue => "bad_value",
            Self::TooLarge => "too_large",
            Self::Frozen => "frozen",
            Self::NotRetryable => "not_retryable",
            Self::UnknownSchedule => "unknown_schedule",
            Self::UnknownFeed => "unknown_feed",
            Self::UnknownSync => "unknown_sync",
            Self::Superseded => "superseded",
            Self::UnknownToken => "unknown_token",
            Self::UnknownHook => "unknown_hook",
            Self::UnknownJob => "unknown_job",
            Self::UnknownTask => "unknown_task",
            Self::UnknownAgent => "unknown_agent",
            Self::UnknownPool => "unknown_pool",
            Self::UnknownWorker => "unknown_worker",
            Self::OutOfReach => "out_of_reach",
            Self::WrongHolder => "wrong_holder",
        }
    }

    /// Parses a code of the HTTP API.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    const ALL: [Self; 22] = [
        Self::UnknownProject,
        Self::UnknownEnvironment,
        Self::UnknownRun,
        Self::KeyConflict,
        Self::Stale,
        Self::BadValue,
        Self::TooLarge,
        Self::Frozen,
        Self::NotRetryable,
        Self::UnknownSchedule,
        Self::UnknownFeed,
        Self::UnknownSync,
        Self::Superseded,
        Self::UnknownToken,
        Self::UnknownHook,
        Self::UnknownJob,
        Self::UnknownTask,
        Self::UnknownAgent,
        Self::UnknownPool,
        Self::UnknownWorker,
        Self::OutOfReach,
        Self::WrongHolder,
    ];
}

/// A call that a rule refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: RefusalCode,
    pub message: String,
    /// Command to run or change to make, if there is exactly one.
    pub hint: Option<String>,
}

/// Error of a store call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A rule refused the call.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Invalid(#[from] ValidationError),
    /// The database URL is not supported.
    #[error("`{url}` is not a supported database URL: {problem}")]
    BadUrl {
        /// URL without the password.
        url: String,
        problem: String,
    },
    /// The database could not be opened.
    #[error("could not open {what}: {problem}")]
    Open {
        /// Address without the password.
        what: String,
        problem: String,
        hint: Option<String>,
        class: Class,
    },
    /// The schema is missing, or older than this binary needs.
    #[error("{what}")]
    Schema { what: String, hint: String },
    /// The schema holds tables with our names that Tidemill did not create.
    #[error("schema `{schema}` holds tables that Tidemill did not create: {}", .differences.join("; "))]
    Foreign {
        schema: String,
        /// Differences from our definitions.
        differences: Vec<String>,
    },
    /// The database refused the statement, or the connection broke.
    #[error("the database could not {action}")]
    Database {
        /// Attempted operation, as a verb phrase.
        action: &'static str,
        class: Class,
        #[source]
        source: sqlx::Error,
    },
    /// The database ran out of a resource. A retry helps once the operator has freed some.
    #[error("{resource}; the database could not {action}")]
    Exhausted {
        resource: Resource,
        action: &'static str,
        #[source]
        source: sqlx::Error,
    },
    /// Another process kept the write lock of the SQLite file. A retry helps once it continues or ends.
    #[error("{holder}; the database could not {action}")]
    Locked {
        holder: LockHolder,
        action: &'static str,
        #[source]
        source: sqlx::Error,
    },
    /// The transaction panicked and was rolled back. A retry would panic again.
    #[error("a database transaction {panic}")]
    Panicked { panic: crate::Panic },
}

impl Error {
    /// Returns a refusal without a hint.
    pub fn refused(code: RefusalCode, message: impl Into<String>) -> Self {
        Self::Refused(Refusal { code, message: message.into(), hint: None })
    }

    /// Adds the position of the request that was refused to a call with several of them: `runs[2]: …`.
    #[must_use]
    pub fn at_position(self, position: usize) -> Self {
        let (code, message, hint) = match self {
            Self::Refused(Refusal { code, message, hint }) => (code, message, hint),
            Self::Invalid(invalid) => (RefusalCode::BadValue, invalid.to_string(), None),
            other @ (Self::BadUrl { .. }
            | Self::Open { .. }
            | Self::Schema { .. }
            | Self::Foreign { .. }
            | Self::Database { .. }
            | Self::Exhausted { .. }
            | Self::Locked { .. }
            | Self::Panicked { .. }) => return other,
        };
        Self::Refused(Refusal { code, message: format!("runs[{position}]: {message}"), hint })
    }

    /// Refuses an unknown project. `env` is the environment that the request names.
    pub fn unknown_project(project: &str, env: Option<&str>) -> Self {
        Self::Refused(Refusal {
            code: RefusalCode::UnknownProject,
            message: format!("project `{project}` does not exist"),
            hint: Some(unknown_project_hint(project, env)),
        })
    }

    /// Refuses a definition that uses something outside the lists of its project.
    pub fn out_of_reach(error: &ReachError) -> Self {
        Self::Refused(Refusal {
            code: RefusalCode::OutOfReach,
            message: error.to_string(),
            hint: Some(error.hint()),
        })
    }

    /// Refuses an unknown feed.
    pub fn unknown_feed(feed: &str) -> Self {
        Self::Refused(Refusal {
            code: RefusalCode::UnknownFeed,
            message: format!("feed `{feed}` does not exist"),
            hint: Some("tidemill feed list".to_owned()),
        })
    }

    /// Refuses an unknown sync.
    pub fn unknown_sync(sync: &str) -> Self {
        Self::Refused(Refusal {
            code: RefusalCode::UnknownSync,
            message: format!("sync `{sync}` does not exist"),
            hint: Some("tidemill sync list".to_owned()),
        })
    }

    /// The database did not answer before the caller's deadline. The operation may have been executed.
    pub fn unanswered(action: &'static str) -> Self {
        let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer within the time limit");
        Self::Database { action, class: Class::Transient, source: sqlx::Error::Io(source) }
    }

    /// Classifies an error of the database.
    pub fn database(action: &'static str, source: sqlx::Error) -> Self {
        if let Some(refusal) = refusal(&source) {
            return Self::Refused(refusal);
        }
        if let Some(resource) = Resource::of(&source) {
            return Self::Exhausted { resource, action, source };
        }
        let class = classify(&source);
        Self::Database { action, class, source }
    }

    /// Returns the same error for another caller of the same transaction.
    pub(crate) fn shared(action: &'static str, error: &sqlx::Error) -> Self {
        let source = sqlx::Error::Protocol(error.to_string());
        match Resource::of(error) {
            Some(resource) => Self::Exhausted { resource, action, source },
            None => Self::Database { action, class: classify(&source), source },
        }
    }

    /// Returns how the caller can react.
    pub fn class(&self) -> Class {
        match self {
            Self::Database { class, .. } | Self::Open { class, .. } => *class,
            Self::Exhausted { .. } | Self::Locked { .. } => Class::Transient,
            Self::Refused(_)
            | Self::Invalid(_)
            | Self::BadUrl { .. }
            | Self::Schema { .. }
            | Self::Foreign { .. }
            | Self::Panicked { .. } => Class::Permanent,
        }
    }

    /// Returns whether the database cannot store a value. The same call may succeed with another value.
    pub fn is_bad_value(&self) -> bool {
        let Self::Database { source, class: Class::Permanent, .. } = self else { return false };
        if matches!(source, sqlx::Error::Encode(_)) {
            return true;
        }
        let Some(database) = source.as_database_error() else { return false };
        let Some(code) = database.code() else { return false };
        if database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
            // Data exceptions, integrity constraint violations, program limits, and exceptions of a user's trigger.
            return code == "P0001" || ["22", "23", "54"].iter().any(|class| code.starts_with(class));
        }
        matches!(code.parse::<u32>().map(|code| code & 0xff), Ok(18..=20))
    }

    /// Returns whether a unique key refused a row. A merge never violates the key that identifies its rows.
    pub fn is_unique_violation(&self) -> bool {
        let Self::Database { source, .. } = self else { return false };
        let Some(database) = source.as_database_error() else { return false };
        let is_postgres = database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some();
        match database.code().as_deref() {
            Some("23505") => is_postgres,
            Some("1555" | "2067") => !is_postgres,
            Some(_) | None => false,
        }
    }

    /// Returns the error with its causes, and with the detail of PostgreSQL, which names the key that it refused.
    pub fn reason(&self) -> String {
        let text = chain(self);
        let Self::Database { source, .. } = self else { return text };
        let database = source.as_database_error();
        let postgres = database.and_then(|error| error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>());
        match postgres.and_then(sqlx::postgres::PgDatabaseError::detail) {
            Some(detail) => format!("{text}: {detail}"),
            None => text,
        }
    }

    /// Returns whether every later call of this process would fail too: no permission, no schema, another version, a
    /// malformed request. Other permanent errors may concern a single row.
    pub fn is_hopeless(&self) -> bool {
        match self {
            Self::Invalid(_) | Self::BadUrl { .. } | Self::Schema { .. } | Self::Foreign { .. } => true,
            Self::Open { class, .. } => *class == Class::Permanent,
            Self::Refused(_) | Self::Exhausted { .. } | Self::Locked { .. } | Self::Panicked { .. } => false,
            Self::Database { class, source, .. } => *class == Class::Permanent && is_hopeless(source),
        }
    }

    /// Returns the rule that refused the call, if one did.
    pub fn refusal_code(&self) -> Option<RefusalCode> {
        if let Self::Refused(refusal) = self { Some(refusal.code) } else { None }
    }

    /// Returns what the user can do about it, if there is exactly one thing.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused(refusal) => refusal.hint.clone(),
            Self::Open { hint, .. } => hint.clone(),
            Self::Schema { hint, .. } => Some(hint.clone()),
            Self::Foreign { .. } => Some("choose another schema: --schema NAME".to_owned()),
            Self::BadUrl { .. } => Some(
                "use postgres://user@host/database, sqlite://path, or a path that ends in .db".to_owned(),
            ),
            Self::Exhausted { resource, .. } => Some(resource.hint().to_owned()),
            Self::Locked { holder, .. } => Some(holder.hint()),
            Self::Invalid(_) | Self::Database { .. } | Self::Panicked { .. } => None,
        }
    }

    /// Describes the error without user data, for callers that may not see everything.
    pub fn summary(&self) -> String {
        match self {
            Self::Database { action, .. } | Self::Locked { action, .. } => {
                format!("the database could not {action}")
            }
            Self::Exhausted { resource, .. } => resource.to_string(),
            Self::Refused(_) | Self::Invalid(_) => "the database refused a value".to_owned(),
            Self::BadUrl { .. } | Self::Open { .. } => "the database could not be opened".to_owned(),
            Self::Schema { .. } | Self::Foreign { .. } => {
                "the schema of the database does not match this version".to_owned()
            }
            Self::Panicked { .. } => "a database transaction panicked; see the log".to_owned(),
        }
    }
}

/// Formats an error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        // Some libraries repeat the cause in their own message.
        let message = inner.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = inner.source();
    }
    text
}

/// Reads a refusal that one of our SQL functions or triggers raised.
fn refusal(error: &sqlx::Error) -> Option<Refusal> {
    let database = error.as_database_error()?;
    let code = database.code();
    if let Some(code) = RefusalCode::ALL.into_iter().find(|rule| code.as_deref() == Some(rule.sqlstate())) {
        let postgres = database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>();
        let hint = postgres.and_then(|error| error.hint()).map(str::to_owned);
        return Some(Refusal { code, message: database.message().to_owned(), hint });
    }
    // SQLite triggers can only raise a message; ours begin with the code.
    let (tag, message) = database.message().split_once(": ")?;
    let code = RefusalCode::ALL.into_iter().find(|rule| rule.sqlstate() == tag)?;
    Some(Refusal { code, message: message.to_owned(), hint: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_codes_have_distinct_sqlstates() {
        let mut codes: Vec<_> = RefusalCode::ALL.iter().map(|rule| rule.sqlstate()).collect();
        codes.dedup();
        assert_eq!(codes.len(), RefusalCode::ALL.len());
    }
}
