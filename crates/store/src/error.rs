//! Why the store could not do what was asked, split by what the caller can do about it.

use crate::Resource;
use tidemill_core::project::unknown_project_hint;
use tidemill_core::request::Invalid;

/// What the caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Try again later: the same call may succeed.
    Transient,
    /// The same call will fail again.
    Permanent,
}

/// Which rule of the product refused a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    /// There is no such project.
    UnknownProject,
    /// The project has no such environment.
    UnknownEnvironment,
    /// There is no such run.
    UnknownRun,
    /// The key belongs to another request.
    KeyConflict,
    /// The lease, or the worker's life, is over.
    Stale,
    /// A value is not one of those that are allowed.
    BadValue,
    /// Something is larger than it may be.
    TooLarge,
    /// What has ended, or was recorded, does not change.
    Frozen,
    /// The run is in no state to be tried again.
    NotRetryable,
    /// There is no such schedule.
    UnknownSchedule,
    /// There is no such feed.
    UnknownFeed,
    /// There is no such sync.
    UnknownSync,
    /// Something newer has taken its place.
    Superseded,
    /// There is no such token.
    UnknownToken,
    /// There is no such webhook.
    UnknownHook,
    /// There is no such job.
    UnknownJob,
    /// There is no such task.
    UnknownTask,
    /// There is no such agent.
    UnknownAgent,
    /// There is no such pool.
    UnknownPool,
    /// There is no such worker, or it has ended.
    UnknownWorker,
}

impl RefusalCode {
    /// The code as PostgreSQL carries it.
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
        }
    }

    /// The code as programs read it.
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
        }
    }

    /// The code that programs read as this.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    const ALL: [Self; 20] = [
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
    ];
}

