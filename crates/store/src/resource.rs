//! The resources that a database can run out of, and the error codes for them.
//!
//! Such errors are transient: workers back off until the operator frees resources, and commands name the resource.

/// SQLite could not allocate the index of its write-ahead log: the disk is full.
const IOERR_SHMSIZE: u32 = 0x130a;

/// A resource that a database can run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Space on the disk that holds the database.
    Disk,
    Memory,
    Connections,
    Limit,
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Disk => "the disk of the database is full",
            Self::Memory => "the database is out of memory",
            Self::Connections => "the database has no connection left",
            Self::Limit => "the database has reached a configured limit",
        })
    }
}

impl Resource {
    /// Returns what the operator can do.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Disk => "free space on the disk of the database, then repeat the command",
            Self::Memory => "give the database more memory, then repeat the command",
            Self::Connections => "raise max_connections, or stop a process that holds connections",
            Self::Limit => "see the database log for the name of the limit",
        }
    }

    /// Returns the resource that an error is about.
    pub(crate) fn of(error: &sqlx::Error) -> Option<Self> {
        let database = error.as_database_error()?;
        let code = database.code()?;
        if database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
            return Self::of_sqlstate(&code);
        }
        Self::of_sqlite(code.parse().ok()?)
    }

    /// SQLSTATE class 53, insufficient resources.
    pub(crate) fn of_sqlstate(code: &str) -> Option<Self> {
        match code {
            "53100" => Some(Self::Disk),
            "53200" => Some(Self::Memory),
            "53300" => Some(Self::Connections),
            code => code.starts_with("53").then_some(Self::Limit),
        }
    }

    /// The low byte of SQLite's code is the primary one.
    pub(crate) fn of_sqlite(code: u32) -> Option<Self> {
        if code == IOERR_SHMSIZE {
            return Some(Self::Disk);
        }
        match code & 0xff {
            7 => Some(Self::Memory),
            13 => Some(Self::Disk),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_is_known_by_the_codes_of_both_databases() {
        for (code, resource) in [
            ("53000", Some(Resource::Limit)),
            ("53100", Some(Resource::Disk)),
            ("53200", Some(Resource::Memory)),
            ("53300", Some(Resource::Connections)),
            ("53400", Some(Resource::Limit)),
            ("54000", None),
            ("23505", None),
        ] {
            assert_eq!(Resource::of_sqlstate(code), resource, "{code}");
        }
        for (code, resource) in [
            (7, Some(Resource::Memory)),
            (13, Some(Resource::Disk)),
            (0x130a, Some(Resource::Disk)),
            (5, None),
            (778, None),
        ] {
            assert_eq!(Resource::of_sqlite(code), resource, "{code}");
        }
    }
}
