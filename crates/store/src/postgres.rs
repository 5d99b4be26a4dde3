//! The PostgreSQL side: a small pool, and where it points to, without the password.

use crate::{Class, Error, Pooler, Resource};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidemill_core::limits::STEP_IDLE_SECS;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Time to get a connection before a call fails as transient.
const ACQUIRE_MAX: Duration = Duration::from_secs(10);

/// Time for the first connection before it is asked what is the matter.
const GREET_MAX: Duration = Duration::from_millis(300);

/// How long a connection goes from hand to hand before sqlx's pool has a look at it.
const KEPT_MAX: Duration = Duration::from_secs(30);

/// The setting that lets the server end a step in which nothing happens any more.
const IDLE: &str = "idle_in_transaction_session_timeout";

fn idle() -> String {
    format!("{STEP_IDLE_SECS}s")
}

/// How often a connection was asked for since the store was opened, and how often none was free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// Calls that needed a connection.
    pub calls: u64,
    /// Those of them that had to wait for one.
    pub waited: u64,
}

/// An open connection to PostgreSQL.
///
/// sqlx's pool asks the server for a sign of life whenever it gets a connection back, in a task of its own: a second
/// round trip for each verb. So a connection whose call was answered is kept here for the next one, and goes back to
/// the pool only now and then, or when something was amiss.
#[derive(Debug)]
pub(crate) struct Postgres {
    pool: PgPool,
    /// As many as there may be connections: whoever has one finds a connection, kept or new.
    turns: Arc<Semaphore>,
    /// One more, for signs of life: calls that wait for a locked row must not keep them back.
    beats: Arc<Semaphore>,
    most: u32,
    kept: Mutex<Vec<Kept>>,
    calls: AtomicU64,
    waited: AtomicU64,
    pub(crate) pooler: Pooler,
    pub(crate) options: PgConnectOptions,
}

#[derive(Debug)]
struct Kept {
    conn: PoolConnection<sqlx::Postgres>,
    since: Instant,
}

/// A connection for one call, handed back with [`Self::keep`] or [`Self::doubt`]. Otherwise the call was broken off in
/// the middle, and a transaction of which nobody knows may be open: the connection is closed, and never lent again.
#[derive(Debug)]
pub(crate) struct Lent {
    /// There until it is handed back.
    kept: Option<Kept>,
    postgres: Arc<Postgres>,
    _turn: OwnedSemaphorePermit,
}

impl Lent {
    /// Hands the connection to the next call: the server has answered the last one.
    pub(crate) fn keep(mut self) {
        let Some(kept) = self.kept.take().filter(|kept| kept.since.elapsed() < KEPT_MAX) else { return };
        let mut all = self.postgres.kept();
        // Asked under the lock under which closing lets go of them: one that is kept later is waited for in vain.
        if !self.postgres.turns.is_closed() {
            all.push(kept);
        }
    }

    /// Gives the connection to the pool, which looks whether it is sound: the server has said no outside a transaction.
    pub(crate) fn doubt(mut self) {
        drop(self.kept.take());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            drop(kept.conn.detach());
        }
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.kept {
            Some(kept) => &kept.conn,
            None => unreachable!("a connection is used after it was handed back"),
        }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.kept {
            Some(kept) => &mut kept.conn,
            None => unreachable!("a connection is used after it was handed back"),
        }
    }
}

impl Postgres {
    /// Connects, so that a server that cannot be reached is found out at once.
    pub(crate) async fn open(url: &str, pooler: Pooler, connections: u32) -> Result<Self, Error> {
        let mut options = PgConnectOptions::from_str(url)
            .map_err(|source| Error::BadUrl { url: shown(url), problem: source.to_string() })?
            .application_name("tidemill");
        options = match pooler {
            // Our statements are short: to compile one takes longer than all of its rows.
            Pooler::Session => options.options([("jit", "off"), (IDLE, &idle())]),
            Pooler::Transaction => options.statement_cache_capacity(0),
        };
        let pool = PgPoolOptions::new()
            .max_connections(connections.saturating_add(1))
            .acquire_timeout(ACQUIRE_MAX)
            // A ping before each call would double the round trips; a dead connection is a transient error.
            .test_before_acquire(false)
            .connect_lazy_with(options.clone());
        let turns = Arc::new(Semaphore::new(usize::try_from(connections).unwrap_or(usize::MAX)));
        let beats = Arc::new(Semaphore::new(1));
        let (calls, waited) = (AtomicU64::new(0), AtomicU64::new(0));
        let (most, kept) = (connections, Mutex::default());
        let postgres = Self { pool, turns, beats, most, kept, calls, waited, pooler, options };
        postgres.greet(url).await?;
        Ok(postgres)
    }

