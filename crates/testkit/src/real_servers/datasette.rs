//! Datasette: a SQLite file behind a JSON API.

use anyhow::Result;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};

use super::install::Installation;
use super::order::{Order, parse_time};
use super::process::{Probe, ServerProcess};

const FILE: &str = "shop.db";
const TABLE: &str = "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, city TEXT NOT NULL, \
                     amount_cents INTEGER NOT NULL, note TEXT, revision INTEGER NOT NULL, updated_at TEXT NOT NULL); \
                     CREATE INDEX orders_updated_at ON orders (updated_at)";
const PUT: &str = "INSERT INTO orders (id, customer, city, amount_cents, note, revision, updated_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO UPDATE SET customer = excluded.customer, \
                   city = excluded.city, amount_cents = excluded.amount_cents, note = excluded.note, \
                   revision = excluded.revision, updated_at = excluded.updated_at";
type OrderRow = (i64, String, String, i64, Option<String>, i64, String);

/// A Datasette process with the table `orders`.
#[derive(Debug)]
pub(super) struct Datasette {
    pub(super) process: ServerProcess,
}

impl Datasette {
    pub(super) async fn start(installation: &Installation, orders: &[Order]) -> Result<Self> {
        let guard = ServerProcess::directory()?;
        let options = SqliteConnectOptions::new().filename(guard.directory().join(FILE));
        let mut connection = options.create_if_missing(true).connect().await?;
        connection.execute(TABLE).await?;
        put(&mut connection, orders).await?;
        connection.close().await?;
        let probe = Probe { method: "GET", path: "/shop/orders.json?_size=1", body: None };
        let process = ServerProcess::start("Datasette", guard, &probe, |guard, port| {
            let mut command = guard.command(&installation.python(), None);
            command.args(["-m", "datasette", "serve", FILE, "--host", "127.0.0.1"]);
            command.args(["--port", &port.to_string()]);
            // A busy machine may need more than the second that a query has by default.
            command.args(["--setting", "sql_time_limit_ms", "60000", "--setting", "suggest_facets", "off"]);
            command
        });
        Ok(Self { process: process.await? })
    }

    /// Writes orders to the file.
    pub(super) async fn put(&self, orders: &[Order]) -> Result<()> {
        let mut connection = self.connect().await?;
        put(&mut connection, orders).await?;
        Ok(connection.close().await?)
    }

    pub(super) async fn delete(&self, ids: &[i64]) -> Result<()> {
        let mut connection = self.connect().await?;
        for id in ids {
            sqlx::query("DELETE FROM orders WHERE id = $1").bind(id).execute(&mut connection).await?;
        }
        Ok(connection.close().await?)
    }

    pub(super) async fn orders(&self) -> Result<Vec<Order>> {
        let mut connection = self.connect().await?;
        let text = "SELECT id, customer, city, amount_cents, note, revision, updated_at FROM orders";
        let rows: Vec<OrderRow> = sqlx::query_as(text).fetch_all(&mut connection).await?;
        connection.close().await?;
        let order = |row: OrderRow| {
            let (id, customer, city, amount_cents, note, revision, updated_at) = row;
            let updated_at = parse_time(&updated_at)?;
            Ok(Order { id, customer, city, amount_cents, note, revision, updated_at })
        };
        rows.into_iter().map(order).collect()
    }

    async fn connect(&self) -> Result<SqliteConnection> {
        Ok(SqliteConnectOptions::new().filename(self.process.path(FILE)).connect().await?)
    }
}

async fn put(connection: &mut SqliteConnection, orders: &[Order]) -> Result<()> {
    let mut transaction = connection.begin().await?;
    for order in orders {
        let put = sqlx::query(PUT).bind(order.id).bind(&order.customer).bind(&order.city);
        let put = put.bind(order.amount_cents).bind(&order.note).bind(order.revision);
        put.bind(order.updated_at_text()).execute(&mut *transaction).await?;
    }
    Ok(transaction.commit().await?)
}
