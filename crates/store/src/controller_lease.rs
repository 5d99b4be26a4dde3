//! The lease that lets one controller act, and the fencing of its transactions.

use crate::codec::{Columns, SqlTime, SqlUuid};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::Timestamp;
use uuid::Uuid;

/// Key of the only lease row.
const SITE: &str = "default";

/// Proof of holding the controller lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub holder: Uuid,
    /// Incremented by every takeover.
    pub epoch: i64,
}

/// The row of the controller lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerLease {
    pub holder: Option<Uuid>,
    /// Name of the holding process.
    pub name: Option<String>,
    /// Incremented by every takeover.
    pub epoch: i64,
    /// Expiry. Until then no other process takes the lease.
    pub until_at: Option<Timestamp>,
    pub since: Option<Timestamp>,
    /// Last version given to a job.
    pub version: i64,
}

impl FromColumns for ControllerLease {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            holder: row.uuid_or_null("holder")?,
            name: row.text_or_null("name")?,
            epoch: row.long("epoch")?,
            until_at: row.time_or_null("until_at")?,
            since: row.time_or_null("since")?,
            version: row.long("version")?,
        })
    }
}

/// Result of a request for the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// This process held the lease, and it was extended.
    Renewed(Lease),
    /// The lease was free or expired, and this process took it.
    Acquired(Lease),
    /// Another process holds the lease.
    HeldByOther(ControllerLease),
}

impl Tx<'_> {
    pub async fn controller_lease(&mut self) -> Result<ControllerLease, Error> {
        let found = on!(self, catalog::LEASE_GET, [SITE], fetch_optional, "read the lease")?
            .record("read the lease")?;
        found.ok_or_else(|| Error::database("read the lease", sqlx::Error::RowNotFound))
    }

    /// Renews the lease `ours`, or takes the lease if it has expired. A takeover increments the epoch.
    pub async fn acquire_lease(
        &mut self,
        holder: Uuid,
        name: &str,
        ours: Option<Lease>,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<LeaseOutcome, Error> {
        if let Some(lease) = ours {
            let binds = (SqlUuid(lease.holder), SqlTime(until));
            let renewed = on!(
                self,
                catalog::LEASE_RENEW,
                [SITE, binds.0, lease.epoch, binds.1],
                execute,
                "renew the lease"
            )?;
            if renewed.count() > 0 {
                return Ok(LeaseOutcome::Renewed(lease));
            }
        }
        // Read without a lock first, so that standby controllers do not block the active one.
        let found = self.controller_lease().await?;
        if found.until_at.is_some_and(|until| until > now) {
            return Ok(LeaseOutcome::HeldByOther(found));
        }
        let locked: Option<ControllerLease> =
            on!(self, catalog::LEASE_LOCK, [SITE], fetch_optional, "lock the lease")?
                .record("lock the lease")?;
        if let Some(found) = locked.filter(|lease| lease.until_at.is_some_and(|until| until > now)) {
            return Ok(LeaseOutcome::HeldByOther(found));
        }
        let binds = (SqlUuid(holder), SqlTime(until), SqlTime(now));
        on!(
            self,
            catalog::LEASE_TAKE,
            [SITE, binds.0, name, binds.1, binds.2],
            execute,
            "acquire the lease"
        )?;
        let taken = self.controller_lease().await?;
        Ok(LeaseOutcome::Acquired(Lease { holder, epoch: taken.epoch }))
    }

    /// Fences a transaction and reserves `count` versions. Returns the last of them, or `None` if another process holds
    /// the lease.
    pub async fn reserve_versions(&mut self, lease: Lease, count: usize) -> Result<Option<i64>, Error> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let holder = SqlUuid(lease.holder);
        on!(
            self,
            catalog::LEASE_RAISE,
            [SITE, holder, lease.epoch, count],
            fetch_optional,
            "check the controller lease"
        )?
        .record("check the controller lease")
    }

    /// Waits for open controller transactions. Later controller transactions see this transaction's changes.
    pub async fn order_after_steps(&mut self) -> Result<(), Error> {
        on!(self, catalog::LEASE_TOUCH, [SITE], execute, "lock the controller lease")?;
        Ok(())
    }
}

impl Store {
    /// Releases the lease, so that another controller can take it at once.
    pub async fn release_lease(&self, lease: Lease, now: Option<Timestamp>) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let now = tx.database_now(now).await?;
                let binds = (SqlUuid(lease.holder), SqlTime(now));
                on!(
                    tx,
                    catalog::LEASE_RENEW,
                    [SITE, binds.0, lease.epoch, binds.1],
                    execute,
                    "release the lease"
                )?;
                Ok(())
            })
        })
        .await
    }

    pub async fn controller_lease(&self) -> Result<ControllerLease, Error> {
        self.read_one(move |mut tx| Box::pin(async move { tx.controller_lease().await })).await
    }
}