    /// How a step begins. A pooler keeps no settings of a session, so each step brings its own.
    pub(crate) fn begin(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self.pooler {
            Pooler::Session => "BEGIN".to_owned(),
            Pooler::Transaction => format!("BEGIN; SET LOCAL {IDLE} = '{}'", idle()),
        })
    }

    /// A connection, when it is this caller's turn.
    pub(crate) async fn acquire(self: &Arc<Self>) -> sqlx::Result<Lent> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let turn = match Arc::clone(&self.turns).try_acquire_owned() {
            Ok(turn) => turn,
            Err(_) => self.wait(&self.turns).await?,
        };
        self.lend(turn).await
    }

    /// The connection for signs of life, which no other call can take.
    pub(crate) async fn acquire_for_beat(self: &Arc<Self>) -> sqlx::Result<Lent> {
        let turn = self.wait(&self.beats).await?;
        self.lend(turn).await
    }

    async fn lend(self: &Arc<Self>, turn: OwnedSemaphorePermit) -> sqlx::Result<Lent> {
        // One that has lain idle goes back to the pool here, and not after the wait for another: it may be the last.
        let kept = self.kept().pop().filter(|kept| kept.since.elapsed() < KEPT_MAX);
        let kept = match kept {
            Some(kept) => kept,
            // Rare, and so large that it would be the better part of every step.
            None => Kept { conn: Box::pin(self.pool.acquire()).await?, since: Instant::now() },
        };
        Ok(Lent { kept: Some(kept), postgres: Arc::clone(self), _turn: turn })
    }

    /// Waits for a turn.
    async fn wait(&self, turns: &Arc<Semaphore>) -> sqlx::Result<OwnedSemaphorePermit> {
        if Arc::ptr_eq(turns, &self.turns) {
            self.waited.fetch_add(1, Ordering::Relaxed);
        }
        let turn = tokio::time::timeout(ACQUIRE_MAX, Arc::clone(turns).acquire_owned());
        turn.await.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)
    }

    pub(crate) fn waits(&self) -> Waits {
        Waits { calls: self.calls.load(Ordering::Relaxed), waited: self.waited.load(Ordering::Relaxed) }
    }

    /// How the connections are used.
    pub(crate) fn pool_use(&self) -> crate::PoolUse {
        let free = u32::try_from(self.turns.available_permits()).unwrap_or(u32::MAX);
        crate::PoolUse {
            most: self.most,
            open: self.pool.size().min(self.most),
            busy: self.most.saturating_sub(free),
        }
    }

    /// Closes every connection.
    pub(crate) async fn close(&self) {
        self.turns.close();
        self.beats.close();
        self.kept().clear();
        self.pool.close().await;
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the first connection, and keeps it for the first call. Where none comes soon, one outside the pool says
    /// why: the pool itself tries again until its time is over, and then tells nothing but that.
    async fn greet(&self, url: &str) -> Result<(), Error> {
        use sqlx::Connection as _;
        if let Ok(Ok(conn)) = tokio::time::timeout(GREET_MAX, self.pool.acquire()).await {
            self.kept().push(Kept { conn, since: Instant::now() });
            return Ok(());
        }
        let connect = sqlx::PgConnection::connect_with(&self.options);
        match tokio::time::timeout(ACQUIRE_MAX, connect).await {
            Ok(Ok(conn)) => {
                let _ = conn.close().await;
                Ok(())
            }
            Ok(Err(source)) => Err(open_error(url, &source)),
            Err(_) => Err(Error::Open {
                what: shown(url),
                problem: format!("it did not answer within {} s", ACQUIRE_MAX.as_secs()),
                hint: Some("check the address, and that the server runs".to_owned()),
                class: Class::Transient,
            }),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Back to the pool they would go in a task, and there may be nobody left to run one.
        for kept in self.kept().drain(..) {
            drop(kept.conn.leak());
        }
    }
}

fn open_error(url: &str, source: &sqlx::Error) -> Error {
    let database = source.as_database_error();
    let code = database.and_then(sqlx::error::DatabaseError::code).map(std::borrow::Cow::into_owned);
    let (hint, class) = match code.as_deref() {
        Some("28P01" | "28000") => ("check the user, and PGPASSFILE or PGPASSWORD", Class::Permanent),
        Some("3D000") => ("create the database first: createdb NAME", Class::Permanent),
        Some(code) => {
            let hint = Resource::of_sqlstate(code).map_or("look into the server's log", Resource::hint);
            (hint, Class::Transient)
        }
        None => ("check the address, and that the server runs", Class::Transient),
    };
    let problem = database.map_or_else(|| source.to_string(), |error| error.message().to_owned());
    Error::Open { what: shown(url), problem, hint: Some(hint.to_owned()), class }
}

/// An address without its password.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split_once(':').map_or(user, |(name, _)| name);
            format!("{user}@{host}")
        }
        None => authority.to_owned(),
    };
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    format!("{scheme}://{authority}/{path}")
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn an_address_is_shown_without_its_password() {
        assert_eq!(shown("postgres://ann:s3cret@db:5432/shop?x=y"), "postgres://ann@db:5432/shop");
        assert_eq!(shown("postgres://db/shop?password=s3cret"), "postgres://db/shop");
        assert_eq!(shown("postgres://ann:p@ss@db/shop"), "postgres://ann@db/shop");
    }
}
