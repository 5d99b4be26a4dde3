//! One interface with a database of its own, and the set-up that cases need.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a fixture that cannot be set up or read must end the test"
)]

use std::fs;
use std::str::FromStr as _;
use std::sync::{Arc, OnceLock};

use chrono::{TimeDelta, TimeZone as _, Utc};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tempfile::TempDir;
use tidemill_core::Timestamp;
use tidemill_engine::clock::host_now;
use tidemill_store::{Options, Pooler, Store};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::http::HttpInterface;
use super::roles::TestRoles;
use super::sql::SqlInterface;
use super::{Interface, PlainSql};
use crate::cluster::{Database, server_url};
use crate::pgbouncer::Pgbouncer;

/// The kinds of interfaces under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The Rust API on PostgreSQL.
    Postgres,
    /// The Rust API on PostgreSQL through pgbouncer in transaction mode.
    Pgbouncer,
    /// The Rust API on SQLite.
    Sqlite,
    /// The SQL functions, called as the worker role.
    Sql,
}

/// The HTTP API in front of the Rust API, on either database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverHttp(pub Kind);

/// A kind of interface for which a fixture can be opened.
pub trait OpenFixture {
    /// Opens an empty, migrated database with the two projects.
    fn open(self) -> impl Future<Output = Fixture> + Send;
}

impl OpenFixture for Kind {
    async fn open(self) -> Fixture {
        Fixture::open(self).await
    }
}

impl OpenFixture for OverHttp {
    async fn open(self) -> Fixture {
        Fixture::open(self.0).await.over_http().await
    }
}

/// Connections of one store, enough for truly concurrent callers.
const CONNECTIONS: u32 = 8;
/// Limits the fixtures on PostgreSQL of concurrent tests, because the server has a limited number of sessions.
static POSTGRES_FIXTURES: Semaphore = Semaphore::const_new(12);

/// Returns the start time of every case plus `secs` seconds. The start time is that of the seed's examples.
pub fn at(secs: i64) -> Timestamp {
    let begin = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).single().unwrap_or_default();
    begin + TimeDelta::seconds(secs)
}

/// One interface on a database with projects `shop` (`staging`, `production`) and `bank` (`staging`). Cheap to clone.
#[derive(Clone)]
pub struct Fixture {
    pub interface: Arc<dyn Interface>,
    /// Store of the owner, for reads and set-up. For the Rust API it is also the interface.
    pub store: Store,
    /// Plain SQL without the functions.
    pub plain: PlainSql,
    pub kind: Kind,
    /// URL or path of the database, which a second store can open.
    pub url: String,
    /// Dropped last, after everything that uses the database.
    _resources: Arc<Resources>,
}

/// Resources dropped with the last clone of the fixture, in this order.
enum Resources {
    Postgres { _database: Database, _roles: Option<TestRoles>, _permit: SemaphorePermit<'static> },
    Sqlite { _directory: TempDir },
}

impl Fixture {
    /// Opens an empty, migrated database with the two projects.
    pub async fn open(kind: Kind) -> Self {
        let fixture = Self::open_bare(kind).await;
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        for (project, environments) in
            [("shop", names(&["staging", "production"])), ("bank", names(&["staging"]))]
        {
            fixture
                .store
                .create_project(project, environments, Some(at(0)))
                .await
                .expect("the project is made");
        }
        fixture
    }

