//! PostgreSQL connections: a small cache in front of sqlx's pool.

use crate::{Class, Error, Pooler, Resource};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidemill_core::limits::STEP_IDLE_SECS;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Time limit for getting a connection. After it, the call fails with a transient error.
const ACQUIRE_MAX: Duration = Duration::from_secs(10);

/// Time limit for the first pooled connection. After it, a direct connection finds out the reason.
const FIRST_CONNECT_MAX: Duration = Duration::from_millis(300);

/// Time for which a connection is reused before sqlx's pool checks it again.
const CACHE_MAX: Duration = Duration::from_secs(30);

/// Setting that lets the server end an idle transaction.
const IDLE_SETTING: &str = "idle_in_transaction_session_timeout";

fn idle_timeout() -> String {
    format!("{STEP_IDLE_SECS}s")
}

/// Number of calls that needed a connection since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolWaits {
    /// Calls that needed a connection.
    pub calls: u64,
    /// Calls that had to wait for one.
    pub waited: u64,
}

/// Connections to a PostgreSQL server.
///
/// sqlx's pool pings the server each time it gets a connection back: a second round trip for each call. So this type
/// caches connections whose call was answered. They go back to the pool only from time to time.
#[derive(Debug)]
pub(crate) struct Postgres {
    pool: PgPool,
    /// One permit per connection: a caller with a permit finds a cached connection or can open one.
    permits: Arc<Semaphore>,
    /// One extra permit for heartbeats, so that calls that wait for a locked row cannot delay them.
    heartbeat_permits: Arc<Semaphore>,
    max: u32,
    cached: Mutex<Vec<CachedConnection>>,
    calls: AtomicU64,
    waited: AtomicU64,
    pub(crate) pooler: Pooler,
    pub(crate) options: PgConnectOptions,
}

#[derive(Debug)]
struct CachedConnection {
    conn: PoolConnection<sqlx::Postgres>,
    since: Instant,
}

/// A connection for one call, returned with [`Self::cache`] or [`Self::cache_after_error`]. If it is dropped without
/// either, the call was cancelled and a transaction may be open on it, so it is closed.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    /// `None` once it has been returned.
    cached: Option<CachedConnection>,
    postgres: Arc<Postgres>,
    _permit: OwnedSemaphorePermit,
}

impl PooledConnection {
    /// Caches the connection for the next call. The server has answered the last one.
    pub(crate) fn cache(mut self) {
        let Some(cached) = self.cached.take().filter(|cached| cached.since.elapsed() < CACHE_MAX) else {
            return;
        };
        let mut cache = self.postgres.cached();
        // Checked under the lock under which `close` empties the cache: `pool.close()` would wait forever for a
        // connection that is cached later.
        if !self.postgres.permits.is_closed() {
            cache.push(cached);
        }
    }

    /// Caches the connection once the server has ended the transaction of a statement that failed. The server reports
    /// an error before it releases the locks: without this wait, the next call of the same caller could find its row
    /// locked. A connection that does not answer is closed.
    pub(crate) async fn cache_after_error(mut self) {
        if matches!(tokio::time::timeout(ACQUIRE_MAX, self.ping()).await, Ok(Ok(()))) {
            self.cache();
        }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(cached) = self.cached.take() {
            drop(cached.conn.detach());
        }
    }
}

impl Deref for PooledConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.cached {
            Some(cached) => &cached.conn,
            None => unreachable!("connection used after it was returned"),
        }
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.cached {
            Some(cached) => &mut cached.conn,
            None => unreachable!("connection used after it was returned"),
        }
    }
}

impl Postgres {
    /// Connects at once, so that an unreachable server is reported here.
    pub(crate) async fn open(url: &str, pooler: Pooler, connections: u32) -> Result<Self, Error> {
        let mut options = PgConnectOptions::from_str(url)
            .map_err(|source| Error::BadUrl { url: redact_password(url), problem: source.to_string() })?
            .application_name("tidemill");
        options = match pooler {
            // Our statements are short: JIT compilation takes longer than executing them.
            Pooler::Session => options.options([("jit", "off"), (IDLE_SETTING, &idle_timeout())]),
            Pooler::Transaction => options.statement_cache_capacity(0),
        };
        let pool = PgPoolOptions::new()
            .max_connections(connections.saturating_add(1))
            .acquire_timeout(ACQUIRE_MAX)
            // A ping before each call would double the round trips. A dead connection gives a transient error.
            .test_before_acquire(false)
            .connect_lazy_with(options.clone());
        let permits = Arc::new(Semaphore::new(usize::try_from(connections).unwrap_or(usize::MAX)));
        let heartbeat_permits = Arc::new(Semaphore::new(1));
        let (calls, waited) = (AtomicU64::new(0), AtomicU64::new(0));
        let (max, cached) = (connections, Mutex::default());
        let postgres = Self { pool, permits, heartbeat_permits, max, cached, calls, waited, pooler, options };
        postgres.connect_first(url).await?;
        Ok(postgres)
    }

