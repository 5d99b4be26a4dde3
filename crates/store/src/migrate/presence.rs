//! Reads which tables a database holds, and decides whether this binary may use them.

use super::{BINARY, Migration, failed, foreign};
use crate::{Error, Schema};
use sqlx::{AssertSqlSafe, PgConnection, SqliteConnection};

/// The tables that a database holds under the names of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// The database has no table of ours.
    Absent,
    /// Tables that Tidemill did not create, and how they differ from ours.
    Foreign(Vec<String>),
    /// Tables of a build that was never released.
    Unreleased,
    /// The database has our tables.
    Ours {
        version: i32,
        /// The oldest binary that can work with them.
        oldest_binary: String,
    },
}

/// Tables that this binary may use.
pub(super) enum Installed {
    Nothing,
    Version(i32),
}

impl Installed {
    pub(super) fn version(&self) -> i32 {
        match self {
            Self::Nothing => 0,
            Self::Version(version) => *version,
        }
    }
}

impl Presence {
    /// The installed version, or the reason why this binary cannot use the tables in `place`.
    pub(super) fn installed(self, place: &str) -> Result<Installed, Error> {
        match self {
            Self::Absent => Ok(Installed::Nothing),
            Self::Foreign(differences) => Err(Error::Foreign { schema: place.to_owned(), differences }),
            Self::Unreleased => Err(Error::Schema {
                what: format!("the tables in {place} were created by an unreleased build of Tidemill"),
                hint: "create a new database, and run there: tidemill migrate".to_owned(),
            }),
            Self::Ours { oldest_binary, .. } if is_older(BINARY, &oldest_binary) => Err(Error::Schema {
                what: format!("the schema needs Tidemill {oldest_binary} or newer, and this is {BINARY}"),
                hint: format!("install Tidemill {oldest_binary} or newer"),
            }),
            Self::Ours { version, .. } => Ok(Installed::Version(version)),
        }
    }
}

/// A row of `tidemill_migrations`: version, name, oldest binary, and the checksum of its SQL.
type Applied = (i32, String, String, Option<String>);

/// Builds before the first release changed tables under other migrations; they recorded no checksums.
const APPLIED: &str = "
SELECT m.version, m.name, m.oldest_binary, s.value FROM {ops}.tidemill_migrations m
  LEFT JOIN {ops}.tidemill_settings s ON s.setting = 'migration_' || m.version";

pub(super) async fn presence_postgres(
    conn: &mut PgConnection,
    schema: &Schema,
    migrations: &[Migration],
) -> Result<Presence, Error> {
    let (encoding, known): (String, bool) = sqlx::query_as(
        "SELECT current_setting('server_encoding'), EXISTS (SELECT FROM information_schema.tables \
         WHERE table_schema = $1 AND table_name = 'tidemill_migrations')",
    )
    .bind(schema.name())
    .persistent(false)
    .fetch_one(&mut *conn)
    .await
    .map_err(failed)?;
    check_encoding(&encoding)?;
    if !known {
        let differences = foreign::differences_postgres(conn, schema, migrations[0].postgres).await?;
        return Ok(if differences.is_empty() { Presence::Absent } else { Presence::Foreign(differences) });
    }
    let rows: Vec<Applied> = sqlx::query_as(AssertSqlSafe(schema.render(APPLIED)))
        .persistent(false)
        .fetch_all(&mut *conn)
        .await
        .map_err(failed)?;
    Ok(presence_of(rows, migrations))
}

pub(super) async fn presence_sqlite(
    conn: &mut SqliteConnection,
    schema: &Schema,
    migrations: &[Migration],
) -> Result<Presence, Error> {
    let known: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_master WHERE name = 'tidemill_migrations'")
            .fetch_one(&mut *conn)
            .await
            .map_err(failed)?;
    if known == 0 {
        let ours = schema.render(migrations[0].sqlite);
        let differences = foreign::differences_sqlite(conn, ours).await?;
        return Ok(if differences.is_empty() { Presence::Absent } else { Presence::Foreign(differences) });
    }
    let rows: Vec<Applied> =
        sqlx::query_as(AssertSqlSafe(schema.render(APPLIED))).fetch_all(&mut *conn).await.map_err(failed)?;
    Ok(presence_of(rows, migrations))
}

/// Refuses a database with another encoding: it can hold text that Rust cannot read.
fn check_encoding(encoding: &str) -> Result<(), Error> {
    if encoding == "UTF8" {
        return Ok(());
    }
    Err(Error::Schema {
        what: format!("the database has the encoding {encoding}, and Tidemill needs UTF8"),
        hint: "createdb --encoding UTF8 --template template0 NAME".to_owned(),
    })
}

/// Compares the applied migrations with those that this binary knows. Newer ones are unknown, and allowed.
fn presence_of(rows: Vec<Applied>, migrations: &[Migration]) -> Presence {
    let mut newest = (0, "0.0.0".to_owned());
    for (version, name, oldest_binary, checksum) in rows {
        let known = migrations.iter().find(|migration| migration.version == version);
        if known.is_some_and(|known| name != known.name || checksum != Some(known.checksum())) {
            return Presence::Unreleased;
        }
        newest.0 = newest.0.max(version);
        if is_older(&newest.1, &oldest_binary) {
            newest.1 = oldest_binary;
        }
    }
    Presence::Ours { version: newest.0, oldest_binary: newest.1 }
}

/// Compares two versions by the rules of semantic versioning: a pre-release is older than its release.
pub(super) fn is_older(a: &str, b: &str) -> bool {
    version_key(a) < version_key(b)
}

/// A part of a version. Numbers sort before words.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum VersionPart<'v> {
    Number(u64),
    Word(&'v str),
}

/// The key by which versions sort: the numbers, whether it is a release, and the parts of the pre-release.
fn version_key(version: &str) -> (Vec<u64>, bool, Vec<VersionPart<'_>>) {
    let version = version.split('+').next().unwrap_or_default();
    let (numbers, pre_release) = version.split_once('-').map_or((version, None), |(a, b)| (a, Some(b)));
    let numbers = numbers.split('.').map(|part| part.parse().unwrap_or(0)).collect();
    let part = |part| str::parse(part).map_or(VersionPart::Word(part), VersionPart::Number);
    let parts = pre_release.into_iter().flat_map(|text| text.split('.')).map(part).collect();
    (numbers, pre_release.is_none(), parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(is_older("0.1.0", "0.10.0") && !is_older("1.0.0", "0.9.9") && !is_older("0.1.0", "0.1.0"));
    }

    #[test]
    fn pre_releases_are_older_than_their_release() {
        let ordered = ["0.1.9", "0.2.0-alpha", "0.2.0-rc.2", "0.2.0-rc.10", "0.2.0", "0.2.1-rc.1"];
        for (index, version) in ordered.iter().enumerate() {
            for (other, newer) in ordered.iter().enumerate() {
                assert_eq!(is_older(version, newer), index < other, "{version} {newer}");
            }
        }
        assert!(!is_older("0.2.0+build.1", "0.2.0+build.2"));
    }
}
