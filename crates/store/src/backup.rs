//! A consistent copy of the SQLite file, made while other processes write.

use crate::store::Backend;
use crate::{Error, RefusalCode, Store};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use std::path::Path;

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
        if target.exists() {
            return Err(Error::refused(
                RefusalCode::BadValue,
                format!("`{}` already exists", target.display()),
            ));
        }
        let failed = |source| Error::database("copy the file", source);
        let options = SqliteConnectOptions::new().filename(sqlite.path());
        let mut conn = SqliteConnection::connect_with(&options).await.map_err(failed)?;
        let quoted = target.display().to_string().replace('\'', "''");
        sqlx::query(AssertSqlSafe(format!("VACUUM INTO '{quoted}'")))
            .execute(&mut conn)
            .await
            .map_err(failed)?;
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
}
