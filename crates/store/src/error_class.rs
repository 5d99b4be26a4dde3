//! Classes of the errors of both databases: by the SQLSTATE on PostgreSQL, by the result code on SQLite.

use crate::Class;

/// Returns whether a retry may help, for both databases.
pub(crate) fn classify(error: &sqlx::Error) -> Class {
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
    // SQLite: busy, locked and I/O errors are transient. The low byte is the primary code.
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(5 | 6 | 10) => Class::Transient,
        Ok(_) | Err(_) => Class::Permanent,
    }
}

/// Returns whether the database will refuse every later call of this process.
pub(crate) fn is_hopeless(error: &sqlx::Error) -> bool {
    let Some(database) = error.as_database_error() else { return false };
    let Some(code) = database.code() else { return false };
    if database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
        // Authentication failed; no such database or schema; no permission; no such table, column or function.
        return code.starts_with("28")
            || matches!(&*code, "3D000" | "3F000" | "42501" | "42P01" | "42703" | "42883");
    }
    match code.parse::<u32>().map(|code| code & 0xff) {
        // Read-only, not permitted, not a database.
        Ok(8 | 23 | 26) => true,
        // SQLite has no separate code for a missing table or column.
        Ok(1) => database.message().starts_with("no such "),
        Ok(_) | Err(_) => false,
    }
}

/// Returns whether an SQLSTATE is transient.
fn classify_sqlstate(code: &str) -> Class {
    let passing = match code {
        // Serialization failure, deadlock, lock not available, query cancelled by the server; the server stops, starts,
        // was promoted or demoted, or ended an idle transaction.
        "40001" | "40P01" | "55P03" | "57014" | "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "25P03" => {
            true
        }
        // Connection errors.
        code => code.starts_with("08"),
    };
    if passing { Class::Transient } else { Class::Permanent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstate_is_classified_as_transient_or_permanent() {
        for code in ["40001", "40P01", "57P01", "57P03", "25006", "08006"] {
            assert_eq!(classify_sqlstate(code), Class::Transient, "{code}");
        }
        for code in ["23505", "42P01", "22P02", "TM005"] {
            assert_eq!(classify_sqlstate(code), Class::Permanent, "{code}");
        }
    }
}
