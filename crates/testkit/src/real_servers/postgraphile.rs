//! PostGraphile: a PostgreSQL database behind a GraphQL API.

use anyhow::Result;
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tidemill_core::Timestamp;

use super::install::Installation;
use super::order::Order;
use super::process::{Probe, ServerProcess};
use crate::cluster::{Database, server_url};

/// PostGraphile offers filters for indexed columns only.
const TABLE: &str = "CREATE SCHEMA shop; CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer text NOT NULL, \
                     shipping jsonb NOT NULL, amount_cents bigint NOT NULL, note text, revision bigint NOT NULL, \
                     updated_at timestamptz NOT NULL); CREATE INDEX ON shop.orders (amount_cents); \
                     CREATE INDEX ON shop.orders (revision); CREATE INDEX ON shop.orders (updated_at)";
const PUT: &str = "INSERT INTO shop.orders (id, customer, shipping, amount_cents, note, revision, updated_at) \
                   SELECT id, customer, jsonb_build_object('city', city), amount_cents, note, revision, updated_at \
                   FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], \
                   $7::timestamptz[]) AS new (id, customer, city, amount_cents, note, revision, updated_at) \
                   ON CONFLICT (id) DO UPDATE SET customer = excluded.customer, shipping = excluded.shipping, \
                   amount_cents = excluded.amount_cents, note = excluded.note, revision = excluded.revision, \
                   updated_at = excluded.updated_at";
type OrderRow = (i64, String, String, i64, Option<String>, i64, Timestamp);

/// A PostGraphile process with the connection `allOrders`.
#[derive(Debug)]
pub(super) struct PostGraphile {
    pub(super) process: ServerProcess,
    /// Dropped after the process, which has sessions.
    database: Database,
}

impl PostGraphile {
    pub(super) async fn start(installation: &Installation, orders: &[Order]) -> Result<Self> {
        let database = Database::create(&server_url()?)?;
        let mut connection = PgConnection::connect(&database.url).await?;
        connection.execute(TABLE).await?;
        put(&mut connection, orders).await?;
        connection.close().await?;
        let body = Some(json!({ "query": "{ __typename }" }));
        let probe = Probe { method: "POST", path: "/graphql", body };
        let process =
            ServerProcess::start("PostGraphile", ServerProcess::directory()?, &probe, |guard, port| {
                let mut command = guard.command(&installation.node(), None);
                command.arg(installation.script("postgraphile/dist/cli-run.js"));
                command.arg("--config").arg(installation.graphile_config());
                command.env("GRAPHILE_ENV", "production").env("SHOP_PORT", port.to_string());
                command.env("SHOP_DATABASE", &database.url);
                command
            });
        Ok(Self { process: process.await?, database })
    }

    /// Writes orders to the database.
    pub(super) async fn put(&self, orders: &[Order]) -> Result<()> {
        let mut connection = PgConnection::connect(&self.database.url).await?;
        put(&mut connection, orders).await?;
        Ok(connection.close().await?)
    }

    pub(super) async fn delete(&self, ids: &[i64]) -> Result<()> {
        let mut connection = PgConnection::connect(&self.database.url).await?;
        let delete = sqlx::query("DELETE FROM shop.orders WHERE id = ANY ($1)");
        delete.bind(ids).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }

    pub(super) async fn orders(&self) -> Result<Vec<Order>> {
        let mut connection = PgConnection::connect(&self.database.url).await?;
        let text = "SELECT id, customer, shipping ->> 'city', amount_cents, note, revision, updated_at \
                    FROM shop.orders";
        let rows: Vec<OrderRow> = sqlx::query_as(text).fetch_all(&mut connection).await?;
        connection.close().await?;
        let order = |row: OrderRow| {
            let (id, customer, city, amount_cents, note, revision, updated_at) = row;
            Order { id, customer, city, amount_cents, note, revision, updated_at }
        };
        Ok(rows.into_iter().map(order).collect())
    }
}

async fn put(connection: &mut PgConnection, orders: &[Order]) -> Result<()> {
    fn column<T>(orders: &[Order], value: impl Fn(&Order) -> T) -> Vec<T> {
        orders.iter().map(value).collect()
    }
    sqlx::query(PUT)
        .bind(column(orders, |order| order.id))
        .bind(column(orders, |order| order.customer.clone()))
        .bind(column(orders, |order| order.city.clone()))
        .bind(column(orders, |order| order.amount_cents))
        .bind(column(orders, |order| order.note.clone()))
        .bind(column(orders, |order| order.revision))
        .bind(column(orders, |order| order.updated_at))
        .execute(connection)
        .await?;
    Ok(())
}
