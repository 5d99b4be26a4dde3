//! Real HTTP servers from the package registries: json-server, Datasette, and PostGraphile.
//!
//! Each serves the same orders from its own storage. Tests change the orders behind the server, and read the storage to
//! find out what a table must contain. A server listens on 127.0.0.1 only and ends with its owner.

mod datasette;
mod definition;
mod http;
mod install;
mod json_server;
mod order;
mod postgraphile;
mod process;

pub use definition::{DEFINITIONS, ServerDefinition};
pub use install::Installation;
pub use order::{Order, sample_orders};

use anyhow::Result;
use datasette::Datasette;
use json_server::JsonServer;
use postgraphile::PostGraphile;

/// The program of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// A JSON file behind a REST API, from npm.
    JsonServer,
    /// A SQLite file behind a JSON API, from PyPI.
    Datasette,
    /// A PostgreSQL database behind a GraphQL API, from npm.
    PostGraphile,
}

/// A running server with a list of orders. Dropping it stops the process and removes its data.
#[derive(Debug)]
pub struct RealServer {
    server: Server,
}

#[derive(Debug)]
enum Server {
    JsonServer(JsonServer),
    Datasette(Datasette),
    PostGraphile(PostGraphile),
}

impl RealServer {
    /// Starts a server with these orders, and returns when it answers requests.
    pub async fn start(installation: &Installation, kind: ServerKind, orders: &[Order]) -> Result<Self> {
        let server = match kind {
            ServerKind::JsonServer => Server::JsonServer(JsonServer::start(installation, orders).await?),
            ServerKind::Datasette => Server::Datasette(Datasette::start(installation, orders).await?),
            ServerKind::PostGraphile => {
                Server::PostGraphile(PostGraphile::start(installation, orders).await?)
            }
        };
        Ok(Self { server })
    }

    /// Returns the URL of the server, without a path.
    pub fn url(&self) -> String {
        let process = match &self.server {
            Server::JsonServer(server) => &server.process,
            Server::Datasette(server) => &server.process,
            Server::PostGraphile(server) => &server.process,
        };
        format!("http://127.0.0.1:{}", process.port())
    }

    /// Inserts or replaces orders by id.
    pub async fn put(&self, orders: &[Order]) -> Result<()> {
        match &self.server {
            Server::JsonServer(server) => server.put(orders).await,
            Server::Datasette(server) => server.put(orders).await,
            Server::PostGraphile(server) => server.put(orders).await,
        }
    }

    /// Deletes orders by id.
    pub async fn delete(&self, ids: &[i64]) -> Result<()> {
        match &self.server {
            Server::JsonServer(server) => server.delete(ids).await,
            Server::Datasette(server) => server.delete(ids).await,
            Server::PostGraphile(server) => server.delete(ids).await,
        }
    }

    /// Returns all orders of the server's storage, sorted by id.
    pub async fn orders(&self) -> Result<Vec<Order>> {
        let mut orders = match &self.server {
            Server::JsonServer(server) => server.orders().await?,
            Server::Datasette(server) => server.orders().await?,
            Server::PostGraphile(server) => server.orders().await?,
        };
        orders.sort_by_key(|order| order.id);
        Ok(orders)
    }
}
