//! A door with a database of its own behind it, and what a case needs besides the verbs.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a stage that cannot be set up or read ends the test, loudly"
)]

use std::fs;
use std::str::FromStr as _;
use std::sync::{Arc, OnceLock};
use std::thread;

use chrono::{TimeDelta, TimeZone as _, Utc};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tempfile::TempDir;
use tidemill_core::Timestamp;
use tidemill_engine::clock::host_now;
use tidemill_store::{Options, Pooler, Store};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use uuid::Uuid;

use super::http::HttpDoor;
use super::sql::SqlDoor;
use super::{Door, Plain};
use crate::cluster::{Database, server_url, with_database};
use crate::pgbouncer::Pgbouncer;

/// The doors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rust on PostgreSQL.
    Postgres,
    /// Rust on PostgreSQL through pgbouncer in transaction mode.
    Pgbouncer,
    /// Rust on SQLite.
    Sqlite,
    /// The SQL functions, as the worker role.
    Sql,
}

/// The HTTP door in front of the door in Rust, on either database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverHttp(pub Kind);

/// A way to open a stage.
pub trait Opens {
    /// Opens a door onto an empty, migrated database with the two projects.
    fn open(self) -> impl Future<Output = Stage> + Send;
}

impl Opens for Kind {
    async fn open(self) -> Stage {
        Stage::open(self).await
    }
}

impl Opens for OverHttp {
    async fn open(self) -> Stage {
        Stage::open(self.0).await.over_http().await
    }
}

/// Connections of one store: enough for callers that really are at it at once.
const CONNECTIONS: u32 = 8;
/// Stages on PostgreSQL at once, however many tests run beside each other: the server has only so many sessions.
static SEATS: Semaphore = Semaphore::const_new(12);

/// The moment at which every case begins, and some seconds later. It is the moment of the seed's examples.
pub fn at(secs: i64) -> Timestamp {
    let begin = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).single().unwrap_or_default();
    begin + TimeDelta::seconds(secs)
}

/// One door, with projects `shop` (`staging`, `production`) and `bank` (`staging`) behind it. Cheap to clone.
#[derive(Clone)]
pub struct Stage {
    /// The door under test.
    pub door: Arc<dyn Door>,
    /// The owner's store: for what is only read or set up. For the doors in Rust it is the door.
    pub store: Store,
    /// Plain SQL, past the doors.
    pub plain: Plain,
    /// Which door it is.
    pub kind: Kind,
    /// Where the data is, as a URL or a path that a second store can open.
    pub url: String,
    /// Dropped last, after everything that uses the database.
    _ground: Arc<Ground>,
}

/// What goes away with the last clone of the stage, in the order in which it stands here.
enum Ground {
    Postgres { _database: Database, _roles: Option<Roles>, _seat: SemaphorePermit<'static> },
    Sqlite { _directory: TempDir },
}

impl Stage {
    /// Opens a door onto an empty, migrated database with the two projects.
    pub async fn open(kind: Kind) -> Self {
        let stage = Self::open_bare(kind).await;
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        for (project, environments) in
            [("shop", names(&["staging", "production"])), ("bank", names(&["staging"]))]
        {
            stage
                .store
                .create_project(project, environments, Some(at(0)))
                .await
                .expect("the project is made");
        }
        stage
    }