/// A call that a rule of the product refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The rule.
    pub code: RefusalCode,
    /// The sentence.
    pub message: String,
    /// What to do about it, where there is one thing to do.
    pub hint: Option<String>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A rule of the product said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request is not well formed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The database's address is not one that we understand.
    #[error("`{url}` is not a database that Tidemill can use: {problem}")]
    BadUrl {
        /// The address, without its password.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The database could not be opened.
    #[error("could not open {what}: {problem}")]
    Open {
        /// The database, without its password.
        what: String,
        /// What went wrong, as a phrase.
        problem: String,
        /// What to do, where there is one thing to do.
        hint: Option<String>,
        /// Whether trying again may help.
        class: Class,
    },
    /// The database has no Tidemill schema, or an older one than this binary needs.
    #[error("{what}")]
    Schema {
        /// What is wrong with the schema, as a sentence.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// The database holds tables of these names that are not ours.
    #[error("schema `{schema}` holds tables that Tidemill did not make: {}", .differences.join("; "))]
    Foreign {
        /// The schema.
        schema: String,
        /// How they differ from ours.
        differences: Vec<String>,
    },
    /// The database refused or broke off.
    #[error("the database could not {action}")]
    Database {
        /// What was being done.
        action: &'static str,
        /// Whether trying again may help.
        class: Class,
        /// What the database said.
        #[source]
        source: sqlx::Error,
    },
    /// The database has run out of something. Waiting helps once somebody has made room.
    #[error("{resource}; it could not {action}")]
    Exhausted {
        /// The resource.
        resource: Resource,
        /// What was being done.
        action: &'static str,
        /// What the database said.
        #[source]
        source: sqlx::Error,
    },
    /// The step panicked. It was rolled back; repeating it would panic again.
    #[error("a step of the database {panic}")]
    Panicked {
        /// The message of the panic.
        panic: crate::Panic,
    },
}

impl Error {
    /// A refusal.
    pub fn refused(code: RefusalCode, message: impl Into<String>) -> Self {
        Self::Refused(Refusal { code, message: message.into(), hint: None })
    }

    /// There is no such project. `env` is the environment that the request names.
    pub fn unknown_project(project: &str, env: Option<&str>) -> Self {
        Self::Refused(Refusal {
            code: RefusalCode::UnknownProject,
            message: format!("project `{project}` does not exist"),
            hint: Some(unknown_project_hint(project, env)),
        })
    }

    /// There is no such feed.
    pub fn unknown_feed(feed: &str) -> Self {
        Self::Refused(Refusal {
            code: RefusalCode::UnknownFeed,
            message: format!("feed `{feed}` does not exist"),
            hint: Some("tidemill feed list".to_owned()),
        })
    }

    /// There is no such sync.
    pub fn unknown_sync(sync: &str) -> Self {
        Self::Refused(Refusal {
            code: RefusalCode::UnknownSync,
            message: format!("sync `{sync}` does not exist"),
            hint: Some("tidemill sync list".to_owned()),
        })
    }

    /// The database did not answer within the time that the caller has. What was asked may have been done.
    pub fn unanswered(action: &'static str) -> Self {
        let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer came in time");
        Self::Database { action, class: Class::Transient, source: sqlx::Error::Io(source) }
    }

    /// Sorts an error of the database into ours.
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

    /// The same error for another caller who waited for the same step.
    pub(crate) fn shared(action: &'static str, error: &sqlx::Error) -> Self {
        let source = sqlx::Error::Protocol(error.to_string());
        match Resource::of(error) {
            Some(resource) => Self::Exhausted { resource, action, source },
            None => Self::Database { action, class: classify(&source), source },
        }
    }

    /// What the caller can do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Database { class, .. } | Self::Open { class, .. } => *class,
            Self::Exhausted { .. } => Class::Transient,
            Self::Refused(_)
            | Self::Invalid(_)
            | Self::BadUrl { .. }
            | Self::Schema { .. }
            | Self::Foreign { .. }
            | Self::Panicked { .. } => Class::Permanent,
        }
    }

    /// Whether the database cannot hold a value that it was given: another value may do.
    pub fn is_bad_value(&self) -> bool {
        let Self::Database { source, class: Class::Permanent, .. } = self else { return false };
        let Some(database) = source.as_database_error() else { return false };
        let Some(code) = database.code() else { return false };
        if database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
            // Data exceptions, broken constraints, limits of the program.
            return ["22", "23", "54"].iter().any(|class| code.starts_with(class));
        }
        matches!(code.parse::<u32>().map(|code| code & 0xff), Ok(18..=20))
    }

    /// Whether every later call of this process would fail too: no permission, no schema, another version, a request
    /// that is not well formed. Other permanent errors may concern one row only.
    pub fn is_hopeless(&self) -> bool {
        match self {
            Self::Invalid(_) | Self::BadUrl { .. } | Self::Schema { .. } | Self::Foreign { .. } => true,
            Self::Open { class, .. } => *class == Class::Permanent,
            Self::Refused(_) | Self::Exhausted { .. } | Self::Panicked { .. } => false,
            Self::Database { class, source, .. } => *class == Class::Permanent && is_hopeless(source),
        }
    }

    /// The rule that refused the call, where one did.
    pub fn refusal_code(&self) -> Option<RefusalCode> {
        if let Self::Refused(refusal) = self { Some(refusal.code) } else { None }
    }

    /// What to do about it, where there is one thing to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused(refusal) => refusal.hint.clone(),
            Self::Open { hint, .. } => hint.clone(),
            Self::Schema { hint, .. } => Some(hint.clone()),
            Self::Foreign { .. } => {
                Some("keep them, and give Tidemill a schema of its own: --schema NAME".to_owned())
            }
            Self::BadUrl { .. } => Some(
                "use postgres://user@host/database, sqlite://path, or a path that ends in .db".to_owned(),
            ),
            Self::Exhausted { resource, .. } => Some(resource.hint().to_owned()),
            Self::Invalid(_) | Self::Database { .. } | Self::Panicked { .. } => None,
        }
    }

    /// What failed, without data of users: for callers that may not see everything.
    pub fn summary(&self) -> String {
        match self {
            Self::Database { action, .. } => format!("the database could not {action}"),
            Self::Exhausted { resource, .. } => resource.to_string(),
            Self::Refused(_) | Self::Invalid(_) => "the database refused a value".to_owned(),
            Self::BadUrl { .. } | Self::Open { .. } => "the database could not be opened".to_owned(),
            Self::Schema { .. } | Self::Foreign { .. } => {
                "the schema of the database does not fit this version".to_owned()
            }
            Self::Panicked { .. } => "a step panicked; the log has the message".to_owned(),
        }
    }
}

