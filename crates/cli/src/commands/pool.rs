//! `tidemill pool`: pools, which limit how many jobs run at once.

use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use clap::Subcommand;
use std::process::ExitCode;
use tidemill_client::Client;

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List pools and their usage
    #[command(after_help = "Example:\n  tidemill pool list")]
    List,
    /// Create a pool, or change its size; running jobs continue
    #[command(after_help = "Example:\n  tidemill pool set database 4")]
    Set {
        /// Name of the pool, as graph files use it
        name: String,
        /// Maximum total weight of the jobs of the pool that run at once
        #[arg(value_parser = clap::value_parser!(i32).range(0..=1_000_000))]
        size: i32,
    },
    /// Remove a pool that no live job uses
    #[command(after_help = "Example:\n  tidemill pool remove database")]
    Remove {
        /// Name of the pool
        name: String,
    },
}

pub(super) async fn command(client: Client, command: PoolCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        PoolCommand::List => {
            let pools = client.pools().await?.items;
            if out.is_json() {
                out.print_json(&pools);
                return Ok(ExitCode::SUCCESS);
            }
            let rows: Vec<Vec<Cell>> = pools
                .iter()
                .map(|pool| {
                    let is_full = pool.used >= i64::from(pool.size);
                    let style = if is_full { Style::Warning } else { Style::Plain };
                    vec![
                        pool.name.as_str().into(),
                        pool.size.to_string().into(),
                        Cell::new(pool.used.to_string(), style),
                    ]
                })
                .collect();
            out.print_table(&["POOL", "SIZE", "USED"], &rows);
        }
        PoolCommand::Set { name, size } => {
            let pool = client.put_pool(&name, size).await?;
            if out.is_json() {
                out.print_json(&pool);
            } else {
                out.print(format!("pool {name} has size {size}, {} used", pool.used));
            }
        }
        PoolCommand::Remove { name } => {
            client.remove_pool(&name).await?;
            if out.is_json() {
                out.print_json(&serde_json::json!({"name": name, "removed": true}));
            } else {
                out.print(format!("pool {name} removed"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
