//! A consistent copy of the SQLite file, made while other processes write.

use crate::sqlite::create_private;
use crate::store::Backend;
use crate::{Error, RefusalCode, Store};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use std::path::{Path, PathBuf};

impl Store {
    /// Writes a copy to `target`, which must not exist; returns its size in bytes.
    pub async fn backup(&self, target: &Path) -> Result<u64, Error> {
        let Backend::Sqlite(sqlite) = &self.backend else {
            return Err(Error::Refused(crate::Refusal {
                code: RefusalCode::BadValue,
                message: "`backup` copies a SQLite file, but this database is PostgreSQL".to_owned(),
                hint: Some("pg_dump --schema=ops …".to_owned()),
            }));
        };
        // `VACUUM INTO` accepts an empty file, and would create one with the permissions of the umask.
        create_private(target).map_err(|source| {
            if source.kind() == std::io::ErrorKind::AlreadyExists {
                Error::refused(RefusalCode::BadValue, format!("`{}` already exists", target.display()))
            } else {
                Error::database("copy the file", sqlx::Error::Io(source))
            }
        })?;
        let copied = copy(sqlite.path(), target).await;
        if copied.is_err() {
            // An incomplete copy must not be mistaken for a backup, or prevent the next attempt.
            let _ = std::fs::remove_file(target);
        }
        copied
    }

    /// Returns the files of the SQLite database that other users of this machine may read or write.
    pub fn exposed_files(&self) -> Vec<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;
        let is_exposed = |path: &PathBuf| {
            std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
        };
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.files().into_iter().filter(is_exposed).collect(),
            Backend::Postgres(_) => Vec::new(),
        }
    }
}

/// Copies a database into an empty file, checks the copy, and returns its size in bytes.
async fn copy(path: &Path, target: &Path) -> Result<u64, Error> {
    let failed = |source| Error::database("copy the file", source);
    let options = SqliteConnectOptions::new().filename(path);
    let mut conn = SqliteConnection::connect_with(&options).await.map_err(failed)?;
    let quoted = target.display().to_string().replace('\'', "''");
    sqlx::query(AssertSqlSafe(format!("VACUUM INTO '{quoted}'"))).execute(&mut conn).await.map_err(failed)?;
    let _ = conn.close().await;

    let options = SqliteConnectOptions::new().filename(target).read_only(true);
    let mut copy = SqliteConnection::connect_with(&options).await.map_err(failed)?;
    let report: String =
        sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut copy).await.map_err(failed)?;
    let _ = copy.close().await;
    if report != "ok" {
        return Err(Error::refused(RefusalCode::BadValue, format!("the copy is damaged: {report}")));
    }
    let io = |source: std::io::Error| Error::database("copy the file", sqlx::Error::Io(source));
    let file = std::fs::File::open(target).map_err(io)?;
    file.sync_all().map_err(io)?;
    Ok(file.metadata().map_err(io)?.len())
}
