//! `tidemill migrate`: creates or updates the tables and SQL functions.

use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use std::process::ExitCode;
use tidemill_store::Store;

pub(super) async fn migrate(config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let store = Store::open(&super::options(config)).await?;
    let progress = || format!("migration of {} in progress", store.location());
    let migrated = out.wait_with_progress(progress, store.migrate(None)).await?;
    // Feeds and graphs use this project unless they name another one.
    store.create_project("default", vec!["default".to_owned()], None).await?;
    if out.is_json() {
        out.print_json(&migrated);
    } else if migrated.applied.is_empty() && !migrated.code_replaced {
        out.print(format!("{} is up to date", store.location()));
    } else {
        let applied = if migrated.applied.is_empty() {
            "functions updated".to_owned()
        } else {
            migrated.applied.join(", ")
        };
        out.print(format!("{} is ready ({applied})", store.location()));
    }
    Ok(ExitCode::SUCCESS)
}