    /// Opens a door onto an empty, migrated database.
    pub async fn open_bare(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => Self::on_sqlite().await,
            Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
                let server = server_url().expect("there is a PostgreSQL server");
                Self::on_postgres(kind, &server).await
            }
        }
    }

    /// Opens the door in Rust onto an empty, migrated database on a server of the test's own.
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
            door: Arc::new(store.clone()),
            store,
            plain: Plain::sqlite(&file),
            kind: Kind::Sqlite,
            url,
            _ground: Arc::new(Ground::Sqlite { _directory: directory }),
        }
    }

    async fn on_postgres(kind: Kind, server: &str) -> Self {
        let seat = SEATS.acquire().await.expect("the seats are never closed");
        let database = Database::create_for_store(server).expect("a database is made");
        let mut options = Options { connections: CONNECTIONS, ..Options::new(&database.url, host_now) };
        let owner = Store::open(&options).await.expect("the database opens");
        owner.migrate(Some(at(0))).await.expect("the database is migrated");
        let direct = PgConnectOptions::from_str(&database.url).expect("the address is one");
        let mut url = database.url.clone();
        let mut roles = None;
        let (door, store): (Arc<dyn Door>, Store) = match kind {
            Kind::Pgbouncer => {
                url = pgbouncer().url(&database.name);
                options = Options { url: url.clone(), pooler: Pooler::Transaction, ..options };
                let store = Store::open(&options).await.expect("pgbouncer lets us in");
                owner.close().await;
                (Arc::new(store.clone()), store)
            }
            Kind::Sql => {
                let made = Roles::create(server, &owner).await;
                let login = direct.clone().username(&made.login).password(&made.password);
                roles = Some(made);
                let worker = PgPoolOptions::new().max_connections(CONNECTIONS).connect_lazy_with(login);
                (Arc::new(SqlDoor { worker, owner: owner.clone() }), owner)
            }
            Kind::Postgres | Kind::Sqlite => (Arc::new(owner.clone()), owner),
        };
        Self {
            door,
            store,
            plain: Plain::postgres(direct),
            kind,
            url,
            _ground: Arc::new(Ground::Postgres { _database: database, _roles: roles, _seat: seat }),
        }
    }

    /// The same stage behind a server of its own.
    pub async fn over_http(self) -> Self {
        let door = Arc::new(HttpDoor::open(self.store.clone()).await);
        Self { door, ..self }
    }

    /// Closes every connection, so that the database can go at once.
    pub async fn close(&self) {
        self.plain.close().await;
        self.door.close().await;
        self.store.close().await;
    }

    /// The same stage through a single connection. PostgreSQL says no before it lets go of what it locked, and a call
    /// on another connection would pass that over; on the same one it waits.
    pub async fn in_single_file(self) -> Self {
        let options = Options { connections: 1, ..Options::new(&self.url, host_now) };
        let store = Store::open(&options).await.expect("a second store opens");
        self.store.close().await;
        Self { door: Arc::new(store.clone()), store, ..self }
    }

    /// Another store on the same data, with its own connections: another process.
    pub async fn beside(&self) -> Store {
        self.beside_with_clock(host_now).await
    }

    /// The same, on a host with this clock.
    pub async fn beside_with_clock(&self, clock: tidemill_store::Clock) -> Store {
        let pooler = if self.kind == Kind::Pgbouncer { Pooler::Transaction } else { Pooler::Session };
        let options = Options { pooler, ..Options::new(&self.url, clock) };
        Store::open(&options).await.expect("a second store opens")
    }
}

/// A migrated file, made once in a process: to copy it is quicker than the migrations.
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

/// A directory in memory where there is one: the tests do not ask what survives a power cut.
fn directory() -> TempDir {
    let memory = tempfile::Builder::new().prefix("tidemill-test-").tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).expect("a directory is made")
}

/// The one pgbouncer of this process, which serves every database of the server.
fn pgbouncer() -> &'static Pgbouncer {
    static OWN: OnceLock<Pgbouncer> = OnceLock::new();
    OWN.get_or_init(|| {
        let server = server_url().expect("there is a PostgreSQL server");
        Pgbouncer::start(&server).expect("pgbouncer starts")
    })
}

/// The roles of one stage, and a login that is a worker and nothing else. Roles belong to the whole server.
struct Roles {
    login: String,
    password: String,
    all: Vec<String>,
    maintenance_url: String,
}

impl Roles {
    async fn create(server: &str, owner: &Store) -> Self {
        let prefix = format!("tm_{}", Uuid::new_v4().simple());
        let made = owner.create_roles(&prefix).await.expect("the roles are made");
        let (login, password) = (format!("{prefix}_psql"), Uuid::new_v4().to_string());
        let maintenance_url = with_database(server, "postgres").expect("the address is one");
        let roles = Self {
            all: vec![login.clone(), made.owner, made.worker.clone(), made.reader],
            login: login.clone(),
            password: password.clone(),
            maintenance_url,
        };
        let create = format!("CREATE ROLE {login} LOGIN PASSWORD '{password}' IN ROLE {}", made.worker);
        roles.execute(create).expect("the login is made");
        roles
    }

    /// Runs one statement in a thread of its own, so that a drop may wait for it.
    fn execute(&self, statement: String) -> anyhow::Result<()> {
        let options: PgConnectOptions = self.maintenance_url.parse()?;
        let work = thread::spawn(move || -> anyhow::Result<()> {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
                let mut connection = options.connect().await?;
                sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
                Ok(connection.close().await?)
            })
        });
        work.join().map_err(|_| anyhow::anyhow!("the thread that talks to PostgreSQL panicked"))?
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        // The database that they owned things in is gone by now; a throwaway server takes the roles with it.
        let _ = self.execute(format!("DROP ROLE IF EXISTS {}", self.all.join(", ")));
    }
}