/// An error and its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        // Some libraries repeat the cause in their own words.
        let told = inner.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = inner.source();
    }
    text
}

/// Reads a refusal that a function or trigger of ours raised.
fn refusal(error: &sqlx::Error) -> Option<Refusal> {
    let database = error.as_database_error()?;
    let code = database.code();
    if let Some(code) = RefusalCode::ALL.into_iter().find(|rule| code.as_deref() == Some(rule.sqlstate())) {
        let postgres = database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>();
        let hint = postgres.and_then(|error| error.hint()).map(str::to_owned);
        return Some(Refusal { code, message: database.message().to_owned(), hint });
    }
    // SQLite's triggers have only a message; ours begin with the code.
    let (tag, message) = database.message().split_once(": ")?;
    let code = RefusalCode::ALL.into_iter().find(|rule| rule.sqlstate() == tag)?;
    Some(Refusal { code, message: message.to_owned(), hint: None })
}

/// Whether trying again may help. One table for both databases.
fn classify(error: &sqlx::Error) -> Class {
    use sqlx::Error as E;
    if matches!(
        error,
        E::Io(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Protocol(_) | E::Tls(_)
    ) {
        return Class::Transient;
    }
    let Some(database) = error.as_database_error() else { return Class::Permanent };
    let Some(code) = database.code() else { return Class::Permanent };
    if database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
        return classify_sqlstate(&code);
    }
    // SQLite: busy, locked and i/o errors pass; the low byte is the primary code.
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(5 | 6 | 10) => Class::Transient,
        Ok(_) | Err(_) => Class::Permanent,
    }
}

/// Whether the database will never do what this process asks of it.
fn is_hopeless(error: &sqlx::Error) -> bool {
    let Some(database) = error.as_database_error() else { return false };
    let Some(code) = database.code() else { return false };
    if database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
        // Refused at the door; no such database or schema; no permission; no such table, column or function.
        return code.starts_with("28")
            || matches!(&*code, "3D000" | "3F000" | "42501" | "42P01" | "42703" | "42883");
    }
    match code.parse::<u32>().map(|code| code & 0xff) {
        // Read-only, not permitted, not a database.
        Ok(8 | 23 | 26) => true,
        // SQLite has no code of its own for a table or column that is missing.
        Ok(1) => database.message().starts_with("no such "),
        Ok(_) | Err(_) => false,
    }
}

/// Which SQLSTATEs pass by themselves.
fn classify_sqlstate(code: &str) -> Class {
    let passing = match code {
        // Serialisation failure, deadlock, lock not available, query cancelled by the server; the server stops,
        // starts, was promoted or demoted, or ended a transaction that stood idle.
        "40001" | "40P01" | "55P03" | "57014" | "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "25P03" => {
            true
        }
        // The connection broke.
        code => code.starts_with("08"),
    };
    if passing { Class::Transient } else { Class::Permanent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_is_transient() {
        for code in ["40001", "40P01", "57P01", "57P03", "25006", "08006"] {
            assert_eq!(classify_sqlstate(code), Class::Transient, "{code}");
        }
        for code in ["23505", "42P01", "22P02", "TM005"] {
            assert_eq!(classify_sqlstate(code), Class::Permanent, "{code}");
        }
    }

    #[test]
    fn every_refusal_has_a_code_of_its_own() {
        let mut codes: Vec<_> = RefusalCode::ALL.iter().map(|rule| rule.sqlstate()).collect();
        codes.dedup();
        assert_eq!(codes.len(), RefusalCode::ALL.len());
    }
}
