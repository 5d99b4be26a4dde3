//! json-server: a JSON file behind a REST API.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::http;
use super::install::Installation;
use super::order::Order;
use super::process::{Probe, ServerProcess};

const FILE: &str = "db.json";

/// A json-server process with the resource `orders`.
#[derive(Debug)]
pub(super) struct JsonServer {
    pub(super) process: ServerProcess,
}

impl JsonServer {
    pub(super) async fn start(installation: &Installation, orders: &[Order]) -> Result<Self> {
        let guard = ServerProcess::directory()?;
        let orders: Vec<Value> = orders.iter().map(Order::to_json).collect();
        std::fs::write(guard.directory().join(FILE), json!({ "orders": orders }).to_string())?;
        let probe = Probe { method: "GET", path: "/orders?_limit=1", body: None };
        let process = ServerProcess::start("json-server", guard, &probe, |guard, port| {
            let mut command = guard.command(&installation.node(), None);
            command.arg(installation.script("json-server/lib/cli/bin.js"));
            command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--quiet", FILE]);
            command
        });
        Ok(Self { process: process.await? })
    }

    /// Writes orders through the server's own API.
    pub(super) async fn put(&self, orders: &[Order]) -> Result<()> {
        for order in orders {
            let (port, json) = (self.process.port(), order.to_json());
            let path = format!("/orders/{}", order.id);
            let replaced = http::send(port, "PUT", &path, Some(&json)).await?;
            if replaced.status == 404 {
                let created = http::send(port, "POST", "/orders", Some(&json)).await?;
                ensure!(created.status == 201, "could not create order {}: {created:?}", order.id);
            } else {
                ensure!(replaced.status == 200, "could not replace order {}: {replaced:?}", order.id);
            }
        }
        Ok(())
    }

    pub(super) async fn delete(&self, ids: &[i64]) -> Result<()> {
        for id in ids {
            let answer = http::send(self.process.port(), "DELETE", &format!("/orders/{id}"), None).await?;
            ensure!(answer.status == 200, "could not delete order {id}: {answer:?}");
        }
        Ok(())
    }

    /// Reads the whole database in one piece. The file would lag behind, because it is written after the answer.
    pub(super) async fn orders(&self) -> Result<Vec<Order>> {
        let answer = http::send(self.process.port(), "GET", "/db", None).await?;
        let database: Value = serde_json::from_str(&answer.body).context("the database is not JSON")?;
        database["orders"]
            .as_array()
            .context("the database has no orders")?
            .iter()
            .map(Order::from_json)
            .collect()
    }
}
