//! Pools: limits on the total weight of jobs that run at the same time.

use crate::codec::Columns;
use crate::jobs::running_codes;
use crate::tx::{FromColumns, on};
use crate::{Error, RefusalCode, Store, Tx, catalog};
use tidemill_core::graph::record::PoolRecord;

impl FromColumns for PoolRecord {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { name: row.text("name")?, size: row.int("size")?, used: row.long("used")? })
    }
}

struct Size(String, i32);

impl FromColumns for Size {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.text("name")?, row.int("size")?))
    }
}

struct Holder(String, String, i32);

impl FromColumns for Holder {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.text("name")?, row.text("run_id")?, row.int("weight")?))
    }
}

impl Tx<'_> {
    /// Returns the pools and their sizes.
    pub async fn pool_sizes(&mut self) -> Result<Vec<(String, i32)>, Error> {
        let sizes: Vec<Size> =
            on!(self, catalog::POOL_SIZES, [], fetch_all, "read pools")?.records("read pools")?;
        Ok(sizes.into_iter().map(|Size(name, size)| (name, size)).collect())
    }

    /// Returns the running jobs of a pool as `job of run`, with their weights.
    pub async fn pool_holders(&mut self, pool: &str) -> Result<Vec<(String, i32)>, Error> {
        let holders: Vec<Holder> =
            on!(self, catalog::POOL_HOLDERS, [pool, running_codes()], fetch_all, "read a pool")?
                .records("read a pool")?;
        Ok(holders
            .into_iter()
            .map(|Holder(name, run, weight)| (format!("{name} of {run}"), weight))
            .collect())
    }
}

impl Store {
    /// Returns the pools and their use.
    pub async fn pools(&self) -> Result<Vec<PoolRecord>, Error> {
        self.read_one(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::POOL_LIST, [running_codes()], fetch_all, "list pools")?
                    .readable("pools", "name"))
            })
        })
        .await
    }

    /// Creates a pool, or changes its size.
    pub async fn set_pool(&self, name: String, size: i32) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let set = on!(tx, catalog::POOL_PUT, [name.as_str(), size], execute, "set a pool")?;
                if set.count() == 0 {
                    tx.skip_audit();
                }
                Ok(())
            })
        })
        .await
    }

    /// Deletes a pool that no live job names.
    pub async fn remove_pool(&self, name: String) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let removed = on!(tx, catalog::POOL_REMOVE, [name.as_str()], execute, "remove a pool")?;
                if removed.count() > 0 {
                    return Ok(());
                }
                let known = tx.pool_sizes().await?.iter().any(|(known, _)| *known == name);
                Err(if known {
                    let message = format!("pool `{name}` is in use: live jobs name it");
                    Error::refused(RefusalCode::BadValue, message)
                } else {
                    Error::refused(RefusalCode::UnknownPool, format!("pool `{name}` does not exist"))
                })
            })
        })
        .await
    }
}
