//! `tidemill migrate`: creates or updates the tables and SQL functions.

use crate::config::Config;
use crate::failure::Failure;
use crate::out::{Cell, Out};
use clap::Args;
use std::process::ExitCode;
use tidemill_store::{MigrationPlan, MigrationReport, Store};

/// Options of a migration
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidemill migrate --database postgres://localhost/shop\n  tidemill migrate --plan"
)]
pub(crate) struct MigrateArgs {
    /// Print the changes and the table locks that they take, and change nothing
    #[arg(long)]
    plan: bool,
}

pub(super) async fn command(config: &Config, args: &MigrateArgs, out: Out) -> Result<ExitCode, Failure> {
    if !args.plan {
        return migrate(config, out).await;
    }
    let store = Store::open(&super::options(config)).await?;
    let plan = store.plan_migration().await?;
    if out.is_json() {
        out.print_json(&plan);
    } else {
        print_plan(&store, &plan, out);
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn migrate(config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let store = Store::open(&super::options(config)).await?;
    let progress = || format!("migration of {} in progress", store.location());
    let migrated = out.wait_with_progress(progress, store.migrate(None)).await?;
    // Feeds and graphs use this project unless they name another one.
    store.create_project("default", vec!["default".to_owned()], None).await?;
    if out.is_json() {
        out.print_json(&migrated);
    } else {
        print_report(&store, &migrated, out);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_report(store: &Store, migrated: &MigrationReport, out: Out) {
    let place = store.location();
    if let Some(version) = &migrated.newer_code {
        out.print(format!("{place} is in use by Tidemill {version}, which is newer; its functions stay"));
    } else if migrated.applied.is_empty() && !migrated.code_replaced {
        out.print(format!("{place} is up to date"));
    } else if migrated.applied.is_empty() {
        out.print(format!("{place} is ready (functions updated)"));
    } else {
        out.print(format!("{place} is ready ({})", migrated.applied.join(", ")));
    }
}

fn print_plan(store: &Store, plan: &MigrationPlan, out: Out) {
    let place = store.location();
    let MigrationPlan { installed, newest, .. } = plan;
    if *installed == 0 {
        out.print(format!(
            "{place} has no Tidemill tables; migrate creates them and locks no existing table"
        ));
        return;
    }
    out.print(format!("{place} is at migration {installed}; this binary has migrations up to {newest}"));
    if let Some(version) = &plan.newer_code {
        out.print(format!(
            "the functions are those of Tidemill {version}, which is newer; migrate keeps them"
        ));
    }
    if plan.is_empty() {
        out.print("migrate changes nothing");
        return;
    }
    for migration in &plan.migrations {
        out.print(format!("migrate applies {migration}"));
    }
    if plan.replaces_code {
        out.print("migrate replaces the functions and triggers");
    }
    for statement in &plan.unknown {
        out.print(format!("the locks of this statement are unknown: {statement}"));
    }
    if !store.is_postgres() {
        out.print("it locks the file for writers until it ends; readers do not wait");
    } else if plan.locks.is_empty() {
        out.print("it locks no existing table");
    } else {
        out.print("it holds these locks until it ends:");
        let cell = |text: &str| Cell::from(text);
        let rows: Vec<Vec<Cell>> = plan
            .locks
            .iter()
            .map(|lock| vec![Cell::id(lock.table.as_str()), cell(lock.mode.name()), cell(lock.mode.blocks())])
            .collect();
        out.print_table(&["TABLE", "LOCK", "EFFECT"], &rows);
    }
}
