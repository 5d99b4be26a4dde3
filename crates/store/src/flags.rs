//! Flags: pause, maintenance, reboot and probes.

use crate::codec::{Columns, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::project::{Flag, FlagName};

impl FromColumns for Flag {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            flag: row.parsed("flag")?,
            scope: row.text("scope")?,
            note: row.text_or_null("note")?,
            since: row.time("since")?,
            until_at: row.time_or_null("until_at")?,
            set_by: row.text_or_null("set_by")?,
            source: row.parsed("source")?,
        })
    }
}

impl Tx<'_> {
    pub async fn flags(&mut self) -> Result<Vec<Flag>, Error> {
        Ok(on!(self, catalog::FLAG_LIST, [], fetch_all, "list flags")?.readable("flags", "scope"))
    }

    /// Sets a flag, or changes its note and end. Returns false if it has these values already, or if a
    /// probe tries to change a flag that a person set.
    pub async fn set_flag(&mut self, flag: &Flag) -> Result<bool, Error> {
        if flag.flag == FlagName::Reboot {
            // After this, no job starts in a transaction that has not seen the flag. A caller that then reads that
            // nothing runs can rely on it.
            self.order_after_steps().await?;
        }
        let set = on!(
            self,
            catalog::FLAG_SET,
            [
                flag.flag.as_str(),
                flag.scope.as_str(),
                flag.note.as_deref(),
                SqlTime(flag.since),
                flag.until_at.map(SqlTime),
                flag.set_by.as_deref(),
                flag.source.as_str(),
            ],
            execute,
            "set a flag"
        )?;
        Ok(set.count() > 0)
    }

    /// Clears a flag that a probe set. Returns false if there is none, or if a person set it.
    pub async fn clear_probe(&mut self, scope: &str, by: &str) -> Result<bool, Error> {
        let cleared = on!(self, catalog::FLAG_PROBE_CLEAR, [scope, by], execute, "clear a flag")?;
        Ok(cleared.count() > 0)
    }
}

impl Store {
    /// Sets a flag, or changes its note and end.
    pub async fn set_flag(&self, flag: Flag) -> Result<bool, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let changed = tx.set_flag(&flag).await?;
                if !changed {
                    tx.skip_audit();
                }
                Ok(changed)
            })
        })
        .await
    }

    /// Clears a flag; returns whether it was set.
    pub async fn clear_flag(&self, flag: FlagName, scope: String) -> Result<bool, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let cleared =
                    on!(tx, catalog::FLAG_CLEAR, [flag.as_str(), scope.as_str()], execute, "clear a flag")?;
                if cleared.count() == 0 {
                    tx.skip_audit();
                }
                Ok(cleared.count() > 0)
            })
        })
        .await
    }

    pub async fn flags(&self) -> Result<Vec<Flag>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.flags().await })).await
    }
}