    /// Opens an empty, migrated database without projects.
    pub async fn open_bare(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => Self::on_sqlite().await,
            Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
                let server = server_url().expect("there is a PostgreSQL server");
                Self::on_postgres(kind, &server).await
            }
        }
    }

    /// Opens the Rust API on an empty, migrated database of this server.
    pub async fn open_on(server: &str) -> Self {
        Self::on_postgres(Kind::Postgres, server).await
    }

    async fn on_sqlite() -> Self {
        let directory = directory();
        let file = directory.path().join("tidemill.db");
        fs::write(&file, migrated_file().await).expect("the file is copied");
        let url = file.display().to_string();
        let store = Store::open(&Options::new(&url, host_now)).await.expect("the file opens");
        store.migrate(Some(at(0))).await.expect("the file is migrated");
        Self {
            interface: Arc::new(store.clone()),
            store,
            plain: PlainSql::sqlite(&file),
            kind: Kind::Sqlite,
            url,
            _resources: Arc::new(Resources::Sqlite { _directory: directory }),
        }
    }

    async fn on_postgres(kind: Kind, server: &str) -> Self {
        let permit = POSTGRES_FIXTURES.acquire().await.expect("the seats are never closed");
        let database = Database::create_for_store(server).expect("a database is made");
        let mut options = Options { connections: CONNECTIONS, ..Options::new(&database.url, host_now) };
        let owner = Store::open(&options).await.expect("the database opens");
        owner.migrate(Some(at(0))).await.expect("the database is migrated");
        let direct = PgConnectOptions::from_str(&database.url).expect("the address is one");
        let mut url = database.url.clone();
        let mut roles = None;
        let (interface, store): (Arc<dyn Interface>, Store) = match kind {
            Kind::Pgbouncer => {
                url = pgbouncer().url(&database.name);
                options = Options { url: url.clone(), pooler: Pooler::Transaction, ..options };
                let store = Store::open(&options).await.expect("pgbouncer accepts the connection");
                owner.close().await;
                (Arc::new(store.clone()), store)
            }
            Kind::Sql => {
                let mut made = TestRoles::new(server);
                let names = made.create_roles(&owner).await;
                // The cases move the clock, so the login is a member of that role too.
                let login = made.login("psql", &[&names.worker, &names.clock], &direct);
                roles = Some(made);
                let worker = PgPoolOptions::new().max_connections(CONNECTIONS).connect_lazy_with(login);
                (Arc::new(SqlInterface { worker, owner: owner.clone() }), owner)
            }
            Kind::Postgres | Kind::Sqlite => (Arc::new(owner.clone()), owner),
        };
        Self {
            interface,
            store,
            plain: PlainSql::postgres(direct),
            kind,
            url,
            _resources: Arc::new(Resources::Postgres { _database: database, _roles: roles, _permit: permit }),
        }
    }

    /// Opens an empty database that a login migrated which is neither a superuser nor a member of the clock role, like
    /// a production server that owns its schema and nothing else.
    pub async fn open_as_plain_owner() -> Self {
        let permit = POSTGRES_FIXTURES.acquire().await.expect("the seats are never closed");
        let server = server_url().expect("there is a PostgreSQL server");
        let database = Database::create(&server).expect("a database is made");
        let direct = PgConnectOptions::from_str(&database.url).expect("the address is one");
        let mut roles = TestRoles::new(&server);
        let login = roles.login("server", &[], &direct);
        let name = login.get_username().to_owned();
        roles.execute(format!("ALTER DATABASE {} OWNER TO {name}", database.name)).expect("it owns it");
        let url = login.to_url_lossy().to_string();
        let options = Options { connections: CONNECTIONS, ..Options::new(&url, host_now) };
        let store = Store::open(&options).await.expect("the database opens");
        store.migrate(None).await.expect("the database is migrated");
        Self {
            interface: Arc::new(store.clone()),
            store,
            plain: PlainSql::postgres(direct),
            kind: Kind::Postgres,
            url,
            _resources: Arc::new(Resources::Postgres {
                _database: database,
                _roles: Some(roles),
                _permit: permit,
            }),
        }
    }

    /// Puts a server of its own in front of the fixture.
    pub async fn over_http(self) -> Self {
        let interface = Arc::new(HttpInterface::open(self.store.clone()).await);
        Self { interface, ..self }
    }

    /// Closes every connection, so that the database can be dropped at once.
    pub async fn close(&self) {
        self.plain.close().await;
        self.interface.close().await;
        self.store.close().await;
    }

    /// Reopens the fixture with a single connection. PostgreSQL sends an error before it releases the locks of the
    /// failed statement. The next call on the same connection waits for that; one on another connection would not.
    pub async fn with_one_connection(self) -> Self {
        let options = Options { connections: 1, ..Options::new(&self.url, host_now) };
        let store = Store::open(&options).await.expect("a second store opens");
        self.store.close().await;
        Self { interface: Arc::new(store.clone()), store, ..self }
    }

    /// Opens another store on the same data with its own connections, like another process.
    pub async fn open_second_store(&self) -> Store {
        self.open_second_store_with_clock(host_now).await
    }

    /// Opens another store with this host clock.
    pub async fn open_second_store_with_clock(&self, clock: tidemill_store::Clock) -> Store {
        let pooler = if self.kind == Kind::Pgbouncer { Pooler::Transaction } else { Pooler::Session };
        let options = Options { pooler, ..Options::new(&self.url, clock) };
        Store::open(&options).await.expect("a second store opens")
    }
}

/// Returns the bytes of a migrated file, made once per process because copying it is faster than migrating.
async fn migrated_file() -> &'static [u8] {
    static MADE: OnceCell<Vec<u8>> = OnceCell::const_new();
    let bytes = MADE.get_or_init(|| async {
        let directory = directory();
        let file = directory.path().join("tidemill.db");
        let store = Store::open(&Options::new(file.display().to_string(), host_now)).await;
        let store = store.expect("the file opens");
        store.migrate(Some(at(0))).await.expect("the file is migrated");
        store.close().await;
        fs::read(&file).expect("the file is read")
    });
    bytes.await
}

/// Returns a directory in memory if possible, because the tests do not simulate power failures.
fn directory() -> TempDir {
    let memory = tempfile::Builder::new().prefix("tidemill-test-").tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).expect("a directory is made")
}

/// Returns the pgbouncer of this process, which serves every database of the server.
fn pgbouncer() -> &'static Pgbouncer {
    static OWN: OnceLock<Pgbouncer> = OnceLock::new();
    OWN.get_or_init(|| {
        let server = server_url().expect("there is a PostgreSQL server");
        Pgbouncer::start(&server).expect("pgbouncer starts")
    })
}