    /// Returns the statement that begins a transaction. A transaction pooler keeps no session settings, so they are set
    /// here.
    pub(crate) fn begin(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self.pooler {
            Pooler::Session => "BEGIN".to_owned(),
            Pooler::Transaction => format!("BEGIN; SET LOCAL {IDLE_SETTING} = '{}'", idle_timeout()),
        })
    }

    /// Waits for a permit and returns a connection.
    pub(crate) async fn acquire(self: &Arc<Self>) -> sqlx::Result<PooledConnection> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(&self.permits).await?,
        };
        self.take_cached(permit).await
    }

    /// Returns the connection reserved for heartbeats.
    pub(crate) async fn acquire_for_heartbeat(self: &Arc<Self>) -> sqlx::Result<PooledConnection> {
        let permit = self.wait(&self.heartbeat_permits).await?;
        self.take_cached(permit).await
    }

    async fn take_cached(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> sqlx::Result<PooledConnection> {
        // An expired connection goes back to the pool here, before the wait for another one: it may be the only one
        // left.
        let cached = self.cached().pop().filter(|cached| cached.since.elapsed() < CACHE_MAX);
        let cached = match cached {
            Some(cached) => cached,
            // Boxed because this path is rare and its future would dominate the size of every call.
            None => CachedConnection { conn: Box::pin(self.pool.acquire()).await?, since: Instant::now() },
        };
        Ok(PooledConnection { cached: Some(cached), postgres: Arc::clone(self), _permit: permit })
    }

    /// Waits for a permit.
    async fn wait(&self, permits: &Arc<Semaphore>) -> sqlx::Result<OwnedSemaphorePermit> {
        if Arc::ptr_eq(permits, &self.permits) {
            self.waited.fetch_add(1, Ordering::Relaxed);
        }
        let permit = tokio::time::timeout(ACQUIRE_MAX, Arc::clone(permits).acquire_owned());
        permit.await.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)
    }

    pub(crate) fn waits(&self) -> PoolWaits {
        PoolWaits { calls: self.calls.load(Ordering::Relaxed), waited: self.waited.load(Ordering::Relaxed) }
    }

    /// Returns the use of the connections.
    pub(crate) fn pool_use(&self) -> crate::PoolUse {
        let free = u32::try_from(self.permits.available_permits()).unwrap_or(u32::MAX);
        crate::PoolUse {
            max: self.max,
            open: self.pool.size().min(self.max),
            busy: self.max.saturating_sub(free),
        }
    }

    /// Closes every connection, cached or pooled.
    pub(crate) async fn close(&self) {
        self.permits.close();
        self.heartbeat_permits.close();
        self.cached().clear();
        self.pool.close().await;
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, Vec<CachedConnection>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the first connection and caches it. If that takes too long, a connection outside the pool finds out why:
    /// the pool itself retries until its time limit and then reports only a timeout.
    async fn connect_first(&self, url: &str) -> Result<(), Error> {
        use sqlx::Connection as _;
        if let Ok(Ok(conn)) = tokio::time::timeout(FIRST_CONNECT_MAX, self.pool.acquire()).await {
            self.cached().push(CachedConnection { conn, since: Instant::now() });
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
                what: redact_password(url),
                problem: format!("no answer within {} s", ACQUIRE_MAX.as_secs()),
                hint: Some("check the address and that the server is running".to_owned()),
                class: Class::Transient,
            }),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Returning them to the pool would spawn a task, and the runtime may be gone.
        for cached in self.cached().drain(..) {
            drop(cached.conn.leak());
        }
    }
}

fn open_error(url: &str, source: &sqlx::Error) -> Error {
    let database = source.as_database_error();
    let code = database.and_then(sqlx::error::DatabaseError::code).map(std::borrow::Cow::into_owned);
    let (hint, class) = match code.as_deref() {
        Some("28P01" | "28000") => ("check the user and PGPASSFILE or PGPASSWORD", Class::Permanent),
        Some("3D000") => ("create the database first: createdb NAME", Class::Permanent),
        Some(code) => {
            let hint = Resource::of_sqlstate(code).map_or("see the server log", Resource::hint);
            (hint, Class::Transient)
        }
        None => ("check the address and that the server is running", Class::Transient),
    };
    let problem = database.map_or_else(|| source.to_string(), |error| error.message().to_owned());
    Error::Open { what: redact_password(url), problem, hint: Some(hint.to_owned()), class }
}

/// Returns a URL without its password.
pub(crate) fn redact_password(url: &str) -> String {
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
    use super::redact_password;

    #[test]
    fn redacted_url_has_no_password() {
        assert_eq!(redact_password("postgres://ann:s3cret@db:5432/shop?x=y"), "postgres://ann@db:5432/shop");
        assert_eq!(redact_password("postgres://db/shop?password=s3cret"), "postgres://db/shop");
        assert_eq!(redact_password("postgres://ann:p@ss@db/shop"), "postgres://ann@db/shop");
    }
}
