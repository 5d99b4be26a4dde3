//! The lease under which one controller acts, and what guards its steps.

use crate::codec::{At, Bare, Columns};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::Timestamp;
use uuid::Uuid;

/// The one site of a database.
const SITE: &str = "default";

/// The right to control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub holder: Uuid,
    /// Which takeover gave it.
    pub epoch: i64,
}

/// The lease as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerLease {
    /// Who holds it.
    pub holder: Option<Uuid>,
    /// The name of that process.
    pub name: Option<String>,
    /// Which takeover gave it.
    pub epoch: i64,
    /// Until when nobody else takes it.
    pub until_at: Option<Timestamp>,
    /// Since when it is held.
    pub since: Option<Timestamp>,
    /// The last version that a job got.
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

/// What became of a request for the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// It was ours, and is for longer.
    Renewed(Lease),
    /// It was free or over, and is ours now.
    Taken(Lease),
    /// Another process has it.
    Others(ControllerLease),
}

impl Tx<'_> {
    /// The lease as it is.
    pub async fn controller_lease(&mut self) -> Result<ControllerLease, Error> {
        let found = on!(self, catalog::LEASE_GET, [SITE], fetch_optional, "read the lease")?
            .record("read the lease")?;
        found.ok_or_else(|| Error::database("read the lease", sqlx::Error::RowNotFound))
    }

    /// Renews the lease of `ours`, or takes it where it is over; who takes it raises the epoch.
    pub async fn hold_controller(
        &mut self,
        holder: Uuid,
        name: &str,
        ours: Option<Lease>,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Held, Error> {
        if let Some(lease) = ours {
            let binds = (Bare(lease.holder), At(until));
            let renewed = on!(
                self,
                catalog::LEASE_RENEW,
                [SITE, binds.0, lease.epoch, binds.1],
                execute,
                "renew the lease"
            )?;
            if renewed.count() > 0 {
                return Ok(Held::Renewed(lease));
            }
        }
        // Looked at before it is locked: who only waits must not stand in the way of who acts.
        let seen = self.controller_lease().await?;
        if seen.until_at.is_some_and(|until| until > now) {
            return Ok(Held::Others(seen));
        }
        let locked: Option<ControllerLease> =
            on!(self, catalog::LEASE_LOCK, [SITE], fetch_optional, "lock the lease")?
                .record("lock the lease")?;
        if let Some(seen) = locked.filter(|lease| lease.until_at.is_some_and(|until| until > now)) {
            return Ok(Held::Others(seen));
        }
        let binds = (Bare(holder), At(until), At(now));
        on!(self, catalog::LEASE_TAKE, [SITE, binds.0, name, binds.1, binds.2], execute, "take the lease")?;
        let taken = self.controller_lease().await?;
        Ok(Held::Taken(Lease { holder, epoch: taken.epoch }))
    }

    /// Guards a step, and gives it `count` versions: the last of them, or nothing where the lease is another's.
    pub async fn raise_version(&mut self, lease: Lease, count: usize) -> Result<Option<i64>, Error> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let holder = Bare(lease.holder);
        on!(self, catalog::LEASE_RAISE, [SITE, holder, lease.epoch, count], fetch_optional, "guard a step")?
            .record("guard a step")
    }

    /// Lets every step that has begun end before this one goes on, and every later one see what this one did.
    pub async fn order_after_steps(&mut self) -> Result<(), Error> {
        on!(self, catalog::LEASE_TOUCH, [SITE], execute, "wait for steps")?;
        Ok(())
    }
}

impl Store {
    /// Gives the lease back, so that another controller takes it at once.
    pub async fn release_controller(&self, lease: Lease, now: Option<Timestamp>) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let now = tx.database_now(now).await?;
                let binds = (Bare(lease.holder), At(now));
                on!(
                    tx,
                    catalog::LEASE_RENEW,
                    [SITE, binds.0, lease.epoch, binds.1],
                    execute,
                    "give the lease back"
                )?;
                Ok(())
            })
        })
        .await
    }

    /// The lease as it is.
    pub async fn controller_lease(&self) -> Result<ControllerLease, Error> {
        self.glance(move |mut tx| Box::pin(async move { tx.controller_lease().await })).await
    }
}
