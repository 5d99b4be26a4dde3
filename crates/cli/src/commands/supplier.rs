//! `tidemill supplier`: a simulated supplier for tests and demonstrations.

use crate::failure::Failure;
use crate::out::Out;
use crate::values::parse_json_object;
use clap::Args;
use std::net::SocketAddr;
use std::process::ExitCode;
use tidemill_supplier::{Account, Behaviour, Config};

/// The simulated supplier
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tidemill supplier --stones 10000 --seed 7")]
pub(crate) struct SupplierArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:8700", value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// Number of stones
    #[arg(long, default_value_t = 50_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=2_000_000))]
    pub(crate) stones: u32,
    /// Seed of the generated stones
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    pub(crate) seed: u64,
    /// User name of the only accepted account; the default is to accept every account
    #[arg(long, requires = "password_env", value_name = "NAME")]
    pub(crate) username: Option<String>,
    /// Environment variable with the password of the account
    #[arg(long, requires = "username", value_name = "VAR")]
    pub(crate) password_env: Option<String>,
    /// Simulated faults, as a JSON object: see /admin/behaviour
    #[arg(long, value_parser = parse_json_object, value_name = "JSON")]
    pub(crate) behaviour: Option<tidemill_core::Json>,
    /// Simulated changes of stones, as a JSON object: see /admin/churn
    #[arg(long, value_parser = parse_json_object, value_name = "JSON")]
    pub(crate) churn: Option<tidemill_core::Json>,
}

pub(super) async fn supplier(args: SupplierArgs, out: Out) -> Result<ExitCode, Failure> {
    let mut config =
        Config { listen: args.listen, stones: args.stones, seed: args.seed, ..Config::default() };
    if let (Some(username), Some(variable)) = (args.username, args.password_env) {
        let password = std::env::var(&variable)
            .map_err(|_| Failure::usage(format!("environment variable {variable} is not set")))?;
        config.account = Some(Account { username, password });
    }
    if let Some(patch) = args.behaviour {
        config.behaviour = Behaviour::default()
            .merged(&patch)
            .map_err(|problem| Failure::usage(format!("invalid --behaviour: {problem}")))?;
    }
    if let Some(churn) = args.churn {
        config.churn = serde_json::from_value(churn)
            .map_err(|problem| Failure::usage(format!("invalid --churn: {problem}")))?;
    }
    let stones = config.stones;
    let supplier = tidemill_supplier::Supplier::bind(config)
        .await
        .map_err(|error| Failure::outage(error.to_string()))?;
    if out.is_json() {
        out.print_json(&serde_json::json!({"endpoint": supplier.endpoint(), "stones": stones}));
    } else {
        out.print(format!("{} serves {stones} stones", supplier.endpoint()));
    }
    let stop = super::work::stop_signal();
    supplier.serve(super::work::stopped(stop)).await;
    Ok(ExitCode::SUCCESS)
}
