//! A stand-in supplier on this machine.

use crate::args_sync::Supplier;
use crate::fail::Failure;
use crate::out::Out;
use std::process::ExitCode;
use tidemill_supplier::{Account, Behaviour, Config};

pub(super) async fn supplier(order: Supplier, out: Out) -> Result<ExitCode, Failure> {
    let mut config =
        Config { listen: order.listen, stones: order.stones, seed: order.seed, ..Config::default() };
    if let (Some(username), Some(variable)) = (order.username, order.password_env) {
        let password = std::env::var(&variable)
            .map_err(|_| Failure::usage(format!("the environment variable {variable} is not set")))?;
        config.account = Some(Account { username, password });
    }
    if let Some(patch) = order.behaviour {
        config.behaviour = Behaviour::default()
            .merged(&patch)
            .map_err(|problem| Failure::usage(format!("--behaviour cannot be used: {problem}")))?;
    }
    if let Some(churn) = order.churn {
        config.churn = serde_json::from_value(churn)
            .map_err(|problem| Failure::usage(format!("--churn cannot be used: {problem}")))?;
    }
    let stones = config.stones;
    let supplier = tidemill_supplier::Supplier::bind(config)
        .await
        .map_err(|error| Failure::outage(error.to_string()))?;
    if out.is_json() {
        out.json(&serde_json::json!({"endpoint": supplier.endpoint(), "stones": stones}));
    } else {
        out.line(format!("{} offers {stones} stones", supplier.endpoint()));
    }
    let stop = super::work::stop_signal();
    supplier.serve(super::work::stopped(stop)).await;
    Ok(ExitCode::SUCCESS)
}
