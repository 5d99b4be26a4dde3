//! `tidemill roles`: database roles on PostgreSQL.

use crate::config::Config;
use crate::environment;
use crate::failure::Failure;
use crate::out::Out;
use clap::Subcommand;
use std::process::ExitCode;
use tidemill_core::access::NewAuditRecord;
use tidemill_core::audit::ActorRole;
use tidemill_store::AuditEntry;
use uuid::Uuid;

#[derive(Debug, Subcommand)]
pub(crate) enum RolesCommand {
    /// Create owner, worker, reader and clock roles, and grant each its privileges
    #[command(after_help = "Example:\n  tidemill roles create --prefix tidemill")]
    Create {
        /// Prefix of the role names
        #[arg(long, default_value = "tidemill")]
        prefix: String,
    },
}

pub(super) async fn command(config: &Config, command: RolesCommand, out: Out) -> Result<ExitCode, Failure> {
    let RolesCommand::Create { prefix } = command;
    let engine = super::open(config).await?;
    let call = Uuid::new_v4();
    let entry = NewAuditRecord::of(call, &environment::user(), ActorRole::Admin, "roles.create");
    let engine = engine.for_call(AuditEntry::new(entry, None));
    let roles = engine.store().create_roles(&prefix).await?;
    if out.is_json() {
        out.print_json(&roles);
    } else {
        out.print(format!("{} owns the tables", roles.owner));
        out.print(format!("{} may call the functions", roles.worker));
        out.print(format!("{} may read the tables", roles.reader));
        out.print(format!("{} may choose the time of a call; only tests have members of it", roles.clock));
        out.inform(format!("hint: GRANT {} TO your_login;", roles.worker));
    }
    Ok(ExitCode::SUCCESS)
}
